#!/bin/bash
# What is left of a card to a process, whoever leaves it so little: the card itself, other processes, the cgroups above
# the process, the processes of its group. A refusal comes in time, before anything spills, and says which of
# them it was. On the simulated machine, on Intel's driver, and by the kernel's own controller where there is one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
MIB=1048576

# on_a_machine COMMAND...: on a machine of its own, with a card of 2 GiB that spills, as xe does.
on_a_machine() {
    (
        export ZEROUTE_ROOT=$dir/machine ZE_SIMGPU=vram:2GiB,spill:on
        rm -rf "$ZEROUTE_ROOT" && mkdir "$ZEROUTE_ROOT" && "$@"
    )
}
greedy() { # greedy CONF [MIB_PER_BLOCK [ROUNDS [hold]]]
    local conf=$1
    shift
    LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$conf tools/bed/bed --on "${BED:-sim}" "$build/test/driver/greedy" "$@"
}
# A greedy process holds so many MiB at most, and not 20 less; and it is told why.
takes() { # takes MIB WORDS CONF
    local got
    got=$(greedy "$3" 20 2 2>"$dir/err") || return 1
    got=$((${got%% *} / MIB))
    [ $got -le "$1" ] && [ $got -gt $(($1 - 20)) ] && grep -qE "$2" "$dir/err" || {
        echo "$got MiB, expected $1 at most"
        cat "$dir/err"
        return 1
    }
}
dmem_max() { # dmem_max CGROUP MIB|max
    local bytes=$2
    [ "$2" = max ] || bytes=$(($2 * MIB))
    mkdir -p "$ZEROUTE_ROOT/sys/fs/cgroup$1"
    printf '%s\n' 'drm/0000:02:00.0/vram0 5' 'drm/0000:03:00.0/stolen 4096' "drm/0000:03:00.0/vram0 $bytes" \
        >"$ZEROUTE_ROOT/sys/fs/cgroup$1/dmem.max"
}
in_cgroup() { # in_cgroup NAME COMMAND...
    local ZE_SIMGPU=$ZE_SIMGPU,cgroup:$1
    export ZE_SIMGPU
    shift
    "$@"
}
# A process that holds memory until let_go.
holds() { # holds CONF MIB
    local pid
    rm -f "$dir/end" "$dir/holder"
    mkfifo "$dir/end" && exec 8<>"$dir/end"
    greedy "$1" "$2" 1 hold <"$dir/end" 8>&- >"$dir/holder" 2>"$dir/holder.err" &
    pid=$!
    until [ -s "$dir/holder" ]; do
        kill -0 $pid || { cat "$dir/holder.err"; return 1; }
        sleep 0.05
    done
}
let_go() {
    exec 8>&-
    wait
}

# --- the card --------------------------------------------------------------------------------------------------
promise "of a discrete card the driver's own share is left alone" \
    on_a_machine takes 1945 'because of the size of the card, of which the driver keeps 102 MiB' preset:safe
others() {
    holds route:native,cache:off,limit:600MiB 20 || return 1
    takes 1345 'because of other processes, which have 600 MiB of the card:' preset:safe || return 1
    # The name is what the process says of itself.
    grep -qE '^ +[0-9]+ greedy +600 MiB$' "$dir/err" || { cat "$dir/err"; return 1; }
    let_go
}
promise "what other processes hold is left, and the largest are named" on_a_machine others

# What is imported is on the card already.
imported() { # imported CONF CODE
    local large=$build/test/driver/ipc_large
    same "$(LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$1 tools/bed/bed --on sim "$large" 1300)" "$2"
}
promise "an import larger than what is left of the card is not refused" on_a_machine imported preset:safe 0
promise "against the limit of a group it counts" \
    on_a_machine imported preset:safe,group_limit:1900MiB 0x70000003

