#!/usr/bin/env bash
# zeroute selftest on the simulated GPU: it agrees where nothing is wrong, finds and names what is, goes on after it,
# takes no more than its budget, leaves used cards alone, and says nothing private.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
export COLUMNS=80 NO_COLOR=1
unset ZEROUTE_CONF ZEROUTE_CONF_FILE ZEROUTE_ROOT LD_PRELOAD LD_LIBRARY_PATH
. test/promise.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME=$work/state HOME=$work/a-private-folder
mkdir -p "$HOME"
Z=$B/zeroute

# tested CODE SPEC [OPTIONS]: a quick test of this simulated GPU ends with that code; its page is in $work/page.
tested() {
    local code=0 wanted=$1 spec=$2
    shift 2
    "$Z" selftest --sim="$spec" --quick --seed 1 --time 600 "$@" >"$work/page" 2>"$work/errors" || code=$?
    [ $code = "$wanted" ] || { cat "$work/page" "$work/errors"; echo "code $code, expected $wanted"; return 1; }
}
says() {
    tr -s ' \n' ' ' <"$work/page" | grep -q -- "$1" || { cat "$work/page"; echo "it does not say: $1"; return 1; }
}
# found SPEC WHAT: the fault is named, and what comes after it was done all the same.
found() {
    tested 1 "$1" --patience 2 && says "FOUND .*$2" && says 'zeroute selftest --' && says 'Host memory for a byte'
}

agrees() {
    tested 0 devices:2,mirror:on && says 'Every answer and every byte is as without zeroute' &&
        same "$(grep -c 'same answers, same data' "$work/page")" 4 && says 'as requested 1.00 mirrored'
}
promise "on a card without faults every preset agrees, and the mirror is measured" agrees

narrow() {
    local wide
    tested 0 devices:2,mirror:on && wide=$(awk 'length > 80' "$work/page") && same "$wide" ''
}
promise "the page fits 80 columns" narrow

promise "a copy that loses a page is found" found devices:1,copy_loses:20 'the driver alone: wrong data'
promise "an address range that is told wrongly is found" found devices:1,says_half:on 'the properties of a block'
promise "a call that hangs is found, with its step" found devices:1,fail:zeMemFree@10=hang \
    'no answer for 2 s in [a-z]* (operation [0-9]*)'
promise "a reset is found" found devices:1,fail:zeCommandListAppendMemoryCopy@20=0x70000001 'the device was lost'
promise "free memory that is told wrongly is found" found devices:1,says_free:total 'free memory: .*as much is told'

# A driver that says another thing than the truth: what zeroute answers itself is no difference of its own.
lied() {
    tested 1 devices:1,says_half:on && says 'reroute 1 as meant: a lie of the driver corrected' || return 1
    ! grep -q 'FOUND *under' "$work/page"
}
promise "a lie of the driver is not held against a preset" lied

# A driver that hangs when it starts, or refuses: nothing can be compared, and that is what is said.
no_start() {
    tested 1 devices:1,fail:zeInit=hang --patience 1 && says 'the driver starts: no answer for 1 s' &&
        tested 3 devices:1,fail:zeDeviceGet=0x78000003 && says 'Nothing can be tested'
}
promise "a driver that does not start is told" no_start

# filled SPEC: asks for more than the card has.
filled() {
    local code=0
    "$Z" selftest --sim="$1" --long --seeds 1 --count 20 --overcommit 64MiB >"$work/page" || code=$?
    [ $code = 0 ] || { cat "$work/page"; return 1; }
}
spills() {
    filled devices:1,vram:512MiB,spill:on && says 'alone beyond the card: it spills: 576 MiB were given' &&
        says 'safe beyond the card: refused' && filled devices:1,vram:512MiB &&
        says 'alone beyond the card: refused with 0x70000003' &&
        tested 2 devices:1 --overcommit 64MiB
}
promise "over-committing is tried only when asked for, and told to be refused or to spill" spills

