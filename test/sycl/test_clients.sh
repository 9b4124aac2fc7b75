#!/bin/bash
# SYCL programs that are not PyTorch: frees while a command still writes, never frees, no device, another backend, a
# runtime that nobody knows, two runtimes, peer access, IPC between two processes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# --- runtimes of our own making: no bed needed -----------------------------------------------------------
fake() { # fake SONAME BACKEND
    cc -shared -fPIC -DBACKEND="$2" -Wl,-soname,"$1" -o "$dir/$1" test/sycl/fake_sycl.c
}
client() { # client NAME RUNTIME [OPTIONS]
    local name=$1 runtime=$2
    shift 2
    cc -DALONE -DCLIENT=client -o "$dir/$name" test/sycl/fake_client.c "$dir/$runtime" -Wl,-rpath,"$dir" "$@"
}
field() { # field NAME: of the last run; cards have theirs when something is counted
    python3 -c 'import json,sys
absent = 0 if sys.argv[2].startswith("device.") else "no such field"
print(json.load(open(sys.argv[1]))["processes"][0]["fields"].get(sys.argv[2], absent))' "$dir/json" "$1"
}
under() { "$B/zeroute" run --no-summary --preset reroute --route "$1" --json "$dir/json" -- "${@:2}" 2>"$dir/err"; }

unknown_runtime() {
    fake libsycl.so.42 2 && client unknown libsycl.so.42 && under auto "$dir/unknown" || return 1
    same "$(grep -c 'not known (libsycl.so.42)' "$dir/err")" 1 && same "$(wc -l <"$dir/err")" 1 &&
        same "$(field calls.aligned_alloc_device.sycl)" 10 && same "$(field passed_through.runtime)" 10 &&
        same "$(field route.why)" "a SYCL runtime of a version that is not known"
}
other_backend() {
    fake libsycl.so.9 1 && client opencl libsycl.so.9 && under sycl "$dir/opencl" || return 1
    same "$(cat "$dir/err")" "" && same "$(field calls.aligned_alloc_device.sycl)" 10 &&
        [ "$(field passed_through.backend)" -gt 0 ] && same "$(field cache.misses)" 0
}
# Level Zero's backend, and no file of an adapter: it is inside; with one, its pool is.
pool_inside() {
    local self="the runtime has its adapter and its pool inside itself, where a preload cannot take the pool's place"
    fake libsycl.so.9 2 && client inside libsycl.so.9 && under pool "$dir/inside" || { cat "$dir/err"; return 1; }
    same "$(field route.in_force)" native && same "$(field route.why)" "$self" &&
        same "$(grep -c "$self" "$dir/err")" 1 || return 1
    # in a folder of its own: real runtimes that are run from $dir look for their adapters there
    mkdir "$dir/adapter" || return 1
    echo 'int nothing;' | cc -shared -fPIC -x c -o "$dir/adapter/libur_adapter_level_zero.so.0" - &&
        client beside libsycl.so.9 -Wl,--no-as-needed "$dir/adapter/libur_adapter_level_zero.so.0" &&
        under pool "$dir/beside" || return 1
    same "$(field route.why)" "the runtime's adapter has a pool inside itself, and takes none from outside"
}
unjudged_backend() {
    fake libsycl.so.9 1 && client opencl libsycl.so.9 || return 1
    "$B/zeroute" run --no-summary --check all --fail-on-error -- "$dir/opencl" 2>"$dir/err"
    same $? 0 && same "$(cat "$dir/err")" "zeroute: check: 0 errors"
}
two_runtimes() {
    fake libsycl.so.9 1 && fake libsycl.so.8 1 || return 1
    cc -shared -fPIC -DCLIENT=second -o "$dir/libsecond.so" test/sycl/fake_client.c "$dir/libsycl.so.8" \
        -Wl,-rpath,"$dir" || return 1
    cc -DCLIENT=client -DSECOND=second -o "$dir/two" test/sycl/fake_client.c "$dir/libsycl.so.9" "$dir/libsecond.so" \
        -Wl,-rpath,"$dir" && under sycl "$dir/two" || { cat "$dir/err"; return 1; }
    same "$(grep -c 'a second SYCL runtime in this process (libsycl.so.8)' "$dir/err")" 1 &&
        same "$(field calls.aligned_alloc_device.sycl)" 20 && same "$(field passed_through.runtime)" 10
}
promise "a runtime that is not known passes through, with one warning and a field" unknown_runtime
promise "another backend than Level Zero passes through, counted" other_backend
promise "a runtime with its adapter inside says why route:pool is not possible" pool_inside
promise "check does not judge frees of another backend's memory" unjudged_backend
promise "the second of two runtimes passes through" two_runtimes

