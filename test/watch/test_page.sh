#!/usr/bin/env bash
# The page of zeroute serve in a browser: it shows the figures of the JSON, a process in detail, and text from outside
# as text. PICTURE=doc/pictures/serve.png makes the README's picture instead.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
command -v chromium >/dev/null || { echo "chromium is missing: ./setup test installs it"; exit 77; }
. test/watch/machine.sh
browser() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$dir/profile" \
        --window-size=1200,800 --virtual-time-budget=6000 "$@" 2>"$dir/browser.err"
}
for rank in 0 1; do
    SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_JOB_NAME=train SLURM_PROCID=$rank worker keep $((200 + 50 * rank)) wait
done
container='<b id=evil>vllm</b>'
[ -z "${PICTURE:-}" ] || container=vllm
POD_NAME=infer-7f POD_NAMESPACE=prod CONTAINER_NAME=$container worker keep 700 steady wait
workers_ready 3
serve --interval 0.5
sleep ${HISTORY:-2} # some history
if [ -n "${PICTURE:-}" ]; then
    browser --window-size=1400,620 --screenshot="$PICTURE" "$url/"
    exit
fi
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
promise "charts show the figures of the JSON, and a click opens what is below it" charts_show_the_figures_of_the_json
promise "the figures are there" the_figures_are_there
promise "a process is shown in detail" a_process_is_shown_in_detail
promise "text from outside stays text" text_from_outside_stays_text
promise "nothing is loaded from elsewhere" nothing_is_loaded_from_elsewhere
kept
