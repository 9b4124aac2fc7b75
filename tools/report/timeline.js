/* Memory over time: stacked areas in SVG, drawn again for each view. Of many samples in one column of pixels the highest is shown. */

const EDGE = {left: 66, right: 14, top: 26, bottom: 24};
const OVERVIEW = 36;

/* Round numbers up to `most`: powers of two for bytes. */
function ticks(most, wanted) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, most / wanted)));
  const at = [];
  for (let v = 0; v <= most && at.length < 20; v += step) at.push(v);
  return at;
}

function timeTicks(from, to, wanted) {
  const rough = (to - from) / wanted || 1;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * ten).find((s) => s >= rough) || rough;
  const at = [];
  for (let i = Math.ceil(from / step); i * step <= to && at.length < 40; i++) at.push([i * step, time(i * step, step)]);
  return at;
}

/* One sample per column, the highest; and the one before the view. */
function columns(times, total, from, to, width) {
  const picked = [];
  const first = lastAtMost(times, from);
  let column = -1;
  if (first >= 0) picked.push(first);
  for (let i = first + 1; i < times.length && times[i] <= to; i++) {
    const c = Math.floor(((times[i] - from) / (to - from)) * width);
    if (c !== column) picked.push(i);
    else if (total[i] > total[picked[picked.length - 1]]) picked[picked.length - 1] = i;
    column = c;
  }
  /* What holds at the end of a column holds until the next one. */
  const out = [];
  for (let k = 0; k < picked.length; k++) {
    out.push(picked[k]);
    const next = k + 1 < picked.length ? picked[k + 1] : lastAtMost(times, to) + 1;
    if (next - 1 > picked[k]) out.push(next - 1);
  }
  return out;
}

/* An area between two stepped lines. */
function stepped(indexes, x, low, high) {
  const up = [];
  const down = [];
  for (let k = 0; k < indexes.length; k++) {
    const left = x(k).toFixed(1);
    const right = x(k + 1).toFixed(1);
    up.push(`${left},${high(indexes[k])}L${right},${high(indexes[k])}`);
    down.push(`${right},${low(indexes[k])}L${left},${low(indexes[k])}`);
  }
  return indexes.length ? `M${up.join('L')}L${down.reverse().join('L')}Z` : '';
}

/*
 * The chart in `box`. state: {group, from, to, chosen}. on.moment(sample) when one is chosen, on.view() when the view
 * has changed.
 */
