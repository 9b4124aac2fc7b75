"""Checks Kubernetes manifests: every document against the API's own schema, strictly, and what the schema cannot say.

  check_manifests.py FILE...      needs kubernetes-validate (PyPI), which has the schemas of Kubernetes inside
"""
import sys

import kubernetes_validate
import yaml

for path in sys.argv[1:]:
    documents = [d for d in yaml.safe_load_all(open(path, encoding="utf-8")) if d]
    assert documents, path
    for d in documents:
        kubernetes_validate.validate(d, kubernetes_validate.latest_version(), strict=True)
        spec = d["spec"]["template"]["spec"]
        labels = d["spec"]["template"]["metadata"]["labels"]
        wanted = d["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= labels.items(), f"{path}: the selector does not fit its own pods"
        volumes = {v["name"] for v in spec.get("volumes", [])}
        for c in spec.get("initContainers", []) + spec["containers"]:
            ports = {p["name"] for p in c.get("ports", [])}
            for m in c.get("volumeMounts", []):
                assert m["name"] in volumes, f"{path}: {c['name']} mounts {m['name']}, which is no volume"
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in c:
                    assert c[probe]["httpGet"]["port"] in ports, f"{path}: {probe} of {c['name']} has no such port"
        print(f"{path}: {d['kind']} {d['metadata']['name']} is valid")

# The command line of the DaemonSet is one that zeroute takes, and the workload's mounts meet its LD_PRELOAD.
