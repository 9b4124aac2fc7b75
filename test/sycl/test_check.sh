#!/bin/bash
# check sees the blocks of a SYCL program (check.cpp), small ones too, on both adapters, one card and two.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
on_the_stack
program=$B/sycl/check-2026.2.0
if [ test/sycl/check.cpp -nt "$program" ]; then
    command -v g++ >/dev/null || { echo "no g++"; exit 77; }
    sycl=$(test/sycl/env.sh 2026.2.0) || exit $?
    mkdir -p "$B/sycl"
    g++ -std=c++17 -O1 -w -I"$sycl/include" test/sycl/check.cpp -o "$program" "$sycl"/lib/libsycl.so.9 \
        -Wl,--allow-shlib-undefined -lpthread || exit 1
fi

# run ADAPTER CARDS PART: exit code 66 with the report in $out where something was found
run() {
    out=$(SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) timeout 120 test/bed --on intel --cards "$2" --runtime 2026.2.0 \
        "$B/zeroute" run --no-summary --check all --check-wait 20s --fail-on-error -- "$program" "$3" 2>&1)
}
finds() { # finds ADAPTER CARDS PART WORDS, with the program and the runtime on the stack
    local code=0
    run "$1" "$2" "$3" || code=$?
    if [ $code != 66 ] || ! grep -qF "$4" <<<"$out" || ! grep -q " check-2026.2.0+0x" <<<"$out"; then
        echo "exit code $code: $out"
        return 1
    fi
}
silent() {
    if ! run "$1" "$2" clean || grep -q 'check: ' <<<"$out"; then
        echo "$out"
        return 1
    fi
}
for adapter in 1 2; do
    for cards in 1 2; do
        on="adapter v$adapter, $cards cards"
        promise "$on: a write after free" finds $adapter $cards write_after_free \
            'bytes 128 to 135 of a freed block of 4096 bytes'
        promise "$on: in a small block" finds $adapter $cards small 'bytes 8 to 9 of a freed block of 100 bytes'
        promise "$on: an overrun" finds $adapter $cards overrun 'bytes 1000 to 1002 of a block of 1000 bytes'
        promise "$on: nothing is wrong" silent $adapter $cards
    done
done
kept
