#!/usr/bin/env bash
# The turnstile with every atomic operation as a point: 100 random programs under each setting; with LONG=1 1,000.
# Tier: storm.
set -u
cd "$(dirname "$0")/../.." || exit 1
seeds=100
[ -z "${LONG:-}" ] || seeds=1000
ATOMICS=--atomics SEEDS=$seeds exec test/turnstile/test_turnstile.sh
