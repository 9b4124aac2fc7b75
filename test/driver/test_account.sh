#!/bin/bash
# What the process holds and what the cards hold, on Intel's driver: every figure equal to the stand-in's own count,
# to the byte, and to what the program counts itself. And the preset safe: no process, and no four together, take more
# than a card has, and nobody is told that more is free.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

tools/bed/bed --on intel true
if [ $? = 77 ]; then
    exit 77
fi

random_program() { # CONF SEED
    ZEROUTE_CONF=preset:reroute,$1 XE_STANDIN_COUNTS=$dir/counts tools/bed/bed --on intel --cards 2 \
        "$build/zeroute" run --no-summary --json "$dir/json" -- \
        "$build/test/driver/unseen" "$2" 600 >"$dir/own" || return 1
    python3 - "$dir/json" "$dir/own" <<'P'
import json, sys
fields = json.load(open(sys.argv[1]))["processes"][0]["fields"]
own = {line.split()[0]: [int(n) for n in line.split()[1:]] for line in open(sys.argv[2])}
def both(*kinds):
    return [sum(own[f"{k}.{card}"][i] for k in kinds for card in (0, 1)) for i in (0, 1)]
bad = 0
def same(what, got, expected):
    global bad
    if got != expected:
        bad = 1
        print(f"{what}: {got}, expected {expected}")
for n in (0, 1):
    same(f"images of card {n}", fields[f"device.{n}.image_bytes"], own[f"image.{n}"][0])
    same(f"blocks of card {n}", fields[f"device.{n}.allocated_bytes.all.current"],
         own[f"device.{n}"][0] + own[f"shared.{n}"][0])
for field, kinds in {"image": ("image", "view"), "module": ("module",), "host_pointer": ("pointer",), "event_pool":
                     ("pool",), "command_list": ("list", "immediate"), "command_queue": ("queue",)}.items():
    same(field, fields[f"{field}.all.current"], both(*kinds)[1])
    if f"{field}_bytes.all.current" in fields:
        same(field + " bytes", fields[f"{field}_bytes.all.current"], both(*kinds)[0])
same("host USM", fields["allocated_bytes.host.current"], both("host")[0])
sys.exit(bad)
P
}
for seed in 1 2 3; do
    promise "a random program, seed $seed: every figure is the stand-in's own" \
        random_program route:native,cache:off $seed
done
promise "a random program with a cache: every figure is the stand-in's own" \
    random_program route:native,cache:on,cache_host:on 4

# --- GPUActive -------------------------------------------------------------------------------------------------
# It holds host USM and the host side of shared USM as well as the mirror: 96 MiB of 344.
split() { # split BED
    local pid told
    export ZEROUTE_ROOT=$dir/split-$1 ZE_SIMGPU=devices:2,mirror:on
    mkdir "$ZEROUTE_ROOT" && mkfifo "$ZEROUTE_ROOT/end" && exec 8<>"$ZEROUTE_ROOT/end"
    LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=preset:observe tools/bed/bed --on "$1" --cards 2 \
        "$build/test/driver/split" <"$ZEROUTE_ROOT/end" 8>&- >"$dir/held-$1" 2>&1 &
    pid=$!
    until grep -q ready "$dir/held-$1"; do
        kill -0 $pid || { cat "$dir/held-$1"; return 1; }
        sleep 0.05
    done
    told=$("$build/zeroute" doctor $pid; "$build/zeroute" doctor)
    exec 8>&-
    wait $pid
    told=$(tr -s ' \n' ' ' <<<"$told")
    local counted='Mirrored (no|too little to tell): GPUActive[^:]*, less 248 MiB of host and shared USM'
    [ "$(grep -oE "$counted" <<<"$told" | wc -l)" = 2 ] || {
        echo "$told"
        return 1
    }
}
for bed in sim intel; do
    promise "$bed: what was asked for in host memory is no mirror, and is told apart" split $bed
done

# --- limit:auto ------------------------------------------------------------------------------------------------
# A machine of its own: a card of 2 GiB that spills, as xe does. Other worktrees have processes of the same ids.
machine() { # machine COMMAND...
    (
        export ZEROUTE_ROOT=$dir/machine XE_STANDIN=vram:2GiB,spill:on XE_STANDIN_COUNTS=$dir/machine/counts
        rm -rf "$ZEROUTE_ROOT" && mkdir "$ZEROUTE_ROOT" && "$@"
    )
}
counted() { awk -v name="$1" '$1 == name { print $2 }' "$XE_STANDIN_COUNTS"; }
greedy() { LD_PRELOAD=$build/libzeroute.so tools/bed/bed --on intel "$build/test/driver/greedy" "$@"; }