# --- the real runtime ------------------------------------------------------------------------------------------
tools/bed/bed --on intel --runtime newest --cards 2 --setup >"$dir/setup" 2>&1 || {
    code=$?
    tail -n 1 "$dir/setup"
    [ $code = 77 ] && [ $promises_broken = 0 ] && exit 77
    exit 1
}
corners=$(B=$B test/sycl/client corners 2026.2.0) || { code=$?; echo "$corners"; exit $code; }
on_bed() { # on_bed ADAPTER CONF ACT...: the library is preloaded unless CONF is "none"
    local v2=$(($1 - 1)) conf=$2
    shift 2
    if [ "$conf" = none ]; then
        set -- "$corners" "$@"
    else
        set -- env ZEROUTE_CONF="preset:reroute,$conf" \
            "$B/zeroute" run --no-summary --json "$dir/json" -- "$corners" "$@"
    fi
    SYCL_UR_USE_LEVEL_ZERO_V2=$v2 timeout 120 tools/bed/bed --on intel --cards "${CARDS:-2}" --runtime 2026.2.0 "$@"
}

# A command of 100 ms writes a block that is freed at once. The next owner is hurt only where the runtime alone would
# let him be. That is where its pool, or the driver below, reuses memory at once; where the driver waits for commands
# (zeMemFreeExt of v2; zeMemFree when there is more than one card), so does reuse:runtime. reuse:proven, the default,
# hurts nobody above the size that the runtime's pool reuses at once.
# Two cells that must hurt show that the test can see it: a pooled size, and everything under reuse:always.
one_reuse() { # one_reuse ADAPTER CARDS BYTES SETTING [ALIGNMENT]: prints what the client says
    local cost=100ms
    # The copy engine takes pieces of 2 MiB.
    [ "$3" -le 2097152 ] || cost=10ms
    # Fills by the compute engine on both adapters, no copies by the host: the copy engine has the slow command.
    CARDS=$2 NEOReadDebugKeys=1 ExperimentalCopyThroughLock=0 UR_L0_USE_COPY_ENGINE_FOR_FILL=0 \
        XE_STANDIN=copy_cost:$cost on_bed "$1" "$4" reuse "$3" ${5:+"$5"}
}
# On a busy machine the command may be done before the next owner comes: then nobody can be hurt, and it is tried again.
must_hurt() {
    local try
    for try in 1 2 3; do
        out=$(one_reuse "$@") || return 1
        [ "${out##* }" = 0 ] || return 0
    done
    echo "$4: nobody was hurt in $try tries, the test sees nothing"
    return 1
}
reuse() { # reuse ADAPTER CARDS BYTES
    local setting out='' alone=0 code=0
    # One card: the driver keeps freed blocks of 3 to 64 MiB itself, and zeMemFree does not wait for them.
    if [ "$3" -le 2097152 ] || [ "$1$2" = 11 ]; then
        must_hurt "$@" none || return 1
        alone=1
    else
        out=$(one_reuse "$@" none) || return 1
        alone=${out##* }
    fi
    tell_reuse "$@" "the runtime alone"
    for setting in {route:native,route:sycl,route:pool},reuse:{runtime,proven}; do
        out=$(one_reuse "$@" $setting) || return 1
        tell_reuse "$@" $setting
        [ "${out##* }" -le "$alone" ] || { echo "$setting: $out"; code=1; }
        [[ $3 -le 2097152 || $setting = *runtime || ${out##* } = 0 ]] || { echo "$setting: $out"; code=1; }
        [[ $3 -le 2097152 || $setting = *runtime ]] || same "$setting: $(field reuse.lost)" "$setting: " || code=1
    done
    for setting in route:sycl,reuse:always route:pool,reuse:always; do
        must_hurt "$@" $setting || code=1
        tell_reuse "$@" $setting
    done
    return $code
}
tell_reuse() { echo "| v$1 | $2 | $(($3 >> 20)) MiB | $4 | $out |" >>"$dir/table"; }
for adapter in 1 2; do
    for cards in 1 2; do
        for size in 2097152 20971520; do
            promise "adapter v$adapter, $cards card(s), $size bytes: nobody is hurt whom the runtime spares" \
                reuse $adapter $cards $size
        done
    done
done
# The same at random: some hundred blocks, most of them freed in haste, with slow commands of four queues and two cards.
# Under reuse:proven blocks come back, and nobody is hurt; reuse:always shows that somebody would be.
hasty() { # hasty ADAPTER SETTING SEED: prints what the client says
    NEOReadDebugKeys=1 ExperimentalCopyThroughLock=0 UR_L0_USE_COPY_ENGINE_FOR_FILL=0 XE_STANDIN=copy_cost:2ms \
        on_bed "$1" "$2,cache_limit:2GiB" hasty "$3"
}
never_hasty() { # never_hasty ADAPTER SETTING: LONG=1 tries 20 seeds more
    local seed out
    for seed in $(seq "$1" $(($1 + (${LONG:-0} ? 20 : 0)))); do
        out=$(hasty "$1" "$2,reuse:proven" "$seed") && [[ $out = "again "[1-9]*" hurt 0" ]] || {
            echo "seed $seed: $out"
            return 1
        }
    done
}
always_hasty() {
    local out
    out=$(hasty "$1" route:sycl,reuse:always "$1") && [[ $out != *" hurt 0" ]] || { echo "$out"; return 1; }
}
# Programs that keep commands in order, and wait for the last of several: adapter v1 orders them by events.
all_proven() { # all_proven ADAPTER [event]
    on_bed "$1" reuse:proven ordered ${2:+"$2"} && same "$(field reuse.waited_frees)" 0 &&
        [ "$(field reuse.proven_frees)" -ge 30 ]
}
for adapter in 1 2; do
    for conf in route:native route:sycl route:pool; do
        promise "adapter v$adapter, $conf: no owner is hurt by whoever frees in haste" never_hasty $adapter $conf
    done
    promise "adapter v$adapter: under reuse:always somebody is" always_hasty $adapter
    promise "adapter v$adapter: a queue in order proves all its commands by a wait" all_proven $adapter
    promise "adapter v$adapter: a queue in order proves all its commands by the last event" all_proven $adapter event
done
# A pool that is off, or keeps less, has the driver wait for small blocks too; in older runtimes nobody tells us.
smaller_pool() { # smaller_pool ADAPTER VARIABLE=VALUE
    local setting out
    for setting in none {route:sycl,route:auto},reuse:{runtime,proven}; do
        out=$(export "${2?}" && one_reuse "$1" 2 2097152 $setting) || return 1
        same "$setting: ${out##* }" "$setting: 0" || return 1
    done
}
# The runtime's pool counts a large alignment as size, and so leaves this block to its provider.
large_alignment() {
    local setting out
    for setting in none {route:sycl,route:pool},reuse:{runtime,proven}; do
        out=$(one_reuse 2 2 3145728 $setting 2097152) || return 1
        same "$setting: ${out##* }" "$setting: 0" || return 1
    done
}
promise "adapter v2: a block of large alignment is spared" large_alignment
for adapter in 1 2; do
    promise "adapter v$adapter: what a pool that is off spares is spared" \
        smaller_pool $adapter UR_L0_DISABLE_USM_ALLOCATOR=1
    promise "adapter v$adapter: what a smaller pool spares is spared" \
        smaller_pool $adapter "UR_L0_USM_ALLOCATOR=1;32M;device:512K,4,64K"
done
promise "adapter v2: what a pool that is configured away spares is spared" \
    smaller_pool 2 UR_L0_USM_ALLOCATOR=0
[ ! -e "$dir/table" ] || {
    echo "| adapter | cards | size | setting | next owner |"
    echo "| --- | --- | --- | --- | --- |"
    cat "$dir/table"
}

# Blocks of 512 bytes, 2 MiB and 20 MiB are never freed. When the process ends the runtime takes its pools down, and
# what lay in them goes back; what is over their limit is left, and with adapter v2, which destroys no context then,
# what we served at the SYCL entry points. What the runtime frees then may stay in the cache of a context that lives on.
spare() { # spare BYTES [CARD]: at most so much is reserved beyond what is allocated
    local allocated reserved
    allocated=$(field "${2:+device.$2.}allocated_bytes.all.current")
    reserved=$(field "${2:+device.$2.}reserved_bytes.all.current")
    [ "$reserved" -ge "$allocated" ] && [ "$reserved" -le $((allocated + $1)) ] ||
        { echo "reserved $reserved, allocated $allocated, at most $1 more expected"; return 1; }
}
never_frees() { # never_frees ADAPTER CONF
    local left=$((20 << 20))
    [ "$1-$2" != 2-route:sycl ] || left=$((512 + (2 << 20) + (20 << 20)))
    on_bed "$1" "$2" leak && same "$(field device.0.allocated_bytes.all.current)" $left &&
        spare $((4 << 20)) 0 &&
        same "$(field device.1.allocated_bytes.all.current)" 0
}
# A context takes what its pool holds with it. Where cards share the driver's own context, as with adapter v2 and a
# single one, nobody tells us of its end: so two. Blocks of 64 bytes by which the adapter
# tries each card stay in the cache.
orphans() { # orphans ADAPTER CONF
    on_bed "$1" "$2" orphans && same "$(field device.0.allocated_bytes.all.current)" 0 &&
        spare 64 0
}
no_device() { ONEAPI_DEVICE_SELECTOR='opencl:*' on_bed 2 route:auto leak | grep -q 'no device'; }
switches_peer_access() {
    on_bed "$1" "$2" peer && same "$(field calls.enable_peer_access.sycl)" 1
}
exports() {
    on_bed "$1" "$2" ipc && same "$(field calls.ipc_memory_get.sycl)" 4 && [ "$(field ipc.exports)" -ge 3 ]
}
opens_its_own() { # opens_its_own ADAPTER
    same "$(on_bed "$1" route:sycl ipc_own)" "$(on_bed "$1" none ipc_own)"
}
# The importer runs without us: a handle of ours is as good as the runtime's own.
bare_importer() { # bare_importer ADAPTER
    CORNERS_BARE=$B/libxe_standin.so:$B/libbed_stay.so on_bed "$1" route:sycl ipc
}
# What was exported and freed is nobody's but the importer's: he sees the old data. The runtime's own pool does not hold
# to it, so with route:native only a size that it does not keep.
exported_and_freed() { # exported_and_freed ADAPTER CONF
    local size sizes="4096 2097152 20971520"
    [ "${2%%,*}" != route:native ] || sizes=20971520
    for size in $sizes; do
        on_bed "$1" "$2" ipc_freed "$size" || return 1
    done
}
# What lies unused in a cache or pool of ours does not look used: SYCL is told as much free memory as before.
looks_free() { # looks_free ADAPTER CONF
    same "$(on_bed "$1" "$2" kept)" $'0\n0' && [ "$(field cache.trims)" -ge 2 ]
}
# 400 contexts with a block each at once, freed or left to their contexts: as without us, and nothing stays booked.
many_contexts() { # many_contexts ADAPTER CARDS CONF
    local told leave
    for leave in '' leave; do
        told=$(CARDS=$2 on_bed "$1" "$3" contexts 400 $leave) && same "$told" 400 || { echo "$told"; return 1; }
        [ "$3" != none ] || continue
        same "$(field route.in_force)" pool &&
            same $(($(field calls.pool_aligned_malloc.pool) + $(field calls.pool_malloc.pool))) 400 &&
            same "$(field allocated_bytes.all.current)" 0 && spare $((1 << 20)) &&
            same "$(field allocation.all.current)" 0 || { echo "contexts 400 $leave"; return 1; }
    done
}
# Residency refused for the first or the second block, under reuse:runtime: the program gets what the runtime alone
# gives it. The runtime's own blocks at the start take eight calls. What was kept is given back first, and the block
# asked for once more.
refuses() { # refuses ADAPTER
    local nth told inject=inject:zeContextMakeMemoryResident
    for nth in 9 12; do
        told=$(on_bed "$1" route:native,cache:off,$inject@$nth=0x70000003 refused) ||
            return 1
        grep -q null <<<"$told" || { echo "nobody was refused"; return 1; }
        same "$(on_bed "$1" route:sycl,reuse:runtime,$inject@$nth=0x70000003 refused)" "$told" || return 1
        same "$(field allocated_bytes.all.current)" 0 || return 1
    done
    same "$(on_bed "$1" route:sycl,reuse:runtime,$inject@11=0x70000003 refused kept)" "ok ok ok" &&
        same "$(field cache.retries)" 1
}
# Whoever finds nothing left to give back, because another thread was faster, is not refused. Each try shows it in one
# of two cases.
at_once() { # at_once ADAPTER
    local try
    for try in 1 2 3 4 5; do
        same "$(CARDS=1 on_bed "$1" route:pool,limit:256M at_once)" "ok ok ok ok" || { echo "try $try"; return 1; }
    done
}
# Where peer access decides about residency, blocks that live get it when it is switched on, as the runtime does it.
late_peer() {
    local setting native='' now
    for setting in route:native,cache:off route:sycl route:sycl,cache:off; do
        SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1 on_bed 2 $setting late_peer || return 1
        now=$(field residency.peer.granted_bytes)
        [ "$now" -ge $((52 << 20)) ] && same "$now" "${native:-$now}" || {
            echo "$setting: $now, not $native"
            return 1
        }
        native=$now
    done
    SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1 on_bed 2 route:sycl late_peer off &&
        same "$(field residency.evict_calls)" 2
}
# Contexts come and go: every request reaches our pool once, and comes back.
pool_serves() { # pool_serves ADAPTER
    local asked
    asked=$(on_bed "$1" route:pool again) || return 1
    same $(($(field calls.pool_aligned_malloc.pool) + $(field calls.pool_malloc.pool))) "$asked" &&
        same "$(field calls.pool_free.pool)" "$asked" &&
        same "$(field allocated_bytes.all.current)" 0 && same "$(field route.in_force)" pool
}
promise "adapter v1: the runtime takes every block from our pool" pool_serves 1
promise "adapter v2: the runtime takes every block from our pool" pool_serves 2
promise "adapter v1: refused residency is answered as the runtime does" refuses 1
promise "adapter v2: refused residency is answered as the runtime does" refuses 2
promise "adapter v1: threads that ask at once get what the pool gives back" at_once 1
promise "adapter v2: threads that ask at once get what the pool gives back" at_once 2
promise "blocks that live follow when peer access is switched on and off" late_peer
promise "a program without a device is left alone" no_device
for conf in route:native route:sycl route:pool; do
    for adapter in 1 2; do
        promise "$conf, adapter v$adapter: a program that never frees ends well" never_frees $adapter $conf
        promise "$conf, adapter v$adapter: what is not freed goes with its context" orphans $adapter $conf
        promise "$conf, adapter v$adapter: peer access on and off" switches_peer_access $adapter $conf
        promise "$conf, adapter v$adapter: IPC between two processes" exports $adapter $conf
    done
done
# The real runtime under a name of tomorrow: neither its entry points nor its pool are ours.
tomorrows() { # tomorrows ADAPTER CONF
    local corners=$dir/corners-tomorrow sycl
    if [ ! -e "$corners" ]; then
        sycl=$(tools/bed/env.sh 2026.2.0) || return
        python3 -c 'import sys
open(sys.argv[2], "wb").write(open(sys.argv[1], "rb").read().replace(b"\0libsycl.so.9\0", b"\0libsycl.so.0\0"))' \
            "$sycl/lib/libsycl.so.9" "$dir/libsycl.so.0" &&
            g++ -std=c++17 -O1 -w -I"$sycl/include" test/sycl/corners.cpp -o "$corners" "$dir/libsycl.so.0" \
                -Wl,--allow-shlib-undefined -Wl,-rpath,"$dir" -lpthread || return 1
    fi
    on_bed "$1" "$2" leak 2>"$dir/err" || return 1
    same "$(cat "$dir/err")" \
        "zeroute: a SYCL runtime of a version that is not known (libsycl.so.0): its allocations are left to it" &&
        same "$(field route.in_force): $(field route.why)" "native: a SYCL runtime of a version that is not known" &&
        same "$(field passed_through.runtime)" 3 &&
        same "$(field device.0.allocated_bytes.all.current)" $((20 << 20))
}
for conf in route:auto route:sycl; do
    for adapter in 1 2; do
        promise "$conf, adapter v$adapter: a runtime of tomorrow is left alone" tomorrows $adapter $conf
    done
done
for adapter in 1 2; do
    promise "route:pool,cache:off, adapter v$adapter: a program that never frees ends well" \
        never_frees $adapter route:pool,cache:off
    promise "route:pool,cache:off, adapter v$adapter: what is not freed goes with its context" \
        orphans $adapter route:pool,cache:off
done
for adapter in 1 2; do
    for conf in route:pool,reuse:always route:sycl,reuse:always route:native,cache:on,reuse:always route:pool; do
        # Adapter v2 frees such sizes with a policy, so that no cache of ours sees them: nothing could go wrong.
        [ "$adapter ${conf%%,*}" = "2 route:native" ] ||
            promise "$conf, adapter v$adapter: what is exported and freed is not reused" \
                exported_and_freed $adapter $conf
    done
    for conf in route:pool route:pool,reuse:always route:sycl,reuse:always; do
        promise "$conf, adapter v$adapter: what lies unused does not look used" looks_free $adapter $conf
    done
    for cards in 1 2; do
        for conf in none route:pool route:auto; do
            promise "$conf, adapter v$adapter, $cards card(s): 400 contexts with a block each" \
                many_contexts $adapter $cards $conf
        done
    done
done
promise "adapter v1: a process without zeroute opens an IPC handle of route:sycl" bare_importer 1
promise "adapter v2: a process without zeroute opens an IPC handle of route:sycl" bare_importer 2
promise "adapter v1: a process opens its own IPC handle of route:sycl" opens_its_own 1
promise "adapter v2: a process opens its own IPC handle of route:sycl" opens_its_own 2
kept
