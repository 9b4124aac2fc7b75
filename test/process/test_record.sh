#!/bin/bash
# The setting `record`: what a run on the simulated GPU did is in the file, whatever happens, and a record never harms
# the program. test/record/record.py is a reader of its own.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
export ZES_ENABLE_SYSMAN=1

run() { # run FILE SETTINGS PROGRAM ARGS...
    local file=$1 settings=$2 program=$3
    shift 3
    [ -n "${keep:-}" ] || rm -f "$file"
    LD_PRELOAD="$PWD/$B/libzeroute.so ${also:-}" ZEROUTE_CONF="route:native,$settings,record:$file" \
        ZE_SIMGPU=devices:2,count:on ZE_ENABLE_ALT_DRIVERS=$PWD/$B/libze_simgpu.so "$B/test/process/$program" "$@"
}
holds() { # holds FILE EXPRESSION: of the record r
    python3 - "$1" "$2" <<'END'
import sys
sys.path.insert(0, "test/record")
from record import *
r = Record(sys.argv[1])
if not eval(sys.argv[2]):
    print(f"not so: {sys.argv[2]}")
    print(f"peak, left, odd: {r.peak()}; {len(r.events)} events, {len(r.stack)} stacks, lost {r.lost_events}")
    for e in r.events[:40]:
        print(e)
    sys.exit(1)
END
}

said() { grep '^zeroute: record:' <<<"$out"; } # what is said of the record in $out

# Threads hand each other addresses as fast as they can: each is got and given back in turn all the same.
threads() { # threads SETTINGS
    run "$to/threads" "$1" at_once 4 2000 || return
    holds "$to/threads" 'r.count("ALLOC") > 1000 and r.peak()[0] > 0 and r.peak()[1:] == (0, 0)' &&
        holds "$to/threads" 'not r.lost_events and not r.lost_stacks' &&
        holds "$to/threads" 'len(r.threads) == 5 and r.end > r.start and {e.stack for e in r.events} <= {0, *r.stack}'
}
promise "a run of many threads adds up, blocks kept" threads cache:on,stacks:native
promise "a run of many threads adds up, nothing kept" threads cache:off,stacks:off
promise "a run of many threads adds up, with refusals" threads cache:on,limit:64MiB,cache_limit:0

reserved() {
    run "$to/reserved" cache:on at_once 2 2000 || return
    holds "$to/reserved" 'r.count("RESERVE") > 100 and sum(e.flags & HIT for e in r.events) > 100' || return
    holds "$to/reserved" 'not r.flags & 1' || return
    run "$to/reserved" cache:off at_once 2 200 || return
    holds "$to/reserved" 'r.count("RESERVE") == 0 and r.flags & 1'
}
promise "memory that is reserved is told apart where something is cached" reserved

refused() {
    run "$to/refused" "cache:on,cache_limit:0,inject:zeMemFree@1=0x78000006+zeMemFreeExt@1=0x78000006" \
        account refused_and_freed || return
    holds "$to/refused" 'r.count("BACK") == 2 and r.peak()[1:] == (0, 0)'
}
promise "a block that could not be freed is there until it is" refused

