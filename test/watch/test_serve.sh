#!/usr/bin/env bash
# zeroute serve: who may ask, what is answered, and what hostile or slow clients cost. LONG=1: 200
# processes instead of 64, and wrk for 30 seconds instead of 2.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
. test/watch/machine.sh
for need in curl promtool wrk; do
    command -v $need >/dev/null || { echo "$need is missing: ./setup test installs it"; exit 77; }
done
many=64 seconds=2 uid='uid="'$(id -u)'"'
[ -z "${LONG:-}" ] || many=200 seconds=30

get() { curl -s -o "$dir/answer" -w '%{http_code}' --max-time 10 "$@"; }
rss() { awk '/VmRSS/ { print $2 }' "/proc/$server/status"; }
# value NAME: the sum of all samples of a metric
value() {
    curl -s "$url/metrics" | awk -v n="$1" '$1 == n || index($1, n "{") == 1 { s += $NF } END { printf "%d\n", s }'
}

# --- who may ask -------------------------------------------------------------------------------------------
others_need_a_token() {
    local code
    for address in 0.0.0.0:0 :0 '[::]:0'; do
        "$Z" serve --listen "$address" >"$dir/out" 2>&1
        code=$?
        [ $code = 2 ] && grep -q -- --token-file "$dir/out" || { echo "$address: exit code $code"; return 1; }
    done
}
a_token_is_asked_for() {
    echo "0123456789abcdef-secret" >"$dir/token"
    chmod 600 "$dir/token"
    serve --token-file "$dir/token" || return 1
    same "$(get "$url/metrics")" 401 &&
        same "$(get -H 'Authorization: Bearer wrong-wrong-wrong-w' "$url/metrics")" 401 &&
        same "$(get -H 'Authorization: Bearer 0123456789abcdef-secret' "$url/metrics")" 200 &&
        same "$(get -u any:0123456789abcdef-secret "$url/")" 200 && same "$(get -u any:0123456789abcdef "$url/")" 401 &&
        same "$(get "$url/healthz")" 200
    local good=$?
    kill "$server"
    wait "$server" 2>/dev/null
    return $good
}
a_token_that_all_can_read_is_refused() {
    chmod 644 "$dir/token"
    "$Z" serve --token-file "$dir/token" >"$dir/out" 2>&1
    [ $? = 2 ] && grep -q 'chmod 600' "$dir/out"
}
only_names_of_this_machine() {
    same "$(get -H 'Host: example.org' "$url/metrics")" 403 &&
        same "$(get -H 'Host: localhost:1' "$url/metrics")" 200 &&
        same "$(get -H 'Host: 127.example.org' "$url/metrics")" 403 &&
        same "$(get -H 'Host: 127.1.2.3:80' "$url/metrics")" 200
}
it_is_read_only() {
    same "$(get -X POST -d x=1 "$url/metrics")" 405 && same "$(get -X DELETE "$url/api/v1/machine")" 405 &&
        same "$(get "$url/../../etc/passwd")" 404 && same "$(get "$url/api/v1/processes/0x1")" 404 &&
        same "$(get -I "$url/metrics")" 200
}

