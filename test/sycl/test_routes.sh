#!/bin/bash
# Every route through real SYCL runtimes, with a client that allocates as PyTorch does (torchlike.cpp; dpctl_books.py
# for the runtime that comes without headers): data right, books equal at every step, calls seen once.
#
# With more than one card also: as many host pages behind each block as when the runtime is left alone.
#
#   test/sycl/test_routes.sh [--all [RUNTIME [ADAPTER]]]   --all: every runtime, adapter, route; one, two and four cards
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
all=
[ "${1:-}" != --all ] || all=1

on_the_stack --cards 2
python=$(tools/bed/env.sh --python) || exit $?
# UMF 0.11 opens the loader by the name that a development package has.
mkdir "$dir/lib"
base=$(tools/bed/fetch.sh driver) || exit $?
[ "$base" = system ] || ln -s "$base/lib/libze_loader.so.1" "$dir/lib/libze_loader.so"

conf() {
    case $1 in
    pool-path) echo route:pool,cache:off ;;
    *) awk -v n="$1" '$1 == n { print $2 }' test/settings ;;
    esac
}

# client RUNTIME: the command that runs it, built when need be; 77 when the runtime cannot be had
client() {
    local sycl
    sycl=$(tools/bed/env.sh "$1" 2>"$dir/why") || { tail -n 1 "$dir/why"; return 77; }
    if [ "$1" = 2024.2.1 ]; then
        echo "env PYTHONPATH=$sycl/site $python test/sycl/dpctl_books.py"
    else
        B=$B test/sycl/client torchlike "$1"
    fi
}

# cell RUNTIME ADAPTER CARDS SETTING EXPECTED-ROUTE
cell() {
    local runtime=$1 v2=$(($2 - 1)) cards=$3 setting=$4 expected=$5 command here code=0 line native
    here=$dir/$runtime-v$2-$cards-$setting
    command=$(client "$runtime") || { code=$?; echo "$command"; return $code; }
    mkdir "$here"
    # shellcheck disable=SC2086
    SYCL_UR_USE_LEVEL_ZERO_V2=$v2 XE_STANDIN=vram:3GiB ZEROUTE_CONF=preset:reroute,$(conf "$setting") \
        ZEROUTE_STAT="test/sycl/snapshot $B/zeroute $here" \
        LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        timeout 120 tools/bed/bed --on intel --cards "$cards" --runtime "$runtime" \
        "$B/zeroute" run --no-summary -- $command >"$here/out" 2>"$here/err" || code=$?
    if [ $code = 0 ]; then
        native=$dir/$runtime-v$2-$cards-observe
        [ "$cards" -gt 1 ] && [ -e "$native" ] || native=
        line=$(test/sycl/books "$here" "$setting" $native 2>"$here/why") || code=$?
    else
        line="exit code $code"
    fi
    if [ $code = 0 ] && [ "${line%% *}" != "$expected" ]; then
        echo "served by ${line%% *}, not by $expected" >"$here/why"
        code=1
    fi
    echo "| $runtime | v$2 | $cards | $setting | $line$([ $code = 0 ] || echo ": WRONG") |" >>"$dir/table"
    [ $code = 0 ] || { cat "$here/out" "$here/err"; cat "$here/why" 2>/dev/null; }
    return $code
}

row() { # row RUNTIME ADAPTER CARDS SETTINGS...
    local runtime=$1 adapter=$2 cards=$3 setting route pool=pool
    shift 3
    # Pools are asked for by name from UMF 0.11 on: runtimes before 2025.2 hold UMF inside.
    case $runtime in 2024.* | 2025.[01].*) pool=sycl ;; esac
    for setting; do
        case $setting in
        native-cache | observe) route=native ;;
        sycl-cache | path) route=sycl ;;
        pool-cache | pool-path) route=${pool/sycl/native} ;;
        *) route=$pool ;;
        esac
        promise "$runtime, adapter v$adapter, $cards cards, $setting" \
            cell "$runtime" "$adapter" "$cards" "$setting" $route
    done
}