# --- the controller dmem ---------------------------------------------------------------------------------------
nested() {
    dmem_max /a 512
    dmem_max /a/b max
    in_cgroup /a/b/c takes 512 'because of the cgroup /a: its dmem.max is 512 MiB$' preset:safe || return 1
    dmem_max /a/b 256
    in_cgroup /a/b/c takes 256 'because of the cgroup /a/b: its dmem.max is 256 MiB$' preset:safe || return 1
    dmem_max /a 100
    in_cgroup /a/b/c takes 100 'because of the cgroup /a: ' preset:safe
}
promise "of several cgroups above the process the one that leaves least counts" on_a_machine nested
shared_by_others() {
    dmem_max /a 512
    in_cgroup /a/b holds route:native,cache:off,limit:200MiB 20 || return 1
    in_cgroup /a/c takes 312 'cgroup /a: its dmem.max is 512 MiB, others in it have 200 MiB' preset:safe || return 1
    takes 1745 'because of other processes' preset:safe || return 1
    let_go
}
promise "what others in the cgroup hold is left, and nobody outside of it counts" on_a_machine shared_by_others
own_root() { # a container sees its cgroup as the root
    dmem_max '' 300
    in_cgroup / takes 300 'because of the cgroup /: its dmem.max is 300 MiB' preset:safe
}
promise "a container's own cgroup counts, which it sees as the root" on_a_machine own_root
absent() {
    mkdir -p "$ZEROUTE_ROOT/sys/fs/cgroup/a"
    in_cgroup /a takes 1945 'because of the size of the card' preset:safe || return 1
    dmem_max /a 300
    in_cgroup /../a takes 1945 'because of the size of the card' preset:safe || return 1
    printf 'drm/\ndrm/0000:03:00.0/vram0\n\ndrm/x/vram0 7 7' >"$ZEROUTE_ROOT/sys/fs/cgroup/a/dmem.max"
    in_cgroup /a takes 1945 'because of the size of the card' preset:safe
}
promise "without the controller, outside of the namespace, and where it says nonsense, nothing is refused" \
    on_a_machine absent
