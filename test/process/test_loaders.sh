#!/usr/bin/env bash
# Every way of binding, on one and on two drivers, on the loaders that other distributions ship.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}

ways_on() { tools/bed/bed --on sim --loader "$1" "$B/test/process/suite_binding"; }

# Here Sysman can be started by itself, and then its devices are others than those of the core API.
told_on() { # told_on LOADER LIMIT
    ZE_SIMGPU=count:on,vram:1GiB,devices:3 LD_PRELOAD="$PWD/$B/libzeroute.so" \
        ZEROUTE_CONF="route:native,cache:on,cache_idle:60s,limit:$2" \
        tools/bed/bed --on sim --loader "$1" "$B/test/process/account" told
}
for limit in 25% 256MiB; do
    promise "Sysman's memory modules tell limit:$limit of their own card (1.20)" told_on debian13 $limit
    promise "Sysman's memory modules tell limit:$limit of their own card (1.32)" told_on unstable $limit
done
# Nor can they be told apart by what they say of themselves, where all cards say the same.
alike_on() { # alike_on LOADER PART
    ZE_SIMGPU=alike:on,vram:1GiB,devices:2 LD_PRELOAD="$PWD/$B/libzeroute.so" \
        ZEROUTE_CONF=route:native,cache:on,cache_idle:60s,limit:64MiB \
        tools/bed/bed --on sim --loader "$1" "$B/test/process/alike" "$2"
}
for loader in debian13 unstable; do
    promise "Sysman's devices of cards that are alike, in their order ($loader)" alike_on $loader sysman
    promise "Sysman's devices of cards that are alike, the second one first ($loader)" \
        alike_on $loader sysman_second_first
done
promise "every way is counted on Debian 13's loader (1.20)" ways_on debian13
promise "every way is counted on Debian unstable's loader (1.32)" ways_on unstable
kept
