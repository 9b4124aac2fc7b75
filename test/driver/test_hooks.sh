#!/bin/bash
# Every way of binding on every loader that distributions ship and on several drivers in one process: each call is
# seen, once. With the loader's layers on, and with the real SYCL runtime deep-bound.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
on_the_stack
sim=$build/libze_simgpu.so
driver=$(tools/bed/bed --on intel bash -c 'ls "${LD_LIBRARY_PATH##*:}"/libze_intel_gpu.so.1' 2>/dev/null) || driver=
[ -f "$driver" ] || driver=$(ldconfig -p | awk '/libze_intel_gpu\.so\.1 .*x86-64/ && !found++ { print $NF }')
[ -f "$driver" ] || driver=${ZEROUTE_BEDS:-$build/beds}/unstable/lib/libze_intel_gpu.so.1
cp -L "$driver" "$dir/libze_intel_gpu2.so.1" || exit 1
intel=libze_intel_gpu.so.1

ways() { # ways LOADER DRIVERS SETTINGS [ENVIRONMENT... -- BINDING...]
    local loader=$1 drivers=$2 settings=$3 environment=()
    shift 3
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        environment+=("$1")
        shift
    done
    ZE_SIMGPU=$settings tools/bed/bed --on intel,sim --cards 2 --loader "$loader" \
        env "ZE_ENABLE_ALT_DRIVERS=$drivers" "${environment[@]}" test/driver/ways "$build" "${@:2}"
}

for loader in debian12 debian13 unstable; do
    promise "$loader: Intel's driver" ways $loader $intel ''
    promise "$loader: Intel's driver and the simulated one" ways $loader $intel,"$sim" ddi_handles:off
    promise "$loader: both with tables in their handles" ways $loader $intel,"$sim" ddi_handles:on
    [ -z "${LONG:-}" ] ||
        promise "$loader: the simulated one first" ways $loader "$sim",$intel ddi_handles:on
    promise "$loader: Intel's driver twice, with the cache" ways $loader "$intel,$dir/libze_intel_gpu2.so.1" '' \
        ZEROUTE_CONF=route:native,cache:on
done
for layer in ZE_ENABLE_VALIDATION_LAYER=1 ZET_ENABLE_API_TRACING_EXP=1 ZE_ENABLE_TRACING_LAYER=1; do
    promise "$layer: Intel's driver twice" ways unstable "$intel,$dir/libze_intel_gpu2.so.1" '' $layer
done
promise "the leak checker: Intel's driver twice" ways unstable "$intel,$dir/libze_intel_gpu2.so.1" '' \
    ZE_ENABLE_VALIDATION_LAYER=1 ZEL_ENABLE_BASIC_LEAK_CHECKER=1

# Data are right, and as many calls are counted as with the adapters bound normally.
counted_by_dpctl() { # counted_by_dpctl DRIVERS SETTINGS ENVIRONMENT...
    local drivers=$1 settings=$2 pid json
    shift 2
    ZE_SIMGPU=$settings LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=preset:observe env "$@" \
        tools/bed/bed --on intel,sim --cards 2 --runtime newest --python \
        -c "import os, sys; os.environ['ZE_ENABLE_ALT_DRIVERS'] = '$drivers'
exec(open('test/sycl/usm_right.py').read())" >"$dir/out" 2>&1 &
    pid=$!
    wait $pid || { tail -n 3 "$dir/out"; return 1; }
    json=$("$build/zeroute" stat --json $pid | grep -E '"calls.ze(MemAllocDevice|MemFree|MemFreeExt)\.|"hooks": "."')
    awk -F'[".]' '/hooks/ { print } /calls/ { split($0, v, ": "); n[$3] += v[2] } END { for (e in n) print e, n[e] }' \
        <<<"$json" | sort
}
deep_as_normal() { # deep_as_normal DRIVERS SETTINGS ENVIRONMENT...
    local normal deep
    normal=$(counted_by_dpctl "$@" UR_ADAPTERS_DEEP_BIND=0) || { echo "normal: $normal"; return 1; }
    deep=$(counted_by_dpctl "$@" UR_ADAPTERS_DEEP_BIND=1) || { echo "deep: $deep"; return 1; }
    same "$deep" "$normal" && grep -q 'zeMemAllocDevice [1-9]' <<<"$deep"
}
for adapter in 0 1; do
    promise "adapter v$((adapter + 1)) deep-bound on Intel's driver twice" deep_as_normal \
        "$intel,$dir/libze_intel_gpu2.so.1" '' SYCL_UR_USE_LEVEL_ZERO_V2=$adapter
    promise "adapter v$((adapter + 1)) deep-bound on Intel's driver and the simulated one" deep_as_normal \
        "$intel,$sim" ddi_handles:on SYCL_UR_USE_LEVEL_ZERO_V2=$adapter
done
kept