too_long() { # the line of the card is cut within its figure, after 4095 bytes
    local line='drm/0000:03:00.0/vram0 ' folder=$ZEROUTE_ROOT/sys/fs/cgroup/a
    mkdir -p "$folder"
    printf '%*s\n%s8589934592\n' $((4095 - ${#line} - 4)) x "$line" >"$folder/dmem.max"
    in_cgroup /a takes 1945 'because of the size of the card' preset:safe
}
promise "a limit of which only a part was read is none" on_a_machine too_long
changed() { # the holder has 500 of 512 MiB when the limit falls
    dmem_max /a 512
    in_cgroup /a holds preset:safe 100 || return 1
    dmem_max /a 64
    in_cgroup /a greedy preset:safe 20 1 2>"$dir/err" | grep -qx '0 1' || return 1
    grep -q 'cgroup /a: its dmem.max is 64.0 MiB, others in it have 64.0 MiB' "$dir/err" || {
        cat "$dir/err"
        return 1
    }
    dmem_max /a 800
    in_cgroup /a takes 300 'cgroup /a: its dmem.max is 800 MiB, others in it have 500 MiB' preset:safe || return 1
    let_go
}
promise "a limit that changes while processes run counts from then on" on_a_machine changed
several() { # CONF: four processes in two cgroups below one with a limit
    local i sum=0 held
    dmem_max /a 1024
    rm -f "$dir"/four? "$dir"/go* "$dir/end"
    mkfifo "$dir/end" && exec 8<>"$dir/end"
    for i in 1 2 3 4; do
        in_cgroup /a/$((i % 2)) env START="$dir/go" LD_PRELOAD="$build/libzeroute.so" ZEROUTE_CONF="$1" \
            tools/bed/bed --on sim "$build/test/driver/greedy" 20 4 hold <"$dir/end" 8>&- >"$dir/four$i" 2>/dev/null &
    done
    until [ "$(find "$dir" -maxdepth 1 -name 'go.*' | wc -l)" = 4 ]; do sleep 0.05; done
    touch "$dir/go"
    until [ "$(cat "$dir"/four? | wc -l)" = 4 ]; do sleep 0.05; done
    held=$(awk '/^drm-total-system/ { sum += $2 } END { print sum + 0 }' "$ZEROUTE_ROOT"/proc/*/fdinfo/*)
    for i in 1 2 3 4; do
        read -r i _ <"$dir/four$i"
        sum=$((sum + i))
    done
    let_go
    echo "$sum bytes in blocks, $held spilled"
    [ "$held" = 0 ] && [ $sum -le $((1024 * MIB)) ] && [ $sum -gt $((512 * MIB)) ]
}
overflows() { ! several preset:observe; }
promise "four processes under safe take no more together than their cgroup allows" on_a_machine several preset:safe
promise "four processes under observe make it spill" on_a_machine overflows

# --- a limit for a group -----------------------------------------------------------------------------------------
# What a process is told, in MiB: totals and free memory by every way of asking, before and after it takes 100 MiB.
told() { # told CONF
    ZES_ENABLE_SYSMAN=1 LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$1 tools/bed/bed --on "${BED:-sim}" \
        "$build/test/driver/free" 100 | awk '{ printf "%s %d %d;", $1, $2 / 1048576, $3 / 1048576 }'
}
group_told() {
    local whole='properties 1024 924;memory 1024 924;sysman 1024 924;'
    same "$(told route:native,group_limit:1GiB,group:a)" "$whole" || return 1
    holds route:native,group_limit:600MiB,group:a 20 || return 1
    same "$(told route:native,group_limit:1GiB,group:a)" 'properties 424 324;memory 424 324;sysman 424 324;' || return 1
    same "$(told route:native,group_limit:50%,group:b)" "$whole" || return 1
    takes 424 'of the group a: other processes of it have 600 MiB' route:native,group_limit:1GiB,group:a || return 1
    grep -qE '^ +[0-9]+ greedy +600 MiB$' "$dir/err" || { cat "$dir/err"; return 1; }
    takes 1024 'because of the group b$' route:native,group_limit:1GiB,group:b || return 1
    takes 200 'the setting limit refused' route:native,group_limit:1GiB,group:a,limit:200MiB || return 1
    let_go
    takes 1024 'because of the group a$' route:native,group_limit:1GiB,group:a
}
promise "a group sees its share of the card as the card, by every way of asking" on_a_machine group_told
job_of() { # the job is the group unless it has a name
    SLURM_JOB_ID=7 holds route:native,group_limit:600MiB 20 || return 1
    SLURM_JOB_ID=8 takes 800 'because of the group job slurm:8$' route:native,group_limit:800MiB || return 1
    SLURM_JOB_ID=7 takes 200 'of the group job slurm:7: ' route:native,group_limit:800MiB || return 1
    takes 800 'because of the group container [0-9]+$' route:native,group_limit:800MiB || return 1
    let_go
}
promise "the group is the job, else the container" on_a_machine job_of
groups() { # CONF LEAST: two groups of two processes each, at once; what Intel's driver keeps of freed blocks counts
    local i sum=() held
    rm -f "$dir"/four? "$dir"/go* "$dir/end"
    mkfifo "$dir/end" && exec 8<>"$dir/end"
    for i in 1 2 3 4; do
        START=$dir/go LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$1,group:g$((i % 2)) tools/bed/bed --on "$BED" \
            "$build/test/driver/greedy" 20 4 hold <"$dir/end" 8>&- >"$dir/four$i" 2>/dev/null &
    done
    until [ "$(find "$dir" -maxdepth 1 -name 'go.*' | wc -l)" = 4 ]; do sleep 0.05; done
    touch "$dir/go"
    until [ "$(cat "$dir"/four? | wc -l)" = 4 ]; do sleep 0.05; done
    for i in 1 2 3 4; do
        read -r held _ <"$dir/four$i"
        sum[i % 2]=$((${sum[i % 2]:-0} + held))
    done
    let_go
    echo "${sum[*]} bytes in blocks"
    for i in 0 1; do
        [ "${sum[i]}" -le $((800 * MIB)) ] && [ "${sum[i]}" -gt $(($2 * MIB)) ] || return 1
    done
}
export XE_STANDIN=vram:2GiB,spill:on
for BED in sim intel; do
    export BED
    least=400
    [ $BED = sim ] || least=100
    promise "$BED: of two groups at once none takes more than its share" \
        on_a_machine groups route:native,cache:off,group_limit:800MiB $least
done
unset BED

# --- queries that fail -----------------------------------------------------------------------------------------
refused_query() {
    local ZE_SIMGPU=$ZE_SIMGPU,fail:zesMemoryGetState=0x78000003
    export ZE_SIMGPU
    same "$(told route:native,cache:off)" 'properties 2048 1948;memory 2048 1948;' || return 1
    same "$(told route:native,cache:off,free_memory:checked 2>"$dir/err")" \
        'properties 2048 1948;memory 2048 1948;sysman 2048 1948;' || return 1
    [ "$(grep -c 'refuses to say how much memory is free on card 0' "$dir/err")" = 1 ] || { cat "$dir/err"; return 1; }
    ZES_ENABLE_SYSMAN=1 ZEROUTE_CONF=preset:safe tools/bed/bed --on sim "$build/zeroute" run --no-summary \
        --json "$dir/json" -- "$build/test/driver/free" 100 >/dev/null 2>&1
    same "$(field "$dir/json" free_memory.answered_calls free_memory.replaced_calls)" '2 0'
}
promise "a query that the driver refuses is answered with the kernel's figure, and counted" on_a_machine refused_query

# --- Intel's driver --------------------------------------------------------------------------------------------
on_intel() { # the cgroup's file is there before the stand-in links the real one
    local got
    export XE_STANDIN=vram:2GiB,spill:on
    dmem_max /a 600
    echo 'drm/0000:03:00.0/vram0 209715200' >"$ZEROUTE_ROOT/sys/fs/cgroup/a/dmem.current"
    got=$(bash -c 'mkdir -p "$ZEROUTE_ROOT/proc/$$" && echo 0::/a >"$ZEROUTE_ROOT/proc/$$/cgroup" &&
        export LD_PRELOAD=$1/libzeroute.so ZEROUTE_CONF=preset:safe &&
        exec tools/bed/bed --on intel "$1/test/driver/greedy" 20 2' bash "$build" 2>"$dir/err") || return
    got=$((${got%% *} / MIB))
    # The driver keeps some of what was freed, and that is the process's, too.
    [ $got -le 600 ] && [ $got -gt 300 ] && grep -q 'because of the cgroup /a: its dmem.max is 600 MiB' "$dir/err" || {
        echo "$got MiB"
        cat "$dir/err"
        return 1
    }
}
promise "Intel's driver is not asked for what the cgroup does not allow" on_a_machine on_intel

# --- the kernel's own controller -------------------------------------------------------------------------------
real_controller() {
    local region
    grep -qw dmem /sys/fs/cgroup/cgroup.controllers 2>/dev/null || {
        echo "this kernel offers no controller dmem"
        return 77
    }
    region=$(head -n 1 /sys/fs/cgroup/dmem.capacity)
    [ -n "$region" ] || { echo "no device has registered memory with the controller"; return 77; }
    grep -q '^drm/[0-9a-f]*:[0-9a-f]*:[0-9a-f]*\.[0-9a-f]*/vram0 [0-9]*$' /sys/fs/cgroup/dmem.capacity
}
promise "the kernel's own files look as the simulated ones do" real_controller
kept
