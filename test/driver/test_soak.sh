#!/bin/bash
# Soak: 8 processes of 4 threads do everything at random (prog_soak.c), in every preset, on the simulated GPU and on
# Intel's driver. The figures of segment, driver and model agree, and on the simulated GPU, whose own memory does not
# grow, neither does that of the process after the first minute.
# Some seconds; a minute with CI=true; half an hour with LONG=1. SOAK_SECONDS says otherwise.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
seconds=4
[ "${CI:-}" != true ] || seconds=60
[ -z "${LONG:-}" ] || seconds=1800
seconds=${SOAK_SECONDS:-$seconds}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
presets=(observe reroute mitigate path eager reroute observe reroute)

# What the program says lives against what the segment says.
figures_agree() { # JSON SAID
    python3 - "$1" "$2" <<'P'
import json, sys
def find(d, name):
    if isinstance(d, dict):
        if name in d:
            return d[name]
        d = list(d.values())
    return next((v for v in (find(e, name) for e in d) if v is not None), None) if isinstance(d, list) else None
document = json.load(open(sys.argv[1]))
def value(name):
    v = find(document, name)
    return v["value"] if isinstance(v, dict) else v
alive = next(line for line in open(sys.argv[2]) if line.startswith("alive ")).split()[1:]
names = ("allocated_bytes.all.current", "allocation.all.current", "allocated_bytes.host.current")
said = [value(n) for n in names]
assert said == [int(n) for n in alive], f"the segment says {said}, the model {alive}"
reserved = value("reserved_bytes.all.allocated") - value("reserved_bytes.all.freed")
assert reserved >= said[0], f"reserved {reserved} below allocated {said[0]}"
P
}
soaked() { # BED
    local i bad=0 pids=()
    for i in "${!presets[@]}"; do
        test/bed --on "$1" --cards 2 "$build/zeroute" run --no-summary --preset "${presets[$i]}" \
            --json "$dir/$1.$i.json" -- "$build/test/process/soak" "$seconds" 4 "$((i + 1))" >"$dir/$1.$i" 2>&1 &
        pids+=($!)
    done
    for i in "${!presets[@]}"; do
        wait "${pids[$i]}" && figures_agree "$dir/$1.$i.json" "$dir/$1.$i" && continue
        bad=1
        echo "${presets[$i]}: $(tail -n 4 "$dir/$1.$i")"
    done
    return $bad
}
promise "on the simulated GPU" soaked sim
echo "tried: 8 processes x 4 threads for $seconds s on the simulated GPU"
test/bed --on intel true >"$dir/setup" 2>&1
if [ $? = 77 ]; then
    promise "on Intel's driver" sh -c "tail -n 1 '$dir/setup'; exit 77"
else
    promise "on Intel's driver" soaked intel
    echo "tried: 8 processes x 4 threads for $seconds s on Intel's driver"
fi
kept
