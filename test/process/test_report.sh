#!/bin/bash
# What `zeroute report` writes, against the events of the record: the page in a browser, the exports, text and JSON.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
# shellcheck source=test/promise.sh
. test/promise.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
check="python3 test/process/report_check.py"
zeroute="$B/zeroute"

has_browser() {
    python3 -c 'import sys; sys.path.insert(0, "test/process"); import browser; sys.exit(not browser.find())' ||
        { echo "no browser here"; return 77; }
}

# A record as a program leaves it: on the simulated GPU, with a cache, pools, failures and trims.
recorded() {
    "$zeroute" run --sim --preset reroute --no-summary --record "$dir/real" --stacks native -- \
        "$B/test/process/memory" >"$dir/log" 2>&1 && [ -s "$dir/real" ]
}

all_forms() { # RECORD
    "$zeroute" report --csv "$1" >"$1.csv" && "$zeroute" report --json "$1" >"$1.json" &&
        "$zeroute" report --torch-snapshot "$1" && "$zeroute" report --perfetto "$1" &&
        "$zeroute" report --no-open "$1"
}
page() {
    has_browser || return
    $check page "$1.html" "$1.csv" "$1.json"
}

figures() { # RECORD
    has_browser || return
    "$zeroute" report --json --top 100000 "$1" >"$1.all.json" && "$zeroute" report --text "$1" >"$1.txt" &&
        $check figures "$1.html" "$1.all.json" "$1.txt"
}

side_by_side() {
    has_browser || return
    "$B/test/process/make_record" "$dir/other" 5000
    "$zeroute" report --json "$dir/made" "$dir/other" >"$dir/ranks.json" &&
        "$zeroute" report -o "$dir/ranks.html" "$dir/made" "$dir/other" &&
        $check ranks "$dir/ranks.html" "$dir/ranks.json"
}

