#!/usr/bin/env bash
# Programs that work while they are paused and resumed again and again, through zeroute run, pause and resume on the
# simulated GPU: no byte is lost, and by the kernel's own count the memory is gone in between. LONG=1: 200 pauses each.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
B=$PWD/${B#"$PWD"/}
unset ZEROUTE_CONF ZEROUTE_CONF_FILE ZEROUTE_ROOT ZEROUTE_RUN
. test/promise.sh
Z=$B/zeroute
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
pauses=${LONG:+200}
pauses=${pauses:-12}

# begin SPEC THREADS MIB [OPTIONS of run...]: pid, and its input as descriptor 9
begin() {
    local spec=$1 threads=$2 mib=$3
    shift 3
    rm -f "$dir/in"
    : >"$dir/said" # an earlier process must not be taken for this one
    mkfifo "$dir/in"
    "$Z" run --sim="$spec,hint:on" --pause on "$@" --no-summary -- "$B/test/process/pause_work" "$threads" "$mib" \
        <"$dir/in" >"$dir/said" 2>"$dir/errors" &
    run=$!
    exec 9>"$dir/in"
    for ((i = 0; i < 600; i++)); do
        pid=$(sed -n 's/^ready //p' "$dir/said")
        [ -n "$pid" ] && return
        kill -0 $run 2>/dev/null || break
        sleep 0.05
    done
    cat "$dir/said" "$dir/errors"
    return 1
}

finish() {
    echo >&9
    exec 9>&-
    wait $run || { cat "$dir/said" "$dir/errors"; return 1; }
    grep -q '^right after' "$dir/said" || { cat "$dir/said"; return 1; }
}

paused_and_resumed() { # SPEC THREADS MIB [OPTIONS of run...] -- [OPTIONS of pause...]
    local options=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    begin "${options[@]}" || return 1
    for ((n = 0; n < pauses; n++)); do
        "$Z" pause "$@" "$pid" >"$dir/out" 2>&1 && "$Z" resume "$pid" >>"$dir/out" 2>&1 || {
            cat "$dir/out"
            echo "pause number $n"
            kill $run
            exec 9>&-
            return 1
        }
    done
    finish
}

# The kernel's figures of the process and of the machine, in a line: VRAM, GTT, GPUActive less host USM (bytes).
figures() {
    "$Z" stat --json "$pid" | python3 -c '
import json, sys
d = json.load(sys.stdin)
p = d["processes"][0]
h = p["host"]
print(p["vram_bytes"], p["gtt_bytes"], h.get("gpu_active_bytes", 0) - p["host_usm_bytes"],
      p.get("pause", {}).get("given_back_bytes", 0), p.get("pause", {}).get("host_bytes", 0))'
}

by_the_kernels_count() { # --to WHERE
    begin devices:2,mirror:on,vram:1GiB 2 64 || return 1
    echo idle >&9
    for ((i = 0; i < 200; i++)); do grep -q '^idle' "$dir/said" && break; sleep 0.05; done
    local before during after
    before=$(figures)
    "$Z" pause "$@" "$pid" || return 1
    during=$(figures)
    "$Z" resume "$pid" || return 1
    after=$(figures)
    printf 'VRAM GTT mirror given-back host-bytes\nbefore %s\nduring %s\nafter  %s\n' "$before" "$during" "$after"
    echo go >&9
    finish || return 1
    python3 - "$1" "$2" "$before" "$during" "$after" <<'PYTHON'
import sys
to = sys.argv[2]
before, during, after = ([int(n) for n in a.split()] for a in sys.argv[3:])
assert before[0] > 8 << 20 and before[2] > 8 << 20, "the program holds memory, and it is mirrored"
assert during[3] > before[0] // 2, "most of it was given back"
assert during[0] <= before[0] - during[3], "VRAM fell by what was given back"
assert during[2] <= before[2] - during[3], "and so did the mirror"
assert (during[4] >= during[3]) == (to == "host"), "contents are in host memory if they were to be"
# A block that was freed while commands ran is given back once they are done, which may be after the first look.
for n in (0, 2):
    assert before[n] - (1 << 20) <= after[n] <= before[n], "all is as before"
assert after[3:] == [0, 0] and after[0] == after[2], "all is as before"
PYTHON
}

killed_commands_do_no_harm() {
    begin devices:2,vram:1GiB 2 64 || return 1
    for ((n = 0; n < pauses; n++)); do
        "$Z" pause "$pid" >/dev/null 2>&1 &
        local command=$!
        sleep 0.00$((n % 10))
        kill -9 $command 2>/dev/null
        wait $command 2>/dev/null
        "$Z" resume "$pid" >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    done
    # One that was killed early may have left its request: it is carried out after the resume.
    "$Z" resume "$pid" >/dev/null
    finish
}

a_paused_program_ends_when_it_is_told_to() {
    begin devices:1,vram:1GiB 2 64 || return 1
    "$Z" pause "$pid" >"$dir/out" || { cat "$dir/out"; return 1; }
    kill -TERM "$pid"
    exec 9>&-
    wait $run
    [ $? = 143 ]
}

doctor_says_so() {
    begin devices:1,vram:1GiB 2 64 || return 1
    "$Z" pause "$pid" >"$dir/out" || { cat "$dir/out"; return 1; }
    "$Z" doctor "$pid" >"$dir/doctor"
    "$Z" resume "$pid" >"$dir/out" || { cat "$dir/out"; return 1; }
    finish || return 1
    cat "$dir/doctor"
    grep -q 'the program is paused' "$dir/doctor" && grep -q "zeroute resume $pid" "$dir/doctor"
}

# Two ranks of a job, the second one with `export`: it refuses, since another process may use its memory.
a_job_whose_second_rank_refuses() {
    local n code=0 runs=()
    mkfifo "$dir/go0" "$dir/go1"
    exec 7<>"$dir/go0" 8<>"$dir/go1"
    for n in 0 1; do
        env SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_PROCID=$n "$Z" run --sim=devices:1,vram:1GiB,hint:on --pause on \
            --no-summary -- "$B/test/process/pause_work" 1 16 $([ $n = 1 ] && echo export) \
            <"$dir/go$n" >"$dir/said$n" 2>&1 &
        runs+=($!)
    done
    for ((i = 0; i < 600; i++)); do
        [ "$(cat "$dir"/said[01] | grep -c '^ready')" = 2 ] && break
        sleep 0.05
    done
    "$Z" pause --job 81.0 >"$dir/out" || code=$?
    "$Z" stat --json >"$dir/stat"
    [ $code = 1 ] || "$Z" resume --job 81.0
    echo >&7
    echo >&8
    wait "${runs[0]}" && wait "${runs[1]}" || code=9
    exec 7>&- 8>&-
    cat "$dir/out" "$dir"/said[01]
    [ $code = 1 ] && grep -q 'rank 0  was paused, and is resumed again' "$dir/out" &&
        grep -q 'rank 1  refused, and runs on' "$dir/out" && ! grep -q ': "paused"' "$dir/stat" &&
        [ "$(cat "$dir"/said[01] | grep -c '^right after')" = 2 ]
}

# on_machine SETTINGS NAME PROGRAM...: under the preload, on one simulated machine; its input is $dir/NAME.
on_machine() {
    local settings=$1 name=$2
    shift 2
    rm -f "$dir/$name" "$dir/$name.said"
    mkfifo "$dir/$name"
    env ZEROUTE_ROOT="$dir/root" ZE_SIMGPU=devices:1,vram:96MiB,hint:on ZE_ENABLE_ALT_DRIVERS="$B/libze_simgpu.so" \
        ZEROUTE_CONF="$settings" LD_PRELOAD="$B/libzeroute.so" "$@" <"$dir/$name" >"$dir/$name.said" 2>&1 &
}

until_ready() { # NAME
    for ((i = 0; i < 600; i++)); do grep -q '^ready' "$dir/$1.said" && return; sleep 0.05; done
    cat "$dir/$1.said"
    return 1
}

# The name is what that process says of itself: any bytes.
who_has_taken_the_card_is_named() { # NAME [PATTERN]
    local first second code=0 waits
    rm -rf "$dir/root"
    mkdir "$dir/root"
    on_machine preset:observe,pause:on first "$B/test/process/pause_work" 1 90
    first=$!
    exec 7>"$dir/first"
    until_ready first || return 1
    "$Z" pause $first || return 1
    # shellcheck disable=SC2016 # the arguments are those of the inner shell
    on_machine preset:observe second bash -c 'exec -a "$@"' - "$1" "$B/test/process/run_work" keep 88 wait
    second=$!
    exec 8>"$dir/second"
    until_ready second || return 1
    "$Z" resume $first >"$dir/out" 2>&1 || code=$?
    "$Z" resume --wait $first >"$dir/waited" 2>&1 &
    waits=$!
    for ((i = 0; i < 200; i++)); do grep -q " $second  .*${2-}" "$dir/waited" && break; sleep 0.05; done
    echo >&8
    exec 8>&-
    wait $waits || { cat "$dir/waited"; return 1; }
    echo >&7
    exec 7>&-
    wait $first || return 1
    cat "$dir/out" "$dir/waited" "$dir/first.said"
    [ $code = 1 ] && grep -q 'stays paused' "$dir/out" && grep -q " $second  .*${2-}" "$dir/out" &&
        grep -q 'resumed in' "$dir/waited" && grep -q '^right after' "$dir/first.said"
}

a_nearly_full_card_has_room() {
    begin devices:1,vram:96MiB 2 64 || return 1
    "$Z" pause "$pid" >"$dir/out" || { cat "$dir/out"; return 1; }
    "$Z" resume "$pid" >"$dir/out" || { cat "$dir/out"; return 1; }
    finish
}

promise "one card, observe: no byte is lost" paused_and_resumed devices:1,vram:1GiB 2 64 --preset observe --
promise "one card, reroute: no byte is lost" paused_and_resumed devices:1,vram:1GiB 2 64 --preset reroute --
promise "two cards: no byte is lost" paused_and_resumed devices:2,vram:1GiB 3 96 --preset reroute --
promise "contents in a folder: no byte is lost" paused_and_resumed devices:2,vram:1GiB 2 64 -- --to "$dir"
promise "by the kernel's count the memory is gone, contents in host memory" by_the_kernels_count --to host
promise "by the kernel's count the memory is gone, contents in a folder" by_the_kernels_count --to "$dir"
promise "commands that are killed do no harm" killed_commands_do_no_harm
promise "a paused program ends when it is told to" a_paused_program_ends_when_it_is_told_to
promise "a job whose second rank refuses goes on as a whole" a_job_whose_second_rank_refuses
promise "doctor says that a program is paused" doctor_says_so
promise "who has taken the card is named, and waited for if it is wanted" \
    who_has_taken_the_card_is_named run_work 'run_work keep 88'
promise "so is one that calls itself by 4,000 bytes that are no text" \
    who_has_taken_the_card_is_named "$(printf '\xff%.0s' {1..4000})"
promise "a card that is nearly full has room for what it gave back" a_nearly_full_card_has_room
kept
