#!/usr/bin/env bash
# The turnstile: the scripts, and random programs under each setting.
# Tier: check.
# SEEDS says how many programs under each: 40 unless said otherwise. ATOMICS=--atomics: in the second build.
set -u
cd "$(dirname "$0")/../.." || exit 1
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

test/turnstile/run --script test/turnstile/scripts/*.steps >"$log" 2>&1
test/turnstile/run ${ATOMICS:+"$ATOMICS"} --seeds "${SEEDS:-40}" >>"$log" 2>&1
grep -v -E '^(passed|known):|^  *\(' "$log"
# A line for each script, and one for each setting and process that ran a share of its seeds.
passed=$(grep -c -E '^(passed|known):| 0 failed$' "$log")
failed=$(grep -c -E '^FAILED|^[^ ]*(turnstile|run): ' "$log")
awk '/ seeds .* steps / { n += $2; s += $4 } END { print "tried: " n " programs, " s " steps" }' "$log"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
