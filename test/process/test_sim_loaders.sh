#!/bin/bash
# The simulated GPU under every loader that distributions ship, with one driver and with two, where the
# loader calls through its own tables and where it calls through the handles.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
driver=$PWD/$B/libze_simgpu.so
second=$(mktemp -d)/libze_simgpu2.so
cp "$driver" "$second" || exit 1
trap 'rm -rf "${second%/*}"' EXIT

on() { # on LOADER SETTINGS PROGRAM...
    local loader=$1 settings=$2
    shift 2
    ZE_SIMGPU=$settings tools/bed/bed --on sim --loader "$loader" "$B/test/process/$1" "${@:2}"
}
on_two() { # on_two LOADER SETTING PROGRAM
    ZE_SIMGPU=devices:1,$2 ZE_SIMGPU2=devices:2,$2 tools/bed/bed --on sim --loader "$1" \
        env "ZE_ENABLE_ALT_DRIVERS=$driver,$second" "$B/test/process/$3"
}
fails() { # fails LOADER: sim_hello says what its third allocation got
    on "$1" fail:zeMemAllocDevice@3=0x70000003 sim_hello 2>&1 | grep 'zeMemAllocDevice.*0x70000003'
}
has() { # has LOADER FUNCTION
    on "$1" devices:1 sim_newer | grep -qx "$2"
}

there() { tools/bed/bed --on sim --loader "$1" --setup; }

while read -r loader _; do
    there "$loader" >/dev/null 2>&1 || {
        promise "the loader $loader can be had" there "$loader"
        continue
    }
    promise "$loader: memory answers as it should" on "$loader" vram:4GiB sim_answers
    promise "$loader: commands run" on "$loader" copy_cost:100ms sim_commands
    promise "$loader: handles pass between processes" on "$loader" devices:2 sim_ipc
    promise "$loader: virtual memory is mapped" on "$loader" vram:1GiB sim_virtual
    promise "$loader: newer entry points work" on "$loader" devices:1 sim_newer
    promise "$loader: a failure can be injected" fails "$loader"
    promise "$loader: two drivers" on_two "$loader" ddi_handles:off sim_two
    promise "$loader: two drivers, called through handles" on_two "$loader" ddi_handles:on sim_two
done < <(tools/bed/fetch.sh loaders)
promise "1.32 has the default context" has unstable zeDriverGetDefaultContext
promise "1.20 starts drivers by zeInitDrivers" has debian13 zeInitDrivers
kept