# Whoever asks for a pool where there can be none is told so, once, and in the segment.
no_pool() { # no_pool RUNTIME SETTINGS
    local command why="the runtime's adapter has a pool inside itself, and takes none from outside"
    command=$(client "$1") || { echo "$command"; return 77; }
    # shellcheck disable=SC2086
    SYCL_UR_USE_LEVEL_ZERO_V2=0 XE_STANDIN=vram:3GiB ZEROUTE_CONF=preset:reroute,$2 timeout 120 \
        tools/bed/bed --on intel --cards 2 --runtime "$1" "$B/zeroute" run --no-summary --json "$dir/json" -- $command \
        >/dev/null 2>"$dir/err" || { cat "$dir/err"; return 1; }
    same "$(grep -c '^zeroute: ' "$dir/err"): $(grep '^zeroute: ' "$dir/err")" "1: zeroute: route:pool is not possible \
here: $why; SYCL's device allocations are left to the runtime" &&
        same "$(python3 -c 'import json, sys
fields = json.load(open(sys.argv[1]))["processes"][0]["fields"]
print(fields["route.in_force"], fields["route.why"], fields["calls.pool_malloc.pool"], sep=": ")' "$dir/json")" \
            "native: $why: 0"
}

# What a setting refuses is counted, by the setting and among the failures, whoever serves; and explained.
refused() { # refused ROUTE REFUSAL SETTING CODE
    local command
    command=$(client 2026.2.0) || { echo "$command"; return 77; }
    # shellcheck disable=SC2086
    XE_STANDIN=vram:3GiB ZEROUTE_CONF=preset:reroute,route:$1,$3 timeout 120 tools/bed/bed --on intel --cards 2 \
        --runtime 2026.2.0 "$B/zeroute" run --no-summary --json "$dir/json" -- $command >/dev/null 2>"$dir/err"
    same "$(python3 -c 'import json, sys
fields = json.load(open(sys.argv[1]))["processes"][0]["fields"]
refused = fields[sys.argv[2] + ".refused_calls"]
failed = sum(v for k, v in fields.items() if k.startswith("failures.") and not k.startswith("failures.code."))
code = sum(v for k, v in fields.items() if k == "failures.code." + sys.argv[3])
print("refused" if refused else "not refused", failed >= refused, code >= refused,
      fields["oom." + sys.argv[2]].split(chr(10))[0].split(" refused ")[0])' "$dir/json" "$2" "$4")" \
        "refused True True out of memory: the setting $2"
}

routes=(native-cache sycl-cache pool-cache reroute always path pool-path)
if [ $all ]; then
    for runtime in ${2:-2024.2.1 2025.0.5 2025.1.1 2025.2.1 2025.3.1 2026.0.0 2026.1.2 2026.2.0}; do
        for adapter in ${3:-1 2}; do
            case $runtime-$adapter in 2024.*-2 | 2025.[01].*-2) continue ;; esac # no adapter v2
            for cards in 1 2 4; do
                row $runtime $adapter $cards observe "${routes[@]}"
            done
        done
    done
else
    row 2026.2.0 2 2 observe "${routes[@]}"
    row 2026.2.0 1 2 observe "${routes[@]}"
    row 2026.2.0 2 1 sycl-cache pool-cache always
    row 2026.2.0 1 1 sycl-cache pool-cache
    row 2026.2.0 2 4 sycl-cache reroute
    row 2025.3.1 2 2 native-cache sycl-cache reroute path
    row 2025.3.1 1 2 sycl-cache reroute
    row 2025.2.1 2 2 sycl-cache reroute
    row 2025.2.1 1 2 native-cache sycl-cache reroute path
    row 2024.2.1 1 2 native-cache sycl-cache pool-cache reroute path
fi
promise "2024.2.1: route:pool without a pool is told" no_pool 2024.2.1 route:pool
promise "2024.2.1: also without a cache" no_pool 2024.2.1 route:pool,cache:off
for route in native pool sycl; do
    promise "route:$route: what host_floor refuses is counted" refused $route host_floor host_floor:64TiB 0x70000002
    promise "route:$route: what limit refuses is counted" refused $route limit limit:1MiB 0x70000003
done
echo "| runtime | adapter | cards | setting | result |"
echo "| --- | --- | --- | --- | --- |"
cat "$dir/table"
kept
