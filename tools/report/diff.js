/* What differs between two records: a flame graph of what grew, or shrank, and a table by stack. */

const p = JSON.parse(byId('data').textContent);
const WEIGHTS = [
  ['peak', 'peak', 'live at the peak', bytes],
  ['left', 'never freed', 'never freed', bytes],
  ['allocations', 'allocations', 'allocated', count],
  ['bytes', 'bytes', 'requested in all', bytes],
  ['failures', 'failures', 'refused', count],
];

/* Every stack comes with frames of its own: those of the same function and file become one, whatever their line. */
function mergeFrames() {
  const first = new Map();
  p.stacks = p.stacks.map((frames) => frames.map((i) => {
    const key = `${p.frames[i][0]}\n${baseName(p.frames[i][1])}`;
    if (!first.has(key)) first.set(key, i);
    return first.get(key);
  }));
}

let weight = 'peak';
let way = 'grew';
let shownAs = 'flame';

const signed = (n, format) => (n === 0 ? 'unchanged' : `${n > 0 ? '+' : '-'}${format(Math.abs(n))}`);
/* The last value is that of the stacks that the page does not hold. */
const changes = () => p.is[weight].map((v, i) => v - p.was[weight][i]);
const wanted = (change) => Math.max(0, way === 'grew' ? change : -change);

function figure(name, was, is, format, id) {
  return el('div', {class: 'card', 'data-figure': id, 'data-old': was, 'data-new': is},
    el('span', null, name), el('b', null, signed(is - was, format)), el('small', null, `${format(was)} → ${format(is)}`));
}

function side(name) {
  const s = p[name];
  byId(name).textContent = [s.command || s.file, s.file, s.name, `ran for ${time(s.duration)}`].join(' · ');
}

function draw() {
  const [, , what, format] = WEIGHTS.find(([id]) => id === weight);
  const weights = changes().map(wanted);
  const root = tree(p, weights, !byId('runtime').checked);
  byId('title').textContent = `What ${way}`;
  byId('flame').dataset.total = root.value;
  byId('flame').hidden = shownAs === 'tree' && root.value > 0;
  byId('flame-tree').hidden = !(shownAs === 'tree' && root.value > 0);
  if (!root.value) put(byId('flame'), el('p', {class: 'empty'}, `Nothing ${way}.`));
  else if (shownAs === 'tree') treeView(byId('flame-tree'), root, format);
  else flame(byId('flame'), root, format, () => byId('flame-find').value.trim()).draw();
  byId('flame-about').textContent = root.value
    ? `Stacks that ${way}: ${format(root.value)} together, ${what}. ` +
      'Two stacks are the same if their functions are, whatever the lines.' : '';
  drawTable(format);
}

function drawTable(format) {
  const rows = changes().map((change, stack) => ({stack: stack < p.stacks.length ? stack : -1, change,
    was: p.was[weight][stack], is: p.is[weight][stack]})).filter((x) => x.change)
    .sort((a, b) => (a.stack < 0) - (b.stack < 0) || (b.change > 0) - (a.change > 0) || Math.abs(b.change) - Math.abs(a.change));
  const most = Math.max(...rows.map((x) => Math.abs(x.change)));
  put(byId('stacks'), rows.length ? table([
    ['change', (x) => signed(x.change, format), {n: true, sort: (x) => x.change}],
    ['', (x) => bar(Math.abs(x.change), most, x.change < 0), {class: 'bars'}],
    ['old', (x) => format(x.was), {n: true, sort: (x) => x.was}],
    ['new', (x) => format(x.is), {n: true, sort: (x) => x.is}],
    ['stack', (x) => (x.stack < 0 ? el('span', {class: 'soft'}, 'all other stacks') : stackOf(p, x.stack)), {class: 'where'}],
  ], rows, 20, (x) => ({'data-change': x.change})) : el('p', {class: 'empty'}, 'No stack differs.'));
}

mergeFrames();
/* Open at the first that differs. */
weight = (WEIGHTS.find(([id]) => p.is[id].some((v, i) => v !== p.was[id][i])) || WEIGHTS[0])[0];
if (!changes().some((c) => c > 0) && changes().some((c) => c < 0)) way = 'shrank';
document.body.append(tip);
side('old');
side('new');
put(byId('notes'), [...p.old.notes.map((t) => `old: ${t}`), ...p.new.notes.map((t) => `new: ${t}`)]
  .map((text) => el('p', {class: 'note'}, text)));
put(byId('summary'),
  figure('Peak', p.old.peak, p.new.peak, bytes, 'peak'),
  figure('Never freed', p.old.left, p.new.left, bytes, 'left'),
  figure('Allocations', p.old.allocations, p.new.allocations, count, 'allocations'),
  figure('Failures', p.old.failures, p.new.failures, count, 'failures'));
const some = WEIGHTS.filter(([id]) => p.was[id].some((v) => v) || p.is[id].some((v) => v));
choice(byId('weight'), some, weight, (id) => {
  weight = id;
  draw();
});
choice(byId('way'), [['grew', 'grew'], ['shrank', 'shrank']], way, (id) => {
  way = id;
  draw();
});
choice(byId('flame-as'), [['flame', 'flame graph'], ['tree', 'tree']], shownAs, (id) => {
  shownAs = id;
  draw();
});
byId('flame-find').oninput = draw;
byId('runtime').onchange = draw;
addEventListener('resize', draw);
byId('foot').textContent = `Made by zeroute ${p.tool}.`;
document.title = `zeroute report --diff: ${p.new.command || p.new.file}`;
draw();
document.body.dataset.ready = 'yes';