function timeline(box, p, state, on) {
  const n = p.times.length;
  const end = Math.max(p.duration, 1);
  const layersOf = {};

  function layers() {
    if (!layersOf[state.group]) {
      const {names, series} = p.by[state.group];
      const rows = names.map((name, i) => ({name, values: series[i], i}))
        .filter((row) => row.values.some((v) => v > 0));
      const total = new Float64Array(n);
      for (const row of rows) for (let i = 0; i < n; i++) total[i] += row.values[i];
      for (const [i, row] of rows.entries()) {
        row.colour = colour(i, row.name === 'other callers' || row.name === 'other stacks');
      }
      layersOf[state.group] = {rows, total};
    }
    return layersOf[state.group];
  }

  let width;
  let height;
  const X = (t) => EDGE.left + ((t - state.from) / (state.to - state.from)) * (width - EDGE.left - EDGE.right);
  const timeAt = (x) => Math.min(end, Math.max(0,
    state.from + ((x - EDGE.left) / (width - EDGE.left - EDGE.right)) * (state.to - state.from)));

  function axes(most, Y) {
    const g = svg('g');
    for (const v of ticks(most, height < 260 ? 3 : 5)) {
      g.append(svg('line', {class: 'grid', x1: EDGE.left, x2: width - EDGE.right, y1: Y(v), y2: Y(v)}));
      g.append(svg('text', {x: EDGE.left - 7, y: Y(v) + 4, 'text-anchor': 'end'}, v ? bytes(v) : '0'));
    }
    for (const [t, label] of timeTicks(state.from, state.to, width < 500 ? 3 : 8)) {
      g.append(svg('text', {x: X(t), y: height - 8, 'text-anchor': 'middle'}, label));
    }
    return g;
  }

  function events(Y, total) {
    const g = svg('g');
    let free = 0;
    const inView = ([t]) => t >= state.from && t <= state.to;
    for (const [t, text] of p.marks.filter(inView).slice(0, 400)) {
      g.append(svg('line', {class: 'mark', 'data-mark': text, x1: X(t), x2: X(t), y1: 14, y2: height - EDGE.bottom},
        svg('title', null, `${text} at ${time(t)}`)));
      if (X(t) > free && X(t) + 6 * Math.min(text.length, 24) < width) {
        g.append(svg('text', {class: 'mark-name', x: X(t) + 3, y: 11}, text.slice(0, 24)));
        free = X(t) + 6.2 * Math.min(text.length, 24) + 10;
      }
    }
    for (const [t, size] of p.trims.filter(inView).slice(0, 400)) {
      g.append(svg('path', {class: 'trim', d: `M${X(t)},${height - EDGE.bottom - 9}l4,9h-8Z`},
        svg('title', null, `${bytes(size)} of cached memory given back at ${time(t)}`)));
    }
    for (const [t, size, , , code, who] of p.failures.filter(inView).slice(0, 400)) {
      g.append(svg('path', {class: 'failure', 'data-failure': t, d: `M${X(t)},${EDGE.top + 2}l5,-10h-10Z`},
        svg('title', null, `${bytes(size)} refused by ${who}: ${code}, at ${time(t)}`)));
    }
    const at = p.peak.at;
    if (p.peak.bytes && at >= state.from && at <= state.to && state.group !== 'kind') {
      const right = X(at) > width - 130;
      g.append(svg('line', {class: 'peak', x1: X(at), x2: X(at), y1: Y(p.peak.bytes), y2: height - EDGE.bottom}));
      g.append(svg('text', {class: 'peak-name', x: X(at) + (right ? -6 : 6), y: Math.max(24, Y(p.peak.bytes) - 5),
        'text-anchor': right ? 'end' : 'start'}, `peak ${bytes(p.peak.bytes)}`));
    }
    if (state.chosen >= 0 && p.times[state.chosen] >= state.from && p.times[state.chosen] <= state.to) {
      const x = X(p.times[state.chosen]);
      g.append(svg('line', {class: 'chosen', x1: x, x2: x, y1: EDGE.top, y2: height - EDGE.bottom}));
      g.append(svg('circle', {cx: x, cy: Y(total[state.chosen]), r: 3.5, fill: 'var(--ink)'}));
    }
    return g;
  }

  /* The card's size is drawn where the chart comes near it. */
  const showsCard = (used) => state.card.size > 0 && state.group !== 'kind' && used >= state.card.size / 3;
  const cardText = () => `${state.card.name}: ${bytes(state.card.size)}`;

  function cardLine(most, Y) {
    if (most < state.card.size || !state.card.size || state.group === 'kind') return null;
    return svg('g', {'data-card-size': state.card.size},
      svg('line', {class: 'full', x1: EDGE.left, x2: width - EDGE.right, y1: Y(state.card.size), y2: Y(state.card.size)}),
      svg('text', {class: 'full-name', x: EDGE.left + 6, y: Y(state.card.size) - 4}, cardText()));
  }

  function overview(total) {
    const top = height + 6;
    const most = Math.max(1, ...[...total]);
    const span = width - EDGE.left - EDGE.right;
    const x = (t) => EDGE.left + (t / end) * span;
    const picked = columns(p.times, total, 0, end, span);
    const y = (v) => (top + OVERVIEW - (v / most) * OVERVIEW).toFixed(1);
    const g = svg('g', {id: 'overview'},
      svg('path', {class: 'overview', d: stepped(picked, (k) => x(k < picked.length ? p.times[picked[k]] : end), () => y(0), (i) => y(total[i]))}),
      svg('rect', {x: EDGE.left, y: top, width: span, height: OVERVIEW, fill: 'transparent'}));
    if (state.from > 0 || state.to < end) {
      g.append(svg('rect', {class: 'window', x: x(state.from), y: top, height: OVERVIEW,
        width: Math.max(2, x(state.to) - x(state.from))}));
    }
    return g;
  }

  const cursor = svg('line', {class: 'cursor', visibility: 'hidden'});
  const band = svg('rect', {class: 'band', visibility: 'hidden'});
  let root;

  function draw() {
    width = Math.max(280, box.clientWidth);
    height = width < 500 ? 230 : 320;
    const {rows, total} = layers();
    const picked = columns(p.times, total, state.from, state.to, width - EDGE.left - EDGE.right);
    const used = picked.reduce((m, i) => Math.max(m, total[i]), 1);
    const most = showsCard(used) ? Math.max(used, state.card.size) : used;
    const Y = (v) => Number((height - EDGE.bottom - (v / most) * (height - EDGE.top - EDGE.bottom)).toFixed(1));
    const x = (k) => (k < picked.length ? Math.max(EDGE.left, X(p.times[picked[k]])) : X(Math.min(state.to, end)));
    const floor = new Float64Array(n);
    const areas = svg('g');
    for (const row of rows) {
      const low = floor.slice();
      for (const i of picked) floor[i] += row.values[i];
      areas.append(svg('path', {'data-layer': row.name, fill: row.colour,
        d: stepped(picked, x, (i) => Y(low[i]), (i) => Y(floor[i]))}));
    }
    root = svg('svg', {viewBox: `0 0 ${width} ${height + OVERVIEW + 8}`, height: height + OVERVIEW + 8},
      axes(most, Y), areas, cardLine(most, Y) || '', events(Y, total), cursor, band, overview(total));
    put(box, root);
    if (!rows.length) put(box, el('p', {class: 'empty'}, 'No device memory was allocated.'));
  }

  function key(to) {
    put(to, layers().rows.map((row) => el('span', {title: row.name},
      el('i', {class: 'swatch', style: `background:${row.colour}`}), row.name)),
    p.marks.length ? el('span', {style: 'color:var(--mark)'}, '┊ mark') : null,
    p.failures.length ? el('span', {class: 'bad'}, '▼ failure') : null,
    p.trims.length ? el('span', {style: 'color:var(--trim)'}, '▲ cache given back') : null,
    state.card.size && !showsCard(p.peak.bytes) ? el('span', {class: 'soft'}, `${cardText()}, far above this chart`) : null);
  }

  function view(from, to) {
    const least = Math.max(1000, end / 1e6);
    if (to - from < least) {
      const middle = (from + to) / 2;
      from = middle - least / 2;
      to = middle + least / 2;
    }
    state.from = Math.max(0, Math.min(from, end - least));
    state.to = Math.min(end, Math.max(to, state.from + least));
    hideTip();
    draw();
    on.view();
  }
  function zoom(factor, around) {
    const middle = around === undefined ? (state.from + state.to) / 2 : around;
    view(middle - (middle - state.from) * factor, middle + (state.to - middle) * factor);
  }
  function choose(sample) {
    state.chosen = Math.max(0, Math.min(n - 1, sample));
    draw();
    on.moment(state.chosen);
  }

  /* --- the pointer ------------------------------------------------------------------------------------------- */

  const inChart = (e) => {
    const r = root.getBoundingClientRect();
    return {x: ((e.clientX - r.left) / r.width) * width, y: ((e.clientY - r.top) / r.height) * (height + OVERVIEW + 8)};
  };
  const pointers = new Map();
  let start = null;
  let pinch = 0;

  function hover(e) {
    const {x} = inChart(e);
    const i = lastAtMost(p.times, timeAt(x));
    fill(cursor, {visibility: 'visible', x1: x, x2: x, y1: EDGE.top, y2: height - EDGE.bottom}, []);
    if (i < 0) return hideTip();
    const {rows, total} = layers();
    showTip(e.clientX, e.clientY, el('b', null, time(p.times[i])), ` ${bytes(total[i])} in ${plural(p.blocks[i], 'block')}`,
      el('table', null, rows.map((row) => [row, row.values[i]]).filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]).slice(0, 12)
        .map(([row, v]) => el('tr', null, el('td', null, el('i', {class: 'swatch', style: `background:${row.colour}`})),
          el('td', null, row.name), el('td', {class: 'n'}, bytes(v))))));
  }

  box.onpointermove = (e) => {
    if (!root) return;
    if (pointers.has(e.pointerId)) pointers.set(e.pointerId, e);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      const apart = Math.abs(a.clientX - b.clientX);
      if (pinch && apart) zoom(pinch / apart, timeAt(inChart({clientX: (a.clientX + b.clientX) / 2, clientY: 0}).x));
      pinch = apart;
      return;
    }
    hover(e);
    if (start && Math.abs(inChart(e).x - start.x) > 5) {
      const x = inChart(e).x;
      fill(band, {visibility: 'visible', x: Math.min(x, start.x), width: Math.abs(x - start.x),
        y: start.y > height ? height + 6 : EDGE.top, height: start.y > height ? OVERVIEW : height - EDGE.top - EDGE.bottom}, []);
    }
  };
  box.onpointerdown = (e) => {
    pointers.set(e.pointerId, e);
    start = pointers.size === 1 ? inChart(e) : null;
    pinch = 0;
    if (e.target.setPointerCapture) e.target.setPointerCapture(e.pointerId);
  };
  box.onpointerup = (e) => {
    const at = root ? inChart(e) : null;
    if (start && at && pointers.size === 1) {
      const over = start.y > height; /* in the overview, which shows everything */
      const t = (x) => (over ? ((x - EDGE.left) / (width - EDGE.left - EDGE.right)) * end : timeAt(x));
      const [a, b] = [t(start.x), t(at.x)].sort((x, y) => x - y);
      if (Math.abs(at.x - start.x) > 5) view(a, b);
      else if (over) view(a - (state.to - state.from) / 2, a + (state.to - state.from) / 2);
      else choose(lastAtMost(p.times, a));
    }
    pointers.delete(e.pointerId);
    start = null;
    fill(band, {visibility: 'hidden'}, []);
  };
  box.onpointercancel = (e) => {
    pointers.delete(e.pointerId);
    start = null;
  };
  box.onpointerleave = () => {
    hideTip();
    fill(cursor, {visibility: 'hidden'}, []);
  };
  box.ondblclick = () => view(0, end);
  box.onwheel = (e) => {
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = ((e.deltaX || e.deltaY) / 1000) * (state.to - state.from);
      const room = Math.max(-state.from, Math.min(by, end - state.to));
      view(state.from + room, state.to + room);
    } else {
      zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(inChart(e).x));
    }
  };
  box.onkeydown = (e) => {
    const step = e.shiftKey ? 20 : 1;
    if (e.key === 'ArrowLeft') choose(state.chosen - step);
    else if (e.key === 'ArrowRight') choose(state.chosen + step);
    else if (e.key === '+' || e.key === '=') zoom(0.5);
    else if (e.key === '-') zoom(2);
    else if (e.key === '0') view(0, end);
    else return;
    e.preventDefault();
  };
  return {draw, key, zoom, choose, all: () => view(0, end)};
}

