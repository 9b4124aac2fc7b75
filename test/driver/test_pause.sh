#!/bin/bash
# Pausing and resuming, on the simulated GPU and on Intel's driver with 1, 2 and 4 cards: nothing is lost, and what
# cannot be paused is refused before anything is touched. What the driver frees is overwritten throughout
# (glibc.malloc.perturb): a pointer to an old allocation that the driver keeps shows at once. LONG=1: more pauses.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
beds='sim intel'
if ! tools/bed/bed --on intel true; then
    beds=sim
    echo "skipped: Intel's driver: it cannot be had here"
fi
pauses=${LONG:+300}
paused() { # paused BED CARDS CONF CASE ARGS...
    local status
    ZE_SIMGPU=hint:on,vram:1GiB,$SIM LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$3 \
        GLIBC_TUNABLES=glibc.malloc.perturb=165 tools/bed/bed --on "$1" --cards "$2" \
        timeout 100 "$build/test/driver/pause" "${@:4}" >"$dir/out" 2>&1
    status=$?
    [ $status = 0 ] || { echo "exit code $status"; tail -5 "$dir/out"; return 1; }
}
# A file system of 1 MiB, which the contents do not fit into.
paused_without_room() { # BED
    unshare -m true 2>/dev/null || { echo "no mount namespace here"; return 77; }
    mkdir -p "$dir/full"
    export -f paused
    export build dir SIM
    PAUSE_FULL=$dir/full unshare -m bash -c \
        'mount -t tmpfs -o size=1m none "$PAUSE_FULL" && paused "$0" 1 pause:on no_room' "$1"
}
SIM=count:off
for on in $beds; do
    for cards in 1 2 4; do
        promise "every byte is as before, $on, $cards cards" paused $on $cards pause:on keeps host 3
    done
    promise "every byte is as before without a cache, $on" paused $on 2 preset:observe,pause:on keeps host 2
    promise "every byte is as before by way of a folder, $on" paused $on 2 pause:on keeps "$dir" 2
    promise "contents that are not kept read as zero, $on" paused $on 2 pause:on keeps nothing 2
    promise "threads that allocate, copy and free are paused again and again, $on" \
        paused $on 2 pause:on threads "${pauses:-25}"
    promise "blocks are freed during a pause, $on" paused $on 1 pause:on frees
    promise "a command list with commands in it is refused, $on" paused $on 1 pause:on closed_list
    promise "a block whose IPC handle was taken is refused, $on" paused $on 1 pause:on exported
    promise "a device that does not come to rest is refused in time, $on" paused $on 1 pause:on busy
    promise "the card's memory is given up and taken again, $on" paused $on 2 pause:on gives_up
    promise "a paused process forks, $on" paused $on 1 pause:on forks
    promise "a thread that submits waits, and takes signals, $on" paused $on 1 pause:on waits
    promise "a paused process exits, $on" paused $on 1 pause:on exits
    promise "a folder that is not there, and a wrong request, are refused, $on" paused $on 1 pause:on no_room
    promise "a folder without room is refused before anything is touched, $on" paused_without_room $on
done
promise "without room on the card it stays paused, and comes back when there is" paused sim 1 pause:on no_way_back
promise "with pause:off the request is refused" paused sim 1 pause:off is_off
SIM=hint:off
promise "a driver that reserves where it likes is never paused" paused sim 1 pause:on reserves_elsewhere
kept
