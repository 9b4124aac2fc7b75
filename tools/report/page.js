/* The page itself: one process at a time, and all of them side by side where there are several. */

const data = JSON.parse(byId('data').textContent);
let p; /* the process that is shown */
let state;
let chart;
let flameOf = 'peak';
let flameAs = 'flame';
let flameShown;

const KINDS = ['device', 'shared', 'physical', 'host', 'virtual', 'mapped', 'imported'];
const PHYSICAL = 2; /* up to here memory is counted as device memory: page.html says so at its end */
const cardName = (card) => (card === 255 ? '' : `card ${card}`);

/* Series become arrays, once. */
function prepare(process) {
  if (process.ready) return;
  const n = process.times.length;
  let t = 0;
  process.times = process.times.map((step) => (t += step));
  for (const name of ['total', 'blocks', 'reserved']) process[name] = expand(process[name], n);
  for (const group of Object.values(process.by)) group.series = group.series.map((s) => expand(s, n));
  process.live = process.live.map(([stack, s]) => [stack, expand(s, n)]);
  process.by.stack = byStack(process, n);
  process.ready = true;
}

/* The stacks that held most; what belongs to no stack of the page is in the last row. */
function byStack(process, n) {
  const first = process.live.slice(0, COLOURS - 1);
  const rest = Float64Array.from(process.total);
  for (const [, values] of first) for (let i = 0; i < n; i++) rest[i] -= values[i];
  return {names: [...first.map(([stack]) => process.names[stack]), 'other stacks'], series: [...first.map(([, values]) => values), rest]};
}

/* --- the head --------------------------------------------------------------------------------------------------- */

function card(label, value, small, figure, number, bad) {
  return el('div', {class: bad ? 'card bad' : 'card', 'data-figure': figure, 'data-value': number},
    el('span', null, label), el('b', null, value), small ? el('small', null, small) : null);
}

/* "28 blocks of device memory, 1 of host memory"; one kind needs no name. */
function byKind(kinds, at, one) {
  const some = kinds.filter((k) => k[at]);
  if (some.length === 1) return plural(some[0][at], one);
  return some.map((k, i) => `${i ? count(k[at]) : plural(k[at], one)} of ${KINDS[k[0]]} memory`).join(', ');
}

/* The size of the cards that were used, and their name. */
function cardSize() {
  const cards = new Map(p.peaks.filter(([c, , , , memory]) => c !== 255 && memory).map(([c, , , , memory]) => [c, memory]));
  const size = [...cards.values()].reduce((a, b) => a + b, 0);
  return {size, name: cards.size === 1 ? cardName([...cards.keys()][0]) : plural(cards.size, 'card')};
}

function drawHead() {
  byId('command').textContent = p.command || p.file;
  const parts = [p.name, new Date(p.begin).toLocaleString(), `ran for ${time(p.duration)}`,
    plural(p.events, 'event')];
  byId('about').textContent = parts.filter(Boolean).join(' · ');
  put(byId('settings'), p.settings ? el('details', null, el('summary', {class: 'soft'}, 'settings'),
    el('code', null, p.settings.replaceAll(',', ', '))) : null);
  const r = p.refusal;
  put(byId('notes'), r ? el('p', {class: 'note bad', id: 'refusal', 'data-value': r.bytes},
    `${bytes(r.size)}${cardName(r.card) ? ` on ${cardName(r.card)}` : ''} was refused by ${r.by} at ${time(r.time)} (${r.code}): ` +
    `${bytes(r.bytes)} in ${plural(r.blocks, 'block')} were allocated then. The page opens at that moment.`) : null,
  p.notes.map((text) => el('p', {class: 'note'}, text)));
  byId('remarks-part').hidden = !p.remarks.length;
  put(byId('remarks'), p.remarks.map((text) => el('p', {class: 'note'}, text)));
  document.title = `zeroute report: ${p.command || p.file}`;
  const full = p.peaks.filter(([c, k, , , memory]) => c !== 255 && k === 0 && memory).map(([c, , most, , memory]) =>
    `${share(most, memory)} of card ${c}'s ${bytes(memory)}`);
  const c = p.counts;
  put(byId('summary'),
    card('Peak', bytes(p.peak.bytes), `${plural(p.peak.blocks, 'block')}, at ${time(p.peak.at)}${full.length ? `; ${full.join(', ')}` : ''}`, 'peak', p.peak.bytes),
    card(p.ended ? 'Never freed' : 'Still held', bytes(p.end.bytes), p.end.blocks ? `${byKind(p.kinds, 3, 'block')}, live ${p.ended ? 'at the end' : 'when the record ends'}` : 'everything was freed', 'left', p.end.bytes),
    card('Allocations', count(c.allocations), `${byKind(p.kinds, 1, 'call')}; ${plural(c.frees, 'free')}`, 'allocations', c.allocations),
    card('Failures', count(c.failures), c.failures ? 'calls that were refused' : 'no call was refused', 'failures', c.failures, c.failures > 0),
    p.host ? card('Host RAM', bytes(p.host.lost_most), `less available at most, on the whole machine${p.host.mirror.length ? `; mirror ${bytes(p.host.mirror_most)}` : ''}`, 'host', p.host.lost_most) : null,
    p.apart ? card('Reserved', bytes(p.reserved_peak), 'held from the driver, at most', 'reserved', p.reserved_peak) : null,
    c.trims ? card('Given back', bytes(c.trimmed), `cached memory, ${plural(c.trims, 'time')}`, 'trimmed', c.trimmed) : null,
    p.lost ? card('Lost', count(p.lost), 'events that could not be stored', 'lost', p.lost, true) : null);
}

