#!/bin/bash
# A program that asks for memory as PyTorch does, beside one that fills the card and empties it, on a card that is
# lost where VRAM and GTT are over-committed: under observe it is lost, under safe both come to their end, no byte
# spills, and what was refused is explained once. A few seconds each; LONG=1: ten minutes each, EACH=N: N seconds.
# SEED=N repeats a run.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
seconds=${LONG:+600}
seconds=${EACH:-${seconds:-3}} seed=${SEED:-1}
tools/bed/bed --on intel true
if [ $? = 77 ]; then
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

on() { # on PRESET JSON ARGUMENTS...: one of the two, on the machine of the other
    local preset=$1 json=$2
    shift 2
    timeout $((seconds + 100)) tools/bed/bed --on intel "$build/zeroute" run --no-summary --json "$json" \
        --preset "$preset" -- "$build/test/driver/torch" "$@"
}

# together PRESET KIND: runs both. Leaves what the program said in $out, its exit code in $code.
together() {
    local filler
    rm -rf "$dir/machine"
    mkdir "$dir/machine"
    export UNTIL=$dir/machine/client-is-done
    export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:2GiB,spill:on,gtt:512MiB XE_STANDIN_COUNTS=$dir/machine/counts
    on "$1" "$dir/filler.json" filler $((seconds + 60)) "$seed" >"$dir/filler" 2>&1 &
    filler=$!
    code=0
    out=$(on "$1" "$dir/json" "$2" "$seconds" "$seed" 2>"$dir/errors") || code=$?
    touch "$UNTIL"
    wait $filler
    filler_code=$?
    echo "$1, $2: $out, $(counted gem_create_spilled) buffers spilled, $(counted cards_lost) times lost" |
        tee -a "${RESULTS:-/dev/null}"
}

counted() { awk -v name="$1" '$1 == name { print $2 }' "$dir/machine/counts"; }
wrong() {
    echo "$1 (exit code $code, filler $filler_code)"
    cat "$dir/errors" "$dir/filler"
    return 1
}

survives() { # survives KIND
    together safe "$1"
    [ $code = 0 ] && [ $filler_code = 0 ] || { wrong "it did not come to its end"; return 1; }
    [ "$(counted gem_create_spilled)$(counted cards_lost)" = 00 ] || { wrong "memory spilled"; return 1; }
    grep -qE 'done: asked [0-9]+, refused [1-9]' <<<"$out" || { wrong "nothing was refused"; return 1; }
    [ "$(grep -c 'out of memory: ' "$dir/errors")" = 1 ] || { wrong "not explained once"; return 1; }
    # Each refusal is by the limit, and counted.
    same "$(field "$dir/json" limit.refused_calls)" "$(sed 's/.*refused \([0-9]*\).*/\1/' <<<"$out")"
}

is_lost() { # is_lost KIND
    together observe "$1"
    [ $code = 3 ] && grep -q '^device lost: ' <<<"$out" && [ "$(counted cards_lost)" -gt 0 ] || {
        wrong "it was not lost"
        return 1
    }
}

# doctor PRESET MIB: what it says of a process that holds as much of a card of 2 GiB, and has asked for more.
doctor() {
    local held pid
    rm -rf "$dir/machine"
    mkdir "$dir/machine"
    export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:2GiB
    mkfifo "$dir/machine/end"
    ZEROUTE_CONF=preset:$1,limit:$2 LD_PRELOAD=$build/libzeroute.so tools/bed/bed --on intel \
        "$build/test/driver/greedy" 20 1 hold <"$dir/machine/end" >"$dir/machine/held" 2>/dev/null &
    held=$!
    exec 7>"$dir/machine/end"
    until [ -s "$dir/machine/held" ]; do sleep 0.05; done
    pid=$("$build/zeroute" stat --json | python3 -c 'import json, sys
print(*(p["pid"] for p in json.load(sys.stdin)["processes"] if "greedy" in p["command"] and p["state"] == "live"))')
    "$build/zeroute" doctor --verbose "$pid"
    exec 7>&-
    wait $held
}
recommends() {
    local said
    said=$(doctor observe none)
    grep -q 'the next allocation may cost the card' <<<"$said" && grep -q 'zeroute run --preset safe' <<<"$said" || {
        echo "$said"
        return 1
    }
}
needs_none() {
    local said
    said=$(doctor observe 200MiB)
    grep -q 'Preset safe not needed: nothing was lost' <<<"$said" && ! grep -q 'may cost the card' <<<"$said" || {
        echo "$said"
        return 1
    }
}
promise "doctor recommends safe where a card is full" recommends
promise "doctor says that safe is not needed where it is not" needs_none
for kind in segments expandable; do
    promise "$kind: under safe nothing is lost, spilled or left unexplained" survives $kind
done
seconds=60 # at most: it ends when it is lost
for kind in segments expandable; do
    promise "$kind: under observe the card is lost" is_lost $kind
done
kept
