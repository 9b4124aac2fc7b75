#!/usr/bin/env bash
# The allocators against a plain list under the sanitizers: ten million steps each in CI, a short walk elsewhere.
cd "$(dirname "$0")/../.." || exit 1
if [ "${CI:-}" = true ]; then steps=10000000; else steps=200000; fi
ZEROUTE_MODEL_STEPS=${ZEROUTE_MODEL_STEPS:-$steps} exec make -s model B="${B:-build}"
