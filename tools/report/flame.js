/* Flame graphs: callers above callees, as wide as their weight. A click makes a frame as wide as the page. */

const ROW = 21;
const TREE_ROWS = 200;

/* A stack without what the runtime does below its first function. */
function foldRuntime(p, frames) {
  let n = frames.length;
  while (n && p.frames[frames[n - 1]][3] === RUNTIME) n--;
  return n < frames.length ? frames.slice(0, n + 1) : frames;
}

/* The tree of all stacks that have a weight; the last weight is that of the stacks that the page does not hold. */
function tree(p, weights, fold) {
  const root = {name: 'all', value: 0, children: new Map(), depth: 0};
  weights.forEach((value, stack) => {
    if (!value) return;
    root.value += value;
    let node = root;
    const frames = stack < p.stacks.length ? p.stacks[stack] : null;
    const path = frames === null ? ['other'] : frames.length ? (fold ? foldRuntime(p, frames) : frames) : ['none'];
    for (const frame of path) {
      let child = node.children.get(frame);
      if (!child) {
        const f = typeof frame === 'number' ? p.frames[frame] : null;
        child = {frame: f, value: 0, children: new Map(), depth: node.depth + 1, up: node,
          name: f ? frameText(f) : frame === 'other' ? 'all other stacks' : 'no stack recorded'};
        node.children.set(frame, child);
      }
      child.value += value;
      node = child;
      if (node.depth >= TREE_ROWS) break;
    }
  });
  distinguish(root);
  return root;
}

/* Boxes side by side that have one name are told apart by their lines, or else by their files. */
function distinguish(node) {
  const names = new Map();
  for (const child of node.children.values()) names.set(child.name, [...(names.get(child.name) || []), child]);
  for (const [name, children] of names) {
    if (children.length > 1) {
      for (const child of children) {
        const [, file, line] = child.frame || ['', '', 0];
        if (file) child.name = `${name} (${baseName(file)}${line ? `:${line}` : ''})`;
      }
    }
  }
  for (const child of node.children.values()) distinguish(child);
}

const byValue = (node) => [...node.children.values()].sort((a, b) => b.value - a.value);

/* Python green, the runtime below grey, other libraries by their name. */
function flameColour(node) {
  if (!node.frame) return 'hsl(215 12% 78%)';
  const [name, file, , kind] = node.frame;
  let h = 0;
  for (const c of kind === PYTHON ? file + name : baseName(file)) h = (h * 31 + c.charCodeAt(0)) % 9973;
  if (kind === PYTHON) return `hsl(${128 + (h % 30)} 48% ${66 + (h % 12)}%)`;
  if (kind === RUNTIME) return `hsl(215 ${14 + (h % 10)}% ${72 + (h % 10)}%)`;
  return `hsl(${18 + (h % 34)} ${70 + (h % 14)}% ${68 + (h % 10)}%)`;
}

function flame(box, root, format, find) {
  let top = root;

  function text(node) {
    return [el('b', null, node.frame ? node.frame[0] : node.name),
      node.frame && framePlace(node.frame) ? el('div', {class: 'soft'}, framePlace(node.frame)) : null,
      el('div', null, `${format(node.value)}, ${share(node.value, root.value)} of all`)];
  }

  function draw() {
    const width = Math.max(280, box.clientWidth);
    const pieces = [];
    let deepest = 0;
    let found = 0;
    const wanted = find().toLowerCase();

    function place(node, x, w, row, dim, counted) {
      if (w < 0.7) return;
      deepest = Math.max(deepest, row);
      const hit = wanted && (node.name.toLowerCase().includes(wanted) ||
        (node.frame && (node.frame[0].toLowerCase().includes(wanted) || node.frame[1].toLowerCase().includes(wanted))));
      if (hit && !counted && !dim) found += node.value;
      const letters = Math.floor((w - 8) / 6.6);
      const g = svg('g', {class: `${dim ? 'dim' : ''}${hit ? ' found' : ''}`, 'data-frame': node.name, 'data-value': node.value,
        onclick: () => {
          top = node;
          hideTip();
          draw();
        },
        onpointermove: (e) => showTip(e.clientX, e.clientY, ...text(node)), onpointerleave: hideTip},
      svg('rect', {x: x.toFixed(1), y: row * ROW, width: Math.max(0.7, w - 0.4).toFixed(1), height: ROW - 1, rx: 2, fill: flameColour(node)}));
      if (letters > 2) {
        const label = node.name.length > letters ? `${node.name.slice(0, letters - 1)}…` : node.name;
        g.append(svg('text', {x: (x + 4).toFixed(1), y: row * ROW + 15}, label));
      }
      pieces.push(g);
      return hit || counted;
    }

    function below(node, x, w, row, counted) {
      counted = place(node, x, w, row, false, counted);
      if (w < 0.7) return;
      let at = x;
      for (const child of byValue(node)) {
        below(child, at, (w * child.value) / node.value, row + 1, counted);
        at += (w * child.value) / node.value;
      }
    }
    const above = [];
    for (let node = top.up; node; node = node.up) above.unshift(node);
    above.forEach((node, row) => place(node, 0, width, row, true, true));
    below(top, 0, width, above.length, false);
    const height = (deepest + 1) * ROW;
    put(box, svg('svg', {viewBox: `0 0 ${width} ${height}`, height}, pieces));
    return found;
  }
  return {draw};
}

/* --- the same as a tree that opens ----------------------------------------------------------------------------------- */

/* Opens down to the first frame that has several below it: what is above is the same for all. */
function treeView(box, root, format) {
  function row(node, depth, parent) {
    const children = byValue(node);
    const open = {node, depth, children, opened: false, rows: []};
    const mark = el('span', {class: 'mark-open'}, children.length ? '▸' : '');
    open.line = el('tr', {'data-tree': node.name, 'data-value': node.value},
      el('td', {class: 'n'}, format(node.value)),
      el('td', {class: 'n'}, share(node.value, root.value)),
      el('td', {class: 'bars'}, bar(node.value, root.value)),
      el('td', {class: 'where'}, children.length
        ? el('button', {class: 'link', style: `margin-left:${depth * 14}px`, 'aria-expanded': 'false', onclick: () => toggle(open)}, mark, ` ${node.name}`)
        : el('span', {style: `margin-left:${depth * 14 + 14}px`}, node.name),
      node.frame && framePlace(node.frame) ? el('span', {class: 'soft'}, ` ${framePlace(node.frame)}`) : null));
    if (parent) parent.rows.push(open);
    return open;
  }

  function toggle(open, wanted) {
    open.opened = wanted === undefined ? !open.opened : wanted;
    const button = open.line.querySelector('button');
    if (!button) return;
    button.setAttribute('aria-expanded', String(open.opened));
    button.firstChild.textContent = open.opened ? '▾' : '▸';
    if (open.opened) {
      open.rows = [];
      let after = open.line;
      for (const child of open.children) {
        const made = row(child, open.depth + 1, open);
        after.after(made.line);
        after = made.line;
      }
    } else {
      close(open);
    }
  }

  function close(open) {
    for (const child of open.rows) {
      close(child);
      child.line.remove();
    }
    open.rows = [];
    open.opened = false;
  }

  const body = el('tbody');
  let last = row(root, 0, null);
  body.append(last.line);
  while (last.children.length) {
    toggle(last, true);
    if (last.children.length > 1) break;
    last = last.rows[0];
  }
  put(box, el('table', {class: 'tree'}, body));
}
