#!/bin/bash
# dpctl's own tests give the same results under the preload, test by test.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
out=$(test/sycl/dpctl-suite "$@")
code=$?
echo "$out"
[ $code != 77 ] || exit 77
rows=$(grep -c '^| v' <<<"$out")
same=$(grep -cE '^\| v.*\| 0 \|$|^\| v.*\| without \| .*\|  \|$' <<<"$out")
echo "$same passed, $((rows - same)) failed"
exit $code
