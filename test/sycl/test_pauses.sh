#!/bin/bash
# dpctl's own tests, the random programs of the differential test and a client that allocates as PyTorch does, while
# their process is paused and resumed every 10 ms: every result is as without. What the driver frees is overwritten
# (glibc.malloc.perturb).
# Tier: release.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
on_the_stack
build=$PWD/${B:-build}
export GLIBC_TUNABLES=glibc.malloc.perturb=165
with_pauses() { # with_pauses COMMAND...: fails as well where nothing was paused
    local pauser code
    rm -f "$dir/pauses"
    "$build/test/driver/pauser" "$dir/pauses" 10 &
    pauser=$!
    "$@"
    code=$?
    kill $pauser
    wait $pauser 2>/dev/null
    cat "$dir/pauses" || return 1
    ! grep -q '^0 pauses' "$dir/pauses" && return $code
}
for cards in 1 2 4; do
    promise "dpctl's tests give the same results with pauses, $cards cards" \
        with_pauses test/sycl/dpctl-suite --settings pause --cards $cards
done
promise "random programs of Level Zero give the same answers with pauses" \
    with_pauses test/differ/differ --settings pause --cards 1,2 --runs 2
promise "random programs of SYCL give the same answers with pauses" \
    with_pauses test/differ/differ --program usm --settings pause --cards 2 --count 100
torchlike=$(B=${B:-build} test/sycl/client torchlike 2026.2.0) || torchlike=
client() {
    LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$1 tools/bed/bed --on intel --cards 2 --runtime 2026.2.0 \
        "$torchlike" tensors copies more_tensors
}
if [ -n "$torchlike" ]; then
    for conf in route:auto,pause:on preset:observe,pause:on; do
        promise "a client that allocates as PyTorch does loses nothing with pauses, $conf" with_pauses client $conf
    done
fi
kept
