#!/bin/bash
# The same programs on both beds: Intel's driver on the stand-in and the simulated GPU, each without the
# preload and with it in every setting that matters to a caller of Level Zero.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}

on_bed() { # BED CARDS CONF|without PROGRAM...
    local bed=$1 cards=$2 conf=$3
    shift 3
    if [ "$conf" = without ]; then
        tools/bed/bed --on "$bed" --cards "$cards" "$@"
    else
        LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$conf tools/bed/bed --on "$bed" --cards "$cards" "$@"
    fi
}

tools/bed/bed --on intel true
if [ $? = 77 ]; then
    exit 77
fi
settings=$(awk '!/^#/ && $1 ~ /^(observe|mitigate|eager|native-cache|safe)$/ { print $2 }' test/settings)
for bed in sim intel; do
    for cards in 1 2 ${LONG:+4}; do
        for conf in without $settings; do
            promise "memory on $bed with $cards cards, $conf" on_bed $bed $cards "$conf" "$build/test/process/memory"
        done
    done
done
for conf in without $settings route:native,cache:on,cache_host:on route:native,cache:{on,off},limit:384MiB; do
    promise "extensions on intel, $conf" on_bed intel 2 "$conf" "$build/test/driver/extensions"
done
# The driver itself refuses what no card can hold, and errno stays what it was.
answers_to_sizes() { # BED CONF
    local alone
    alone=$(on_bed "$1" 1 without "$build/test/driver/sizes") || return 1
    [ "$(wc -l <<<"$alone")" = 10 ] && same "$(on_bed "$1" 1 "$2" "$build/test/driver/sizes")" "$alone"
}
for bed in sim intel; do
    for conf in observe reroute observe,host_floor:auto observe,free_memory:checked; do
        promise "impossible sizes on $bed, $conf" answers_to_sizes $bed preset:$conf
    done
done
# A limit refuses more, and leaves errno alone.
errno_stays() {
    local said
    said=$(on_bed intel 1 preset:safe "$build/test/driver/sizes") && [ "$(grep -c 'as before$' <<<"$said")" = 10 ] || {
        echo "$said"
        return 1
    }
}
promise "errno stays under safe on intel" errno_stays
# Each answer is as the driver alone gives it. A handle counts with its size, a mapped address with none.
physical_memory() { # physical_memory CONF
    local alone under pid
    alone=$(tools/bed/bed --on intel "$build/test/driver/ipc_physical") || return 1
    LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$1 tools/bed/bed --on intel \
        "$build/test/driver/ipc_physical" >"$dir/out" &
    pid=$!
    wait $pid || return 1
    under=$(cat "$dir/out")
    same "$under" "$alone" || return 1
    same "$("$build/zeroute" stat --json $pid | grep -oE '"ipc.(exports|export_bytes)": [0-9]+' | paste -sd' ')" \
        '"ipc.exports": 2 "ipc.export_bytes": 2097152'
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for conf in preset:observe route:native,cache:on; do
    promise "IPC of physical memory, $conf" physical_memory $conf
done
# A block is exported and opened where it was made, freed, and another takes its turn. Driver 26.27 keeps what it
# imported by the number of the exporter's descriptor, and with two cards gives the old memory when a number comes
# again (doc/driver-defects.md). Under the preload, check included, the answers are those of the driver alone.
ipc_again() { # ipc_again BED CARDS CONF [close-first]
    local alone under
    alone=$(tools/bed/bed --on "$1" --cards "$2" "$build/test/driver/ipc_again" 4 "${4-}") || return 1
    under=$(on_bed "$1" "$2" "$3" "$build/test/driver/ipc_again" 4 "${4-}") || return 1
    [ "$1" = intel ] || ! grep -q "other memory" <<<"$alone" || return 1
    same "$under" "$alone"
}
for bed in sim intel; do
    for cards in 1 2; do
        for conf in preset:observe stats:on check:all check:all,check_wait:0s; do
            promise "IPC again on $bed with $cards cards, $conf" ipc_again $bed $cards $conf close-first
            promise "and closed late on $bed with $cards cards, $conf" ipc_again $bed $cards $conf
        done
    done
done
kept