# Blocks that were idle go to the driver within frees of others, which stay in the cache.
durations() {
    run "$to/cached" cache:on,cache_idle:1ms at_once 2 5000 || return
    holds "$to/cached" 'r.count("RELEASE") > 20' || return
    holds "$to/cached" 'sum(e.type == "FREE" and e.flags & CACHED > 0 for e in r.events) > 100' || return
    holds "$to/cached" 'not any(e.duration for e in r.events if e.type == "FREE" and e.flags & CACHED)' || return
    run "$to/freed" cache:off at_once 2 200 || return
    holds "$to/freed" 'all(e.duration for e in r.events if e.type == "FREE" and e.entry.startswith("zeMemFree"))'
}
promise "a free takes as long as the driver's part of it, and no time without the driver" durations
failed() { # failed REFUSER SETTINGS
    run "$to/failed" "$2" at_once 2 1000 || return
    holds "$to/failed" "r.count('FAIL', refuser='$1') > 0 and all(e.code for e in r.events if e.type == 'FAIL')"
}
promise "what the limit refuses says so" failed limit cache:on,limit:64MiB
promise "what was injected says so" failed inject cache:off,inject:zeMemAllocDevice@3=0x70000003
promise "what zeroute refuses says so" failed zeroute cache:on
kinds() {
    run "$to/kinds" cache:on,cache_idle:60s,limit:64MiB account makes_room || return
    holds "$to/kinds" 'r.count("ALLOC", size=40 << 20) >= 4 and r.peak()[2] == 0' &&
        holds "$to/kinds" 'r.count("ALLOC", kind="physical") and r.count("ALLOC", kind="imported")' &&
        holds "$to/kinds" 'r.count("TRIM") and r.count("EXPORT") and r.count("CONTEXT") and r.cards[0] > 0'
}
promise "physical memory, trims, contexts and cards are recorded" kinds
peers() {
    run "$to/peers" cache:off,residency:owner residency peer || return
    holds "$to/peers" 'any(e.flags & SKIPPED for e in r.events)' &&
        holds "$to/peers" 'any(not e.flags & PEER for e in r.events if e.type == "RESIDENT")'
}
promise "residency is recorded, and what was skipped" peers

loading() { # as a process without statistics does, whose threads are met here first
    run "$to/loading" cache:off,stats:off loading "$PWD/$B/test/process/libmarker.so" || return
    holds "$to/loading" '{e.type for e in r.events} == {"MARK"} and len(r.events) == 2 and len(r.threads) == 2'
}
promise "a record that begins while a library is being loaded waits for nobody" loading

