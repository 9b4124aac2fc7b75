#!/bin/bash
# What comes from outside: any file in the directory of segments, segments of other layouts, no memory for our own
# books; and the end of a process, again and again.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
export B=$PWD/${B#"$PWD"/} ZE_SIMGPU=devices:2
export ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so dir
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export top=$PWD
cycles=$([ -n "${LONG:-}" ] && echo 100 || echo 10)

# With a /dev/shm of its own.
export -f same
in_private_shm() {
    unshare -m true 2>/dev/null || { echo "no mount namespace here"; return 77; }
    unshare -m bash -c 'mount -t tmpfs -o mode=1777 none /dev/shm || exit 77; . test/promise.sh; cd /dev/shm && "$@"' \
        bash "$@"
}

# Every kind of file under the name of a segment: named, refused, neither followed nor removed nor waited for.
any_file() { # DIRECTORY PREFIX
    local name n=0 command prefix=$2
    mkdir -pm 700 "$1" && cd "$1" || return 1
    echo precious >"$dir/target"
    name() { printf '%s77.%016x' "$prefix" $((++n)); }
    ln -s "$dir/target" "$(name)"; n=1
    ln -s /dev/zero "$(name)"; n=2
    ln -s "$(name)" "$(printf '%s77.%016x' "$prefix" 3)"; n=3 # to itself
    mkfifo "$(name)"; n=4
    mkdir "$(name)"; n=5
    mknod "$(name)" c 1 5 || return 77; n=6 # /dev/zero
    mknod "$(name)" b 7 200 2>/dev/null || : >"$(name)"; n=7
    truncate -s 1T "$(name)"; n=8
    : >"$(name)"; n=9
    head -c 100 /dev/urandom >"$(name)"; n=10
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$(name)"; n=11
    printf 'x' >"$(printf '%s77.%016x\033[2J' "$prefix" 12)"
    ls -A | sort >"$dir/before"
    for command in stat 'stat --all' 'stat --json' 'stat --prometheus' 'gc --dry-run' gc doctor 'doctor --json'; do
        timeout 20 "$B/zeroute" $command >"$dir/out" 2>"$dir/err"
        case $? in
        124 | 1[2-9]? | 2??) echo "zeroute $command: exit code $?"; return 1 ;;
        esac
        ! grep -q "$(printf '\033')\\[2J" "$dir/out" "$dir/err" || { echo "zeroute $command: raw"; return 1; }
    done
    same "$(cat "$dir/target")" precious || return 1
    [ -L "${prefix}77.$(printf %016x 1)" ] && [ -d "${prefix}77.$(printf %016x 5)" ] || { echo "removed"; return 1; }
    "$B/zeroute" stat --all >"$dir/out" 2>&1
    grep -q "/${prefix}77.0*8: " "$dir/out" || { cat "$dir/out"; return 1; }
}
export -f any_file
promise "any file in the directory of segments" in_private_shm any_file /dev/shm/zeroute-0 ''
promise "any file under the name of an old segment" in_private_shm any_file /dev/shm zeroute.

# What cannot be opened costs time and memory, too: links were listed one and all, 300,000 took 7 s and 288 MB.
crowd_of_links() { # PREFIX
    local links=300000
    python3 -c 'import os, sys
os.setuid(65534)
os.mkdir("/dev/shm/zeroute-65534", 0o700)
for i in range(int(sys.argv[1])):
    os.symlink("x", "/dev/shm/" + sys.argv[2] + "1.%016x" % i)' $links "$1"
    "$B/zeroute" stat --json >"$dir/out" || return 1
    [ "$(grep -c '"why"' "$dir/out")" -lt $links ] && grep -q 'the segments of user 65534 take too much' "$dir/out"
}

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
export -f as_nobody

