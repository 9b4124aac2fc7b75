/* Elements, numbers for people, and what every part of the page uses. All text from the record goes through textContent. */

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

function put(box, ...children) {
  box.replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined));
}

/* --- numbers ------------------------------------------------------------------------------------------------- */

/*
 * As C's printf rounds: halves to even, so that a figure has the same digits in the terminal. A number is half way
 * between two of these decimals exactly if it is an odd multiple of 1/2, 1/4 (one digit) or 1/8 (two).
 */
function fixed(n, digits) {
  if ((n * 2 ** (digits + 1)) % 2 !== 1) return n.toFixed(digits);
  const scaled = n * 10 ** digits;
  return ((2 * Math.round(scaled / 2)) / 10 ** digits).toFixed(digits);
}

/* At most three digits before the point. */
function scale(n, factor, most, units) {
  let unit = 0;
  while (n >= most && unit < units.length - 1) {
    n /= factor;
    unit++;
  }
  return unit === 0 ? `${n} ${units[0]}` : `${fixed(n, n < 9.995 ? 2 : n < 99.95 ? 1 : 0)} ${units[unit]}`;
}

function bytes(n) {
  if (n === 0) return '0';
  const text = scale(Math.abs(n), 1024, 1023.995, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']);
  return n < 0 ? `-${text}` : text;
}

/* With `step` as many digits as tell times apart that are `step` ns apart. */
function time(ns, step) {
  if (ns === 0) return '0';
  if (step) return timeInSteps(ns, step);
  const s = Math.floor(ns / 1e9);
  const pad = (n) => String(n).padStart(2, '0');
  if (s < 120) return scale(ns, 1000, 999.5, ['ns', 'us', 'ms', 's']);
  return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)} min` : `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)} h`;
}

function timeInSteps(ns, step) {
  const unit = ns < 1e3 ? [1, 'ns'] : ns < 1e6 ? [1e3, 'us'] : ns < 1e9 ? [1e6, 'ms'] : ns < 120e9 ? [1e9, 's'] : null;
  if (unit) {
    const text = (ns / unit[0]).toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9))));
    return `${Number(text)} ${unit[1]}`;
  }
  const s = Math.floor(ns / 1e9);
  const pad = (n) => String(n).padStart(2, '0');
  const part = step < 1e9 ? (ns / 1e9 - s).toFixed(Math.min(9, Math.ceil(-Math.log10(step / 1e9) - 1e-9))).slice(1) : '';
  return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)}${part} min`
    : `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}${part} h`;
}

const count = (n) => n.toLocaleString('en-US');
const share = (part, whole) => (whole ? `${fixed((100 * part) / whole, part && part < whole / 10 ? 1 : 0)} %` : '');
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || `${one}s`}`;

/* Values at samples from [index, value, ...]: each holds until the next. */
function expand(changes, n) {
  const values = new Float64Array(n);
  for (let i = 0; i < changes.length; i += 2) {
    values.fill(changes[i + 1], changes[i], i + 2 < changes.length ? changes[i + 2] : n);
  }
  return values;
}

/* The last index whose value is at most `value`; -1: none. */
function lastAtMost(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/* --- colours --------------------------------------------------------------------------------------------------- */

const COLOURS = 12;
const colour = (i, others) => `var(--c${others ? COLOURS - 1 : i % (COLOURS - 1)})`;

/* --- frames and stacks ------------------------------------------------------------------------------------------- */

const RUNTIME = 1;
const PYTHON = 2;
const baseName = (path) => path.slice(path.lastIndexOf('/') + 1);

/* A C++ name without its arguments: at::empty(...) is at::empty. */
function shortName(name) {
  let depth = 0;
  for (let i = 0; i < name.length; i++) {
    if (name[i] === '<') depth++;
    else if (name[i] === '>' && name[i - 1] !== '-') depth--;
    else if (name[i] === '(' && depth <= 0 && i > 0 && !name.startsWith('(anonymous', i) && !name.endsWith('operator', i)) {
      return name.slice(0, i);
    }
  }
  return name;
}

function frameText([name, file, line, kind]) {
  if (kind === PYTHON) return `${baseName(file) || 'Python'}${line ? `:${line}` : ''} in ${name}`;
  return shortName(name);
}

function framePlace([, file, line, kind]) {
  if (kind === PYTHON) return file;
  return file ? (line ? `${file}:${line}` : file) : '';
}

/* A caller in one line that opens to the whole stack, outermost frame first. */
function stackOf(p, stack) {
  if (stack < 0) return el('span', {class: 'soft'}, 'one of the other stacks');
  const frames = p.stacks[stack];
  if (!frames.length) return el('span', {class: 'soft'}, p.names[stack]);
  const details = el('details', {'data-stack': stack}, el('summary', {class: 'mono'}, p.names[stack]));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) {
      details.append(el('ol', {class: 'stack'}, frames.map((i) => {
        const f = p.frames[i];
        return el('li', {title: f[0]}, el('span', {class: f[3] === PYTHON ? 'python' : null}, frameText(f)),
          ' ', el('span', {class: 'soft'}, framePlace(f)));
      })));
    }
  });
  return details;
}

/* --- tables -------------------------------------------------------------------------------------------------------- */

/* columns: [head, value, {n: right-aligned, sort: value to sort by}]; shows `first` rows, and the rest when asked. */
function table(columns, rows, first, attributes) {
  const body = el('tbody');
  const box = el('div', {class: 'wide'});
  let shown = first;
  let order = rows;
  function draw() {
    put(body, order.slice(0, shown).map((row) => {
      const tr = el('tr', attributes ? attributes(row) : null);
      for (const [, value, o] of columns) tr.append(el('td', {class: o && o.class ? o.class : o && o.n ? 'n' : null}, value(row)));
      return tr;
    }));
    const left = order.length - shown;
    put(more, left > 0 ? el('button', {class: 'link', onclick: () => {
      shown = order.length;
      draw();
    }}, `show ${count(left)} more`) : null);
  }
  const more = el('p');
  const heads = columns.map(([name, , o]) => el('th', {
    class: o && o.class ? o.class : o && o.n ? 'n' : null,
    'data-sort': Boolean(o && o.sort),
    title: o && o.sort ? 'sort' : null,
    onclick: () => {
      if (!o || !o.sort) return;
      const sorted = [...rows].sort((a, b) => o.sort(b) - o.sort(a));
      order = order.length && sorted.every((r, i) => r === order[i]) ? sorted.reverse() : sorted;
      draw();
    },
  }, name));
  draw();
  put(box, el('table', null, el('thead', null, el('tr', null, heads)), body), more);
  return box;
}

/* A bar beside a number. */
const bar = (part, whole, less) => el('div', {class: less ? 'bar less' : 'bar', style: `width:${whole ? Math.max(1, (100 * part) / whole) : 0}%`});

/* --- the tip ------------------------------------------------------------------------------------------------------- */

const tip = el('div', {class: 'tip', hidden: true});

function showTip(x, y, ...children) {
  put(tip, ...children);
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, x + 14 + width > innerWidth ? x - width - 14 : x + 14)}px`;
  tip.style.top = `${Math.max(4, y + 14 + height > innerHeight ? y - height - 10 : y + 14)}px`;
}

function hideTip() {
  tip.hidden = true;
}

/* Buttons of which one is pressed. */
function choice(box, names, chosen, choose) {
  put(box, names.map(([id, label, title]) => el('button', {
    'data-choice': id, title, 'aria-pressed': String(id === chosen),
    onclick: () => {
      for (const b of box.children) b.setAttribute('aria-pressed', String(b.dataset.choice === id));
      choose(id);
    },
  }, label)));
}