killed() {
    run "$to/killed" cache:off at_once 2 100000000 &
    local pid=$!
    for _ in {1..300}; do
        [ "$(stat -c %s "$to/killed" 2>/dev/null || echo 0)" -gt 300000 ] && break
        sleep 0.1
    done
    kill -KILL "$(pgrep -P $pid)"
    wait $pid 2>/dev/null
    holds "$to/killed" 'r.end == 0 and len(r.events) > 4000 and r.peak()[2] == 0'
}
promise "a process that is killed loses nothing that was stored" killed
full() { # a disk of 1 MiB
    mkdir -p "$to/disk" || return
    unshare -Urm true 2>/dev/null || { echo "no user namespaces"; return 77; }
    export -f run
    export B to
    out=$(unshare -Urm bash -c 'mount -t tmpfs -o size=1m none "$to/disk" &&
        run "$to/disk/a" cache:on at_once 2 20000 && cp "$to/disk/a" "$to/full"' 2>&1) || return
    same "$(said)" "zeroute: record: $to/disk/a: No space left on device; nothing more is recorded" || return
    holds "$to/full" 'r.lost_events > 1000 and len(r.events) > 1000'
}
promise "a full disk is told once and harms nothing" full
nowhere() {
    out=$(run "$to/no/such/folder" cache:on at_once 2 500 2>&1) || return
    same "$(said)" "zeroute: record: $to/no/such/folder: No such file or directory; nothing more is recorded"
}
promise "so is a folder that is not there" nowhere
kept_apart() { # kept_apart NAME: what is there already stays; the record is beside it
    local was
    was=$(md5sum <"$to/$1")
    out=$(keep=1 run "$to/$1" cache:on at_once 2 500 2>&1) || return
    [[ $(said) =~ ^"zeroute: record: $to/$1 exists: this process is recorded in $to/$1."[0-9]+$ ]] || return
    same "$(md5sum <"$to/$1") $(find "$to" -name "$1*" | wc -l)" "$was 2" || return
    holds "$to/$1".[0-9]* 'r.peak()[1:] == (0, 0)'
}
echo precious >"$to/other"
promise "a file that is no record is not overwritten" kept_apart other
run "$to/earlier" cache:on at_once 2 300 2>/dev/null
promise "nor is the record of an earlier run" kept_apart earlier
forked() { # forked NAME: the child has a file of its own
    rm -rf "$to/fork" && mkdir "$to/fork" && run "$to/fork/$1" cache:on keep_child child_exits || return
    same "$(find "$to/fork" -type f | wc -l)" 2 || return
    for f in "$to"/fork/*; do
        holds "$f" 'r.count("ALLOC") == 1 and r.count("FREE") == 1 and r.peak()[2] == 0' || return
    done
}
promise "a child of fork has a record of its own, by %p" forked %p.zr
promise "a child of fork has a record of its own, by the process id behind the name" forked one.zr
at_once() {
    rm -rf "$to/many" && mkdir "$to/many" || return
    local pids=()
    for i in {1..16}; do
        keep=1 ZEROUTE_RUN=one run "$to/many/zr" cache:on at_once 2 300 &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || return; done
    same "$(find "$to/many" -type f | wc -l)" 16 || return
    for f in "$to"/many/*; do holds "$f" 'r.peak()[1:] == (0, 0) and r.run_id == "one"' || return; done
}
promise "16 processes that start at once have a record each" at_once
elsewhere() {
    rm -rf "$to/fork" && mkdir "$to/fork" || return
    B=$(realpath "$B")
    (cd "$to/fork" && LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=route:native,record:here.zr ZE_SIMGPU=count:on \
        ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "$B/test/process/cache" freed_blocks_are_reused) || return
    holds "$to/fork/here.zr" 'r.count("ALLOC") > 1000'
}
promise "a name without a folder is where the program was" elsewhere

frames() { # a stack is what libgcc's unwinder finds in the same place
    LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=stats:off,record:$to/frames "$B/test/process/frames" >"$to/out" ||
        return
    holds "$to/frames" "([list(r.stack[e.stack][0][1:]) for e in r.events if e.type == 'MARK'] ==
        [[int(a, 16) for a in line.split()] for line in open('$to/out')])" && same "$(wc -l <"$to/out")" 9
}
promise "native frames are those that libgcc finds" frames
limited() {
    out=$(ulimit -f 512 && LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=stats:off,record:$to/limited python3 -c '
import ctypes
mark = ctypes.CDLL(None).zeroute_mark
for i in range(20000): mark(b"again")' 2>&1) || return
    same "$(said)" "zeroute: record: $to/limited: File too large; nothing more is recorded" || return
    holds "$to/limited" 'r.lost_events > 1000 and len(r.events) > 1000 and r.lost_events + len(r.events) == 20000'
}
promise "a limit on the size of files harms nothing" limited
short() { # of descriptors, for a while
    out=$(ulimit -n 64 && LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=stats:off,record:$to/short python3 -c '
import ctypes, os
mark = ctypes.CDLL(None).zeroute_mark
def marks(text):
    for i in range(5000): mark(text)
marks(b"before")
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
marks(b"without")
for fd in held: os.close(fd)
marks(b"after")' 2>&1) || return
    same "$(said)" '' || return
    holds "$to/short" '1000 < r.lost_events <= 5000 and r.lost_events + len(r.events) == 15000'
}
promise "a record goes on when there are descriptors again" short
# --- zeroute record and zeroute replay
Z=$PWD/$B/zeroute work=$PWD/$B/test/process/record
code() { # code WANTED COMMAND...: its exit code, and what it says in $to/said
    local wanted=$1 got=0
    shift
    "$@" >"$to/out" 2>"$to/said" || got=$?
    same "$got" "$wanted" || { cat "$to/said"; return 1; }
}
clean() {
    code 0 "$Z" record -o "$to/clean" --fail-on-leak --fail-on-growth --sim -- "$work" clean 50 || return
    holds "$to/clean" "r.peak() == ($(sed -E 's/peak ([0-9]+) .*/\1/' "$to/out"), 0, 0)"
}
promise "a program without a leak passes, and the record's peak is the program's own" clean
# A full disk, from the beginning or after a while, and a read-only one: exit code 2 or 125, and the reason.
unwritten() { # unwritten CODE REASON SIZE [OPTION...]
    unshare -Urm true 2>/dev/null || { echo "no user namespaces"; return 77; }
    mkdir -p "$to/small" || return
    export B Z work to
    # shellcheck disable=SC2016
    code "$1" unshare -Urm bash -c 'mount -t tmpfs -o size=64k none "$to/small" || exit 99
        case $2 in
        full) head -c 1m /dev/zero >"$to/small/fill" 2>/dev/null ;;
        ro) mount -o remount,ro "$to/small" ;;
        esac
        [ $2 != little ] || mount -o remount,size=1m "$to/small"
        exec "$Z" record -o "$to/small/r.zr" --sim --stacks off -- "$B/test/process/$1" $3' - "$4" "$3" "${5:-}" &&
        grep -q "zeroute record: .*$2" "$to/said" || { cat "$to/said"; return 1; }
}
promise "a record that cannot be begun is an error" unwritten 2 "no record could be written" full run_work "keep 3"
promise "a record that lacks events is an error" unwritten 2 "events are missing" little at_once "2 20000"
promise "a read-only folder is told before the program starts" unwritten 125 "Read-only" ro run_work "keep 3"
odd_places() {
    local place
    mkdir -p "$to/odd" && mkfifo "$to/odd/fifo" && ln -s nowhere "$to/odd/link" && mknod "$to/odd/null" c 1 3 ||
        return 77
    for place in fifo link null; do
        out=$(keep=1 run "$to/odd/$place" cache:on at_once 1 10 2>&1) || return
        same "$(said)" \
            "zeroute: record: $to/odd/$place: it exists and is no regular file; nothing more is recorded" || return
        code 125 "$Z" record -o "$to/odd/$place" --sim -- "$work" clean 1 || return
    done
    same "$(ls "$to/odd" | wc -l)" 3
}
promise "no record is written to a device, a FIFO or a link, nor beside it" odd_places
# A process may be anywhere by then.
relative() {
    rm -rf "$to/relative" && mkdir -p "$to/relative/sub" || return
    (cd "$to/relative" && code 0 "$Z" record -o sub/here.zr --sim -- sh -c "cd / && $work clean 2") || return
    same "$(find "$to/relative" -type f)" "$to/relative/sub/here.zr"
}
promise "a relative name of a record is of the folder where it was given" relative
again() {
    rm -rf "$to/again" && mkdir "$to/again" || return
    code 0 "$Z" record -o "$to/again/zr" --sim -- "$work" clean 3 || return
    code 0 "$Z" record -o "$to/again/zr" --sim -- "$work" clean 2 || return
    same "$(find "$to/again" -type f | wc -l)" 1 && holds "$to/again/zr" 'r.texts["command"].endswith("2\0")'
}
promise "the record of an earlier run makes way for that of a new one" again
succession() {
    rm -rf "$to/exec" && mkdir "$to/exec" || return
    code 0 "$Z" record -o "$to/exec/zr" --sim -- "$work" clean 1 "$work" clean 2 "$work" clean 3 || return
    same "$(find "$to/exec" -type f | wc -l)" 3 || return
    for f in "$to"/exec/*; do holds "$f" 'r.count("ALLOC") in (20, 40, 60)' || return; done
}
promise "programs that one process executes in turn have a record each" succession
leaking() {
    code 1 "$Z" record -o "$to/leak" --fail-on-leak --sim -- "$work" leak 50 || return
    grep -q "leak: 2.07 MiB in 3 blocks were never freed" "$to/said" || return
    code 0 "$Z" record -o "$to/leak" --fail-on-leak=3MiB --fail-on-growth --json "$to/json" --sim -- "$work" leak 50 &&
        grep -q '"left_blocks": 3' "$to/json"
}
promise "a leak ends with 1, and what is allowed does not" leaking
growing() {
    code 1 "$Z" record -o "$to/grow" --fail-on-growth --sim -- "$work" grow 100 &&
        grep -q "memory in use grew over the whole run" "$to/said"
}
promise "growth ends with 1" growing
passes() {
    code 3 "$Z" record -o "$to/none" --fail-on-leak --sim -- true || return
    code 0 "$Z" record -o "$to/none" --sim -- true || return
    code 5 "$Z" record -o "$to/none" --fail-on-leak --sim -- sh -c 'exit 5' || return
    code 127 "$Z" record -o "$to/none" --sim -- /no/such/program || return
    code 125 "$Z" record -o "$to/no/such/folder" --sim -- true || return
    code 125 "$Z" record -o "$to/other" --sim -- true || return
    same "$(cat "$to/other")" precious
}
promise "the program's exit code passes, and what cannot be recorded is not run" passes
together() { # every process of a run is looked at
    code 1 "$Z" record -o "$to/both" --fail-on-leak --sim -- sh -c "'$work' clean 2; '$work' leak 2; '$work' clean 2" ||
        return
    same "$(find "$to" -name 'both*' | wc -l)" 3
}
promise "every process of a run has its record, and is looked at" together

same_outcome() { # same_outcome PERCENT PRESET PROGRAM...: the replay of the recorded settings is that close
    local percent=$1 preset=$2
    shift 2
    code 0 "$Z" record -o "$to/replayed" --stacks off --preset "$preset" --sim=devices:2 -- "$@" || return
    "$Z" replay --json "$to/replayed" >"$to/json" || return
    python3 - "$to/json" "$percent" <<'END'
import json, sys
then, now = json.load(open(sys.argv[1]))["outcomes"]
print(then, now)
most, keys = int(sys.argv[2]) / 100, ("peak_reserved_bytes", "driver_calls", "hits", "refused")
sys.exit(any(abs(then[k] - now[k]) > most * then[k] for k in keys))
END
}
# Of a pipe a look at what it is takes the beginning.
through_a_pipe() {
    "$Z" run --sim --no-summary --json "$to/piped.json" -- "$work" clean 10 >/dev/null 2>&1 || return
    same "$("$Z" diff <(cat "$to/piped.json") "$to/piped.json" 2>&1 | sed 1,2d)" \
        "$("$Z" diff "$to/piped.json" "$to/piped.json" 2>&1 | sed 1,2d)"
}
promise "a run to compare may come through a pipe" through_a_pipe
hostile() { same_outcome "$1" reroute "$B/test/process/at_once" "$2" "$3"; } # hostile PERCENT THREADS ROUNDS
promise "a replay of a program that does everything is the run, with one thread" hostile 0 1 2000
promise "a replay of a program that does everything is close to the run, with threads" hostile 10 4 1000
promise "a replay agrees with the run, nothing cached" same_outcome 1 observe "$work" clean 100
promise "a replay agrees with the run, limited to what is left" same_outcome 1 safe "$work" clean 100
promise "a replay agrees with the run, blocks cached" same_outcome 1 reroute "$work" clean 100
promise "a replay agrees with the run, with a leak" same_outcome 1 reroute "$work" leak 100
table() {
    code 0 "$Z" replay "$to/replayed" --settings observe,limit:8MiB,cache:on+cache_limit:4MiB || return
    same "$(wc -l <"$to/out")" 6 || return
    grep -qE "^limit:8MiB +7\.[0-9]+ MiB +[0-9]+ +[0-9]+ +[1-9][0-9]*$" "$to/out" || { cat "$to/out"; return 1; }
    code 2 "$Z" replay "$to/replayed" --settings limit:much &&
        grep -q "limit:much: bad value 'much' of limit" "$to/said"
}
promise "other settings are a table, and a limit refuses in it" table

alike() { # the program notices nothing, under every setting
    local name conf alone
    alone=$("$Z" run --no-summary --preset observe --sim -- "$work" clean "${ZEROUTE_RECORD_STEPS:-100}") || return
    while read -r name conf; do
        [[ $name == \#* || -z $name ]] && continue
        for stacks in native off; do
            same "$(ZEROUTE_CONF=$conf "$Z" record -o "$to/alike" --stacks $stacks --sim -- "$work" clean \
                "${ZEROUTE_RECORD_STEPS:-100}")" "$alone" || return
            holds "$to/alike" 'r.peak()[2] == 0 and not r.lost_events and r.count("FREE") == r.count("ALLOC")' || return
        done
    done <test/settings
}
promise "the program notices nothing of a record, under every setting" alike

marked() {
    LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=record:$to/marked python3 -c '
import ctypes
mark = ctypes.CDLL(None).zeroute_mark
mark(b"step 1")
mark(b"x" * 400)
mark(None)' || return
    holds "$to/marked" '[e.text for e in r.events if e.type == "MARK"] == ["step 1", "x" * 255]'
}
promise "a mark is a line in time" marked
kept
