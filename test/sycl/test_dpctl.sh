#!/bin/bash
# dpctl's own tests give the same results under the preload, test by test.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
test/sycl/dpctl-suite "$@" | tee "$log"
code=${PIPESTATUS[0]}
[ "$code" != 77 ] || exit 77
rows=$(grep -c '^| v' "$log")
same=$(grep -cE '^\| v.*\| 0 \|$|^\| v.*\| without \| .*\|  \|$' "$log")
echo "$same passed, $((rows - same)) failed, 0 skipped"
exit "$code"