# More names of one finished process than any list has room for: every command failed, and gc removed none.
crowd_of_finished() { # USER
    local names=70000 command
    setpriv --reuid "$1" --regid "$1" --clear-groups env LD_PRELOAD="$B/libzeroute.so" \
        "$B/test/process/run_work" keep 3 >/dev/null || return 1
    python3 -c 'import os, sys
os.chdir("/dev/shm/zeroute-" + sys.argv[1])
first, = os.listdir()
for i in range(int(sys.argv[2])):
    os.link(first, first.split(".")[0] + ".%016x" % i)' "$1" $names || return 1
    for command in 'stat --json' 'gc --dry-run --all-users'; do
        timeout 60 "$B/zeroute" $command >"$dir/out" 2>&1 || { head -c 2000 "$dir/out"; return 1; }
    done
    for _ in 1 2 3; do
        "$B/zeroute" gc --all-users >"$dir/out" || return 1
    done
    same "$(ls "/dev/shm/zeroute-$1" | wc -l)" "$2"
}
export -f crowd_of_finished

# A thousand segments are kept, of those that ended last: a program may have begun before thousands of its children.
# Of every second child, which was killed, nothing says when it ended.
parent_of_thousands() {
    local parent
    LD_PRELOAD=$B/libzeroute.so "$B/test/process/run_work" keep 3 >/dev/null || return 1
    parent=$(ls zeroute-0)
    python3 -c 'import os, struct, sys
os.chdir("/dev/shm/zeroute-0")
segment = bytearray(open(sys.argv[1], "rb").read())
began, = struct.unpack_from("<Q", segment, 56)
for i in range(2500):
    struct.pack_into("<I", segment, 24, 1000000 + i)
    struct.pack_into("<Q", segment, 48, i)
    struct.pack_into("<Q", segment, 56, began + 1000000 * (i + 1))
    name = "%d.%016x" % (1000000 + i, i)
    open(name, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)).write(segment)
    ended = began + 1000000 * (i + 1) + (5000000000 if i % 2 else 0)
    os.utime(name, ns=(ended, ended))
ended = began + 9000000000
os.utime(sys.argv[1], ns=(ended, ended))' "$parent" || return 1
    "$B/zeroute" stat --json "${parent%%.*}" >"$dir/out" || return 1
    same "$(ls zeroute-0 | wc -l)" 1000 && same "$(ls zeroute-0 | grep -c '\.0')" 999
}
export -f parent_of_thousands

# Anybody may make directories in /dev/shm: for 100,000 of them every command gave up, gc too.
crowd_of_directories() {
    local command
    mkdir -m 700 zeroute-0
    LD_PRELOAD=$B/libzeroute.so "$B/test/process/run_work" keep 3 >/dev/null || return 1
    python3 -c 'import os
os.setuid(65534)
for i in range(100000):
    os.mkdir("/dev/shm/zeroute-5.%d" % i if i % 2 else "/dev/shm/zeroute-%d" % (i + 1))'
    for command in 'stat --finished' 'stat --json --finished'; do
        timeout 60 "$B/zeroute" $command >"$dir/out" 2>&1 || { head -c 2000 "$dir/out"; return 1; }
        grep -q run_work "$dir/out" || { head -c 2000 "$dir/out"; return 1; }
    done
    as_nobody timeout 60 "$B/zeroute" stat >"$dir/out" 2>&1 || { head -c 2000 "$dir/out"; return 1; }
    "$B/zeroute" gc | grep -q '^1 segment' && same "$(ls zeroute-0)" ''
}
export -f crowd_of_directories

