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
sleep 2 # some history
if [ -n "${PICTURE:-}" ]; then
    browser --window-size=1400,430 --screenshot="$PICTURE" "$url/"
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
        shows '<td class="text">zeMemAllocDevice</td>' && shows 'polyline points="' && shows 'route:auto'
}
text_from_outside_stays_text() {
    shows '[prod/infer-7f/&lt;b id=evil&gt;vllm&lt;/b&gt;] run_work' && ! grep -q '<b id="evil"' "$dir/dom"
}
nothing_is_loaded_from_elsewhere() {
    ! grep -oE '(src|href|url\()="?https?:[^"]*' "$dir/dom" && ! grep -qi 'Refused to' "$dir/browser.err"
}
promise "the figures are there" the_figures_are_there
promise "a process is shown in detail" a_process_is_shown_in_detail
promise "text from outside stays text" text_from_outside_stays_text
promise "nothing is loaded from elsewhere" nothing_is_loaded_from_elsewhere
kept
