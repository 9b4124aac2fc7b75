#!/bin/bash
# The preload runs on an old C library: Debian 11's glibc 2.31, with a loader and a program made for it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
libc=$(test/driver/fetch.sh libc bullseye) || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -shared -nostdlib -Wl,-soname,libze_loader.so.1 \
    -o "$work/libze_loader.so.1" test/oldlibc/loader.c || exit 1
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -fPIE -pie -fno-stack-protector -nostartfiles -Wl,--no-as-needed \
    -o "$work/client" test/oldlibc/client.c -l:libdl.so.2 || exit 1

on_old_libc() {
    "$libc/ld-linux-x86-64.so.2" --library-path "$libc:$work" "$@"
}

the_program_itself_runs_there() { same "$(on_old_libc "$work/client" libze_loader.so.1)" "done"; }

no_symbol_is_younger_than_glibc_2_28() {
    local youngest
    youngest=$(readelf -W --dyn-syms "$build/libzeroute.so" | awk '$7 == "UND"' | grep -oE 'GLIBC_[0-9.]+' |
        sort -Vu | tail -n 1)
    same "$(printf '%s\n' "$youngest" GLIBC_2.28 | sort -V | tail -n 1)" GLIBC_2.28
}

the_program_runs_under_the_preload_and_hears_nothing() {
    local out
    out=$(LD_PRELOAD=$build/libzeroute.so on_old_libc "$work/client" libze_loader.so.1 2>&1)
    same "$out" "done"
}

its_calls_are_counted() {
    local fields
    LD_PRELOAD=$build/libzeroute.so "$libc/ld-linux-x86-64.so.2" --library-path "$libc:$work" \
        "$work/client" libze_loader.so.1 &
    wait $! || return 1
    fields=$("$build/zeroute" stat --json $!) || return 1
    grep -qE '"calls.zeMemAllocDevice.dlsym": *3\b' <<<"$fields"
}

promise "the program itself runs there" the_program_itself_runs_there
promise "no symbol is younger than glibc 2.28" no_symbol_is_younger_than_glibc_2_28
promise "the program runs under the preload and hears nothing of it" the_program_runs_under_the_preload_and_hears_nothing
promise "its calls are counted" its_calls_are_counted
kept
