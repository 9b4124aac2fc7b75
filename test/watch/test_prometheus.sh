#!/usr/bin/env bash
# The real Prometheus scrapes real processes on the simulated GPU: every query of the dashboard and every rule is run,
# and those that must have an answer have one.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
for need in prometheus promtool curl; do
    command -v $need >/dev/null || { echo "$need is missing: ./setup test installs it"; exit 77; }
done
export ZE_SIMGPU=devices:2,vram:64MiB,mirror:on,spill:on
. test/watch/machine.sh

cat >"$dir/prometheus.yml" <<CONFIG
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [$PWD/share/prometheus/zeroute.rules.yml]
scrape_configs:
  - job_name: zeroute
    honor_labels: true
    static_configs: [{ targets: [TARGET] }]
CONFIG

rules_are_right() {
    promtool check rules share/prometheus/zeroute.rules.yml && promtool test rules test/watch/zeroute.rules.test.yml
}
# A limit that refuses, a card that spills, ranks of a job, a cache: something for every query.
SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_PROCID=0 worker keep 40 steady wait
SLURM_JOB_ID=81 SLURM_STEP_ID=0 SLURM_PROCID=1 worker keep 40 steady wait
ZEROUTE_CONF=limit:2MiB worker keep 2 steady wait
workers_ready 3
serve --interval 0.5
sed -i "s/TARGET/${url#http://}/" "$dir/prometheus.yml"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/data" --web.listen-address="127.0.0.1:$port" \
    >"$dir/prometheus.log" 2>&1 &
started+=($!)
api=http://127.0.0.1:$port/api/v1
# Two scrapes are needed for a rate.
scrapes='query=min(count_over_time(zeroute_build_info[1m])) > 3'
until_true 40 eval "curl -s $api/query --data-urlencode '$scrapes' | grep -q value"

every_query_of_the_dashboard_is_answered() {
    python3 - "$api" <<'CHECK'
import json, sys, urllib.parse, urllib.request
api = sys.argv[1]
def ask(query):
    data = urllib.parse.urlencode({"query": query}).encode()
    return json.load(urllib.request.urlopen(api + "/query", data))
dashboard = json.load(open("share/grafana/zeroute.json"))
silent = {"Residency on peers", "Settings changed while running", "Memory shared between cards"}
queries = 0
for panel in dashboard["panels"]:
    answered = 0
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "30s").replace("$instance", ".*").replace("$job", ".*")
        assert "$" not in query, query
        answer = ask(query)
        assert answer["status"] == "success", (query, answer)
        answered += len(answer["data"]["result"])
        queries += 1
        for name in target["legendFormat"].split("{{")[1:]:
            label = name.split("}}")[0]
            for r in answer["data"]["result"]:
                assert label in r["metric"] or label in ("job", "rank"), (query, label, r)
    assert answered or panel["title"] in silent, "no data: " + panel["title"]
variables = dashboard["templating"]["list"]
assert [v["name"] for v in variables] == ["datasource", "instance", "job"]
print(queries, "queries answered")
CHECK
}
every_rule_is_evaluated() {
    curl -s "$api/rules" | python3 -c '
import json, sys
rules = [r for g in json.load(sys.stdin)["data"]["groups"] for r in g["rules"]]
assert len(rules) == int(sys.argv[1]), len(rules)
for r in rules:
    assert r["health"] == "ok", r
state = {r["name"]: r["state"] for r in rules}
assert state["ZerouteLimitRefuses"] == "firing", state
assert state["ZerouteSpill"] in ("pending", "firing"), state
assert state["ZerouteHostFloorRefuses"] == "inactive", state
assert state["ZerouteStatisticsLost"] == "inactive", state' "$(grep -c alert: share/prometheus/zeroute.rules.yml)"
}
prometheus_sees_what_the_processes_did() {
    local held
    held=$(curl -s "$api/query" --data-urlencode 'query=sum(zeroute_device_memory_allocated_bytes{rank="0"})' |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["result"][0]["value"][1])')
    [ "$held" -ge $((40 << 20)) ] && [ "$held" -le $((42 << 20)) ] || { echo "$held"; return 1; }
}

promise "the rules fire on what they are for, and on nothing else" rules_are_right
promise "Prometheus sees what the processes did" prometheus_sees_what_the_processes_did
promise "every query of the dashboard is answered" every_query_of_the_dashboard_is_answered
until_true 20 every_rule_is_evaluated
promise "every rule is evaluated, and the limit that refuses fires" every_rule_is_evaluated
kept
