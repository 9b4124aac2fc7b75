#!/bin/bash
# check sees the blocks of a SYCL program (check.cpp), small ones too, on both adapters, one card and two.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
on_the_stack
program=$(B=$B test/sycl/client check 2026.2.0) || { code=$?; echo "$program"; exit $code; }

# run ADAPTER CARDS PART: exit code 66 with the report in $out where something was found
run() {
    out=$(SYCL_UR_USE_LEVEL_ZERO_V2=$(($1 - 1)) timeout 120 tools/bed/bed --on intel --cards "$2" --runtime 2026.2.0 \
        "$B/zeroute" run --no-summary --check all --check-wait 20s --fail-on-error -- "$program" "$3" 2>&1)
}
finds() { # finds ADAPTER CARDS PART WORDS, with the program and the runtime on the stack
    local code=0
    run "$1" "$2" "$3" || code=$?
    if [ $code != 66 ] || ! grep -qF "$4" <<<"$out" || ! grep -qF "main (check-2026.2.0)" <<<"$out"; then
        echo "exit code $code: $out"
        return 1
    fi
}
# On a busy machine blocks are given back before there was time to verify them, which is said.
silent() { # silent ADAPTER CARDS PART
    if ! run "$1" "$2" "$3" || ! grep -q 'check: 0 errors$' <<<"$out" ||
        grep -v 'given back unverified: \|check: 0 errors$' <<<"$out" | grep -q 'check: '; then
        echo "$out"
        return 1
    fi
}
# What the runtime does with a wrong free is its own: it is seen where the program calls. The pool is off, so before a
# block lies no other one, and a write there faults; and the runtime frees a block through its own context, whatever the
# program names.
errors='write_after_free|bytes 128 to 135 of a freed block of 4096 bytes
host|bytes 77 to 77 of a freed block of 4096 bytes
small|bytes 8 to 9 of a freed block of 100 bytes
overrun|bytes 1000 to 1002 of a block of 1000 bytes
double_free|a block of 4096 bytes was freed twice
interior_free|which is 64 bytes into a block
foreign_free|where no allocation begins
ipc|a block of 2097152 bytes was freed by process
ipc|, and is still open in process'
for adapter in 1 2; do
    for cards in 1 2; do
        on="adapter v$adapter, $cards cards"
        while IFS='|' read -r part words; do
            promise "$on: $part" finds $adapter $cards "$part" "$words"
        done <<<"$errors"
        promise "$on: nothing is wrong" silent $adapter $cards clean
        promise "$on: nothing is wrong in two processes" silent $adapter $cards ipc_clean
    done
done
# It ends with a leak, or with a live block in a context, where the runtime destroys it: exit code 0 or 66.
leaks() {
    run 2 1 leak
    if ! grep -q '1 blocks, 4096 bytes, were still allocated' <<<"$out"; then
        echo "$out"
        return 1
    fi
}
promise "a leak" leaks
kept
