#!/bin/bash
# Real SYCL runtimes on the loaders that distributions ship: no crash in any cell with the preload.
# All of them: test/sycl/matrix.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
out=$(test/sycl/matrix --check --half with --runtimes 2024.2.1,2025.2.1,2025.3.1,2026.2.0 \
    --loaders debian12,debian13,unstable "$@")
code=$?
echo "$out"
[ $code != 77 ] || exit 77
cells=$(grep '^| 20' <<<"$out" | tr '|' '\n' | grep -cvE '^ *(20.*)?$')
bad=$(grep '^| 20' <<<"$out" | tr '|' '\n' | grep -cE 'SIG|error|no end')
echo "$((cells - bad)) passed, $bad failed"
exit $code
