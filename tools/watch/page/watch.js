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
const state = { sort: "allocated_bytes", down: true, filter: "", closed: new Set(), pid: null, machine: null };

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

function minutes(values, every) {
  return amount(Math.max(1, Math.round(values.length * every / 60)), "minute", "minutes");
}

function seconds(s) {
  if (!s) return "-";
  return s < 1e-6 ? (s * 1e9).toFixed(0) + " ns" : s < 1e-3 ? (s * 1e6).toFixed(1) + " us" :
    s < 1 ? (s * 1e3).toFixed(1) + " ms" : s.toFixed(1) + " s";
}

// An area over time; the scale begins at zero and ends at `most`, or at the highest value.
function chart(values, most, height, className, label) {
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
  const n = values.length, top = Math.max(most || 0, 1, ...values);
  const at = i => (n > 1 ? 100 * i / (n - 1) : 100).toFixed(2) + "," + (30 - 29 * values[i] / top).toFixed(2);
  const points = values.map((_, i) => at(i)).join(" ");
  svg.setAttribute("viewBox", "0 0 100 30");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  if (className) svg.setAttribute("class", className);
  for (const [kind, text] of [["polygon", "0,30 " + points + " 100,30"], ["polyline", points]]) {
    const shape = document.createElementNS(ns, kind);
    shape.setAttribute("points", n ? text : "");
    shape.setAttribute("class", kind === "polygon" ? "area" : "edge");
    svg.append(shape);
  }
  return svg;
}

function panel(title, figures, bar, picture, under) {
  const card = element("div", undefined, "card"), line = element("div", undefined, "figures");
  card.append(element("b", title));
  if (bar) {
    const frame = element("div", undefined, "bar");
    for (const [kind, part] of bar) {
      const piece = element("span", undefined, kind);
      piece.style.width = Math.min(100, 100 * part) + "%";
      frame.append(piece);
    }
    card.append(frame);
  }
  for (const text of figures) line.append(element("span", text));
  card.append(line, picture, element("div", under, "dim under"));
  return card;
}

function drawCards(m) {
  const list = [], host = m.host;
  const figures = ["available " + bytes(host.mem_available_bytes) + " of " + bytes(host.mem_total_bytes)];
  if (host.mirror_bytes !== undefined) figures.push("mirror " + bytes(host.mirror_bytes));
  else figures.push("this kernel has no GPUActive");
  const used = host.mem_total_bytes ? 1 - host.mem_available_bytes / host.mem_total_bytes : 0;
  list.push(panel("Host memory", figures, [["others", used]],
    chart(host.mirror_history, 0, 40, "mirror", "mirror over the last hour"),
    "mirror, the last " + minutes(host.mirror_history, m.history_seconds)));
  for (const c of m.cards) {
    const held = c.used_by_zeroute_bytes + c.used_by_others_bytes;
    const total = c.vram_bytes || Math.max(held, 1);
    list.push(panel(c.device + (c.driver ? " (" + c.driver + ")" : ""),
      ["used " + bytes(held) + (c.vram_bytes ? " of " + bytes(c.vram_bytes) : ""),
        "ours " + bytes(c.used_by_zeroute_bytes), "others " + bytes(c.used_by_others_bytes), "GTT " + bytes(c.gtt_bytes)],
      [["ours", c.used_by_zeroute_bytes / total], ["others", c.used_by_others_bytes / total]],
      chart(c.history, c.vram_bytes, 40, "", "memory in use over the last hour"),
      "memory in use, the last " + minutes(c.history, m.history_seconds)));
  }
  document.getElementById("cards").replaceChildren(...list);
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

function drawRows(m) {
  const rows = [], shown = m.processes.filter(matches).sort(compare);
  const one = p => {
    const where = [p.namespace, p.pod, p.container].filter(Boolean).join("/");
    const tr = row(p, "process", { command: (where ? "[" + where + "] " : "") + p.command });
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
      command: job.job + (job.job_name ? " (" + job.job_name + ")" : "") });
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
    new Date(1000 * m.time).toLocaleTimeString() + (m.unreadable ? ", " + m.unreadable + " not readable" : "");
  status.className = "";
  drawCards(m);
  drawHeads();
  drawRows(m);
}

function fill(id, heads, rows) {
  const table = document.getElementById(id), head = element("tr");
  heads.forEach((h, i) => head.append(element("th", h, i ? "" : "text")));
  table.replaceChildren(head, ...rows.map(cells => {
    const tr = element("tr");
    cells.forEach((c, i) => tr.append(element("td", c, i ? "" : "text")));
    return tr;
  }));
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
    "in use " + bytes(p.allocated_bytes), "peak " + bytes(p.peak_bytes),
    "the last " + minutes(p.history, every)].filter(Boolean).join(", ");
  document.getElementById("detail-chart").replaceChildren(
    chart(p.history, 0, 120, "", "device memory of the process in use"));
  fill("entries", ["Entry point", "Calls", "Failed", "p50", "p99", "Max"],
    [...entries].sort((a, b) => b[1] - a[1]).map(([e, n]) => [e, count(n), count(f["failures." + e] || 0),
      ...["p50", "p99", "max"].map(q => seconds((f["latency." + e + "." + q + "_ns"] || 0) / 1e9))]));
  fill("callers", ["Library", "Calls", "Allocated"],
    callers.sort((a, b) => b[2] - a[2]).map(([l, n, b]) => [l, count(n), bytes(b)]));
  document.getElementById("settings").textContent = p.settings || "";
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
document.onkeydown = e => { if (e.key === "Escape") document.getElementById("close").onclick(); };
// A process can be linked to: /#pid=4711
const linked = location.hash.match(/^#pid=([0-9]{1,7})$/);
if (linked) state.pid = Number(linked[1]);
look();