/* --- processes side by side -------------------------------------------------------------------------------------- */

function drawRanks() {
  const all = data.processes;
  byId('ranks').hidden = all.length < 2;
  if (all.length < 2) return;
  all.forEach(prepare);
  const longest = Math.max(1, ...all.map((x) => x.duration));
  const end = Math.max(1, ...all.map((x) => x.offset + x.duration));
  const together = end < 3 * longest; /* else of different times: each from its own start */
  const to = together ? end : longest;
  const j = data.joint;
  put(byId('joint'),
    card('Joint peak', bytes(j.bytes), `${plural(j.blocks, 'block')}, ${time(j.at)} after the first began`, 'joint', j.bytes),
    card('Sum of the peaks', bytes(j.peaks), 'each process at its own time', 'peaks', j.peaks),
    card('Never freed', bytes(j.left), 'by all processes', 'joint-left', j.left));
  byId('rank-about').textContent = `One scale for all, in ${together ? 'time' : 'time from the start of each'} and in bytes. ` +
    'Select a process to see it below.';
  const most = Math.max(1, ...all.map((x) => x.peak.bytes));
  put(byId('rank-list'), all.map((x, i) => el('button', {class: 'rank', 'data-rank': i, 'aria-pressed': String(x === p), onclick: () => show(i)},
    el('b', null, x.name), el('div', {class: 'soft'}, `peak ${bytes(x.peak.bytes)}, at the joint peak ${bytes(j.then[i])}, never freed ${bytes(x.end.bytes)}${x.counts.failures ? `, ${plural(x.counts.failures, 'failure')}` : ''}`),
    spark(x, together ? x.offset : 0, to, most))));
}

/* --- a moment ------------------------------------------------------------------------------------------------------ */

/* Live bytes by stack at a sample; what belongs to other stacks is the last. */
function liveAt(sample) {
  const weights = new Array(p.stacks.length + 1).fill(0);
  let rest = p.total[sample];
  for (const [stack, values] of p.live) {
    weights[stack] += values[sample];
    rest -= values[sample];
  }
  weights[p.stacks.length] = Math.max(0, rest);
  return weights;
}

/* What belongs to no stack of the page comes last. */
const heaviestFirst = (a, b) => (a.stack < 0) - (b.stack < 0) || b.value - a.value;
const whose = (stack) => (stack < 0 ? el('span', {class: 'soft'}, 'all other stacks') : stackOf(p, stack));

function drawMoment(sample) {
  const t = p.times[sample];
  const total = p.total[sample];
  const live = liveAt(sample).map((value, stack) => ({stack: stack < p.stacks.length ? stack : -1, value}))
    .filter((x) => x.value > 0).sort(heaviestFirst);
  const large = p.largest.filter(([, begin, end, , kind]) => kind <= PHYSICAL && begin <= t && (end === null || end > t));
  const box = byId('moment');
  box.dataset.total = total;
  box.dataset.time = t;
  put(box,
    el('div', {class: 'head'}, el('h2', null, `Live at ${time(t)}: ${bytes(total)} in ${plural(p.blocks[sample], 'block')}`),
      el('div', {class: 'tools'}, el('button', {id: 'to-peak', onclick: () => chart.choose(peakSample())}, 'go to the peak'),
        el('button', {id: 'moment-flame', onclick: () => {
          setFlame('moment');
          byId('flame-of').scrollIntoView({block: 'center'});
        }}, 'as a flame graph'))),
    p.apart ? el('p', {class: 'soft'}, `Reserved: ${bytes(p.reserved[sample])}`) : null,
    live.length ? table([
      ['bytes', (x) => bytes(x.value), {n: true, sort: (x) => x.value}],
      ['', (x) => bar(x.value, live[0].value), {class: 'bars'}],
      ['share', (x) => share(x.value, total), {n: true}],
      ['allocated by', (x) => whose(x.stack), {class: 'where'}],
    ], live, 8, (x) => ({'data-value': x.value, 'data-stack-row': x.stack})) : el('p', {class: 'empty'}, 'Nothing was live at this moment.'),
    large.length ? [el('h3', null, 'Largest blocks live then'), blockTable(large, 5)] : null);
  if (flameOf === 'moment') drawFlame();
}

