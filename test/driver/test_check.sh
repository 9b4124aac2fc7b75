#!/bin/bash
# check on Intel's driver: every error is found with its offsets, a legal program is left alone.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${B:-build}
# shellcheck source=test/promise.sh
. test/promise.sh

# on CARDS CONF PART: the program's output and errors in $out
on() {
    out=$(ZEROUTE_TOOL=$PWD/$build/zeroute LD_PRELOAD=$PWD/$build/libzeroute.so ZEROUTE_CONF=$2 \
        timeout 60 tools/bed/bed --on intel --cards "$1" "$build/test/process/check" "$3" 2>&1) && return
    echo "$out"
    return 1
}
shown() { "$@" || { echo "$out"; return 1; }; }
has() { grep -qF "$1" <<<"$out" && grep -q '#0 check+0x' <<<"$out"; }
quiet() { ! grep -v 'may be missed$\|given back unverified: ' <<<"$out" | grep -q 'check: '; } # of a busy machine
finds() { on "$1" check:all,check_wait:20s "$2" && shown has "$3"; }
once() { on "$1" check:all,check_wait:20s "$2" && shown [ "$(grep -c "check: $3" <<<"$out")" = 1 ]; }
silent() { on "$1" "$2" "$3" && shown quiet; }

tools/bed/bed --on intel true
if [ $? = 77 ]; then
    exit 77
fi
while IFS='|' read -r part words; do
    for cards in 1 2; do
        promise "$part is found on $cards cards" finds $cards "$part" "$words"
    done
done <<'END'
write_after_free|bytes 128 to 135 of a freed block of 4096 bytes
write_after_free_large|bytes 3145733 to 3145733 of a freed block of 5242880 bytes
write_after_free_host|bytes 77 to 77 of a freed block of 4096 bytes
overrun|bytes 1000 to 1002 of a block of 1000 bytes
overrun_live|bytes 1000 to 1002 of a block of 1000 bytes
double_free|a block of 4096 bytes was freed twice
interior_free|which is 64 bytes into a block
foreign_free|where no allocation begins
wrong_context|which is not its own
context_live|1 blocks, 4096 bytes, were still allocated when their context
leak|1 blocks, 4096 bytes, were still allocated at the end
leaks|7 blocks, 5247680 bytes, were still allocated at the end of the process; the largest:
beside|  before it  
ipc_freed_open|a block of 2097152 bytes was freed by process
ipc_freed_open|, and is still open in process
ipc_told_at_once|told by the importer: zeroute: check: ipc_stale_import
ipc_opened_late|, and is still open in process
ipc_half_closed| has it open, opened more often than closed
ipc_unclosed|a handle was opened 2 times and closed 1 times
END
promise "live blocks of a context are told of once" once 1 context_live_once context_with_live_blocks
# In a context of two cards the driver puts no blocks side by side: a write before one faults.
promise "underrun is found" finds 1 underrun 'bytes -4 to -1 before the start of a block of 960 bytes'
for cards in 1 2; do
    for part in clean in_flight waits_for_us waits_for_us_copying blocking forks threads ipc_clean ipc_same_bytes; do
        promise "$part on $cards cards is left alone" silent $cards check:all $part
    done
done
# In a context of two cards the driver itself waits for the reader.
promise "deferred is left alone" silent 1 check:all deferred
# Half an hour of everything at random (prog_soak.c): no error is found where there is none.
soaked() {
    tools/bed/bed --on sim --cards 2 "$build/zeroute" run --check all --check-wait 500ms --fail-on-error --no-summary \
        --discard -- "$build/test/process/soak" "${SOAK_SECONDS:-1800}" 4 1 2>&1
}
if [ -n "${LONG:-}" ] && [ -x "$build/test/process/soak" ]; then
    promise "a soak of half an hour" soaked
fi
kept
