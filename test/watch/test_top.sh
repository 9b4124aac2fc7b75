#!/usr/bin/env bash
# zeroute top in a real terminal (tmux) at three sizes, compared with golden screens; its keys; one look for scripts.
# UPDATE=1 writes the golden screens anew: look at them before they are committed. LONG=1: its cost with 200 processes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
command -v tmux >/dev/null || { echo "tmux is missing: ./setup test installs it"; exit 77; }
. test/watch/machine.sh
export LC_ALL=C.UTF-8 TMUX_TMPDIR=$dir TERM=xterm-256color
gold=test/watch/screens

# What differs from run to run: name and time of the machine, memory of the host, PIDs, times of calls, histories.
normal() {
    LC_ALL=C sed -E 's/\xe2[\xa0-\xa3][\x80-\xbf]//g' |
        sed -E 's/^(zeroute top)  [^ ]+  [0-9:]+/\1  HOST  TIME/; s/^(host +)[^,]*,/\1MEMORY,/; s/[▁▂▃▄▅▆▇█]+//g
            s/last [0-9ms ]+s/last AGE/g; s/(AGE) +/\1 /
            s/^ *[0-9]+ ( *[0-9 ]( +[-0-9,]+)? ) /    PID \1 /; s/ +[0-9.]+(ns|us|ms|s) / TIME /
            s|/[^ ]*/run_work|run_work|; s/ +$//'
}
# Each session has a server of its own: the last one may be about to end.
tmux() { command tmux -L "top$session" -f /dev/null "$@"; }
session=0
screen() { tmux capture-pane -p; }
# start WIDTH HEIGHT OPTIONS...
start() {
    local width=$1 height=$2
    shift 2
    tmux new-session -d -x "$width" -y "$height" "$Z top --interval 0.3 $*; echo ended; sleep 60"
    until_true 15 eval "screen | grep -q 'q quit'"
}
stop() { tmux kill-server; }
keys() { tmux send-keys "$@"; }
# The screen shows this in the end.
shows() { until_true 10 eval "screen | grep -qE -- '$1'" || { echo "no '$1' in:"; screen; return 1; }; }
shows_now() { sleep 0.5 && screen | grep -qE -- "$1"; }
golden() {
    until_true 10 eval "screen | normal | cmp -s - $gold/$1" || {
        [ -n "${UPDATE:-}" ] && mkdir -p $gold && screen | normal >"$gold/$1" && return 0
        diff <(screen | normal) "$gold/$1"
    }
}
a_screen_of() {
    local width=$1 height=$2 code session=$1
    start "$width" "$height" || return 1
    shows 'job slurm' && sleep 1 && golden "${width}x$height"
    code=$?
    stop
    return $code
}
# A job's line of sums, and its ranks below it, as wide as the terminal.
stat_of() {
    COLUMNS=$1 "$Z" stat | sed -E 's|/[^ ]*/run_work|run_work|; s/^( *)[0-9]+ ( *)([0-9]+m )?[0-9]+s /\1PID \2AGE /' |
        tr -s ' ' >"$dir/stat"
    [ -z "${UPDATE:-}" ] || cp "$dir/stat" "$gold/stat-$1"
    diff "$dir/stat" "$gold/stat-$1" && [ "$(COLUMNS=$1 "$Z" stat | awk -v n="$1" 'length > n' | wc -l)" = 0 ]
}
keys_do_what_they_say() {
    local code session=keys
    start 80 24 || return 1
    keys Space && shows '\[-\]' && shows '3 +0 +230M' && keys Space && shows '\[\+\]' &&
        keys F5 && shows '0 +0 +200M' && keys F5 && shows '\[\+\]' &&
        keys / && keys -l vllm && keys Enter && shows "only those with .vllm" && ! screen | grep -q 'slurm' &&
        keys / && keys Escape && shows 'job slurm' &&
        keys P && shows 'PID\^' && keys M && shows 'IN-USEv' && keys I && shows 'IN-USE\^' && keys I &&
        keys c && ! shows_now 'top 16.0G' && keys c && shows '0 Simulated GPU: top 16.0G, last' &&
        keys Right Right Right && shows 'P99  FAIL  COMMAND' && keys Left Left Left && shows '^ +PID' &&
        keys h && shows 'zeroute top: keys' && keys q && shows 'q quit' &&
        keys Down Down Enter && shows 'device memory in use, the last' && shows '0  run_work$' &&
        shows '^settings' &&
        keys End && shows '^doctor' &&
        screen | grep -q zeMemAllocDevice && keys q &&
        shows 'q quit' && tmux resize-window -x 132 -y 30 && shows 'P99' && keys q && shows '^ended'
    code=$?
    [ $code = 0 ] || screen
    stop
    return $code
}
# The line in reverse; lines above and below it change places.
the_chosen_process_stays_chosen() {
    local code session=follow
    start 80 24 --flat || return 1
    chosen() { tmux capture-pane -pe | grep -a $'\e\\[[0-9;]*7m' | grep -a run_work; }
    keys Down && until_true 10 eval 'chosen | grep -q "230M"' && keys P && shows 'PID\^' &&
        until_true 10 eval 'chosen | grep -q "230M"'
    code=$?
    [ $code = 0 ] || tmux capture-pane -pe
    stop
    return $code
}
it_works_without_colours_and_utf8() {
    local code session=plain
    tmux new-session -d -x 80 -y 24 "env TERM=vt100 LC_ALL=C NO_COLOR=1 $Z top --interval 0.3; sleep 60"
    shows 'job slurm' && ! screen | LC_ALL=C grep -q '[^ -~]'
    code=$?
    stop
    return $code
}
one_look_for_scripts() {
    COLUMNS=100 "$Z" top --once | normal >"$dir/once" && grep -q 'job slurm:81.0' "$dir/once" &&
        same "$("$Z" top --once --flat | grep -c run_work)" 5 &&
        same "$("$Z" top --once --filter vllm | grep -c run_work)" 1 &&
        "$Z" top --json | python3 -c '
import json, sys
m = json.load(sys.stdin)
assert m["format"] == 1 and len(m["processes"]) == 5 and len(m["jobs"]) == 1
assert m["jobs"][0]["allocated_bytes"] == (200 + 210 + 220 + 230) << 20, m["jobs"]
assert [p["rank"] for p in m["processes"] if "rank" in p] and m["processes"][0]["local_rank"] == "0"'
}
without_a_terminal_it_says_what_to_do() {
    "$Z" top </dev/null >"$dir/out" 2>&1
    [ $? = 2 ] && grep -q -- '--once' "$dir/out"
}
# cost SECONDS OF INTERVAL: ticks of 10 ms in 5 s
cost() {
    local before after pid
    "$Z" top --json --interval "$1" >/dev/null &
    pid=$!
    sleep 3
    before=$(awk '{ print $14 + $15 }' /proc/$pid/stat)
    sleep 5
    after=$(awk '{ print $14 + $15 }' /proc/$pid/stat)
    kill $pid
    echo $((after - before))
}
it_costs_little() {
    local ticks
    ticks=$(cost 0.5)
    echo "$ticks ticks of 10 ms in 5 s"
    [ "$ticks" -lt 50 ]
}
# All of them busy: those that do nothing are hardly read.
two_hundred_processes_cost_little() {
    local i ticks
    for ((i = 0; i < 195; i++)); do
        SLURM_JOB_ID=$((i / 8)) SLURM_STEP_ID=0 SLURM_PROCID=$i worker keep 1 steady wait
        [ $((i % 20)) != 19 ] || workers_ready $((6 + i))
    done
    workers_ready 200
    ticks=$(cost 1)
    echo "$ticks ticks of 10 ms in 5 s"
    [ "$ticks" -lt 25 ]
}

for rank in 0 1 2 3; do
    SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_JOB_NAME=train SLURM_PROCID=$rank SLURM_LOCALID=$rank \
        worker keep $((200 + 10 * rank)) wait
    workers_ready $((rank + 1))
done
POD_NAME=infer-7f POD_NAMESPACE=prod CONTAINER_NAME=vllm worker keep 700 wait
workers_ready 5
sleep 0.3 # the simulated kernel writes its figures within 5 ms
promise "at 80x24 as it was" a_screen_of 80 24
promise "at 120x40 as it was" a_screen_of 120 40
promise "at 60x15 as it was" a_screen_of 60 15
promise "stat at 80 columns as it was" stat_of 80
promise "stat at 120 columns as it was" stat_of 120
promise "keys do what they say" keys_do_what_they_say
promise "the chosen process stays chosen while lines are sorted" the_chosen_process_stays_chosen
promise "it works without colours and without UTF-8" it_works_without_colours_and_utf8
promise "one look for scripts" one_look_for_scripts
promise "without a terminal it says what to do" without_a_terminal_it_says_what_to_do
promise "it costs little" it_costs_little
[ -z "${LONG:-}" ] || promise "200 busy processes cost under 5 % of a core" two_hundred_processes_cost_little
kept
