#!/usr/bin/env bash
# A node of a cluster: 32 containers (their own mounts, PIDs and /dev/shm) with one process each, watched from outside;
# and the manifests that make it so in Kubernetes, checked against the API's schemas.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
. test/watch/machine.sh
containers=32

manifests_are_valid() {
    local venv=${B:-build}/manifests
    if ! "$venv/bin/python" -c 'import kubernetes_validate, yaml' 2>/dev/null; then
        {
            python3 -m venv "$venv" &&
                timeout 120 "$venv/bin/pip" install -q --disable-pip-version-check kubernetes-validate pyyaml
        } >"$dir/pip" 2>&1 || { echo "kubernetes-validate cannot be had from PyPI"; exit 77; }
    fi
    "$venv/bin/python" test/watch/check_manifests.py share/kubernetes/*.yaml &&
        # a field that is misspelt is found
        sed 's/hostPID:/hostPid:/' share/kubernetes/daemonset.yaml >"$dir/bad.yaml" &&
        ! "$venv/bin/python" test/watch/check_manifests.py "$dir/bad.yaml" 2>/dev/null
}
the_manifest_starts_what_there_is() {
    python3 - "$Z" "$dir" <<'CHECK'
import re, subprocess, sys
text = open("share/kubernetes/daemonset.yaml").read()
words = re.search(r'command: \[(.*)\]', text)[1].replace('"', "").split(", ")
open(sys.argv[2] + "/token", "w").write("0123456789abcdef0123")
words = [sys.argv[1]] + [w.replace("/run/zeroute", sys.argv[2]).replace(":9877", ":0") for w in words[1:]]
import os
os.chmod(sys.argv[2] + "/token", 0o400)
p = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
line = p.stdout.readline()
p.terminate()
assert "http://0.0.0.0:" in line, line
CHECK
}
# metric NAME: how many series it has, and their sum
metric() {
    curl -s "$url/metrics" |
        awk -v n="$1" 'index($1, n "{") == 1 || $1 == n { s += $NF; k++ } END { print k + 0, s + 0 }'
}
every_container_has_its_own_series() {
    until_true 20 eval "[ \"\$(metric zeroute_processes)\" = '$containers $containers' ]"
    same "$(metric zeroute_processes)" "$containers $containers" &&
        curl -s "$url/metrics" |
        grep -qE '^zeroute_processes\{namespace="batch",pod="pod-7",container="main",uid="[0-9]+"\} 1$' &&
        # pod n holds n MiB, and none is taken for another, though each is process 1 of its own
        same "$(metric zeroute_device_memory_allocated_bytes)" \
            "$containers $((containers * (containers + 1) / 2 << 20))"
}
pids_are_those_of_the_node() {
    curl -s "$url/api/v1/machine" | python3 -c '
import json, sys
p = json.load(sys.stdin)["processes"]
assert len({x["pid"] for x in p}) == len(p) and all(x["pid"] > 1 and x["pid_inside"] == 1 for x in p), p'
}
what_has_ended_stays_in_the_counters() {
    local before
    before=$(metric zeroute_device_allocations_total)
    kill -KILL "${inside[@]}"
    until_true 20 eval "[ \"\$(metric zeroute_processes)\" = '0 0' ]"
    same "$(metric zeroute_processes)" "0 0" && same "$(metric zeroute_device_memory_allocated_bytes)" "0 0" &&
        same "$(metric zeroute_device_allocations_total)" "$before"
}

promise "manifests are valid by the schemas of Kubernetes" manifests_are_valid
promise "the manifest starts what there is" the_manifest_starts_what_there_is
unshare -mpf --mount-proc true 2>/dev/null || { echo "skipped: containers need root"; kept; exit; }
for ((i = 1; i <= containers; i++)); do
    POD_NAME=pod-$i POD_NAMESPACE=batch CONTAINER_NAME=main unshare -mpf --kill-child --mount-proc sh -c '
        mount -t tmpfs -o size=64m none /dev/shm
        LD_PRELOAD=$1/libzeroute.so exec "$2" keep "$3" wait' sh "$PWD/${B:-build}" "$work" "$i" \
        <"$dir/go" >>"$dir/ready" 2>>"$dir/errors" &
    started+=($!)
    inside+=($!)
done
workers_ready $containers
serve --interval 0.5
promise "every container has its own series" every_container_has_its_own_series
promise "PIDs are those of the node" pids_are_those_of_the_node
promise "what has ended stays in the counters" what_has_ended_stays_in_the_counters
kept