# --- what is answered ------------------------------------------------------------------------------------------
promtool_has_nothing_to_say() {
    curl -s "$url/metrics" >"$dir/metrics" && same "$(promtool check metrics <"$dir/metrics" 2>&1)" ""
}
sums_are_what_the_processes_did() {
    same "$(value zeroute_device_memory_allocated_bytes)" $(((3 + 3 + 5) << 20)) &&
        same "$(value zeroute_processes)" 3 && same "$(value zeroute_device_allocations_total)" 11
}
labels_are_those_of_the_field() {
    local memory='zeroute_device_memory_allocated_bytes{job="slurm:81.0",'"$uid"',device="0000:03:00.0",rank="1"}'
    grep -qxF "$memory 3145728" "$dir/metrics" &&
        grep -q '^zeroute_processes{namespace="prod",pod="infer-7f",container="vllm",'"$uid"'} 1$' "$dir/metrics" &&
        grep -q '^zeroute_calls_total{job="slurm:81.0",'"$uid"',entry="zeMemAllocDevice",via="plt"} 6$' \
            "$dir/metrics" &&
        grep -q '^zeroute_card_vram_bytes{device="0000:03:00.0"} 17179869184$' "$dir/metrics" &&
        ! grep -E 'pid=|^# TYPE .*[0-9]' "$dir/metrics" || { cat "$dir/metrics"; return 1; }
}
every_family_is_documented() {
    local family
    for family in $(grep -oP '^ZR_METRIC\("[^"]*", "\K[a-z_]+' tools/view/metrics.def | sort -u); do
        grep -qF "\`zeroute_$family\`" doc/watching.md || { echo "not in doc/watching.md: $family"; return 1; }
    done
}
a_histogram_is_one() {
    grep -E '^zeroute_call_duration_seconds_(bucket|count)\{job="slurm:81.0",'"$uid"',entry="zeMemAllocDevice"' \
        "$dir/metrics" >"$dir/h"
    [ "$(wc -l <"$dir/h")" = 14 ] && awk '$NF < last { exit 1 } { last = $NF } END { exit last != 6 }' "$dir/h"
}
json_has_the_same() {
    curl -s "$url/api/v1/machine" | python3 -c '
import json, sys
m = json.load(sys.stdin)
assert m["format"] == 1
assert sorted(p["allocated_bytes"] for p in m["processes"]) == [3 << 20, 3 << 20, 5 << 20], m["processes"]
job = [j for j in m["jobs"] if j["job"] == "slurm:81.0"][0]
assert job["allocated_bytes"] == 6 << 20 and len(job["pids"]) == 2
assert m["cards"][0]["device"] == "0000:03:00.0" and m["cards"][0]["vram_bytes"] == 16 << 30
open(sys.argv[1], "w").write(str(job["pids"][0]))' "$dir/pid" &&
        curl -s "$url/api/v1/processes/$(cat "$dir/pid")" | grep -q '"calls.zeMemAllocDevice.plt":3'
}
the_page_is_whole_and_by_itself() {
    curl -s -D "$dir/head" "$url/" >"$dir/page" &&
        grep -qi '^content-security-policy:.*default-src .none' "$dir/head" &&
        grep -q '</html>' "$dir/page" && ! grep -oE '(src|href)="[^"]*"' "$dir/page" | grep -v 'href="data:,"'
}
names_from_outside_do_not_break_out() {
    sleep 1.1
    promtool_has_nothing_to_say && ! grep -q '^evil' "$dir/metrics"
}
per_process_on_request() {
    "$Z" serve --textfile "$dir" --once --per-process && grep -q 'pid="[0-9]*"' "$dir/zeroute.prom" &&
        same "$(promtool check metrics <"$dir/zeroute.prom" 2>&1)" ""
}
a_textfile_is_replaced_as_a_whole() {
    rm -f "$dir/zeroute.prom"
    "$Z" serve --textfile "$dir" --once && same "$(promtool check metrics <"$dir/zeroute.prom" 2>&1)" "" &&
        same "$(find "$dir" -name '.zeroute.prom*')" "" && same "$(stat -c %a "$dir/zeroute.prom")" 644 &&
        ! "$Z" serve --textfile "$dir/none" --once 2>/dev/null
}

# --- processes that come and go -------------------------------------------------------------------------------------
# Each allocates three blocks and ends; scrapes meanwhile never see a counter go back.
counters_never_go_back() {
    local before expected i last=0 now
    before=$(value zeroute_device_allocations_total)
    expected=$((before + 64 * 3))
    for ((i = 0; i < 64; i++)); do
        SLURM_JOB_ID=$((i % 4)) SLURM_STEP_ID=0 SLURM_PROCID=$i \
            LD_PRELOAD=$PWD/${B:-build}/libzeroute.so "$work" alloc 3 &
        [ $((i % 8)) != 7 ] || {
            now=$(value zeroute_device_allocations_total)
            [ "$now" -ge "$last" ] || { echo "$now after $last"; return 1; }
            last=$now
            { curl -s "$url/api/v1/machine" && echo && "$Z" top --json; } | python3 -c '
import json, sys
one, other = sys.stdin.read().split("\n", 1)
for p in json.loads(one)["processes"] + json.loads(other)["processes"]:
    assert 0 <= p["allocated_bytes"] <= p["peak_bytes"] <= 16 << 30, p' || return 1
            wait $!
        }
    done
    until_true 20 eval "[ \$(value zeroute_device_allocations_total) = $expected ]" || {
        same "$(value zeroute_device_allocations_total)" $expected
        return 1
    }
    "$Z" gc >/dev/null # the sums outlive the segments
    sleep 1
    same "$(value zeroute_device_allocations_total)" $expected && same "$(value zeroute_processes)" 4
}
many_processes_are_a_short_page() {
    local bytes
    sleep 1.1
    bytes=$(curl -s "$url/metrics" | wc -c)
    echo "$many processes: $bytes bytes"
    [ "$bytes" -lt $((1000000 * many / 200)) ] && promtool_has_nothing_to_say
}

