#!/usr/bin/env bash
# zeroute selftest on Intel's driver over the stand-in, and on the SYCL runtime: it agrees on one and two cards, and
# finds faults that are put into the stand-in. LONG=1: four cards, every runtime and loader that can be had, and twenty
# runs beside a busy machine.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
export COLUMNS=80 NO_COLOR=1
unset ZEROUTE_CONF ZEROUTE_CONF_FILE ZEROUTE_ROOT XE_STANDIN
on_the_stack
export HOME=$dir/home XDG_STATE_HOME=$dir/state ZEROUTE_BEDS=${ZEROUTE_BEDS:-$PWD/build/beds}
mkdir -p "$HOME"
Z=${B:-build}/zeroute

# tested CODE BED... -- [OPTIONS]: a test on this bed ends with that code; its page is in $dir/page.
tested() {
    local code=0 wanted=$1 bed=()
    shift
    while [ "$1" != -- ]; do
        bed+=("$1")
        shift
    done
    shift
    tools/bed/bed --on intel "${bed[@]}" "$Z" selftest --time 900 "$@" >"$dir/page" 2>"$dir/errors" || code=$?
    [ $code = "$wanted" ] || { cat "$dir/page" "$dir/errors"; echo "code $code, expected $wanted"; return 1; }
}
says() {
    tr -s ' \n' ' ' <"$dir/page" | grep -q -- "$1" || { cat "$dir/page"; echo "it does not say: $1"; return 1; }
}

agrees() {
    tested 0 --cards "$1" --runtime newest -- --quick --seed 1 && says 'SYCL reroute 1 same answers, same data' &&
        says 'Level Zero reroute 1 same answers, same data' && says 'as requested 1.00 mirrored'
}
promise "one card agrees, through Level Zero and SYCL" agrees 1
promise "two cards agree, through Level Zero and SYCL" agrees 2

whole() {
    tested 0 --cards 2 --runtime newest -- --seed 1 --seeds 1 && says 'SYCL pool-cache 1 ' &&
        says 'residency:owner 0.00 not mirrored' && says 'An allocation with its free' &&
        says 'safe free memory: told truly'
}
promise "the whole test measures the mirror, the cost and free memory" whole

# found SETTING WHAT: a fault of the stand-in is named.
found() {
    XE_STANDIN=$1 tested 1 --cards 1 -- --quick --seed 1 --patience 5 && says "FOUND .*$2" &&
        says 'Host memory for a byte'
}
promise "a copy that loses a page is found" found copy_loses:30 'wrong data'
promise "an engine that hangs is found, with the step" found copy_hangs:30 \
    'no answer for 5 s in copy (operation [0-9]*)'
promise "free memory that is told wrongly is found" found says_used:none 'free memory: .*as much is told'

spills() {
    XE_STANDIN=vram:1GiB,spill:on tested 0 --cards 1 -- --long --seeds 1 --count 20 --overcommit 128MiB &&
        says 'alone beyond the card: it spills' && says 'safe beyond the card: refused'
}
lost() {
    XE_STANDIN=vram:1GiB,spill:on,gtt:64MiB tested 1 --cards 1 -- --long --seeds 1 --count 20 --overcommit 256MiB &&
        says 'FOUND the driver alone: beyond the card: the card carries out no command any more' &&
        says 'safe beyond the card: refused'
}
promise "a card that is lost by over-committing is told, and the rest goes on" lost
promise "over-committing that spills is told, and that safe refuses it" spills

if [ -n "${LONG:-}" ]; then
    promise "four cards agree" agrees 4
    for runtime in $(awk '!/^#/ && NF { print $1 }' tools/bed/runtimes); do
        for loader in $(tools/bed/fetch.sh loaders | awk '{ print $1 }'); do
            cell() {
                tools/bed/bed --on intel --runtime "$runtime" --loader "$loader" --setup >/dev/null 2>&1 || return 77
                local code=0
                tools/bed/bed --on intel --cards 2 --runtime "$runtime" --loader "$loader" "$Z" selftest --quick \
                    --seed 1 >"$dir/page" 2>&1 || code=$?
                # What the runtime cannot do on a loader by itself is told of the driver alone, and of no setting.
                ! grep -q 'FOUND *under' "$dir/page" && [ $code -le 1 ] || { cat "$dir/page"; return 1; }
            }
            promise "runtime $runtime on loader $loader differs in nothing" cell
        done
    done
    beside() {
        local busy=() n bad=0
        for n in 1 2 3 4; do
            (while :; do :; done) &
            busy+=($!)
        done
        for n in $(seq 20); do
            tested 0 --cards 2 --runtime newest -- --quick --seed $((1000 + n)) || bad=$((bad + 1))
        done
        kill "${busy[@]}"
        wait "${busy[@]}" 2>/dev/null
        echo "tried: 20 runs beside a busy machine, $bad with a false alarm"
        [ $bad = 0 ]
    }
    promise "twenty runs beside a busy machine have no false alarm" beside
fi
kept