# budget BYTES: the most that a program holds at one time under a cache, with what was cached.
budget() {
    local held
    for seed in 1 2 3; do
        "$Z" run --sim=devices:2 --preset reroute --json="$work/run.json" -- "$Z" selftest-worker calls --seed $seed \
            --count 600 --budget "$1" --cards 2 >"$work/said" 2>/dev/null || { tail -3 "$work/said"; return 1; }
        grep -q 'beyond the budget' "$work/said" || { echo "the budget was not reached"; return 1; }
        held=$(grep -oE '"reserved_bytes.(all|host).peak": [0-9]+' "$work/run.json" |
            awk '{ n += $2 } END { print n + 0 }')
        [ "$held" -gt 0 ] && [ "$held" -le "$1" ] || { echo "$held of $1"; return 1; }
    done
}
promise "a program takes no more than its budget, whatever is cached" budget 67108864

default_budget() {
    tested 0 devices:1,vram:1GiB && says 'budget 51.2 MiB' && tested 0 devices:1,vram:1GiB --budget 32MiB &&
        says 'budget 32.0 MiB'
}
promise "the budget is 5 % of a small card unless told otherwise" default_budget

private() {
    local word
    tested 1 devices:1,copy_loses:20 --json && cp "$work/page" "$work/json" || return 1
    "$Z" selftest --sim=devices:1,copy_loses:20 --quick --html "$work/page.html" >"$work/text"
    for word in "$(hostname)" "$(id -un)" a-private-folder "$PWD" "$work"; do
        [ ${#word} -gt 4 ] || continue
        ! grep -lF -- "$word" "$work/json" "$work/text" "$work/page.html" || { echo "says $word"; return 1; }
    done
    grep -q 'names no host' "$work/text" && grep -q 'names no host' "$work/page.html" &&
        grep -q '"contains"' "$work/json"
}
promise "no page names host, user or folder, and each says what it contains" private

# What a driver says on stderr is kept in memory: no more of it than is looked at.
talks() {
    LD_PRELOAD=$PWD/${B#"$PWD"/}/test/process/libtalker.so TALKER=$work/taken tested 0 devices:1 || return 1
    [ "$(cat "$work/taken")" -gt 0 ] && [ "$(cat "$work/taken")" -le 65536 ] || { cat "$work/taken"; return 1; }
}
promise "a driver that talks without end takes no memory" talks

json() {
    tested 1 devices:2,copy_loses:20 --json && python3 - "$work/page" <<'PY'
import json, sys
page = json.load(open(sys.argv[1]))
assert page["format"] == 1 and page["agrees"] is False
assert [row["setting"] for row in page["settings"]] == ["observe", "mitigate", "reroute", "safe"], page["settings"]
assert page["findings"][0]["seed"] == 1 and "selftest --seed 1" in page["findings"][0]["again"]
assert len(page["machine"]["cards"]) == 2 and page["mirror"] and page["answers"]
PY
}
promise "the JSON has a format, verdicts, findings, seeds and figures" json

again() {
    tested 1 devices:1,copy_loses:20 && grep -o 'operation [0-9]*\|line .*' "$work/page" >"$work/one" &&
        "$Z" selftest --sim=devices:1,copy_loses:20 --seed 1 --seeds 1 --count 250 --settings reroute >"$work/page"
    grep -o 'operation [0-9]*\|line .*' "$work/page" | diff "$work/one" - &&
        ! grep -q 'mitigate\|Host memory' "$work/page"
}
promise "a seed repeats what it found" again

# A process that holds memory of the card: the bed's simulated machine tells of both.
used() {
    cat >"$work/both" <<'SH'
mkfifo "$1/hold"
"$3/test/process/doctor_hold" <"$1/hold" >"$1/said" &
exec 9>"$1/hold"
for _ in $(seq 400); do
    ! grep -q ready "$1/said" || break
    sleep 0.05
done
"$2" selftest --quick --seed 1 >"$1/refused"
echo $? >"$1/code"
"$2" selftest --quick --seed 1 --force >"$1/forced"
echo $? >>"$1/code"
exec 9>&-
wait
SH
    tools/bed/bed --on sim --cards 2 bash "$work/both" "$work" "$Z" "$B" >"$work/page" 2>&1
    same "$(tr '\n' ' ' <"$work/code")" '3 0 ' && grep -q 'is used by another process' "$work/refused" &&
        ! grep -q 'same answers' "$work/refused" && grep -q 'same answers' "$work/forced" ||
        { cat "$work/refused" "$work/forced"; return 1; }
}
promise "a card that another process uses is left alone, unless forced" used

# hanging: starts a test whose driver hangs; sets $test to it and $worker to its worker that hangs.
hanging() {
    "$Z" selftest --sim=devices:1,fail:zeMemFree@10=hang --quick --seed 1 --patience 60 --json >"$work/page" &
    test=$!
    for _ in $(seq 400); do
        worker=$(tr -d ' ' <"/proc/$test/task/$test/children" 2>/dev/null)
        if [ -n "$worker" ] && tr '\0' ' ' <"/proc/$worker/cmdline" | grep -q 'worker calls'; then
            return 0
        fi
        sleep 0.05
    done
    kill -KILL $test
    echo "no worker came"
    return 1
}
gone() {
    for _ in $(seq 200); do
        [ -e "/proc/$1" ] || return 0
        [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1)" != Z ] || return 0
        sleep 0.05
    done
    echo "process $1 is there"
    return 1
}
interrupted() {
    hanging || return 1
    kill -TERM $test
    wait $test
    gone "$worker" && grep -q '"interrupted": true' "$work/page"
}
promise "it can be interrupted, and leaves no worker behind" interrupted
killed() {
    hanging || return 1
    kill -KILL $test
    wait $test 2>/dev/null
    gone "$worker"
}
promise "a worker ends with a test that is killed" killed

# --- what doctor says afterwards ---------------------------------------------------------------------------
state() { # writes the state of a test with this kernel
    mkdir -p "$XDG_STATE_HOME/zeroute"
    rm -f "$XDG_STATE_HOME/zeroute/selftest"
    printf 'zeroute selftest 1\nkernel %s\n' "$1" >"$XDG_STATE_HOME/zeroute/selftest"
}
doctor_says() {
    "$Z" doctor --verbose 2>/dev/null | tr -s ' \n' ' ' | grep -q 'changed since the last selftest'
}
points() {
    rm -rf "$XDG_STATE_HOME"
    ! doctor_says || { echo "without a selftest"; return 1; }
    state "$(uname -r)"
    ! doctor_says || { echo "nothing has changed"; return 1; }
    state 5.4.0-before
    doctor_says || { echo "the kernel has changed"; return 1; }
    "$Z" doctor --json | grep -q '5.4.0-before' || { echo "not in the JSON"; return 1; }
}
promise "doctor points to selftest after the kernel has changed, and not before" points
hostile() {
    state 5.4.0-before
    mv "$XDG_STATE_HOME/zeroute/selftest" "$work/elsewhere"
    ln -s "$work/elsewhere" "$XDG_STATE_HOME/zeroute/selftest"
    ! doctor_says || { echo "it follows a link"; return 1; }
    rm "$XDG_STATE_HOME/zeroute/selftest"
    mkfifo "$XDG_STATE_HOME/zeroute/selftest"
    timeout 10 "$Z" doctor >/dev/null 2>&1
    [ $? != 124 ] || { echo "it waits for a FIFO"; return 1; }
    rm "$XDG_STATE_HOME/zeroute/selftest"
    { printf 'zeroute selftest 1\nkernel \033[31m5.4.0-before\n' && head -c 9000000 /dev/zero; } \
        >"$XDG_STATE_HOME/zeroute/selftest"
    "$Z" doctor --verbose 2>/dev/null >"$work/page"
    ! grep -q $'\033' "$work/page"
}
promise "a state that is a link, a FIFO or rubbish does no harm" hostile

# --- tables ------------------------------------------------------------------------------------------------
settings() {
    local presets
    presets=$("$Z" --list presets | awk -F'\t' '{ print "s|preset:" $1 "$|" $2 "|" }')
    diff <(sed -nE 's/^ZR_SELFTEST\(([a-z-]+), "([^"]*)".*/\1 \2/p' tools/selftest/settings.def |
        sed "$presets" | sort) \
        <(awk '!/^#/ && NF { print $1, $2 }' test/settings | sort)
}
promise "it compares the settings that the other comparing tests run" settings
no_runtime() {
    ! grep -qaP '\x00UR_L0_USM_ALLOCATOR\x00' "$Z"
}
promise "the preload does not take the command for a SYCL runtime" no_runtime
kept
