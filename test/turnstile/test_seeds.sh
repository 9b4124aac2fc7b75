#!/usr/bin/env bash
# The turnstile with ten thousand random programs; with LONG=1 a million.
set -u
cd "$(dirname "$0")/../.." || exit 1
seeds=1000
[ -z "${LONG:-}" ] || seeds=100000
SEEDS=$seeds exec test/turnstile/test_turnstile.sh
