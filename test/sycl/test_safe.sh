#!/bin/bash
# The preset safe with a client that allocates as PyTorch does (torchlike.cpp), on a card of 2 GiB that another process
# fills in part: its retry after an out of memory succeeds, and no byte spills, where observe spills.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=$PWD/${B:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tools/bed/bed --on intel --runtime newest --setup >"$dir/setup" 2>&1 || {
    code=$?
    tail -n 1 "$dir/setup"
    exit $code
}
client=$(B=$B test/sycl/client torchlike 2026.2.0) || { code=$?; echo "$client"; exit $code; }
export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:2GiB,spill:on XE_STANDIN_COUNTS=$dir/counts
mkdir "$ZEROUTE_ROOT"
mkfifo "$dir/end"
LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=route:native,cache:off,limit:600MiB tools/bed/bed --on intel \
    "$B/test/driver/greedy" 20 1 hold <"$dir/end" >"$dir/filler" 2>/dev/null &
exec 9>"$dir/end"
until [ -s "$dir/filler" ]; do sleep 0.05; done
spilled() { awk '$1 == "gem_create_spilled" { print $2 }' "$dir/counts"; }
run() { # run ADAPTER PRESET
    SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) timeout 60 tools/bed/bed --on intel --runtime 2026.2.0 "$B/zeroute" run \
        --no-summary --json "$dir/json" --preset "$2" -- "$client" retry 9>&-
}
safe() { # safe ADAPTER
    local before out
    before=$(spilled)
    out=$(run "$1" safe 2>&1) || { echo "$out"; return 1; }
    grep -qx 'retried 1' <<<"$out" || { echo "$out"; return 1; }
    [ "$(spilled)" = "$before" ] || { echo "$(($(spilled) - before)) buffers spilled"; return 1; }
}
observe() { # observe ADAPTER
    local before out
    before=$(spilled)
    out=$(run "$1" observe 2>&1)
    [ "$(spilled)" -gt "$before" ] || { echo "nothing spilled: the test sees nothing"; return 1; }
}
for adapter in 1 2; do
    promise "adapter v$adapter, safe: the retry succeeds and nothing spills" safe $adapter
    promise "adapter v$adapter, observe: it spills" observe $adapter
done
# Host USM is cached on every route with reuse:always, and shows as reserved; without it that is said.
kept_pinned() { # kept_pinned ADAPTER ROUTE
    SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) ZEROUTE_CONF=preset:reroute,route:$2,cache_host:on,reuse:always \
        timeout 60 tools/bed/bed --on intel --runtime 2026.2.0 "$B/zeroute" run --no-summary \
        --json "$dir/json" -- "$client" pinned 9>&- ||
        return 1
    python3 -c 'import json, sys
f = json.load(open(sys.argv[1]))["processes"][0]["fields"]
print(f["cache.hits"], f["reserved_bytes.host.peak"], f["allocated_bytes.host.peak"])
sys.exit(f["cache.hits"] < 3 or f["reserved_bytes.host.peak"] < 64 << 20)' "$dir/json"
}
says_so() { # says_so ADAPTER
    local out
    out=$(SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) ZEROUTE_CONF=preset:reroute,reuse:runtime,cache_host:on timeout 60 \
        tools/bed/bed --on intel --runtime 2026.2.0 "$B/zeroute" run --no-summary -- "$client" pinned 2>&1 9>&-)
    grep -q 'cache_host:on has no effect' <<<"$out"
}
for adapter in 1 2; do
    for route in pool sycl native; do
        promise "adapter v$adapter, route:$route: pinned memory is cached with reuse:always" kept_pinned $adapter $route
    done
    promise "adapter v$adapter: with reuse:runtime it is said that pinned memory is not cached" says_so $adapter
done
exec 9>&-
wait

# SYCL's free_memory (PyTorch's mem_get_info, llama.cpp) on a runtime that asks Sysman and on one that asks the core API
# (LONG=1: on all). What an honest driver says is passed on, less the 5 % at most that it keeps for itself. A driver
# that was told that nothing is in use, or everything, says nonsense, and the program is told the same as before.
free_memory='import dpctl, dpctl.memory as m, dpctl.utils as u
d = dpctl.SyclDevice("level_zero:gpu")
before = u.intel_device_info(d)["free_memory"]
block = m.MemoryUSMDevice(300 << 20, queue=dpctl.SyclQueue(d))
print(before, u.intel_device_info(d)["free_memory"])'
told() { # told RUNTIME USED CONF: "BEFORE AFTER" of 300 MiB; CONF none: without the preload
    local under=("$B/zeroute" run --no-summary --json "$dir/json" --)
    [ "$3" != none ] || under=()
    ZEROUTE_CONF=preset:reroute,$3 XE_STANDIN=vram:2GiB,says_used:$2 ZEROUTE_ROOT=$dir/quiet ZES_ENABLE_SYSMAN=1 \
        PYTHONPATH=$(tools/bed/env.sh "$1")/site timeout 120 tools/bed/bed --on intel --runtime "$1" "${under[@]}" \
        "$(tools/bed/env.sh --python)" -c "$free_memory" 2>"$dir/err"
}
truthful() { # truthful RUNTIME
    local checked=route:native,cache:off,free_memory:checked alone truth lie used
    mkdir -p "$dir/quiet"
    tools/bed/env.sh "$1" >/dev/null 2>"$dir/err" || { tail -n 1 "$dir/err"; return 77; }
    alone=$(told "$1" truth none) || {
        grep -q "KeyError: 'free_memory'" "$dir/err" && echo "this runtime offers no free_memory here" && return 77
        cat "$dir/err"
        return 1
    }
    truth=$(told "$1" truth $checked) || { cat "$dir/err"; return 1; }
    lie=$((${alone#* } - ${truth#* })) used=$(((${truth% *} - ${truth#* }) >> 20))
    [ $lie -ge 0 ] && [ $lie -le $(((2 << 30) / 19)) ] && [ $used -ge 300 ] && [ $used -lt 340 ] || {
        echo "alone $alone, checked $truth"
        return 1
    }
    for used in none all; do
        lie=$(told "$1" $used $checked) || { cat "$dir/err"; return 1; }
        [ "$lie" = "$truth" ] || { echo "$used: $lie, expected $truth"; return 1; }
        grep -q 'cannot be right' "$dir/err" || { echo "$used: nothing was said"; return 1; }
    done
    lie=$(told "$1" truth $checked,limit:1GiB) || { cat "$dir/err"; return 1; }
    [ "$lie" = "$((1 << 30)) $((724 << 20))" ] || { echo "limit: $lie"; return 1; }
}
runtimes=$(tools/bed/env.sh --list)
[ -n "${LONG:-}" ] || runtimes='2025.2.1 2026.2.0'
for runtime in $runtimes; do
    promise "$runtime: SYCL's free_memory is the truth, whatever the driver says" truthful "$runtime"
done
kept
