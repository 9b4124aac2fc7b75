#!/bin/bash
# Programs that do strange things (prog_strange.c) do them with us as they do without, whatever the settings; and where
# /dev/shm is full, read-only or missing, there is one line about it and no more.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
strange=$PWD/$B/test/process/strange
export ZE_ENABLE_ALT_DRIVERS=$PWD/$B/libze_simgpu.so ZE_SIMGPU=devices:2

# strangely PART CONF [COMMAND...]: COMMAND starts it. Prints its exit code, and what it
# said but for the warning about statistics, and explanations of what was refused.
strangely() {
    local part=$1 preload=$PWD/$B/libzeroute.so said code=0
    [ "$2" != without ] || preload=''
    said=$("${@:3}" env LD_PRELOAD="$preload" ZEROUTE_CONF="$2" timeout 60 "$strange" "$part" 2>&1) || code=$?
    echo "exit code $code"
    grep -v -e '^zeroute: no statistics of this process: ' -e '^zeroute: out of memory: ' -e '^  ' <<<"$said"
}
as_without() { same "$(strangely "$1" "$2")" "$(strangely "$1" without)"; }
goes_well() { same "$(strangely "$1" without)" 'exit code 0'; }
for part in $("$strange" --list); do
    promise "$part, without us" goes_well "$part"
    for conf in preset:observe preset:reroute preset:path preset:safe stats:off,route:native; do
        promise "$part, $conf" as_without "$part" "$conf"
    done
done

# with_shm KIND COMMAND...: in a mount namespace of its own.
with_shm() {
    # shellcheck disable=SC2016
    unshare -m bash -c '
        case $0 in
        full) mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/full ;;
        crowded) mount -t tmpfs -o nr_inodes=1 none /dev/shm ;;
        read-only) mount -t tmpfs -o ro none /dev/shm ;;
        missing) mount -t tmpfs none /dev ;;
        esac 2>/dev/null
        exec "$@"' "$@"
}
told_once() { # told_once KIND CONF
    local said
    unshare -m true 2>/dev/null || {
        echo "no mount namespace here"
        return 77
    }
    said=$(with_shm "$1" env LD_PRELOAD="$PWD/$B/libzeroute.so" ZEROUTE_CONF="$2" \
        "$strange" threads_come_and_go 2>&1) || return
    same "$(wc -l <<<"$said") $(grep -c '^zeroute: no statistics of this process: ' <<<"$said")" '1 1'
}
for kind in full crowded read-only missing; do
    for conf in preset:observe preset:reroute; do
        promise "$conf where /dev/shm is $kind" told_once "$kind" "$conf"
    done
done
kept