# --- hostile and slow clients ---------------------------------------------------------------------------------
# More than the server holds: half of them say nothing, the others go on to ask, byte by byte.
idle_connections_slow_nobody() {
    local i port=${url##*:} fd fds=()
    trap '' PIPE # those that are cut off
    for ((i = 0; i < 300; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" || return 1
        fds+=("$fd")
        [ $((i % 2)) = 0 ] || printf 'GET /metr' >&"$fd"
    done
    for ((i = 0; i < 5; i++)); do
        for fd in "${fds[@]}"; do printf 'x' >&"$fd"; done 2>/dev/null
        same "$(get --max-time 3 "$url/metrics")" 200 || return 1
    done
    for fd in "${fds[@]}"; do exec {fd}>&-; done
    same "$(get "$url/healthz")" 200 && same "$(find "/proc/$server/fd" | wc -l | awk '{ print $1 < 150 }')" 1
}
long_heads_are_refused() {
    local code
    code=$({ printf 'X-Long: ' && head -c 100000 /dev/zero | tr '\0' a; } | get -H @- "$url/metrics")
    case $code in 4?? | 000) ;; *) echo "$code"; return 1 ;; esac
    same "$(get "$url/healthz")" 200
}
load_makes_it_no_larger() {
    local before
    wrk -t1 -c8 -d1s "$url/metrics" >/dev/null
    before=$(rss)
    wrk -t1 -c8 -d"${seconds}s" "$url/metrics" >"$dir/wrk"
    echo "$(grep requests "$dir/wrk"); RSS $before KiB, then $(rss) KiB"
    ! grep -q 'Non-2xx' "$dir/wrk" && [ "$(rss)" -lt $((before + 8192)) ]
}

promise "other addresses than this machine's need a token, or a word" others_need_a_token
promise "a token is asked for, as a bearer token or a password" a_token_is_asked_for
promise "a token that every user can read is refused" a_token_that_all_can_read_is_refused
SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_PROCID=0 worker keep 3 wait
SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_PROCID=1 worker keep 3 wait
POD_NAME=infer-7f POD_NAMESPACE=prod CONTAINER_NAME=vllm worker keep 5 wait
workers_ready 3
serve --interval 0.5
promise "only names of this machine are answered" only_names_of_this_machine
promise "it is read-only, and answers nothing else" it_is_read_only
promise "promtool has nothing to say about the metrics" promtool_has_nothing_to_say
promise "sums are what the processes did" sums_are_what_the_processes_did
curl -s "$url/metrics" >"$dir/metrics"
promise "labels are those of the field" labels_are_those_of_the_field
promise "every family is in doc/watching.md" every_family_is_documented
promise "a histogram is a histogram" a_histogram_is_one
promise "the JSON has the same figures" json_has_the_same
promise "the page is whole, and loads nothing else" the_page_is_whole_and_by_itself
SLURM_JOB_ID=$'9"} 1\nevil{x="' SLURM_PROCID=0 worker keep 1 wait
workers_ready 4
promise "names from outside do not break out of a label" names_from_outside_do_not_break_out
promise "series of each process come on request" per_process_on_request
promise "a text file is replaced as a whole" a_textfile_is_replaced_as_a_whole
promise "counters never go back while processes come and go" counters_never_go_back
for ((i = 0; i < many; i++)); do
    SLURM_JOB_ID=$((i / 8)) SLURM_STEP_ID=0 SLURM_PROCID=$i worker keep 1 alloc 3 wait
done
workers_ready $((4 + many))
promise "many processes are a short page" many_processes_are_a_short_page
promise "idle connections slow nobody" idle_connections_slow_nobody
promise "long heads are refused" long_heads_are_refused
promise "load makes it no larger" load_makes_it_no_larger
kept