# A name of 250 bytes that stands for 2^40 characters, beside one that is an ordinary name of C++.
a_name_that_stands_for_a_terabyte() {
    local name
    name=$(python3 -c 'd = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
s = ["S%s%s_" % (d[i // 36] if i > 35 else "", d[i % 36]) for i in range(41)]
print("_Z1f1XIiiE" + "".join("S_I%s%sE" % (x, x) for x in s))')
    cat >"$dir/huge.c" <<END
#include "process/sim.h"
void *huge(struct gpu *g) __asm__("$name");
void *ordinary(struct gpu *g) __asm__("_ZN5layer7forwardEi");
__attribute__((noinline)) void *huge(struct gpu *g) { void *p = on_card(g, 0, MIB); return (char *)p + 1; }
__attribute__((noinline)) void *ordinary(struct gpu *g) { void *p = on_card(g, 0, MIB); return (char *)p + 1; }
int main(void) { struct gpu g = first_gpu(); return !huge(&g) || !ordinary(&g); }
END
    cc -O1 -Itest "$dir/huge.c" -o "$dir/huge_program" -lze_loader &&
        "$zeroute" record --sim -o "$dir/huge.zr" -- "$dir/huge_program" &&
        timeout 30 "$zeroute" report --text "$dir/huge.zr" >"$dir/huge.txt" &&
        grep -q '_Z1f1X' "$dir/huge.txt" && grep -q 'layer::forward' "$dir/huge.txt"
}

two_records_differ_by_what_their_figures_differ_by() {
    "$zeroute" report --diff --json --top 100000 "$dir/made" "$dir/other" >"$dir/diff.json" || return 1
    python3 - "$dir/diff.json" <<'PYTHON' || return 1
import json, sys
x = json.load(open(sys.argv[1]))
for rows, total in (("peak", "peak_bytes"), ("left", "never_freed_bytes"), ("allocations", "allocations")):
    change = sum(r["new"] - r["old"] for r in x[rows])
    assert change == x["new"][total] - x["old"][total], (rows, change)
    assert any(r["new"] != r["old"] for r in x[rows]), rows
PYTHON
    "$zeroute" report --diff --json "$dir/made" "$dir/made" >"$dir/same.json"
    ! grep -q '"name": ".* > \|"old": [0-9]' "$dir/same.json" || { echo "a record differs from itself"; return 1; }
    "$zeroute" report --diff --flamegraph "$dir/made" "$dir/other" |
        awk '{ if (NF < 3) exit 1 } END { exit NR == 0 }' ||
        { echo "no folded stacks with two values"; return 1; }
    "$zeroute" report --diff --text "$dir/made" "$dir/other" >"$dir/text" || return 1
    ! LC_ALL=C.UTF-8 awk 'length > 80 { print; long = 1 } END { exit !long }' "$dir/text" || return 1
    "$zeroute" report --diff "$dir/made" 2>"$dir/err"
    same $? 2 && grep -q 'two records' "$dir/err" || return 1
    has_browser || return
    "$zeroute" report --diff --no-open -o "$dir/diff.html" "$dir/made" "$dir/other" &&
        $check diff "$dir/diff.html" "$dir/diff.json"
}

# The launcher adds them when the program has ended; the mirror of the simulated machine is what is resident on both
# cards.
host_memory_is_in_the_record() {
    : >"$dir/log"
    { until grep -q ready "$dir/log"; do sleep 0.1; done; sleep 0.5; } |
        "$zeroute" run --sim=devices:2,mirror:on --no-summary --record "$dir/mirrored" -- \
            "$B/test/process/doctor_hold" >"$dir/log" 2>&1 || { cat "$dir/log"; return 1; }
    "$zeroute" report --json "$dir/mirrored" >"$dir/mirrored.json" || return 1
    python3 - "$dir/mirrored.json" <<'PYTHON' || return 1
import json, sys
x = json.load(open(sys.argv[1]))["processes"][0]
assert x["host"]["mirror_peak_bytes"] == x["peak"]["bytes"], (x["host"], x["peak"])
assert x["ended"] and not x["notes"], x["notes"]
PYTHON
    "$zeroute" report --text "$dir/mirrored" | grep -q '^Host RAM .* mirror 384 MiB' || { echo "no line"; return 1; }
}

# A simulated machine begins with its program: what is held at the first look is the program's, too.
host_memory_before_the_first_look_is_counted() {
    "$zeroute" run --sim=devices:2,mirror:on --no-summary --record "$dir/born" -- "$B/demo" 2 >"$dir/log" 2>&1
    same "$("$zeroute" report --text "$dir/born" | grep -o 'mirror [0-9.]* .iB')" "mirror 124 MiB"
}
# Nobody writes to its record any more; one that lives goes on writing, and is left alone.
host_memory_is_in_the_record_of_a_killed_process() {
    (sleep 0.5; echo) | "$zeroute" run --sim=devices:2,mirror:on --no-summary --record "$dir/killed" -- \
        "$B/test/process/run_work" keep 8 wait die >"$dir/log" 2>&1
    "$zeroute" report --json "$dir/killed" | python3 -c '
import json, sys
x = json.load(sys.stdin)["processes"][0]
assert not x["ended"] and x["host"]["samples"] > 5, (x["ended"], x["host"])' || return 1
    rm -f "$dir/go" "$dir/living" && mkfifo "$dir/go" && exec 8<>"$dir/go"
    "$zeroute" run --sim --no-summary --record "$dir/living" -- sh -c \
        "'$B/test/process/run_work' keep 8 wait <'$dir/go' >'$dir/log' &
        until grep -q ready '$dir/log'; do sleep 0.1; done"
    "$zeroute" report --json "$dir/living" | python3 -c '
import json, sys
x = json.load(sys.stdin)["processes"][0]
assert not x.get("host"), x["host"]'
    code=$?
    echo >&8
    exec 8>&-
    return $code
}

# A process that allocated nothing has a record, too.
nothing_is_shown_as_nothing() {
    "$B/test/process/make_record" "$dir/empty" 0
    all_forms "$dir/empty" &&
        "$zeroute" report --text "$dir/empty" | grep -q "no device memory was allocated" || return 1
    has_browser || return
    $check opens "$dir/empty.html"
}

folded_stacks_sum_up() {
    for weight in peak leaks allocations; do
        sum=$("$zeroute" report --flamegraph=$weight "$dir/made" | awk '{ n += $NF } END { printf "%.0f", n }')
        key=peak.bytes
        [ $weight != leaks ] || key=never_freed.bytes
        [ $weight != allocations ] || key=counts.alloc
        wanted=$(python3 -c "import json, sys
x = json.load(open(sys.argv[1]))['processes'][0]
for k in '$key'.split('.'): x = x[k]
print(x)" "$dir/made.json")
        same "$sum" "$wanted" || return 1
    done
}

text_fits_the_terminal() {
    for record in made other; do
        "$zeroute" report --text "$dir/$record" >"$dir/text" || return 1
        grep -q '^Peak ' "$dir/text" && grep -q '^Never freed ' "$dir/text" &&
            grep -q '^Live at the peak' "$dir/text" || { echo "something is missing"; cat "$dir/text"; return 1; }
        ! LC_ALL=C.UTF-8 awk 'length > 80 { print; long = 1 } END { exit !long }' "$dir/text" || return 1
    done
}

wrong_usage_is_told() {
    "$zeroute" report 2>"$dir/err"
    same $? 2 || return 1
    "$zeroute" report "$dir/nothing" 2>"$dir/err"
    same $? 2 && grep -q 'No such file' "$dir/err" || return 1
    "$zeroute" report Makefile 2>"$dir/err"
    same $? 2 && grep -q 'is not a record' "$dir/err" || return 1
    "$zeroute" report --text --json "$dir/made" 2>"$dir/err"
    same $? 2 && grep -q 'one form of output at a time' "$dir/err" || return 1
    "$zeroute" report --torch-snapshot "$dir/made" "$dir/other" 2>"$dir/err"
    same $? 2 || return 1
    "$zeroute" report --json "$dir/nothing" 2>/dev/null | grep -q '"format": 1'
}

# What a record says is shown, and never obeyed: no markup, no escape sequence, no path.
hostile_names_are_harmless() {
    python3 - "$dir/made" "$dir/hostile" <<'PYTHON' || return 1
import sys
data = open(sys.argv[1], "rb").read()
# Of the same length, so that the file stays as it is.
data = data.replace(b"/home/user/model/layers.py", b"</script><img src=x>.\x1b[2J\xff")
data = data.replace(b"step 1", b"\x1b]0;x\x07").replace(b"train.py\0--steps", b"</style><b onx=1")
open(sys.argv[2], "wb").write(data)
PYTHON
    all_forms "$dir/hostile" || return 1
    "$zeroute" report --text "$dir/hostile" >"$dir/text"
    ! grep -q $'\x1b' "$dir/text" "$dir/hostile.html" "$dir/hostile.csv" || { echo "an escape sequence"; return 1; }
    ! grep -q '<img\|<b onx' "$dir/hostile.html" || { echo "markup"; return 1; }
    $check torch "$dir/hostile.pickle" "$dir/hostile.csv" && page "$dir/hostile"
}

promise "a record is made by the program itself" recorded
"$B/test/process/make_record" "$dir/made" 30000
for record in made real; do
    [ -s "$dir/$record" ] || continue
    promise "$record: every form is written" all_forms "$dir/$record"
    promise "$record: PyTorch's viewer can go through the snapshot" \
        $check torch "$dir/$record.pickle" "$dir/$record.csv"
    promise "$record: trace events have the peaks and the blocks" \
        $check perfetto "$dir/$record.perfetto.json" "$dir/$record.csv"
    promise "$record: the page in a browser says what the events say" page "$dir/$record"
    promise "$record: every figure on the page is that of the JSON, written as in the terminal" figures "$dir/$record"
done
promise "processes stand side by side" side_by_side
promise "host memory is in the record" host_memory_is_in_the_record
promise "host memory before the first look is counted" host_memory_before_the_first_look_is_counted
promise "host memory is in the record of a killed process" host_memory_is_in_the_record_of_a_killed_process
promise "a name that stands for a terabyte holds nothing up" a_name_that_stands_for_a_terabyte
promise "two records differ by what their figures differ by" two_records_differ_by_what_their_figures_differ_by
promise "nothing is shown as nothing" nothing_is_shown_as_nothing
promise "folded stacks sum up" folded_stacks_sum_up
promise "the text fits a terminal of 80 columns" text_fits_the_terminal
promise "wrong usage is told" wrong_usage_is_told
promise "hostile names are harmless" hostile_names_are_harmless
kept
