#!/usr/bin/env bash
# The page of zeroute serve in a browser: it shows the figures of the JSON, a process in detail, and text from outside
# as text. PICTURE=doc/pictures/serve.png makes the README's picture instead.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
command -v chromium >/dev/null || { echo "chromium is missing: ./setup test installs it"; exit 77; }
[ -z "${PICTURE:-}" ] || export ZE_SIMGPU=devices:2,vram:2GiB,mirror:on
. test/watch/machine.sh
browser() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$dir/profile" \
        --window-size=1200,800 --virtual-time-budget=6000 "$@" 2>"$dir/browser.err"
}
# A minute in which a job, a service and a program that is mirrored begin one after the other.
if [ -n "${PICTURE:-}" ]; then
    serve --interval 0.5
    for rank in 0 1; do
        sleep "${PAUSE:-10}"
        SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_JOB_NAME=train SLURM_PROCID=$rank \
            worker keep $((200 + 50 * rank)) steady wait
    done
    sleep "${PAUSE:-10}"
    POD_NAME=infer-7f POD_NAMESPACE=prod CONTAINER_NAME=vllm worker keep 700 wait
    sleep "${PAUSE:-10}"
    work=$PWD/${B:-build}/test/process/doctor_hold worker
    sleep $((2 * ${PAUSE:-10}))
    browser --window-size=1400,860 --screenshot="$PICTURE" "$url/"
    exit
fi
for rank in 0 1; do
    SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_JOB_NAME=train SLURM_PROCID=$rank worker keep $((200 + 50 * rank)) wait
