#!/bin/bash
# A real run through dpctl, the SYCL runtime and Intel's driver, recorded with Python's frames: the report says what the
# segment says, names the lines that allocated, and opens in a browser and as a snapshot.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
# shellcheck source=test/promise.sh
. test/promise.sh
on_the_stack --cards 2
check="python3 test/process/report_check.py"

recorded() { # NAME SETTINGS
    tools/bed/bed --on intel --runtime newest --cards 2 --python test/sycl/under.py "$PWD/$B/libzeroute.so" \
        "$2,record:$dir/$1,stacks:python" test/sycl/train.py &&
        "$B/zeroute" report --json --top 1000 "$dir/$1" >"$dir/$1.json" &&
        "$B/zeroute" report --csv "$dir/$1" >"$dir/$1.csv"
}

peak_is_that_of_the_segment() { # NAME
    "$B/zeroute" stat --all --json >"$dir/stat"
    python3 - "$dir/$1.json" "$dir/stat" <<'PYTHON'
import json, sys
process = json.load(open(sys.argv[1]))["processes"][0]
segment = [p for p in json.load(open(sys.argv[2]))["processes"] if p["pid"] == process["pid"]]
assert segment, f"no segment of process {process['pid']}"
peak = segment[-1]["fields"]["allocated_bytes.all.peak"]
assert process["peak"]["bytes"] == peak, f"{process['peak']['bytes']} in the report, {peak} in the segment"
PYTHON
}

# Every block that the program allocated has a line of train.py that allocates, below the functions that lead there.
lines_are_right() { # NAME
    python3 - "$dir/$1.json" <<'PYTHON'
import json, sys
source = open("test/sycl/train.py").read().split("\n")
process = json.load(open(sys.argv[1]))["processes"][0]
seen = set()
for stack in process["peak_stacks"] + process["never_freed_stacks"]:
    own = [f for f in stack["frames"] if f["python"] and f["file"].endswith("train.py")]
    if not own:
        continue
    assert "MemoryUSMDevice(" in source[own[-1]["line"] - 1], f"line {own[-1]['line']}: {source[own[-1]['line'] - 1]}"
    names = [f["name"] for f in own]
    assert names[0] == "<module>", names
    native = [f["name"] for f in stack["frames"] if not f["python"]]
    assert any(n.startswith("DPCTL") for n in native), native
    seen.add(tuple(names))
assert ("<module>", "build", "Linear.__init__") in seen, seen
assert ("<module>", "train", "Linear.backward") in seen, seen
assert {names for names in seen if names[1:2] == ("evaluate",)}, seen
assert process["never_freed"]["bytes"] == 32 * (4 << 20), process["never_freed"]
assert process["counts"]["mark"] == 8 and process["counts"]["fail"] >= 1, process["counts"]
PYTHON
}

page() {
    "$B/zeroute" report --no-open "$dir/$1" && $check page "$dir/$1.html" "$dir/$1.csv" "$dir/$1.json"
}
snapshot() {
    "$B/zeroute" report --torch-snapshot "$dir/$1" && $check torch "$dir/$1.pickle" "$dir/$1.csv"
}

for preset in observe reroute; do
    promise "$preset: a run is recorded" recorded $preset "preset:$preset"
    promise "$preset: the peak is that of the segment" peak_is_that_of_the_segment $preset
    promise "$preset: the lines that allocated are named" lines_are_right $preset
    promise "$preset: PyTorch's viewer can go through the snapshot" snapshot $preset
done
promise "the page in a browser says what the events say" page observe
kept
