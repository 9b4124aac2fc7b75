#!/usr/bin/env bash
# Out of memory, and what is left at the end, on the newest SYCL runtime and Intel's driver.
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
on_the_stack --cards 1
B=${B:-build}
python=$(tools/bed/env.sh --python 2>/dev/null) || { echo "no Python for dpctl"; exit 77; }
site=$(tools/bed/env.sh newest 2>/dev/null)/site
cat >"$dir/hold.py" <<'E2'
import ctypes
import dpctl, dpctl.memory as memory
queue = dpctl.SyclQueue("level_zero:gpu:0")
kept = []
try:
    for i in range(4):
        kept.append(memory.MemoryUSMDevice(256 << 20, queue=queue))
except dpctl.memory.USMAllocationError:
    print("refused after", len(kept))
for block in kept:  # never freed, not even when Python ends
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
E2

under() { # under OPTIONS...: the program's and the preload's lines are in $dir/out
    PYTHONPATH=$site ONEAPI_DEVICE_SELECTOR='level_zero:*' tools/bed/bed --on intel --runtime newest --cards 1 \
        "$B/zeroute" run "$@" -- "$python" "$dir/hold.py" >"$dir/out" 2>&1
}
says() {
    local line
    for line in "$@"; do
        grep -qF -- "$line" "$dir/out" || { echo "no '$line' in:"; cat "$dir/out"; return 1; }
    done
}
refusal_is_explained() {
    under --preset "$1" --limit 600MiB
    says "refused after 2" "out of memory: the setting limit refused 256 MiB on card 0" \
        "held      512 MiB by the process" "limit     600 MiB" \
        "card      11.4 GiB, " "of it with other processes and the driver" \
        "2 x  256 MiB to  512 MiB"
    [ "$(grep -c 'out of memory' "$dir/out")" = 1 ] || { cat "$dir/out"; return 1; }
}
the_runtimes_memory_is_told_apart() {
    under --preset observe --summary
    says "of the SYCL runtime, which frees them with" && ! grep -q '^leaks ' "$dir/out"
}

for preset in observe reroute path; do
    promise "preset:$preset: a refusal is explained once, with what was held" refusal_is_explained $preset
done
promise "what the runtime frees with its context is no leak" the_runtimes_memory_is_told_apart
kept
