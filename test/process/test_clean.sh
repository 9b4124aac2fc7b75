#!/bin/bash
# Clean under AddressSanitizer, UndefinedBehaviorSanitizer and valgrind: every unit suite, and threads that do
# everything at once under the preload. ThreadSanitizer is test_races.sh.
# Tier: release, first.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
S=$B/asan
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log".*' EXIT
export ZE_SIMGPU=devices:2 ZES_ENABLE_SYSMAN=1

# under BUILD PRELOADS CONF COMMAND...: succeeds, and no sanitizer has anything to say.
under() {
    local build=$PWD/$1 preloads=$2 conf=$3 code=0
    rm -f "$log".*.zr
    ZE_ENABLE_ALT_DRIVERS=$build/libze_simgpu.so ZEROUTE_CONF=$conf timeout 1200 \
        env LD_PRELOAD="${preloads:+$preloads }$build/libzeroute.so" "${@:4}" >"$log" 2>&1 || code=$?
    [ $code = 0 ] && ! grep -qE '^==[0-9]+==|runtime error:|Sanitizer' "$log" && return
    echo "exit code $code"
    head -n 60 "$log"
    return 1
}
under_valgrind() { # CONF COMMAND...
    command -v valgrind >/dev/null || { echo "no valgrind"; return 77; }
    # What belongs to a thread that still runs at the end (the simulated GPU's own, check's worker) is "possibly lost".
    under "$B" '' "$1" valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect "${@:2}"
}

[ -x "$S/test/process/at_once" ] || { echo "make sanitized builds what this runs"; exit 77; }
for suite in test/unit/test_*.c; do
    suite=${suite##*/test_}
    promise "unit/${suite%.c} under the sanitizers" env CK_TIMEOUT_MULTIPLIER=10 "$S/test/unit/${suite%.c}"
done

# AddressSanitizer wants to be the first library of all. Leaks are valgrind's part: the driver's library stays loaded.
asan=$(realpath "$(${CC:-cc} -print-file-name=libasan.so)")
export ASAN_OPTIONS=detect_leaks=0
for conf in preset:observe preset:reroute preset:mitigate,limit:1GiB "record:$log.%p.zr" check:all; do
    promise "threads under the sanitizers, $conf" under "$S" "$asan" "$conf" "$S/test/process/at_once" 4 100
    promise "threads under valgrind, $conf" under_valgrind "$conf" "$B/test/process/at_once" 4 30
done
kept
