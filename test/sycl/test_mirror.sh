#!/bin/bash
# The host mirror through the real SYCL runtime, counted at the stand-in kernel: a client that allocates as PyTorch
# does, copies between cards, and a preload without zeroute run, on both adapters. What a block costs under each
# setting is test_mirror of driver/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
on_the_stack --cards 2

cat >"$dir/blocks.py" <<'PY'
# 4 blocks of 64 MiB on each card, written, copied to the other card, compared byte by byte.
import json
import os
import subprocess
import sys
import numpy as np
import dpctl
import dpctl.memory as dpm

devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
context = dpctl.SyclContext(devices)
queues = [dpctl.SyclQueue(context, d) for d in devices]
size = 64 << 20
blocks = [[dpm.MemoryUSMDevice(size, queue=q) for _ in range(4)] for q in queues]
if "copy" in sys.argv:
    pattern = np.arange(size // 4, dtype=np.uint32).view(np.uint8)
    back = np.zeros(size, dtype=np.uint8)
    blocks[0][0].copy_from_host(pattern)
    blocks[1][0].copy_from_device(blocks[0][0])
    blocks[1][0].copy_to_host(back)
    print("same" if np.array_equal(pattern, back) else "different")
if "free" in sys.argv:  # what was copied is freed: what is mirrored now?
    del blocks
    out = subprocess.run([sys.argv[-1], "stat", str(os.getpid()), "--json"], capture_output=True, check=True)
    mirror = json.loads(out.stdout)["processes"][0]["mirror_bytes"]
    print("gone" if mirror < size else f"{mirror} bytes")  # less: what the driver stages copies in
PY

# count NAME: of the last run
count() { awk -v n="$1" '$1 == n { print $2 }' "$dir/counts"; }

# run ADAPTER PRESET PROGRAM...: counted from nothing
run() {
    local v2=$1 preset=$2
    shift 2
    rm -f "$dir/counts"
    SYCL_UR_USE_LEVEL_ZERO_V2=$v2 XE_STANDIN_COUNTS="$dir/counts" tools/bed/bed --on intel --runtime newest --cards 2 \
        "$B/zeroute" run --no-summary $([ "$preset" = env ] || echo "--preset $preset") -- "$@"
}
python=$(tools/bed/env.sh --python 2>/dev/null) || python=
site=$(tools/bed/env.sh newest 2>/dev/null)/site
dpctl() {
    local v2=$1 preset=$2
    shift 2
    [ -n "$python" ] || return 77
    PYTHONPATH=$site ONEAPI_DEVICE_SELECTOR='level_zero:*' run "$v2" "$preset" "$python" "$dir/blocks.py" "$@"
}

# The driver shares one page of 64 KiB between cards when it finds out whether they reach each other.
own=65536
mirrored() { # mirrored BYTES: this much, and the driver's own
    local got
    got=$(count mirrored_bytes)
    if [ "$got" -lt "$1" ] || [ "$got" -gt $(($1 + own)) ]; then
        same "$got" "$1 to $(($1 + own))"
    fi
}

dpctl_copies() { same "$(dpctl "$1" mitigate copy)" same && mirrored $((64 << 20)); }

# A card that copied from another one's block mirrors it until the driver gets it back: the cache does not keep it.
not_kept() { # not_kept V2 SETTING
    ZEROUTE_CONF=preset:reroute,residency:owner,$2
    export ZEROUTE_CONF
    same "$(dpctl "$1" env copy free "$(realpath "$B/zeroute")")" $'same\ngone'
}

# Without zeroute run: the preload itself sees to it before the driver starts.
by_hand() {
    local lib
    lib=$(realpath "$B/libzeroute.so")
    # shellcheck disable=SC2016
    PYTHONPATH=$site ONEAPI_DEVICE_SELECTOR='level_zero:*' SYCL_UR_USE_LEVEL_ZERO_V2=$1 \
        XE_STANDIN_COUNTS="$dir/counts" \
        tools/bed/bed --on intel --runtime newest --cards 2 sh -c '
        LD_PRELOAD=$1:$LD_PRELOAD ZEROUTE_CONF=preset:eager; shift
        export LD_PRELOAD ZEROUTE_CONF; exec "$@"' - "$lib" "$python" "$dir/blocks.py"
}
eager_by_hand() {
    [ -n "$python" ] || return 77
    rm -f "$dir/counts"
    by_hand "$1" && same "$(count mirrored_bytes)" 0 && [ "$(count prime_import)" -ge 8 ]
}

torchlike=$(B=$B test/sycl/client torchlike 2026.2.0) || { code=$?; echo "$torchlike"; exit $code; }
client() { run "$1" "$2" "$torchlike" tensors copies; }
client_as_asked() { client "$1" observe && [ "$(count mirrored_bytes)" -gt 0 ]; }
# what is copied between cards is mirrored still, and nothing else
client_owner() { run "$1" mitigate "$torchlike" tensors && mirrored 0 && client "$1" mitigate; }
client_eager() { client "$1" eager && same "$(count mirrored_bytes)" 0; }

for v2 in 1 0; do
    name="adapter v$((v2 + 1))"
    promise "dpctl, $name: a copy between cards is right and mirrors its one buffer" dpctl_copies $v2
    for setting in reuse:proven reuse:runtime reuse:always,route:native reuse:always,route:sycl; do
        promise "dpctl, $name, $setting: a block that another card copied from is not kept, mirrored" \
            not_kept $v2 $setting
    done
    promise "dpctl, $name: backing:eager with a preload by hand" eager_by_hand $v2
    promise "as PyTorch allocates, $name: as asked" client_as_asked $v2
    promise "as PyTorch allocates, $name: residency:owner" client_owner $v2
    promise "as PyTorch allocates, $name: backing:eager" client_eager $v2
done
kept
