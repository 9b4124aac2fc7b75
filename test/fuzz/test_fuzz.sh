#!/usr/bin/env bash
# Every fuzzer over its corpus and some seconds beyond, under the sanitizers; a minute each with LONG=1.
# Tier: release, first.
cd "$(dirname "$0")/../.." || exit 1
[ -x "${B:-build}/fuzz/cache" ] || { echo "make fuzzers builds what this runs"; exit 77; }
exec test/fuzz/run "${B:-build}/fuzz" "${FUZZ_SECONDS:-$([ -n "${LONG:-}" ] && echo 60 || echo 3)}"