/* The sample with the peak; it is always one. */
function peakSample() {
  let best = 0;
  for (let i = 0; i < p.total.length; i++) if (p.total[i] > p.total[best]) best = i;
  return best;
}

/* --- stacks ----------------------------------------------------------------------------------------------------------- */

const WEIGHTS = [
  ['peak', 'peak', 'What was live at the peak, by who allocated it.', bytes],
  ['refused', 'refusal', 'What was live when the last allocation was refused.', bytes],
  ['moment', 'moment', 'What was live at the moment chosen above.', bytes],
  ['left', 'never freed', 'What was still live at the end: leaks, and what the program keeps.', bytes],
  ['allocations', 'allocations', 'How often memory was allocated.', (n) => plural(n, 'allocation')],
  ['bytes', 'bytes', 'All bytes that were ever requested, freed or not.', bytes],
  ['failures', 'failures', 'Calls that were refused.', (n) => plural(n, 'failure')],
];

const weightsOf = (name) => (name === 'moment' ? liveAt(state.chosen) : p.weights[name]);

function setFlame(name) {
  flameOf = name;
  choice(byId('flame-of'), WEIGHTS.filter(([id]) => weightsOf(id).some((v) => v > 0)), flameOf, (id) => {
    flameOf = id;
    drawFlame();
  });
  drawFlame();
}

function drawFlame() {
  const [, , about, format] = WEIGHTS.find(([id]) => id === flameOf);
  const weights = weightsOf(flameOf);
  const root = tree(p, weights, !byId('runtime').checked);
  byId('flame').dataset.total = root.value;
  if (!root.value) {
    put(byId('flame'), el('p', {class: 'empty'}, 'Nothing here.'));
    put(byId('flame-table'));
    byId('flame-about').textContent = about;
    return;
  }
  const asTree = flameAs === 'tree';
  flameShown = flame(byId('flame'), root, format, () => byId('flame-find').value.trim());
  const found = flameShown.draw();
  byId('flame').hidden = asTree;
  byId('flame-tree').hidden = !asTree;
  if (asTree) treeView(byId('flame-tree'), root, format);
  const wanted = byId('flame-find').value.trim();
  byId('flame-about').textContent = `${about} ${format(root.value)} in all.${
    wanted ? ` Frames that contain "${wanted}": ${format(found)}, ${share(found, root.value) || '0 %'}.` : ''}`;
  const blocksBy = p.weights[`${flameOf}_blocks`] || null;
  const rows = weights.map((value, stack) => ({stack: stack < p.stacks.length ? stack : -1, value, blocks: blocksBy ? blocksBy[stack] : 0}))
    .filter((x) => x.value > 0).sort(heaviestFirst);
  put(byId('flame-table'), table([
    [format === bytes ? 'bytes' : flameOf, (x) => format(x.value), {n: true, sort: (x) => x.value}],
    ['', (x) => bar(x.value, rows[0].value), {class: 'bars'}],
    ['share', (x) => share(x.value, root.value), {n: true}],
    ...(blocksBy ? [['blocks', (x) => count(x.blocks), {n: true, sort: (x) => x.blocks}]] : []),
    ['stack', (x) => whose(x.stack), {class: 'where'}],
  ], rows, 6, (x) => ({'data-value': x.value})));
}

/* --- tables ------------------------------------------------------------------------------------------------------------- */

