"use strict";

// The live view of zeroute serve. Everything from outside is put in as text, never as markup.

const columns = [
  ["pid", "PID", p => p.pid, n => n],
  ["rank", "Rank", p => p.rank === undefined ? "" : p.rank, t => t],
  ["allocated_bytes", "In use", p => p.allocated_bytes, bytes],
  ["reserved_bytes", "Reserved", p => p.reserved_bytes, bytes],
  ["peak_bytes", "Peak", p => p.peak_bytes, bytes],
  ["host_usm_bytes", "Host USM", p => p.host_usm_bytes, bytes],
  ["mirror_bytes", "Mirror", p => p.mirror_bytes, bytes],
  ["cache_hit_rate", "Hits", p => p.cache_hit_rate, r => r === undefined ? "-" : Math.round(100 * r) + " %"],
  ["allocations_per_second", "Alloc/s", p => p.allocations_per_second, count],
  ["driver_calls_per_second", "Driver/s", p => p.driver_calls_per_second, count],
  ["p99_seconds", "p99", p => p.p99_seconds, seconds],
  ["failures", "Failed", p => p.failures, count],
  ["command", "Command", p => p.command, t => t],
];
const asText = new Set(["command", "rank"]);
const state = { sort: "allocated_bytes", down: true, filter: "", closed: new Set(), pid: null, job: null, machine: null };

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function bytes(n) {
  if (n === undefined || n === null) return "-";
  if (!n) return "0";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  while (n >= 1023.995 && u < units.length - 1) { n /= 1024; u++; }
  return (u === 0 ? n : n < 9.995 ? n.toFixed(2) : n < 99.95 ? n.toFixed(1) : n.toFixed(0)) + " " + units[u];
}

function count(n) {
  if (n === undefined) return "-";
  return n >= 1e6 ? (n / 1e6).toFixed(1) + "M" : n >= 1e4 ? (n / 1e3).toFixed(1) + "k" :
    n >= 10 || n === Math.round(n) ? n.toFixed(0) : n.toFixed(1);
}

function amount(n, what, many) {
  return n + " " + (n === 1 ? what : many);
}

// How long a history really is.
function span(values, every) {
  const s = Math.max(1, Math.round((values.length - 1) * every));
  return s < 120 ? amount(s, "second", "seconds") : amount(Math.round(s / 60), "minute", "minutes");
}

function seconds(s) {
  if (!s) return "-";
  return s < 1e-6 ? (s * 1e9).toFixed(0) + " ns" : s < 1e-3 ? (s * 1e6).toFixed(1) + " us" :
    s < 1 ? (s * 1e3).toFixed(1) + " ms" : s.toFixed(1) + " s";
}

// --- charts: stacked areas over the same time, as wide as the page ------------------------------------------------

const SVG = "http://www.w3.org/2000/svg", LEFT = 70, RIGHT = 12, COLOURS = 10;

function shape(kind, attributes, text) {
  const e = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// Powers of two up to `most`, four or so.
function ticks(most) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, most / 4))), at = [];
  for (let v = step; v <= most; v += step) at.push(v);
  return at;
}

function clock(m, back) {
  return new Date(1000 * (m.time - back)).toLocaleTimeString();
}

/*
 * layers: [{name, colour, values, open}] from the bottom up, each ending now; lines: [{name, value}] across.
 * n: how many values the axis has; `times`: whether the axis is drawn below.
 */