# with_hostile ARGUMENTS -- COMMAND...: while such processes run (hostile.py).
with_hostile() {
    local arguments=() code pid
    while [ "$1" != -- ]; do arguments+=("$1"); shift; done
    shift
    rm -f "$dir/ready"; mkfifo "$dir/ready"
    python3 "$top/test/process/hostile.py" "${arguments[@]}" >"$dir/ready" &
    pid=$!
    read -r <"$dir/ready"
    "$@"
    code=$?
    kill $pid
    return $code
}
# Names that no other process has: sums of jobs and of metrics took hours.
soon_done() {
    local command
    for command in stat 'stat --json' 'stat --prometheus' 'top --once' doctor; do
        (ulimit -t 20 && timeout 300 "$B/zeroute" $command) >"$dir/out" 2>"$dir/err"
        [ $? -lt 124 ] || { echo "zeroute $command takes more than 20 s of processor time"; return 1; }
    done
}
one_each() {
    "$B/zeroute" stat --json >"$dir/out" || return 1
    same "$(grep -c '"command": "hostile"' "$dir/out") $(grep -c '"why": "forged: the process that it names has' \
        "$dir/out")" '1 99'
}
apart() { # the same job of two users
    with_hostile 0 1 1 1 calls.a.b -- "$B/zeroute" stat --prometheus >"$dir/out" || return 1
    same "$(grep -c '^zeroute_calls_total{job="slurm:81.0".*,uid="[0-9]*",entry="a",via="b"} 5$' "$dir/out")" 2
}
export -f crowd_of_links with_hostile soon_done one_each apart
promise "a crowd of links" in_private_shm crowd_of_links zeroute-65534/
promise "a crowd of links under old names" in_private_shm crowd_of_links zeroute.
promise "a crowd of directories" in_private_shm crowd_of_directories
promise "a crowd of finished processes is removed, a part at a time" in_private_shm crowd_of_finished 0 0
promise "a thousand are kept, and the parent that ended last is among them" in_private_shm parent_of_thousands
promise "a crowd of finished processes of another user" in_private_shm crowd_of_finished 65534 45425
promise "fields of their own in each process of a job" \
    in_private_shm with_hostile 65534 100 1 2048 calls.%i.%k -- soon_done
promise "a process has one segment" in_private_shm with_hostile 65534 1 100 1 calls.%i.%k -- one_each
promise "no user adds to the metrics of another's job" in_private_shm with_hostile 65534 1 1 1 calls.a.b -- apart

