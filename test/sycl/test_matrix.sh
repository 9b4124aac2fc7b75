#!/bin/bash
# Real SYCL runtimes, and one of our own with everything inside, on the loaders that distributions ship, without and
# with the preload: no crash in any cell with it.
# All of them: test/sycl/matrix.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
out=$(test/sycl/matrix --check --runtimes "2024.2.1,2025.2.1,2025.3.1,2026.2.0,all inside" \
    --loaders debian12,debian13,unstable "$@")
code=$?
echo "$out"
[ $code != 77 ] || exit 77
with=$(sed -n '/^with zeroute/,$p' <<<"$out" | grep -E '^\| (20|all)' | tr '|' '\n')
cells=$(grep -cvE '^ *((20|all).*)?$' <<<"$with")
bad=$(grep -cE 'SIG|error|no end' <<<"$with")
echo "$((cells - bad)) passed, $bad failed, 0 skipped"
exit $code