function chart(m, layers, lines, n, height, times, label) {
  const width = Math.max(320, document.getElementById("charts").clientWidth || innerWidth - 32);
  const nothing = layers.every(l => l.values.every(v => !v)) && !lines.length;
  if (nothing) height = times ? 40 : 24;
  const foot = times ? 20 : 6, bottom = height - foot, every = m.history_seconds || 1;
  const at = (values, i) => values[i - (n - values.length)] || 0;
  const sums = Array.from({ length: n }, (_, i) => layers.reduce((sum, l) => sum + at(l.values, i), 0));
  const most = Math.max(0, ...sums), used = most || Math.max(0, ...lines.map(l => l.value)) || 1;
  const near = lines.filter(l => l.value <= 3 * used); // one that is far above would flatten everything
  const top = Math.max(used, ...near.map(l => l.value)) * 1.04;
  const x = i => LEFT + (n > 1 ? i / (n - 1) : 1) * (width - LEFT - RIGHT), y = v => bottom - v / top * (bottom - 14);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  for (const v of most || lines.length ? ticks(top) : []) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }),
      shape("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, bytes(v)));
  }
  svg.append(shape("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }),
    shape("text", { x: LEFT - 6, y: bottom + 4, "text-anchor": "end" }, "0"));
  const floor = new Array(n).fill(0);
  for (const l of layers) {
    const low = floor.slice();
    for (let i = 0; i < n; i++) floor[i] += at(l.values, i);
    const up = floor.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`);
    const down = low.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).reverse();
    const area = shape("path", { d: n ? `M${up.join("L")}L${down.join("L")}Z` : "", fill: l.colour, "data-layer": l.name });
    area.append(shape("title", {}, l.name));
    if (l.open) {
      area.setAttribute("class", "open");
      area.onclick = l.open;
    }
    svg.append(area);
  }
  for (const l of near) {
    svg.append(shape("line", { class: l.kind, x1: LEFT, x2: width - RIGHT, y1: y(l.value), y2: y(l.value) }),
      shape("text", { class: l.kind, x: width - RIGHT - 4, y: y(l.value) - 4, "text-anchor": "end" }, `${l.name} ${bytes(l.value)}`));
  }
  const far = lines.filter(l => !near.includes(l)).map(l => `${l.name} ${bytes(l.value)}`).join(", ");
  if (far) svg.append(shape("text", { class: "far", x: width - RIGHT - 4, y: 10, "text-anchor": "end" }, far + ": far above this chart"));
  for (let i = 0; times && i <= 4; i++) {
    const back = (n - 1) * every * (1 - i / 4);
    svg.append(shape("text", { x: LEFT + i / 4 * (width - LEFT - RIGHT), y: height - 4,
      "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, i === 4 ? clock(m, 0) : clock(m, back)));
  }
  return svg;
}

const colour = i => `var(--c${i % COLOURS})`;

// What is one to a reader: a job with all its ranks, or a process that is in none.
function owners(m) {
  const list = m.jobs.filter(j => j.pids.length > 1).map(j => ({ name: "job " + j.job + (j.job_name ? ` (${j.job_name})` : ""), job: j,
    processes: m.processes.filter(p => p.job === j.job && p.uid === j.uid) }));
  const inJob = new Set(list.flatMap(o => o.processes));
  for (const p of m.processes) if (!inJob.has(p)) list.push({ name: `${p.pid} ${withoutFolder(p.command)}`, processes: [p] });
  list.forEach((o, i) => {
    o.colour = colour(i);
    o.open = () => (o.job ? openJob(o.job) : open(o.processes[0].pid));
  });
  return list;
}

// Which part of what a process holds is on a card: as its blocks are spread now.
function shareOf(m, p, card) {
  const accounts = (p.accounts || []).filter(a => a.block_bytes || a.vram_bytes);
  const held = a => a.block_bytes || a.vram_bytes || 0;
  if (accounts.length) {
    const all = accounts.reduce((sum, a) => sum + held(a), 0);
    return accounts.filter(a => a.device === card.device).reduce((sum, a) => sum + held(a), 0) / all;
  }
  const ours = m.cards.reduce((sum, c) => sum + c.used_by_zeroute_bytes, 0);
  return ours ? card.used_by_zeroute_bytes / ours : 1 / m.cards.length;
}

function sumOf(histories, n) {
  const sum = new Array(n).fill(0);
  for (const [values, part] of histories) values.forEach((v, i) => { sum[n - values.length + i] += v * part; });
  return sum;
}

// The lowest limit that a process on the card was given.
function limitOf(m, card) {
  const units = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 };
  const limits = m.processes.filter(p => shareOf(m, p, card) > 0).map(p => (p.settings || "").match(/(?:^|,)limit:([0-9.]+)(%|[KMGT]?i?B?)/))
    .filter(Boolean).map(([, n, unit]) => (unit === "%" ? n / 100 * (card.vram_bytes || 0) : n * (units[unit] || 1))).filter(v => v > 0);
  return limits.length ? Math.min(...limits) : 0;
}

const OTHERS = "others: drivers, other programs and processes that have ended";

function cardLayers(m, card, list, n) {
  const layers = list.map(o => ({ name: o.name, colour: o.colour, open: o.open,
    values: sumOf(o.processes.map(p => [p.history, shareOf(m, p, card)]), n) })).filter(l => l.values.some(v => v > 0));
  const known = sumOf(layers.map(l => [l.values, 1]), n);
  const rest = card.history.map((v, i) => Math.max(0, v - known[n - card.history.length + i]));
  if (rest.some(v => v > 0)) layers.push({ name: OTHERS, colour: "var(--others)", values: rest });
  return layers;
}

function heading(title, figures, bad) {
  const line = element("div", undefined, "figures");
  line.append(element("b", title));
  for (const text of figures) line.append(element("span", text));
  if (bad) line.append(element("span", bad, "bad"));
  return line;
}

function cardName(c) {
  return [c.model, c.device].filter(Boolean).join(", ") + (c.driver ? ` (${c.driver})` : "");
}

function drawCharts(m) {
  const host = m.host, list = owners(m), every = m.history_seconds || 1;
  const histories = [host.mirror_history, ...m.cards.map(c => c.history), ...m.processes.map(p => p.history)];
  const n = Math.max(1, ...histories.map(h => h.length)), longest = histories.reduce((a, b) => (b.length > a.length ? b : a), []);
  const parts = [], layers = m.cards.map(c => cardLayers(m, c, list, n));
  for (const [i, c] of m.cards.entries()) {
    const held = c.used_by_zeroute_bytes + c.used_by_others_bytes, limit = limitOf(m, c);
    const lines = [];
    if (c.vram_bytes) lines.push({ name: "full", kind: "full", value: c.vram_bytes });
    if (limit) lines.push({ name: "lowest limit of a process", kind: "limit", value: limit });
    parts.push(heading(cardName(c), ["used " + bytes(held) + (c.vram_bytes ? " of " + bytes(c.vram_bytes) : ""),
      "under zeroute " + bytes(c.used_by_zeroute_bytes), "others " + bytes(c.used_by_others_bytes), "GTT " + bytes(c.gtt_bytes)],
    c.full ? "full" : ""), chart(m, layers[i], lines, n, 150, false, `memory in use on ${c.device}, by job`));
  }
  const figures = ["available " + bytes(host.mem_available_bytes) + " of " + bytes(host.mem_total_bytes),
    host.mirror_bytes !== undefined ? "mirror " + bytes(host.mirror_bytes) : "the mirror is not known here"];
  parts.push(heading("Host memory", figures),
    chart(m, [{ name: "mirror of device memory", colour: "var(--mirror)", values: host.mirror_history }], [], n, 110, true,
      "host memory that mirrors device memory"));
  const key = element("div", undefined, "key");
  for (const o of list.slice(0, 24)) {
    const b = element("button", undefined, "link"), box = element("i", undefined, "swatch");
    box.style.background = o.colour;
    b.append(box, o.name);
    b.onclick = o.open;
    key.append(b);
  }
  const mirrored = host.mirror_history.some(v => v);
  for (const [name, colour, is] of [[OTHERS, "var(--others)", layers.some(l => l.some(x => x.name === OTHERS))],
    ["mirror of device memory in host RAM", "var(--mirror)", mirrored]]) {
    if (!is) continue;
    const text = element("span"), box = element("i", undefined, "swatch");
    box.style.background = colour;
    text.append(box, name);
    key.append(text);
  }
  const spread = m.processes.some(p => (p.accounts || []).filter(a => a.block_bytes).length > 1);
  parts.push(key, element("p", `The last ${span(longest, every)}; each point is the highest value of ${amount(every, "second", "seconds")}.` +
    (spread ? " A process on several cards is split as its blocks are spread now." : "") + " Click an area for its job or process.", "dim under"));
  document.getElementById("charts").replaceChildren(...parts);
}

function drawHeads() {
  document.getElementById("heads").replaceChildren(...columns.map(([key, title]) => {
    const th = element("th", title, asText.has(key) ? "text" : "");
    th.tabIndex = 0;
    th.setAttribute("aria-sort", key !== state.sort ? "none" : state.down ? "descending" : "ascending");
    th.onclick = () => {
      state.down = key === state.sort ? !state.down : !asText.has(key);
      state.sort = key;
      draw();
    };
    th.onkeydown = e => { if (e.key === "Enter") th.onclick(); };
    return th;
  }));
}

// Its device memory is given back, or on its way.
function isPaused(p) {
  return Boolean(p.pause) && p.pause.state !== "running";
}

function pauseText(p) {
  if (!isPaused(p)) return "";
  return p.pause.state + (p.pause.since_ns ? " since " + new Date(p.pause.since_ns / 1e6).toLocaleTimeString() : "") + ": " +
    bytes(p.pause.given_back_bytes) + " given back, " + bytes(p.pause.host_bytes) + " of contents in host memory";
}

function matches(p) {
  const words = [p.pid, p.command, p.job, p.job_name, p.pod, p.namespace, p.container, p.rank];
  return words.some(w => w !== undefined && String(w).toLowerCase().includes(state.filter));
}

function compare(a, b) {
  const value = columns.find(c => c[0] === state.sort)[2], x = value(a), y = value(b);
  const order = typeof x === "string" && typeof y === "string" ?
    x.localeCompare(y, undefined, { numeric: true }) : (x === undefined ? -1 : x) - (y === undefined ? -1 : y);
  return (state.down ? -order : order) || (a.pid || 0) - (b.pid || 0);
}

function row(p, className, cells) {
  const tr = element("tr", undefined, className);
  tr.tabIndex = 0;
  for (const [key, , value, show] of columns) {
    const text = cells && key in cells ? cells[key] : show(value(p));
    const td = element("td", text, (asText.has(key) ? "text " : "") + (key === "command" ? "command" : "") +
      (key === "failures" && p.failures ? " bad" : ""));
    if (key === "command") td.title = text;
    tr.append(td);
  }
  tr.onkeydown = e => { if (e.key === "Enter") tr.onclick(); };
  return tr;
}

/* The folder of a program is rarely what tells two of them apart; the tip has it. */
function withoutFolder(command) {
  return command.replace(/^\S*\/(?=[^\s/])/, "");
}

function drawRows(m) {
  const rows = [], shown = m.processes.filter(matches).sort(compare);
  const one = p => {
    const where = [p.namespace, p.pod, p.container].filter(Boolean).join("/");
    const tr = row(p, isPaused(p) ? "process paused" : "process",
      { command: (isPaused(p) ? `(${p.pause.state}) ` : "") + (where ? "[" + where + "] " : "") + withoutFolder(p.command) });
    tr.lastChild.title = p.command;
    tr.onclick = () => open(p.pid);
    rows.push(tr);
  };
  const jobOf = p => p.job && m.jobs.find(j => j.job === p.job && j.uid === p.uid && j.pids.length > 1);
  const lines = shown.map(p => jobOf(p) || p).filter((line, i, all) => all.indexOf(line) === i).sort(compare);
  for (const p of lines) {
    const job = p.pids ? p : null;
    if (!job) { one(p); continue; }
    const name = job.job + "\u0000" + job.uid;
    const closed = state.closed.has(name), members = shown.filter(q => q.job === p.job && q.uid === p.uid);
    const tr = row(job, "job", { pid: closed ? "+" : "-", rank: job.pids.length + " ranks",
      command: (job.paused ? `(${job.paused} paused) ` : "") + job.job + (job.job_name ? " (" + job.job_name + ")" : "") });
    tr.setAttribute("aria-expanded", String(!closed));
    tr.onclick = () => {
      if (!state.closed.delete(name)) state.closed.add(name);
      draw();
    };
    rows.push(tr);
    if (!closed) members.forEach(one);
  }
  document.getElementById("rows").replaceChildren(...rows);
  document.getElementById("empty").hidden = m.processes.length > 0;
}

function draw() {
  const m = state.machine;
  if (!m) return;
  const status = document.getElementById("summary");
  status.textContent = amount(m.processes.length, "process", "processes") + ", " + amount(m.jobs.length, "job", "jobs") + ", " +
    new Date(1000 * m.time).toLocaleTimeString() + (m.unreadable ? ", " + m.unreadable + " not readable" : "") +
    m.processes.filter(p => p.hooks).slice(0, 3).map(p => `; ${p.pid}: ${p.hooks}` +
      (p.vram_bytes ? `; its cards hold ${bytes(p.vram_bytes)} for it` : "")).join("");
  status.className = "";
  drawCharts(m);
  drawJob(m);
  drawHeads();
  drawRows(m);
}

function fill(id, heads, rows) {
  const table = document.getElementById(id), head = element("tr");
  const side = i => (i && heads[i] !== "Command" ? "" : "text");
  heads.forEach((h, i) => head.append(element("th", h, side(i))));
  table.replaceChildren(head, ...rows.map(cells => {
    const tr = element("tr");
    cells.forEach((c, i) => tr.append(element("td", c, side(i))));
    return tr;
  }));
}

// A job: its ranks above each other, and each of them to open.
function drawJob(m) {
  const j = state.job && m.jobs.find(x => x.job === state.job.job && x.uid === state.job.uid);
  document.getElementById("job").hidden = !j;
  if (!j) return;
  const ranks = m.processes.filter(p => p.job === j.job && p.uid === j.uid);
  const n = Math.max(1, ...ranks.map(p => p.history.length));
  document.getElementById("job-title").textContent = "Job " + j.job + (j.job_name ? ` (${j.job_name})` : "");
  document.getElementById("job-line").textContent = [amount(ranks.length, "process", "processes"), "in use " + bytes(j.allocated_bytes),
    "reserved " + bytes(j.reserved_bytes), "mirror " + bytes(j.mirror_bytes), count(j.failures) + " failed",
    "the last " + span(ranks.reduce((a, p) => (p.history.length > a.length ? p.history : a), []), m.history_seconds)].join(", ");
  document.getElementById("job-chart").replaceChildren(chart(m, ranks.map((p, i) => ({ name: `rank ${p.rank || "?"}, ${p.pid}`,
    colour: colour(i), values: p.history, open: () => open(p.pid) })), [], n, 170, true, "device memory of the job, by rank"));
  fill("job-processes", ["Rank", "PID", "In use", "Peak", "Mirror", "Failed", "Command"], ranks.map(p => [p.rank || "-", p.pid,
    bytes(p.allocated_bytes), bytes(p.peak_bytes), bytes(p.mirror_bytes), count(p.failures), p.command]));
  [...document.querySelectorAll("#job-processes tr")].slice(1).forEach((tr, i) => {
    tr.className = "process";
    tr.onclick = () => open(ranks[i].pid);
  });
}

function openJob(j) {
  state.job = j;
  draw();
  document.getElementById("job").scrollIntoView({ block: "nearest" });
}

function drawDetail(p, every) {
  const f = p.fields || {}, entries = new Map(), callers = [];
  for (const [name, value] of Object.entries(f)) {
    let m = name.match(/^calls\.([^.]+)\.[^.]+$/);
    if (m && value) entries.set(m[1], (entries.get(m[1]) || 0) + value);
    m = name.match(/^callers\.(.+)\.calls$/);
    if (m && value) callers.push([m[1], value, f["callers." + m[1] + ".bytes"] || 0]);
  }
  document.getElementById("detail-title").textContent = p.pid + "  " + p.command;
  document.getElementById("detail-line").textContent = [p.job && "job " + p.job, p.rank && "rank " + p.rank,
    p.namespace && p.namespace + "/" + p.pod, p.container && "container " + p.container,
    "in use " + bytes(p.allocated_bytes), "peak " + bytes(p.peak_bytes), pauseText(p), p.hooks,
    "the last " + span(p.history, every)].filter(Boolean).join(", ");
  document.getElementById("detail-chart").replaceChildren(chart(state.machine,
    [{ name: "in use", colour: "var(--c0)", values: p.history }], [{ name: "peak", kind: "limit", value: p.peak_bytes }],
    Math.max(1, p.history.length), 150, true, "device memory of the process in use"));
  fill("entries", ["Entry point", "Calls", "Failed", "p50", "p99", "Max"],
    [...entries].sort((a, b) => b[1] - a[1]).map(([e, n]) => [e, count(n), count(f["failures." + e] || 0),
      ...["p50", "p99", "max"].map(q => seconds((f["latency." + e + "." + q + "_ns"] || 0) / 1e9))]));
  fill("callers", ["Library", "Calls", "Allocated"],
    callers.sort((a, b) => b[2] - a[2]).map(([l, n, b]) => [l, count(n), bytes(b)]));
  document.getElementById("settings").textContent = (p.settings || "").replaceAll(",", ", ");
}

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(answer.status === 404 ? "the process has ended" : "the server says " + answer.status);
  return answer.json();
}

async function showDetail() {
  document.getElementById("detail").hidden = state.pid === null;
  if (state.pid === null) return;
  try {
    drawDetail((await ask("api/v1/processes/" + state.pid)).processes[0], state.machine.history_seconds);
  } catch (e) {
    document.getElementById("detail-line").textContent = e.message;
  }
}

function open(pid) {
  state.pid = pid;
  history.replaceState(null, "", "#pid=" + pid);
  showDetail().then(() => document.getElementById("detail").scrollIntoView({ block: "nearest" }));
}

async function look() {
  try {
    state.machine = await ask("api/v1/machine");
    draw();
    document.body.dataset.ready = "yes";
    await showDetail();
  } catch (e) {
    const status = document.getElementById("summary");
    status.textContent = "no answer from the server (" + e.message + "): trying again";
    status.className = "bad";
  }
  setTimeout(look, document.hidden ? 10000 : 2000);
}

document.getElementById("filter").oninput = e => { state.filter = e.target.value.toLowerCase(); draw(); };
document.getElementById("close").onclick = () => {
  state.pid = null;
  history.replaceState(null, "", location.pathname);
  showDetail();
};
document.getElementById("close-job").onclick = () => {
  state.job = null;
  draw();
};
addEventListener("resize", draw);
document.onkeydown = e => { if (e.key === "Escape") document.getElementById("close").onclick(); };
// A process can be linked to: /#pid=4711
const linked = location.hash.match(/^#pid=([0-9]{1,7})$/);
if (linked) state.pid = Number(linked[1]);
look();
