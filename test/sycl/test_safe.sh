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
test/bed --on intel --runtime newest --setup >"$dir/setup" 2>&1 || {
    code=$?
    tail -n 1 "$dir/setup"
    exit $code
}
client=$B/sycl/torchlike-2026.2.0
if [ test/sycl/torchlike.cpp -nt "$client" ]; then
    sycl=$(test/sycl/env.sh 2026.2.0) || exit $?
    mkdir -p "$B/sycl"
    g++ -std=c++17 -O1 -w -I"$sycl/include" test/sycl/torchlike.cpp -o "$client" "$sycl"/lib/libsycl.so.9 \
        -Wl,--allow-shlib-undefined -lpthread || exit 1
fi
export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:2GiB,spill:on XE_STANDIN_COUNTS=$dir/counts
mkdir "$ZEROUTE_ROOT"
mkfifo "$dir/end"
LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=route:native,cache:off,limit:600MiB test/bed --on intel \
    "$B/test/driver/greedy" 20 1 hold <"$dir/end" >"$dir/filler" 2>/dev/null &
exec 9>"$dir/end"
until [ -s "$dir/filler" ]; do sleep 0.05; done
spilled() { awk '$1 == "gem_create_spilled" { print $2 }' "$dir/counts"; }
run() { # run ADAPTER PRESET
    SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) timeout 60 test/bed --on intel --runtime 2026.2.0 "$B/zeroute" run \
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
    grep -q 'card 0 is full, and allocations go to host memory' <<<"$out" || { echo "$out"; return 1; }
    python3 -c 'import json, sys
sys.exit(not json.load(open(sys.argv[1]))["processes"][0]["fields"].get("device.0.spilled_bytes"))' "$dir/json"
}
for adapter in 1 2; do
    promise "adapter v$adapter, safe: the retry succeeds and nothing spills" safe $adapter
    promise "adapter v$adapter, observe: it spills, which is counted and said" observe $adapter
done
# Host USM is cached on every route with reuse:always, and shows as reserved; without it that is said.
kept_pinned() { # kept_pinned ADAPTER ROUTE
    SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) ZEROUTE_CONF=route:$2,cache_host:on,reuse:always timeout 60 test/bed \
        --on intel --runtime 2026.2.0 "$B/zeroute" run --no-summary --json "$dir/json" -- "$client" pinned 9>&- ||
        return 1
    python3 -c 'import json, sys
f = json.load(open(sys.argv[1]))["processes"][0]["fields"]
print(f["cache.hits"], f["reserved_bytes.host.peak"], f["allocated_bytes.host.peak"])
sys.exit(f["cache.hits"] < 3 or f["reserved_bytes.host.peak"] < 64 << 20)' "$dir/json"
}
says_so() { # says_so ADAPTER
    local out
    out=$(SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) ZEROUTE_CONF=cache_host:on timeout 60 test/bed --on intel \
        --runtime 2026.2.0 "$B/zeroute" run --no-summary -- "$client" pinned 2>&1 9>&-)
    grep -q 'cache_host:on has no effect' <<<"$out"
}
for adapter in 1 2; do
    for route in pool sycl native; do
        promise "adapter v$adapter, route:$route: pinned memory is cached with reuse:always" kept_pinned $adapter $route
    done
    promise "adapter v$adapter: without reuse:always it is said that pinned memory is not cached" says_so $adapter
done
exec 9>&-
wait
kept
