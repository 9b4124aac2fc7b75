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
run_cases intel '' "$conf" failed-append >>"$dir/intel" 2>>"$dir/intel.said" # the copy engine fills single bytes
run_cases sim debian13 "$conf" >"$dir/sim" 2>"$dir/sim.said"
run_cases sim debian13 "$conf" device-reset >>"$dir/sim" 2>>"$dir/sim.said" # Intel's driver waits for the gate there
sim_that() { # sim_that SETTING CASE: adds what the case says, on a loader that has zeDeviceSynchronize
    ZE_SIMGPU=$1 run_cases sim unstable "$conf" "$2" >>"$dir/sim" 2>>"$dir/sim.said"
}
sim_that tiles:2 tile
sim_that fail:zeCommandListAppendMemoryFill=0x70000001 refused-sync
sim_that fail:zeDeviceSynchronize=0x70000001 refused-device
both=(list event later-event queue fence out-of-order used-event host-signal other-thread other-card other-run
    list-event signalled-fence executed-again used-fence reset-list destroyed-list kernel copied list-event-reset
    synchronous chain broken-chain)
for name in "${both[@]}" device failed-append; do
    promise "on Intel's driver a block is reused when it is proven idle, not before: $name" \
        proven_only "$dir/intel" "$name"
done
for name in "${both[@]}" device-reset tile refused-sync refused-device; do
    promise "on the simulated GPU a block is reused when it is proven idle, not before: $name" \
        proven_only "$dir/sim" "$name"
done
promise "with reuse:runtime the program runs as well" runtime_returns_it

# A loader with two drivers below it wraps handles: the second hook that a call passes is given the driver's own.
for bed in intel,sim sim,intel; do
    run_cases $bed debian13 "$conf" >"$dir/$bed" 2>"$dir/$bed.said"
    for name in list event queue fence list-event reset-list copied; do
        promise "with two drivers a block is reused when it is proven idle, not before: $bed, $name" \
            proven_only "$dir/$bed" "$name"
    done
done

# What may have been missed is not proven: it falls back, and says so once. Blocks are the driver's then.
falls_back() { # BED LOADER CASE WHY [LIBRARY]
    ZEROUTE_CONF=$conf tools/bed/bed --on "$1" ${2:+--loader "$2"} --cards 2 \
        env LD_PRELOAD="$build/libzeroute.so${5:+:$5}" timeout 60 "$build/test/driver/early" "$3" \
        >"$dir/out" 2>"$dir/said" || {
        cat "$dir/said"
        return 1
    }
    same "$(grep -c 'falls back to reuse:runtime' "$dir/said")" 1 && grep -qF "$4" "$dir/said"
}
for name in libigdrcl libmfx-gen iHD_drv_video; do
    cp "$build/test/process/libigdrcl.so" "$dir/$name.so" || exit 1
    promise "with another driver in the process nothing counts as proven: $name" \
        falls_back sim debian13 list "another driver" "$dir/$name.so"
done
promise "a list that was created past zeroute: nothing counts as proven" \
    falls_back sim debian13 fork "created past zeroute"
promise "Level Zero in a namespace of its own, opened later: nothing counts as proven" \
    falls_back sim debian13 namespace "in a namespace of its own"
promise "work that an external semaphore ends: nothing counts as proven" \
    falls_back sim debian13 semaphore "zeCommandListAppendSignalExternalSemaphoreExt was called"
promise "work that a graph has captured: nothing counts as proven" \
    falls_back intel unstable capture "zeCommandListBeginGraphCaptureExt was called"
kept
