#!/bin/bash
# The setting `trace`: what a run on the simulated GPU asked for can be replayed, and a trace never harms the program.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
export ZES_ENABLE_SYSMAN=1

run() { # run TRACE SETTINGS PROGRAM ARGS...
    local trace=$1 settings=$2 program=$3
    shift 3
    LD_PRELOAD="$PWD/$B/libzeroute.so ${also:-}" ZEROUTE_CONF="route:native,$settings,trace:$trace" \
        ZE_SIMGPU=devices:2,count:on ZE_ENABLE_ALT_DRIVERS=$PWD/$B/libze_simgpu.so "$B/test/process/$program" "$@"
}
lines() { grep -c "^$1," "$2"; }

# Threads hand each other addresses as fast as they can: each is got and given back in turn all the same.
replayed() { # replayed SETTINGS
    local trace=$to/replayed.csv
    run "$trace" "$1" at_once 4 2000 || return
    head -n 1 "$trace" | grep -qx op,id,bytes,stream,time_us || return
    [ "$(lines a "$trace")" -gt 1000 ] || return
    same "$(lines a "$trace")" "$(lines f "$trace")" || return
    "$B/zeroute" replay "$trace" --json >"$to/json" || return
    same "$(grep -oE '"events": *[0-9]+' "$to/json" | grep -oE '[0-9]+$')" \
        "$(($(lines a "$trace") + $(lines f "$trace")))"
}
promise "a run of many threads is replayed, blocks kept" replayed cache:on
promise "a run of many threads is replayed, nothing kept" replayed cache:off
promise "a run of many threads is replayed, with refusals" replayed cache:on,limit:64MiB,cache_limit:0

refused() {
    run "$to/refused.csv" "cache:on,cache_limit:0,inject:zeMemFree@1=0x78000006+zeMemFreeExt@1=0x78000006" \
        account refused_and_freed || return
    same "$(cut -d, -f1 "$to/refused.csv" | grep -c a),$(cut -d, -f1 "$to/refused.csv" | grep -c f)" 4,4
}
promise "a block that could not be freed is there until it is" refused

physical() { # two of 40 MiB on card 0 and 1, one of them physical; an import is no block of ours
    run "$to/physical.csv" cache:on,cache_idle:60s account makes_room || return
    same "$(grep -c '^a,.*,41943040,' "$to/physical.csv")" 4
}
promise "physical memory is traced, too" physical

full() {
    out=$(run /dev/full cache:on at_once 2 500 2>&1) || return
    same "$out" "zeroute: trace: /dev/full: No space left on device; nothing more is written"
}
promise "a full disk is told once and harms nothing" full
nowhere() {
    out=$(run "$to/no/such/folder" cache:on at_once 2 500 2>&1) || return
    same "$out" "zeroute: trace: $to/no/such/folder: No such file or directory; nothing more is written"
}
promise "so is a folder that is not there" nowhere
unread() {
    mkfifo "$to/pipe" || return
    out=$(export -f run; export B; timeout 20 bash -c "run '$to/pipe' cache:on at_once 2 500" 2>&1) || return
    same "$out" "zeroute: trace: $to/pipe: No such device or address; nothing more is written"
}
promise "nobody is waited for at a pipe that is not read" unread
left() { # the reader goes as soon as it has seen something
    out=$(run /proc/self/fd/9 cache:on at_once 2 20000 2>&1 9> >(head -c 1 >/dev/null)) || return
    [ "$(wc -l <<<"$out")" = 1 ] && grep -q "^zeroute: trace: /proc/self/fd/9: .*; nothing more is written$" <<<"$out"
}
promise "a reader that goes away is told once and harms nothing" left
cut_off() {
    local trace=$to/small.csv
    also=$PWD/$B/test/process/libshort_write.so run "$trace" cache:on at_once 2 20000 >"$to/said" 2>&1 || return
    same "$(cat "$to/said")" "zeroute: trace: $trace: it is full; nothing more is written" || return
    "$B/zeroute" replay "$trace" >/dev/null
}
promise "a trace that was cut off ends with a whole line" cut_off

forked() { # forked TRACE FILES BLOCKS: the child has a file of its own or none
    rm -rf "$to/fork" && mkdir "$to/fork" && run "$to/fork/$1" cache:on keep_child child_exits || return
    same "$(find "$to/fork" -type f | wc -l)" "$2" || return
    same "$(cat "$to"/fork/* | grep -c ^a,),$(cat "$to"/fork/* | grep -c ^f,)" "$3,$3" || return
    for f in "$to"/fork/*; do
        "$B/zeroute" replay "$f" >/dev/null || return
    done
}
promise "a child of fork writes a trace of its own" forked %p.csv 2 2
promise "a child of fork leaves its parent's trace alone" forked one.csv 1 1

elsewhere() {
    rm -rf "$to/fork" && mkdir "$to/fork" || return
    B=$(realpath "$B")
    (cd "$to/fork" && LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=route:native,trace:here.csv ZE_SIMGPU=count:on \
        ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "$B/test/process/cache" freed_blocks_are_reused) || return
    [ "$(lines a "$to/fork/here.csv")" -gt 1000 ]
}
promise "a name without a folder is where the program was" elsewhere
kept
