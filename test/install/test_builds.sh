#!/usr/bin/env bash
# Builds by other compilers work, and two builds of one source have the same bytes.
# Tier: release.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}

# The same source must not depend on what the optimiser does with a tail call.
built_as_well() {
    local cc=$1 flags=$2 out=$B/variants/${1##*/}${2// /}
    command -v "$cc" >/dev/null || { echo "no $cc"; return 77; }
    mkdir -p "$out"
    make -s B="$out" CC="$cc" CFLAGS="$flags" "$out/libzeroute.so" || return 1
    ZEROUTE_TEST_LIBRARY=$PWD/$out/libzeroute.so "$B/test/process/suite_dlsym"
}

# Two builds in different folders, the same bytes.
builds_are_reproducible() {
    local dir one
    dir=$(mktemp -d) || return 1
    for one in "$dir/a" "$dir/another/one"; do
        mkdir -p "$one" && tar cf - Makefile src tools include | tar xf - -C "$one" &&
            make -s -j2 -C "$one" B=build CC="${CC:-cc}" CFLAGS='-O1 -g' all >"$dir/log" 2>&1 || {
            cat "$dir/log"
            rm -rf "$dir"
            return 1
        }
    done
    for one in libzeroute.so zeroute libze_simgpu.so; do
        cmp "$dir/a/build/$one" "$dir/another/one/build/$one" || { rm -rf "$dir"; return 1; }
    done
    rm -rf "$dir"
}

promise "two builds have the same bytes" builds_are_reproducible
promise "works built by gcc -O0" built_as_well gcc "-O0"
promise "works built by gcc -O1" built_as_well gcc "-O1"
promise "works built by gcc -O2" built_as_well gcc "-O2"
promise "works built by clang -O2" built_as_well clang "-O2"
kept