function blockTable(blocks, first) {
  const life = ([, begin, end]) => (end === null ? p.duration : end) - begin;
  return table([
    ['size', (b) => bytes(b[0]), {n: true, sort: (b) => b[0]}],
    ['allocated', (b) => time(b[1]), {n: true, sort: (b) => b[1]}],
    ['lived', (b) => (b[2] === null ? `${time(life(b))}, never freed` : time(life(b))), {n: true, sort: life}],
    ['where', (b) => [cardName(b[3]), KINDS[b[4]]].filter(Boolean).join(', '), {class: 'place'}],
    ['address', (b) => el('span', {class: 'mono'}, b[6])],
    ['allocated by', (b) => stackOf(p, b[5]), {class: 'where'}],
  ], blocks, first, (b) => ({'data-size': b[0]}));
}

function drawPeaks() {
  byId('peaks-part').hidden = !p.peaks.length;
  put(byId('peaks'), table([
    ['where', ([card]) => cardName(card) || 'no card', {class: 'place'}],
    ['kind', ([, kind]) => KINDS[kind]],
    ['peak', ([, , most]) => bytes(most), {n: true, sort: ([, , most]) => most}],
    ['at', ([, , , at]) => time(at), {n: true, sort: ([, , , at]) => at}],
    ['share of the card', ([, kind, most, , memory]) => (memory && kind === 0 ? `${share(most, memory)} of ${bytes(memory)}` : ''), {n: true}],
  ], p.peaks, 20));
}

function drawTables() {
  drawPeaks();
  put(byId('largest'), p.largest.length ? blockTable(p.largest, 10) : el('p', {class: 'empty'}, 'Nothing was allocated.'));
  byId('failures-part').hidden = !p.counts.failures;
  put(byId('failures'), p.counts.failures > p.failures.length ? el('p', {class: 'soft'}, `The first ${count(p.failures.length)} of ${count(p.counts.failures)}.`) : null,
    table([
      ['time', (f) => time(f[0]), {n: true, sort: (f) => f[0]}],
      ['size', (f) => (f[1] ? bytes(f[1]) : ''), {n: true, sort: (f) => f[1]}],
      ['where', (f) => [cardName(f[2]), KINDS[f[3]]].filter(Boolean).join(', '), {class: 'place'}],
      ['call', (f) => el('span', {class: 'mono'}, f[6])],
      ['answer', (f) => f[4]],
      ['refused by', (f) => f[5]],
      ['stack', (f) => stackOf(p, f[7]), {class: 'where'}],
    ], p.failures, 10, () => ({class: 'bad'})));
  byId('marks-part').hidden = !p.marks.length;
  put(byId('marks'), table([
    ['time', (m) => time(m[0]), {n: true}],
    ['allocated then', (m) => bytes(p.total[Math.max(0, lastAtMost(p.times, m[0]))] || 0), {n: true}],
    ['mark', (m) => el('button', {class: 'link', onclick: () => {
      chart.choose(lastAtMost(p.times, m[0]));
      byId('timeline').scrollIntoView({block: 'center'});
    }}, m[1])],
  ], p.marks, 12));
  drawSizes();
}

function drawSizes() {
  const rows = p.sizes.filter((s) => s[1] || s[4]);
  const timed = rows.some((s) => s[6] || s[10]);
  const latency = (from, name) => (rows.some((s) => s[from]) ? [
    [`${name}: median`, (s) => (s[from] ? time(s[from + 1]) : ''), {n: true, sort: (s) => s[from + 1]}],
    ['99 %', (s) => (s[from] ? time(s[from + 2]) : ''), {n: true, sort: (s) => s[from + 2]}],
    ['longest', (s) => (s[from] ? time(s[from + 3]) : ''), {n: true, sort: (s) => s[from + 3]}],
  ] : []);
  put(byId('sizes'), rows.length ? table([
    ['size of a block', (s) => s[0]],
    ['allocations', (s) => count(s[1]), {n: true, sort: (s) => s[1]}],
    ['bytes in all', (s) => bytes(s[2]), {n: true, sort: (s) => s[2]}],
    ['live at most', (s) => bytes(s[3]), {n: true, sort: (s) => s[3]}],
    ...(rows.some((s) => s[5]) ? [['reused', (s) => share(s[5], s[1]), {n: true, sort: (s) => s[5] / s[1]}]] : []),
    ...(rows.some((s) => s[4]) ? [['failures', (s) => count(s[4]), {n: true, sort: (s) => s[4]}]] : []),
    ...(timed ? [...latency(6, 'driver'), ...latency(10, 'reused')] : []),
  ], rows, 20, (s) => ({'data-class': s[0]})) : el('p', {class: 'empty'}, 'Nothing was allocated.'));
}

