#!/bin/bash
# As driver/test_lost.sh, through the SYCL runtime: a client that asks for memory as PyTorch does (torchlike.cpp),
# beside a process that fills the card and empties it. Under safe it comes to its end, and no byte spills; under observe
# the card is lost. The newest runtime with both adapters, a few seconds each; LONG=1: all of them, ten minutes each;
# EACH=N: N seconds, RUNTIMES="VERSION...": these.
# Tier: release.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=$PWD/${B:-build}
on_the_stack
seconds=${LONG:+600}
seconds=${EACH:-${seconds:-3}} seed=${SEED:-1}
runtimes=${RUNTIMES:-2026.2.0}
[ -z "${LONG:-}" ] || runtimes=${RUNTIMES:-$(tools/bed/env.sh --list)}

on() { # on PRESET JSON COMMAND...: on the machine of the others
    local preset=$1 json=$2
    shift 2
    timeout $((seconds + 100)) tools/bed/bed --on intel --runtime "$runtime" "$B/zeroute" run --no-summary \
        --json "$json" --preset "$preset" -- "$@"
}
counted() { awk -v name="$1" '$1 == name { print $2 }' "$dir/machine/counts"; }
together() { # together PRESET ACT: leaves what the client said in $out, its exit code in $code
    local filler
    rm -rf "$dir/machine"
    mkdir "$dir/machine"
    export UNTIL=$dir/machine/client-is-done
    export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:8GiB,spill:on,gtt:1GiB XE_STANDIN_COUNTS=$dir/machine/counts
    export TORCHLIKE_SECONDS=$seconds TORCHLIKE_SEED=$seed
    on "$1" "$dir/filler.json" "$B/test/driver/torch" filler $((seconds + 60)) "$seed" >"$dir/filler" 2>&1 &
    filler=$!
    code=0
    out=$(on "$1" "$dir/json" "$client" "$2" 2>"$dir/errors") || code=$?
    touch "$UNTIL"
    wait $filler
    out=$(grep -v '^books' <<<"$out")
    echo "$runtime, adapter v$((SYCL_UR_USE_LEVEL_ZERO_V2 + 1)), $1, $2: ${out:-$(tail -n 1 "$dir/errors")}," \
        "$(counted gem_create_spilled) buffers spilled, $(counted cards_lost) times lost" |
        tr '\n' ' ' | sed 's/ *$/\n/' | tee -a "${RESULTS:-/dev/null}"
}
wrong() {
    echo "$1 (exit code $code): $out"
    cat "$dir/errors"
    return 1
}
# Why this runtime cannot show it here: 77.
is_able() {
    ! grep -q 'not offered' <<<"$out" || { echo "virtual memory is not offered by this runtime"; return 77; }
    ! grep -q "Failed to open Level Zero" "$dir/errors" || { echo "its UMF opens libze_loader.so by name"; return 77; }
}
survives() { # survives ACT
    together safe "$1"
    is_able || return
    [ $code = 0 ] && grep -qE 'done: asked [0-9]+, refused [1-9]' <<<"$out" || {
        wrong "it did not get through"
        return 1
    }
    [ "$(counted gem_create_spilled)$(counted cards_lost)" = 00 ] || { wrong "memory spilled"; return 1; }
    [ "$(grep -c 'out of memory: ' "$dir/errors")" = 1 ] || wrong "not explained once"
}
is_lost() { # is_lost ACT
    local seconds=60 # at most: it ends when it is lost
    together observe "$1"
    is_able || return
    [ $code != 0 ] && [ "$(counted cards_lost)" -gt 0 ] || { wrong "it was not lost"; return 1; }
    [ "$(field "$dir/json" device_lost.calls)" -gt 0 ] || wrong "no call was seen that said so"
}

not_built() {
    echo "the client cannot be built: $(head -n 1 "$dir/errors")"
    return 77
}

for runtime in $runtimes; do
    client=$(B=$B test/sycl/client torchlike "$runtime" 2>"$dir/errors") || {
        promise "$runtime: safe keeps the card" not_built
        continue
    }
    for adapter in 1 2; do
        export SYCL_UR_USE_LEVEL_ZERO_V2=$((adapter - 1))
        for act in crowded crowded_expandable; do
            promise "$runtime, adapter v$adapter, $act: safe keeps the card" survives $act
            promise "$runtime, adapter v$adapter, $act: under observe it is lost" is_lost $act
        done
    done
done
kept