# One segment of each layout that was released is kept. What this version does not read it names.
kept_layout() { # LAYOUT
    gunzip -c "$top/test/process/segments/layout-$1.gz" >zeroute.77.0000000000000077 &&
        "$B/zeroute" stat --all >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    tr -s ' \n' ' ' <"$dir/out" | grep -q "layout $1, written by an older zeroute" || { cat "$dir/out"; return 1; }
}
newer_layout() {
    mkdir -m 700 zeroute-0
    gunzip -c "$top/test/process/segments/layout-3.gz" >zeroute-0/77.0000000000000077
    printf '\143' | dd of=zeroute-0/77.0000000000000077 bs=1 seek=8 conv=notrunc 2>/dev/null
    "$B/zeroute" stat --all >"$dir/out" 2>&1
    tr -s ' \n' ' ' <"$dir/out" | grep -q 'layout 99, written by a newer zeroute' || { cat "$dir/out"; return 1; }
}
# A segment of today that does not lie in the directory of its user: nobody vouches for its owner.
out_of_place() {
    "$B/zeroute" run --no-summary -- "$B/test/process/run_work" alloc 1 || return 1
    for file in zeroute-0/*.*; do cp "$file" "zeroute.${file#zeroute-0/}"; done
    "$B/zeroute" stat --all >"$dir/out" 2>&1
    tr -s ' \n' ' ' <"$dir/out" | grep -q 'not in the directory of its user' || { cat "$dir/out"; return 1; }
}
# Another user has the name: the next one is taken, one line says so, and what lies in the first is that user's.
squatted() { # KIND
    case $1 in
    directory) mkdir -m 700 zeroute-0 && chown 65534:65534 zeroute-0 ;;
    open) mkdir zeroute-0 && chmod 777 zeroute-0 ;;
    file) : >zeroute-0 ;;
    link) mkdir -m 700 "$dir/elsewhere" && ln -s "$dir/elsewhere" zeroute-0 ;;
    esac
    LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=preset:safe "$B/test/process/run_work" keep 3 >/dev/null 2>said
    same "$(grep -c . said) $(cat said)" \
        "1 zeroute: /dev/shm/zeroute-0 is not a directory of this user alone: the next free name is used" || return 1
    [ -d zeroute-0.1 ] && same "$(stat -c '%a %u' zeroute-0.1)" "700 0" || return 1
    "$B/zeroute" stat --json --finished >"$dir/out" || return 1
    same "$(grep -c '"allocation.all.allocated": 3,' "$dir/out")" 1 || return 1
    rm -rf "$dir/elsewhere"
}
# What no version here can read is litter once its process has ended: removed when it is old, and nobody holds it.
other_layout() { # LAYOUT
    local dead=zeroute.999999999.0000000000000077 live=zeroute.999999998.0000000000000077 holder
    local new=zeroute.999999997.0000000000000077 of_live=zeroute.$$.0000000000000077 named=zeroute.999999999.mine
    gunzip -c "$top/test/process/segments/layout-3.gz" >$dead
    printf "\\$(printf %o "$1")" | dd of=$dead bs=1 seek=8 conv=notrunc 2>/dev/null
    touch -d '11 minutes ago' $dead
    cp -p $dead $live && cp -p $dead $of_live && cp -p $dead $named && cp $dead $new
    python3 -c 'import fcntl, sys, time
f = open(sys.argv[1], "r+b")
fcntl.lockf(f, fcntl.LOCK_EX, 1)
open("locked", "w").close()
time.sleep(1000)' $live &
    holder=$!
    for ((i = 0; i < 200; i++)); do [ -e locked ] && break; sleep 0.1; done
    setpriv --reuid 65534 --regid 65534 --clear-groups "$B/zeroute" gc >/dev/null
    [ -e $dead ] || { echo "another user's was removed"; return 1; }
    "$B/zeroute" gc --dry-run && "$B/zeroute" $2 >"$dir/out" 2>&1
    kill $holder
    same "$(echo zeroute.*)" "$(printf '%s\n' $of_live $live $new $named | sort | paste -sd ' ')"
}
export -f kept_layout newer_layout other_layout out_of_place squatted
for layout in test/process/segments/layout-*.gz; do
    layout=${layout##*-}
    promise "a segment of layout ${layout%.gz} is named" in_private_shm kept_layout "${layout%.gz}"
done
promise "a newer layout is named as such" in_private_shm newer_layout
promise "a segment out of place is not read" in_private_shm out_of_place
for kind in directory open file link; do
    promise "a name that is taken is stepped over: $kind" in_private_shm squatted $kind
done
promise "gc removes a dead segment of an older layout" in_private_shm other_layout 2 gc
promise "gc removes a dead segment of a newer layout" in_private_shm other_layout 99 gc
promise "any command removes it" in_private_shm other_layout 99 stat

# The segment of a process that has ended keeps values that are not zero, and the names of the others, in a few pages:
# those who end make it small themselves, and for those who were killed the next command of their user does it.
kib() { du -k "$1"/*.* | cut -f1; }
finished() {
    [ $# = 1 ] || "$B/zeroute" stat --all --finished
    "$B/zeroute" stat --json --finished | python3 -c 'import json, sys
for p in json.load(sys.stdin)["processes"]:
    print(sorted(p["fields"].items()), p["fingerprint"])'
}
made_small() {
    local before file
    as_nobody env LD_PRELOAD="$B/libzeroute.so" "$B/test/process/run_work" keep 3 die >/dev/null
    [ "$(kib zeroute-65534)" -gt 200 ] || return 1
    before=$(finished) && [ -n "$before" ] && [ "$(kib zeroute-65534)" -gt 200 ] || return 1
    as_nobody "$B/zeroute" stat >/dev/null
    [ "$(kib zeroute-65534)" -le 48 ] || { kib zeroute-65534; return 1; }
    same "$(finished)" "$before"
}
ends_small() {
    LD_PRELOAD=$B/libzeroute.so "$B/test/process/run_work" keep 3 >/dev/null || return 1
    [ "$(kib zeroute-0)" -le 48 ] || { kib zeroute-0; return 1; }
    finished json >"$dir/ended"
    rm zeroute-0/*.*
    LD_PRELOAD=$B/libzeroute.so "$B/test/process/run_work" keep 3 die >/dev/null
    finished json >"$dir/killed"
    python3 - "$dir/ended" "$dir/killed" <<'PYTHON'
import ast, sys
ended, killed = (dict(ast.literal_eval(open(f).read().split("] {")[0] + "]")) for f in sys.argv[1:])
left = {f for f in ended if f.startswith("left.")}
assert left and set(ended) - left == set(killed), set(ended) ^ set(killed)
differ = {f for f in killed if ended[f] != killed[f] and not f.startswith("latency.")}
assert not differ, differ
assert ended["left.bytes"] == 3 << 20, ended["left.bytes"]
PYTHON
}
at_most_a_thousand() {
    local file
    LD_PRELOAD=$B/libzeroute.so "$B/test/process/run_work" keep 3 >/dev/null || return 1
    file=$(echo zeroute-0/*.*)
    for i in $(seq 1500); do cp -p "$file" "${file%.*}.$(printf %016x "$i")"; done
    touch -d '50 seconds ago' zeroute-0/*.*
    "$B/zeroute" stat >/dev/null
    same "$(find zeroute-0 -name '*.*' | wc -l)" 1501 || return 1 # somebody may still be reading them
    touch -d '70 seconds ago' zeroute-0/*.*
    "$B/zeroute" stat >/dev/null
    same "$(find zeroute-0 -name '*.*' | wc -l)" 1000 || return 1
    for i in $(seq 5000); do cp -p "$file" "${file%.*}.$(printf %016x "$i")"; done
    touch zeroute-0/*.*
    "$B/zeroute" stat >/dev/null
    same "$(find zeroute-0 -name '*.*' | wc -l)" 1000
}
# Its maker was killed before the segment was whole.
killed_first() {
    LD_PRELOAD=$B/test/process/libkilled.so:$B/libzeroute.so "$B/test/process/run_work" keep 1
    same "$? $(ls zeroute-0 | wc -l)" '137 1' && "$B/zeroute" gc >/dev/null && same "$(ls zeroute-0)" ''
}
export -f killed_first
promise "a kill while the segment is made leaves nothing behind" in_private_shm killed_first

# No pages for our own books, from the n-th request on: the program does what it does without us.
without_pages() { # CONF N
    local with
    with=$(NO_PAGES=$2 LD_PRELOAD=$B/test/process/libno_pages.so:$B/libzeroute.so ZEROUTE_CONF=$1 \
        timeout 60 "$B/test/process/memory" 2>/dev/null) || { echo "exit code $?: ${with##*$'\n'}"; return 1; }
    same "$with" "$("$B/test/process/memory")"
}
for conf in preset:observe preset:reroute check:all; do
    for n in $([ -n "${LONG:-}" ] && seq 0 40 || echo 0 1 2 5 9); do
        promise "no pages from the ${n}th on, $conf" without_pages $conf "$n"
    done
done

# Frees from exit handlers and destructors, when the loader may be gone.
ends() { # PRESET PROGRAM ARGUMENTS
    local i conf=preset:$1 without
    shift
    without=$("$B/test/process/$1" "${@:2}" 2>&1)
    for ((i = 0; i < cycles; i++)); do
        same "$(LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=$conf timeout 60 "$B/test/process/$1" "${@:2}" 2>&1
            echo $?)" \
            "$without${without:+$'\n'}0" || return 1
    done
}
for preset in observe reroute; do
    promise "frees at the end, $preset" ends $preset exit
    for way in return exit thread _exit; do
        promise "left by $way, $preset" ends $preset leave $way
    done
done
echo "tried: $cycles ends of a process in each of 5 ways and 2 presets"
"$B/zeroute" gc >/dev/null 2>&1
kept
