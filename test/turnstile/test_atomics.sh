#!/usr/bin/env bash
# The turnstile with every atomic operation as a point: 150 random programs under each setting; with LONG=1 2,000.
# Tier: storm.
set -u
cd "$(dirname "$0")/../.." || exit 1
seeds=150
[ -z "${LONG:-}" ] || seeds=2000
ATOMICS=--atomics SEEDS=$seeds exec test/turnstile/test_turnstile.sh
