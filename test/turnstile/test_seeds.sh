#!/usr/bin/env bash
# The turnstile with ten thousand random programs; with LONG=1 a million.
set -u
cd "$(dirname "$0")/../.." || exit 1
seeds=500
[ -z "${LONG:-}" ] || seeds=50000
SEEDS=$seeds exec test/turnstile/test_turnstile.sh
