#!/usr/bin/env bash
# The allocators against a plain list under the sanitizers, ten million steps each: half a minute.
# Tier: release.
cd "$(dirname "$0")/../.." || exit 1
model=${B:-build}/asan/test/unit/cache_model
[ -x "$model" ] || { echo "make sanitized builds what this runs"; exit 77; }
CK_DEFAULT_TIMEOUT=3000 ZEROUTE_MODEL_STEPS=${ZEROUTE_MODEL_STEPS:-10000000} exec "$model"