/* A small picture of one process on a scale that all share. */
function spark(p, offset, to, most) {
  const width = 240;
  const height = 56;
  const picked = columns(p.times, p.total, 0, Math.max(1, p.duration), width);
  const x = (k) => ((offset + (k < picked.length ? p.times[picked[k]] : p.duration)) / to) * width;
  const y = (v) => (height - (v / most) * (height - 4)).toFixed(1);
  return svg('svg', {viewBox: `0 0 ${width} ${height}`, height},
    svg('line', {class: 'grid', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5}),
    svg('path', {fill: 'var(--c0)', d: stepped(picked, x, () => y(0), (i) => y(p.total[i]))}));
}

/* Lines over the same time: [name, colour, times, values]; of the view if there is one. */
function lineChart(box, rows, end, view) {
  const from = view ? view.from : 0;
  const to = view ? view.to : end;
  const width = Math.max(280, box.clientWidth);
  const height = 200;
  const most = Math.max(1, ...rows.flatMap(([, , , values]) => values));
  const X = (t) => EDGE.left + ((Math.min(to, Math.max(from, t)) - from) / (to - from)) * (width - EDGE.left - EDGE.right);
  const Y = (v) => Number((height - EDGE.bottom - (v / most) * (height - 8 - EDGE.bottom)).toFixed(1));
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, height});
  for (const v of ticks(most, 4)) {
    root.append(svg('line', {class: 'grid', x1: EDGE.left, x2: width - EDGE.right, y1: Y(v), y2: Y(v)}),
      svg('text', {x: EDGE.left - 7, y: Y(v) + 4, 'text-anchor': 'end'}, v ? bytes(v) : '0'));
  }
  for (const [t, label] of timeTicks(from, to, width < 500 ? 3 : 8)) {
    root.append(svg('text', {x: X(t), y: height - 8, 'text-anchor': 'middle'}, label));
  }
  for (const [name, stroke, times, values] of rows) {
    let d = '';
    for (let i = 0; i < times.length; i++) {
      d += `${d ? 'L' : 'M'}${X(times[i]).toFixed(1)},${Y(values[i])}`;
      d += `L${X(i + 1 < times.length ? times[i + 1] : end).toFixed(1)},${Y(values[i])}`;
    }
    root.append(svg('path', {d, fill: 'none', stroke, 'stroke-width': 1.7, 'data-line': name}));
  }
  put(box, root);
}
