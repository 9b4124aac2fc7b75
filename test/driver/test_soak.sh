#!/bin/bash
# Soak: 8 processes of 4 threads do everything at random (prog_soak.c), in every preset, on the simulated GPU and on
# Intel's driver. The figures of segment, driver and model agree, and on the simulated GPU, whose own memory does not
# grow, neither does that of the process after the first minute.
# Some seconds; half an hour with LONG=1, a minute in make release. SOAK_SECONDS says otherwise.
# Tier: storm.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
seconds=4
[ -z "${LONG:-}" ] || seconds=1800
seconds=${SOAK_SECONDS:-$seconds}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
presets=(observe reroute mitigate path eager safe observe reroute)

# What the program says lives is what the segment says, and no more than is reserved.
figures_agree() { # JSON SAID
    local allocated freed
    same "$(field "$1" allocated_bytes.all.current allocation.all.current allocated_bytes.host.current)" \
        "$(sed -n 's/^alive //p' "$2")" || return 1
    read -r allocated freed < <(field "$1" reserved_bytes.all.allocated reserved_bytes.all.freed)
    [ $((allocated - freed)) -ge "$(field "$1" allocated_bytes.all.current)" ] || {
        echo "reserved $((allocated - freed)) below allocated"
        return 1
    }
}
soaked() { # BED
    local i bad=0 pids=()
    for i in "${!presets[@]}"; do
        tools/bed/bed --on "$1" --cards 2 "$build/zeroute" run --no-summary --preset "${presets[$i]}" \
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
# What was done, and the growth of the process that grew most after the first minute.
told() { # WHERE BED
    sed -n 's/^steps \([0-9]*\), KiB \([0-9]*\) then \([0-9]*\)$/\1 \2 \3/p' "$dir/$2".? |
        awk -v "where=$1" -v s="$seconds" '
        { steps += $1; growth = $3 - $2 > growth ? $3 - $2 : growth }
        END { printf "tried: 8 processes x 4 threads for %d s on %s: %d steps, growth at most %d KiB\n",
                     s, where, steps, growth }'
}
promise "on the simulated GPU" soaked sim
told "the simulated GPU" sim
tools/bed/bed --on intel true >"$dir/setup" 2>&1
if [ $? = 77 ]; then
    promise "on Intel's driver" sh -c "tail -n 1 '$dir/setup'; exit 77"
else
    promise "on Intel's driver" soaked intel
    told "Intel's driver" intel
fi
kept
