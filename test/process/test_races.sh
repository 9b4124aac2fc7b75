#!/bin/bash
# Everything at once under ThreadSanitizer: the preload, the simulated GPU and the program are built with it. And the
# preload as it is shipped, in programs that were built with a sanitizer of their own.
# Tier: release, first.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
T=$B/tsan
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log".*' EXIT

[ -x "$T/test/process/at_once" ] || { echo "make sanitized builds what this runs"; exit 77; }

# What at_once frees wrongly, on purpose, is told, and what a limit refuses; nothing else may be.
quiet() {
    sed -i '/^zeroute: .* freed 0x.*free\.invalid/d; /^zeroute: out of memory/d; /^  [ a-z]/d' "$log"
    [ ! -s "$log" ]
}

# at_once BUILD PRELOAD SETTINGS CARDS: nothing but silence and success.
at_once() {
    LD_PRELOAD=$2 ZEROUTE_CONF=route:native,$3 ZES_ENABLE_SYSMAN=1 ZE_SIMGPU=devices:$4 \
        ZE_ENABLE_ALT_DRIVERS=$PWD/$1/libze_simgpu.so timeout 100 "$5" 4 "$6" >"$log" 2>&1
    local code=$?
    quiet && [ $code -eq 0 ] && return
    echo "exit code $code"
    head -n 60 "$log"
    return 1
}
# ld.so takes a lock that ThreadSanitizer does not see before it writes what dl_iterate_phdr shows.
raced() {
    TSAN_OPTIONS=ignore_noninstrumented_modules=1 at_once "$T" "$PWD/$T/libzeroute.so" "$1" "$2" \
        "$T/test/process/at_once" 400
}

promise "no race when nothing is kept" raced cache:off 2
promise "no race when blocks are kept" raced cache:on 4
promise "no race under a limit" raced cache:on,limit:64MiB 1
promise "no race with everything on" \
    raced cache:on,limit:100MiB,cache_limit:8MiB,cache_idle:1ms,cache_host:on,residency:owner 2

# Eight threads on two cards under each preset, as shipped and under ThreadSanitizer: no book keeps anything, none goes
# below zero.
under_preset() { # under_preset BUILD PRESET ROUNDS
    rm -f "$log.json"
    ZEROUTE_LIB=$PWD/$1/libzeroute.so ZEROUTE_CONF=preset:$2 ZES_ENABLE_SYSMAN=1 ZE_SIMGPU=devices:2 \
        ZE_ENABLE_ALT_DRIVERS=$PWD/$1/libze_simgpu.so TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
        timeout 100 "$B/zeroute" run --no-summary --json "$log.json" -- "$1/test/process/at_once" 8 "$3" >"$log" 2>&1
    local code=$?
    if ! quiet || [ $code -ne 0 ]; then
        echo "exit code $code"
        head -n 60 "$log"
        return 1
    fi
    python3 -c 'import json, sys
fields = json.load(open(sys.argv[1]))["processes"][0]["fields"]
books = {name: value for name, value in fields.items() if name.endswith(".current")}
for name in "allocated_bytes", "reserved_bytes", "allocation", "imported_bytes":
    assert name + ".all.current" in books, "no " + name
wrong = {name: value for name, value in books.items() if value != 0}
wrong.update({name: value for name, value in fields.items() if isinstance(value, int) and value >= 1 << 62})
assert fields["allocation.all.allocated"] > 8 * 30, "nothing was done"
sys.exit(str(wrong) if wrong else 0)' "$log.json"
}
for preset in observe reroute path mitigate eager; do
    promise "preset:$preset: eight threads on two cards leave nothing in the books" under_preset "$B" $preset 3000
    promise "preset:$preset: no race among eight threads on two cards" under_preset "$T" $preset 150
done

# The sanitizer of the program meets our dlsym before it has set itself up. It does not see our locks: races are not
# looked for. AddressSanitizer wants to be the first library of all.
beside() { # beside SANITIZER
    local first=''
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -Iinclude -Itest -g -O1 -fsanitize="$1" test/process/prog_at_once.c \
        -o "$log.program" -lze_loader -ldl -lpthread || return
    [ "$1" != address ] || first=$(${CC:-cc} -print-file-name=libasan.so)
    case $first in */*) ;; *) first='' ;; esac
    TSAN_OPTIONS=report_bugs=0 at_once "$B" "${first:+$(realpath "$first") }$PWD/$B/libzeroute.so" cache:on 2 \
        "$log.program" 200
}
promise "the shipped library runs in a program built with ThreadSanitizer" beside thread
promise "the shipped library runs in a program built with AddressSanitizer" beside address
promise "the shipped library runs in a program built with UndefinedBehaviorSanitizer" beside undefined
kept