done
container='<b id=evil>vllm</b>'
POD_NAME=infer-7f POD_NAMESPACE=prod CONTAINER_NAME=$container worker keep 700 steady wait
workers_ready 3
serve --interval 0.5
sleep 2 # some history
pid=$(curl -s "$url/api/v1/machine" | python3 -c '
import json, sys
print([p["pid"] for p in json.load(sys.stdin)["processes"] if p.get("rank") == "1"][0])')
browser --dump-dom "$url/#pid=$pid" >"$dir/dom"

shows() {
    grep -qF -- "$1" "$dir/dom" || { echo "no '$1' in:"; head -c 6000 "$dir/dom"; cat "$dir/browser.err"; return 1; }
}
the_figures_are_there() {
    shows '3 processes, 1 job, ' && shows '<td class="text ">2 ranks</td>' && shows '>450 MiB</td>' &&
        shows '>250 MiB</td>' && shows '0000:03:00.0' && shows 'of 16.0 GiB'
}
a_process_is_shown_in_detail() {
    shows "$pid  run_work keep 250 wait" && shows 'job slurm:81.0, rank 1' &&
        shows '<td class="text">zeMemAllocDevice</td>' && shows 'data-layer="in use"' && shows 'route:auto'
}
text_from_outside_stays_text() {
    shows '[prod/infer-7f/&lt;b id=evil&gt;vllm&lt;/b&gt;] run_work' && ! grep -q '<b id="evil"' "$dir/dom"
}
nothing_is_loaded_from_elsewhere() {
    ! grep -oE '(src|href|url\()="?https?:[^"]*' "$dir/dom" && ! grep -qi 'Refused to' "$dir/browser.err"
}
# The stack of a card ends where the kernel's count ends, and each layer at what its processes hold by the JSON.
charts_show_the_figures_of_the_json() {
    python3 - "$url" <<'PYTHON'
import sys
sys.path.insert(0, "test/process")
from browser import Page
p = Page(sys.argv[1] + "/")
try:
    p.wait("state.machine && document.querySelectorAll('#charts svg').length")
    assert p.js("document.querySelectorAll('#charts svg').length") == p.js("state.machine.cards.length") + 1
    wrong = p.js("""(() => { const m = state.machine, list = owners(m), wrong = [];
        for (const c of m.cards) {
            const layers = cardLayers(m, c, list, c.history.length), last = v => v[v.length - 1] || 0;
            const held = o => o.processes.reduce((sum, p) => sum + last(p.history) * shareOf(m, p, c), 0);
            for (const o of list) {
                const l = layers.find(x => x.name === o.name);
                if (Math.abs((l ? last(l.values) : 0) - held(o)) > 1) wrong.push([c.device, o.name]);
            }
            const sum = layers.reduce((a, l) => a + last(l.values), 0);
            if (sum + 1 < last(c.history)) wrong.push([c.device, sum, last(c.history)]);
        }
        return wrong; })()""")
    assert not wrong, wrong
    # A click on the layer of a job opens the job, a click on its row the process with its callers.
    p.js("[...document.querySelectorAll('#charts path')].find((x) => x.dataset.layer.startsWith('job ')).onclick()")
    p.wait("!document.getElementById('job').hidden")
    assert p.js("document.querySelectorAll('#job-processes tr').length") == 3
    p.js("document.querySelectorAll('#job-processes tr')[1].onclick()")
    p.wait("!document.getElementById('detail').hidden && document.querySelectorAll('#callers tr').length > 1")
    assert p.js("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
finally:
    p.close()
PYTHON
}
# Each text is read back, and is the figure of the JSON as far as it has digits.
every_figure_is_that_of_the_json() {
    python3 - "$url" "$pid" <<'PYTHON'
import json, re, sys, urllib.request
sys.path.insert(0, "test/process")
from browser import Page
UNIT = {"": 1, "k": 1e3, "M": 1e6, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
        "%": 0.01, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
compared = 0
def same(text, value, where):
    global compared
    compared += 1
    if value is None:
        assert text == "-", (where, text, value)
        return
    if text == "-":  # a time of none
        assert value == 0, (where, text, value)
        return
    m = re.fullmatch(r"([0-9]+(?:\.([0-9]+))?) ?([a-zA-Z%]*)", text)
    assert m, (where, text, value)
    digit = UNIT[m[3]] / 10 ** len(m[2] or "")
    assert abs(float(m[1]) * UNIT[m[3]] - value) <= 0.5001 * digit + 1e-12, (where, text, value)
p = Page(sys.argv[1] + "/")
try:
    p.wait("state.machine && document.querySelectorAll('#rows tr').length >= 4")
    m, rows, heads = p.js("""(() => { draw(); const text = (e, s) => [...e.querySelectorAll(s)].map(x => x.textContent);
        return [state.machine, [...document.querySelectorAll('#rows tr')].map(r => text(r, 'td')),
                [...document.querySelectorAll('#charts .figures')].map(f => text(f, 'b, span'))]; })()""")
    keys = ["allocated_bytes", "reserved_bytes", "peak_bytes", "host_usm_bytes", "mirror_bytes", "cache_hit_rate",
            "allocations_per_second", "driver_calls_per_second", "p99_seconds", "failures"]
    assert len(rows) == len(m["processes"]) + len(m["jobs"]), rows
    for r in rows:
        job = not r[0].isdigit()
        one = m["jobs"][0] if job else next(x for x in m["processes"] if x["pid"] == int(r[0]))
        assert r[1] == (f"{len(one['pids'])} ranks" if job else one.get("rank", "")), r
        for text, key in zip(r[2:], keys):
            same(text, one.get(key), (r, key))
    for card, (name, *figures) in zip(m["cards"], heads):
        used, of = re.fullmatch(r"used (.*?)(?: of (.*))?", figures[0]).groups()
        assert card["device"] in name and card.get("model", "") in name, name
        same(used, card["used_by_zeroute_bytes"] + card["used_by_others_bytes"], name)
        if of:
            same(of, card["vram_bytes"], name)
        for text, key in zip(figures[1:], ["used_by_zeroute_bytes", "used_by_others_bytes", "gtt_bytes"]):
            same(re.sub(r"^[a-zA-Z ]* ", "", text), card.get(key), (name, key))
    name, available, mirror = heads[-1][:3]
    a, total = re.fullmatch(r"available (.*) of (.*)", available).groups()
    same(a, m["host"]["mem_available_bytes"], name)
    same(total, m["host"]["mem_total_bytes"], name)
    if "mirror_bytes" in m["host"]:
        same(mirror.split(" ", 1)[1], m["host"]["mirror_bytes"], name)
    # the process in detail: nothing changes in it
    p.js(f"open({sys.argv[2]})")
    p.wait("document.querySelectorAll('#callers tr').length > 1")
    x = json.load(urllib.request.urlopen(f"{sys.argv[1]}/api/v1/processes/{sys.argv[2]}"))["processes"][0]
    line = p.js("document.getElementById('detail-line').textContent").split(", ")
    same([t for t in line if t.startswith("in use ")][0][7:], x["allocated_bytes"], line)
    same([t for t in line if t.startswith("peak ")][0][5:], x["peak_bytes"], line)
    table = "(id => [...document.querySelectorAll(id + ' tr')].slice(1).map(r => [...r.cells].map(c => c.textContent)))"
    f = x["fields"]
    for name, calls, failed, *times in p.js(table + "('#entries')"):
        same(calls, sum(v for k, v in f.items() if re.fullmatch(rf"calls\.{re.escape(name)}\.[^.]+", k)), name)
        same(failed, f.get("failures." + name, 0), name)
        for text, q in zip(times, ["p50", "p99", "max"]):
            same(text, f.get(f"latency.{name}.{q}_ns", 0) / 1e9, (name, q))
    for name, calls, size in p.js(table + "('#callers')"):
        same(calls, f[f"callers.{name}.calls"], name)
        same(size, f[f"callers.{name}.bytes"], name)
    print(compared, "figures compared")
    assert compared > 60, compared
finally:
    p.close()
PYTHON
}
promise "every figure on the page is that of the JSON" every_figure_is_that_of_the_json
promise "charts show the figures of the JSON, and a click opens what is below it" charts_show_the_figures_of_the_json
promise "the figures are there" the_figures_are_there
promise "a process is shown in detail" a_process_is_shown_in_detail
promise "text from outside stays text" text_from_outside_stays_text
promise "nothing is loaded from elsewhere" nothing_is_loaded_from_elsewhere
kept
