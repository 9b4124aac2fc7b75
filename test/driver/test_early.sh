#!/bin/bash
# reuse:proven never hands out a block early that a command may still use, and hands it out once that is proven: by
# every kind of wait, and not by what only looks like one. On Intel's driver, and on the simulated GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
conf=route:native,cache:on,reuse:proven,cache_idle:60s,cache_limit:512MiB
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

run_cases() { # BED LOADER SETTINGS CASE...
    local bed=$1 loader=$2 settings=$3
    shift 3
    ZEROUTE_CONF=$settings tools/bed/bed --on "$bed" ${loader:+--loader "$loader"} --cards 2 \
        env LD_PRELOAD="$build/libzeroute.so" timeout 60 "$build/test/driver/early" "$@"
}

# Nothing comes back before anything is proven, nothing by what proves nothing, and the block after the proof.
proven_only() { # FILE CASE
    local line
    grep -q 'this loader is too old' "$1" && return 77
    line=$(grep "^$2 " "$1")
    case $line in
    "$2 other "*"other back" | "$2 other - back") ;;
    *)
        echo "'$line', not '$2 other other back'"
        cat "$1.said"
        return 1
        ;;
    esac
}

# The program runs as well where such a block goes to the driver.
runtime_returns_it() {
    [ "$(run_cases intel '' "${conf/proven/runtime}" queue | wc -w)" = 4 ]
}

run_cases intel '' "$conf" >"$dir/intel" 2>"$dir/intel.said"
[ $? -ne 77 ] || { tail -n 1 "$dir/intel.said"; exit 77; }
run_cases sim debian13 "$conf" >"$dir/sim" 2>"$dir/sim.said"
for name in list event later-event device queue fence out-of-order used-event host-signal other-thread other-card \
    other-run list-event signalled-fence; do
    promise "on Intel's driver a block is reused when it is proven idle, not before: $name" \
        proven_only "$dir/intel" "$name"
    [ "$name" = device ] || promise "on the simulated GPU a block is reused when it is proven idle, not before: $name" \
        proven_only "$dir/sim" "$name"
done
promise "with reuse:runtime the program runs as well" runtime_returns_it

# What may have been missed is not proven: it falls back, and says so once. Blocks are the driver's then.
falls_back() { # CASE WHY [LIBRARY]
    ZEROUTE_CONF=$conf tools/bed/bed --on sim --loader debian13 --cards 2 \
        env LD_PRELOAD="$build/libzeroute.so${3:+:$3}" timeout 60 "$build/test/driver/early" "$1" \
        >"$dir/out" 2>"$dir/said" || {
        cat "$dir/said"
        return 1
    }
    same "$(grep -c 'falls back to reuse:runtime' "$dir/said")" 1 && grep -qF "$2" "$dir/said"
}
promise "with another driver in the process nothing counts as proven" \
    falls_back list "another driver" "$build/test/process/libigdrcl.so"
promise "a list that was created past zeroute: nothing counts as proven" \
    falls_back fork "created past zeroute"
kept
