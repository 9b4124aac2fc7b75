#!/usr/bin/env bash
# Every fuzzer over its corpus and some seconds beyond, under the sanitizers.
cd "$(dirname "$0")/../.." || exit 1
command -v clang >/dev/null || { echo "no clang here"; exit 77; }
make -s fuzzers B="${B:-build}" || exit 1
exec test/fuzz/run "${B:-build}/fuzz" "${FUZZ_SECONDS:-3}"