function drawFragmentation() {
  byId('fragmentation-part').hidden = !p.apart || !p.gaps.length;
  if (byId('fragmentation-part').hidden) return;
  const at = p.gaps.map((g) => p.times[g[0]]);
  const rows = [['reserved', 'var(--c0)', at, p.gaps.map((g) => g[1])],
    ['allocated', 'var(--c2)', at, p.gaps.map((g) => g[1] - g[2])],
    ['largest free piece', 'var(--c1)', at, p.gaps.map((g) => g[3])]];
  const worst = p.gaps.reduce((w, g) => (g[2] > w[2] ? g : w), p.gaps[0]);
  byId('fragmentation-about').textContent = `Memory that is held from the driver and not in use was ${bytes(worst[2])} at most, ` +
    `at ${time(p.times[worst[0]])}; the largest piece of it was ${bytes(worst[3])}.`;
  lineChart(byId('fragmentation'), rows, Math.max(1, p.duration));
  put(byId('fragmentation-key'), rows.map(([name, stroke]) => el('span', null, el('i', {class: 'swatch', style: `background:${stroke}`}), name)));
}

/* Below the chart, over the same time: of the whole machine, sampled by the launcher. */
function drawHost() {
  byId('host-part').hidden = !p.host;
  if (!p.host) return;
  const rows = [['less available', 'var(--c11)', p.host.times, p.host.lost]];
  if (p.host.mirror.length) rows.push(['mirror of device memory', 'var(--c1)', p.host.times, p.host.mirror]);
  lineChart(byId('host'), rows, Math.max(1, p.duration), state);
  put(byId('host-key'), rows.map(([name, stroke]) => el('span', null, el('i', {class: 'swatch', style: `background:${stroke}`}), name)));
}

/* --- everything ----------------------------------------------------------------------------------------------------------- */

/* Where the page opens: at the refusal if there was one, else at the peak. */
const firstMoment = () => (p.refusal ? Math.max(0, lastAtMost(p.times, p.refusal.time)) : peakSample());

/* One caller for everything says nothing: then the stacks do. */
function firstGroup() {
  if (!p.peak.bytes) return 'kind';
  if (p.by.card.series.filter((values) => values.some((v) => v > 0)).length > 1) return 'card';
  const callers = p.by.caller.series.filter((values) => values.some((v) => v > 0));
  return callers.length < 2 && p.live.length > 1 ? 'stack' : 'caller';
}

function show(index) {
  p = data.processes[index];
  prepare(p);
  state = {group: state ? state.group : firstGroup(), from: 0, to: Math.max(1, p.duration), chosen: firstMoment(), card: cardSize()};
  if (p.refusal) flameOf = 'refused';
  document.body.dataset.process = index;
  drawRanks();
  drawHead();
  chart = timeline(byId('timeline'), p, state, {moment: drawMoment, view: () => {
    byId('zoom-all').disabled = state.from <= 0 && state.to >= p.duration;
    drawHost();
  }});
  choice(byId('stack-by'), [['card', 'card'], ['kind', 'kind'], ['caller', 'caller'], ['stack', 'stack'], ['size', 'size class']], state.group, (id) => {
    state.group = id;
    chart.draw();
    chart.key(byId('key'));
  });
  chart.draw();
  chart.key(byId('key'));
  if (p.times.length) drawMoment(state.chosen);
  else put(byId('moment'), el('p', {class: 'empty'}, 'No events were recorded.'));
  choice(byId('flame-as'), [['flame', 'flame graph'], ['tree', 'tree']], flameAs, (id) => {
    flameAs = id;
    drawFlame();
  });
  setFlame(weightsOf(flameOf).some((v) => v > 0) ? flameOf : 'peak');
  drawTables();
  drawHost();
  drawFragmentation();
}

document.body.append(tip);
byId('zoom-in').onclick = () => chart.zoom(0.5);
byId('zoom-out').onclick = () => chart.zoom(2);
byId('zoom-all').onclick = () => chart.all();
byId('flame-find').oninput = drawFlame;
byId('runtime').onchange = drawFlame;
let width = innerWidth;
addEventListener('resize', () => {
  if (innerWidth === width) return;
  width = innerWidth;
  chart.draw();
  drawFlame();
  drawHost();
  drawFragmentation();
});
byId('foot').textContent = `Made by zeroute ${data.tool} from ${data.processes.map((x) => x.file).join(', ')}. ` +
  'Device memory is what was allocated as device, shared and physical memory, as the program requested it.';
show(0);
document.body.dataset.ready = 'yes';