four_at_once() { # CONF
    local i sum=0 held
    mkfifo "$ZEROUTE_ROOT/end" && exec 8<>"$ZEROUTE_ROOT/end"
    for i in 1 2 3 4; do
        ZEROUTE_CONF=$1 START=$ZEROUTE_ROOT/go greedy 20 4 hold <"$ZEROUTE_ROOT/end" 8>&- >"$dir/four$i" 2>/dev/null &
    done
    until [ "$(find "$ZEROUTE_ROOT" -maxdepth 1 -name 'go.*' | wc -l)" = 4 ]; do sleep 0.05; done
    touch "$ZEROUTE_ROOT/go"
    until [ "$(cat "$dir"/four? | wc -l)" = 4 ]; do sleep 0.05; done
    echo "$(counted gem_create_spilled) buffers spilled, VRAM $(($(counted gem_create_vram_bytes) - \
        $(counted gem_free_vram_bytes)))"
    for i in 1 2 3 4; do
        read -r held _ <"$dir/four$i"
        sum=$((sum + held))
    done
    held=$(counted gem_create_spilled)
    exec 8>&-
    wait
    echo "$sum bytes in blocks"
    [ "$held" = 0 ] && [ $sum -gt $((512 << 20)) ]
}
# Without it the card overflows: the test can see it.
overflows() { ! four_at_once route:native,cache:off; }
promise "four processes under safe take no more than the card has" machine four_at_once preset:safe
promise "four processes under observe make it spill" machine overflows

# --- free_memory:checked ---------------------------------------------------------------------------------------
# The simulated driver says nonsense: it is replaced by the truth, which the same program finds without nonsense.
nonsense() { # nonsense WHAT CONF [BED OPTION...]
    local what=$1 conf=$2 truth lie
    shift 2
    truth=$(tools/bed/bed --on sim "$@" "$build/test/driver/free" 1024) || return 1
    lie=$(ZE_SIMGPU=says_free:$what ZEROUTE_CONF=preset:reroute,$conf tools/bed/bed --on sim "$@" \
        "$build/zeroute" run --no-summary --json "$dir/json" -- "$build/test/driver/free" 1024 2>"$dir/err") || return 1
    grep -q '^sysman ' <<<"$truth" || { echo "Sysman says nothing: $truth"; return 1; }
    [ "$lie" = "$truth" ] || { printf '%s\nexpected\n%s\n' "$lie" "$truth"; return 1; }
    [ "$(grep -c 'cannot be right' "$dir/err")" -ge 1 ] || { echo "not reported"; return 1; }
    python3 -c 'import json, sys
f = json.load(open(sys.argv[1]))["processes"][0]["fields"]
sys.exit(not f["free_memory.replaced_calls"] or f["device.0.free_memory.told_bytes"] != int(sys.argv[2]))' \
        "$dir/json" "${truth##* }"
}
loader=$(tools/bed/fetch.sh driver)/lib/libze_loader.so.1
by_variable() { ZES_ENABLE_SYSMAN=1 nonsense "$@"; }
for what in zero total double; do
    promise "a driver that says '$what' is free is corrected" by_variable $what route:native,free_memory:checked
    [ -e "$loader" ] && promise "where Sysman is started by zesInit, too" \
        nonsense $what route:native,free_memory:checked --loader "$loader"
done
# Intel's driver tells the truth, and is left alone; a process that it does not know of is counted by the kernel.
told() {
    local truth now
    truth=$(tools/bed/bed --on intel "$build/test/driver/free" 512) || return 1
    now=$(ZEROUTE_CONF=preset:safe tools/bed/bed --on intel "$build/zeroute" run --no-summary --json "$dir/json" -- \
        "$build/test/driver/free" 512) || return 1
    # Sysman does not leave out what the driver keeps for itself: a program that asks there is told what it can have.
    same "$(grep -v sysman <<<"$now")" "$(grep -v sysman <<<"$truth")" &&
        same "$(sed -n 's/^sysman //p' <<<"$now")" "$(sed -n 's/^properties //p' <<<"$now")" &&
        grep -q '"free_memory.replaced_calls": 0' "$dir/json"
}
same() { [ "$1" = "$2" ] || { echo "$1, expected $2"; return 1; }; }
promise "the truth is passed on as it is" told

# --- growth ----------------------------------------------------------------------------------------------------
# Three programs that leak, side by side: doctor --watch names what grows.
leak() { # leak KIND: started, its process id in $dir/KIND.pid
    mkdir "$dir/$1"
    ZEROUTE_ROOT=$dir/$1 LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=preset:observe tools/bed/bed --on intel \
        "$build/test/driver/leak" "$1" >"$dir/$1.out" 2>&1 &
    echo $! >"$dir/$1.pid"
}
grows() { # grows KIND WORDS
    local pid told
    export ZEROUTE_ROOT=$dir/$1
    pid=$(cat "$dir/$1.pid")
    # The stand-in begins to say what the process holds when the driver opens it, after the segment is there.
    until grep -q ready "$dir/$1.out"; do
        kill -0 "$pid" || { cat "$dir/$1.out"; return 1; }
        sleep 0.2
    done
    told=$("$build/zeroute" doctor --verbose --watch 3s "$pid" | tr -s ' \n' ' ')
    kill "$pid"
    grep -qE "$2 grows?, and the allocations do not seen: [0-9.]+ ([KMG]iB )?more in 3 s, .* a second" <<<"$told" &&
        [ "$(grep -o 'grows\?, and the' <<<"$told" | wc -l)" = 1 ] || {
        echo "$told"
        return 1
    }
}
for kind in image host ipc; do leak $kind; done
promise "images that are never destroyed: doctor says that unseen memory grows" \
    grows image 'device memory that no allocation call shows'
promise "pinned memory that is never freed: it names host USM" grows host 'host USM'
promise "IPC handles that are never closed: it names these" grows ipc 'open IPC handles'
wait
kept
