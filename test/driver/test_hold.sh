#!/bin/bash
# ipc:hold on both drivers: a block that another process has open stays what it is when its owner frees it, until that
# process closes it or ends, the bound is reached, or the context goes.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# on BED PART [SETTING...]: the program's output, and what all its processes counted.
on() {
    local bed=$1 part=$2
    shift 2
    timeout 100 tools/bed/bed --on "$bed" "$build/zeroute" run --no-summary --json "$dir/json" "$@" -- \
        "$build/test/driver/hold" "$part" 2>"$dir/errors" || { cat "$dir/errors"; return 1; }
    python3 - "$dir/json" <<'END'
import json, sys
processes = json.load(open(sys.argv[1]))["processes"]
total = lambda name: sum(p["fields"].get(name, 0) for p in processes)
print("held", total("ipc.held_frees"), "given up", total("ipc.given_up_frees"), "left",
      total("device.0.ipc.held_bytes"), "not freed", total("driver.alloc_calls") - total("driver.free_calls"))
END
}

safe="allocated: no
handed out again: no
freed again: refused
the other process reads what was written
held 1 given up 0 left 0 not freed 0"
held() { same "$(on "$1" "$2" --preset safe)" "$safe"; }
ordinary() { same "$(on "$1" closed --preset safe)" "held 0 given up 0 left 0 not freed 0"; }
# Four of eight blocks of 8 MiB fit.
bounded() {
    same "$(on "$1" many --preset safe --ipc-hold-limit 32MiB)" "held 8 given up 4 left 0 not freed 0" || return 1
    grep -q "a freed block of 8388608 bytes on card 0 goes to the driver although process" "$dir/errors" || {
        cat "$dir/errors"
        return 1
    }
}
too_large() { same "$(on "$1" many --preset safe --ipc-hold-limit 4MiB)" "held 0 given up 8 left 0 not freed 0"; }
context_goes() { same "$(on "$1" context --preset safe)" "held 8 given up 0 left 0 not freed 0"; }
as_before() { same "$(on "$1" many --preset observe)" "held 0 given up 0 left 0 not freed 0"; }
# The processor's time, which other programs do not take: one look at all of them takes some 20 ms.
looks_are_rare() { on sim crowd --preset safe | grep -qx '600 calls beside 800 held blocks: less than a second'; }
# check has the same eyes: it tells of the error, and the block is held all the same.
with_check() {
    same "$(on "$1" open --preset safe --check ipc)" "$safe" || return 1
    [ "$(grep -c 'check: ipc_freed_while_open' "$dir/errors")" = 1 ] || { cat "$dir/errors"; return 1; }
}
# What happens without: the other process reads what its owner has allocated since.
exposed() { on "$1" open --preset observe | grep -qx 'the other process reads other bytes'; }

# What the driver leaves open per import is its own: none of it is closed, and none is added.
descriptors() {
    local alone
    alone=$(timeout 100 tools/bed/bed --on "$1" "$build/test/driver/ipc_descriptors" 20 | sort) || return 1
    [ "$(wc -l <<<"$alone")" = 2 ] || { echo "$alone"; return 1; }
    same "$(LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=preset:safe timeout 100 tools/bed/bed --on "$1" \
        "$build/test/driver/ipc_descriptors" 20 | sort)" "$alone"
}

beds=sim
tools/bed/bed --on intel true
case $? in
77) promise "on Intel's driver" exit 77 ;;
*) beds="sim intel" ;;
esac
for bed in $beds; do
    promise "a block that another process has open is held on $bed" held $bed open
    promise "one that is freed with a policy, too, on $bed" held $bed open_ext
    promise "it goes when that process is killed, on $bed" held $bed killed
    promise "what was closed before is freed as ever on $bed" ordinary $bed
    promise "beyond the bound the oldest go, and that is said, on $bed" bounded $bed
    promise "a block larger than the bound goes at once on $bed" too_large $bed
    promise "what is held goes with its context on $bed" context_goes $bed
    promise "without the setting nothing is held on $bed" as_before $bed
    promise "as many descriptors are left open as without, on $bed" descriptors $bed
    promise "check:ipc beside it finds the error on $bed" with_check $bed
done
promise "calls do not wait for look after look at hundreds of held blocks" looks_are_rare
case $beds in
*intel) promise "without it the other process reads other bytes on Intel's driver" exposed intel ;;
esac
kept
