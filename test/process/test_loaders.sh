#!/usr/bin/env bash
# Every way of binding, on one and on two drivers, on the loaders that other distributions ship.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}

ways_on() { test/bed --on sim --loader "$1" "$B/test/process/suite_binding"; }

# Here Sysman can be started by itself, and then its devices are others than those of the core API.
told_on() { # told_on LOADER LIMIT
    ZE_SIMGPU=count:on,vram:1GiB,devices:3 LD_PRELOAD="$PWD/$B/libzeroute.so" \
        ZEROUTE_CONF="route:native,cache:on,cache_idle:60s,limit:$2" \
        test/bed --on sim --loader "$1" "$B/test/process/account" told
}
for limit in 25% 256MiB; do
    promise "Sysman's memory modules tell limit:$limit of their own card (1.20)" told_on debian13 $limit
    promise "Sysman's memory modules tell limit:$limit of their own card (1.32)" told_on unstable $limit
done
promise "every way is counted on Debian 13's loader (1.20)" ways_on debian13
promise "every way is counted on Debian unstable's loader (1.32)" ways_on unstable
kept
