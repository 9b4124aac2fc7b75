#!/bin/bash
# What the stand-in xe device promises: first by itself, then with Intel's own driver on it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh

build=${ZEROUTE_BUILD:-build}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# --- by itself: no driver, no bed -------------------------------------------------------------------
alone() {
    local root=$folder/root
    rm -rf "$root" && mkdir "$root"
    env XE_STANDIN="cards:3,vram:1GiB${1:+,$1}" ZEROUTE_ROOT="$root" XE_STANDIN_COUNTS="$folder/counts" \
        LD_PRELOAD="$PWD/$build/libxe_standin.so" "$build/test/driver/${2:-ioctl}"
}
raw_promises_are_kept() { alone '' ioctl | grep >/dev/null ' 0 failed'; }
commands_are_carried_out() { alone '' batch | grep >/dev/null ' 0 failed'; }
raw_promises_are_kept_with_real_pages() { alone touch:on | grep >/dev/null ' 0 failed'; }
before_6_18_there_is_no_mirror() {
    alone kernel:6.17 >"$folder/out" && return 1 # the promise of the mirror is broken there
    grep 'an_exported_deferred_buffer.*GPUActive' "$folder/out"
}
count() { awk -v key="$1" '$1 == key { print $2 }' "$folder/counts"; }
beyond_vram_it_spills_if_asked_to() {
    alone spill:on >"$folder/out" && return 1 # ENOSPC is what does not come
    grep 'full_vram_is_enospc.*XE_NR_GEM_CREATE' "$folder/out" && [ "$(count gem_create_spilled)" -gt 0 ]
}
every_call_is_counted() {
    alone '' >/dev/null || return
    [ "$(count gem_create)" -gt 10 ] && [ "$(count prime_import)" -gt 3 ] &&
        same "$(count mirrored_bytes)" $((66 * 1024 * 1024)) || return
    alone '' batch >/dev/null || return
    same "$(count copies) $(count copy_bytes) $(count fills)" '1 1000000 3'
}
processes_without_a_folder_are_their_own_machine() {
    local program
    program=$(realpath "$build/test/driver/batch")
    rm -rf "$folder/empty" && mkdir "$folder/empty" &&
        (cd "$folder/empty" && env -u ZEROUTE_ROOT XE_STANDIN=cards:3,vram:1GiB \
            LD_PRELOAD="$OLDPWD/$build/libxe_standin.so" "$program") | grep >/dev/null ' 0 failed' &&
        same "$(ls -A "$folder/empty")" ''
}
a_bad_key_is_named_and_not_fatal() {
    # shellcheck disable=SC2016
    env XE_STANDIN=cards:2,speed:7 LD_PRELOAD="$PWD/$build/libxe_standin.so" \
        sh -c 'exec 3<>/dev/dri/renderD129' 2>&1 | grep >/dev/null "speed:7"
}
other_programs_do_not_notice() {
    same "$(LD_PRELOAD=$PWD/$build/libxe_standin.so sh -c 'ls /proc/self/fd | wc -l; echo hi | cat')" "$(
        sh -c 'ls /proc/self/fd | wc -l; echo hi | cat'
    )"
}

# --- below Intel's driver ---------------------------------------------------------------------------
on() { # CARDS SETTINGS PROGRAM
    env XE_STANDIN="$2" XE_STANDIN_COUNTS="$folder/counts" timeout 120 \
        tools/bed/bed --on intel --cards "$1" "$build/test/driver/$3"
}
sees_cards() { same "$(on "$1" '' start | grep -c '^Intel(R) Arc(TM) B580 Graphics, 0xe20b')" "$1"; }
every_card_has_its_own_bus_address() {
    same "$(on 4 '' start | sed 's/.*bus \(..\).*/\1/' | sort -u | wc -l)" 4
}
finishes() { # CARDS SETTINGS PROGRAM
    same "$(on "$@")" 'done' && same "$(count gpu_faults) $(count unknown_commands) $(count unknown_ioctls)" '0 0 0'
}
sixteen_processes_share_a_machine() {
    # shellcheck disable=SC2016
    same "$(timeout 120 tools/bed/bed --on intel --cards 2 bash -c '
        for i in $(seq 16); do "$0/test/driver/virtual" & done; wait
        grep -o "GPUActive: *0 kB" "$ZEROUTE_ROOT/proc/meminfo"; ls -d "$ZEROUTE_ROOT"/proc/[0-9]* 2>/dev/null
        ' "$build" | sort | uniq -c | xargs)" '1 GPUActive: 0 kB 16 done'
}
vram_is_as_large_as_set() { same "$(on 1 vram:4GiB full)" '15 blocks of 256 MiB'; }
a_slow_copy_is_slow() { [ "$(on 1 copy_cost:300ms slow)" -ge 300 ]; }
a_small_copy_is_not() { [ "$(on 1 copy_cost:3s,copy_floor:1GiB slow)" -lt 2500 ]; }

promise raw_promises_are_kept raw_promises_are_kept
promise commands_are_carried_out commands_are_carried_out
promise raw_promises_are_kept_with_real_pages raw_promises_are_kept_with_real_pages
promise before_6_18_there_is_no_mirror before_6_18_there_is_no_mirror
promise beyond_vram_it_spills_if_asked_to beyond_vram_it_spills_if_asked_to
promise every_call_is_counted every_call_is_counted
promise processes_without_a_folder_are_their_own_machine processes_without_a_folder_are_their_own_machine
promise a_bad_key_is_named_and_not_fatal a_bad_key_is_named_and_not_fatal
promise other_programs_do_not_notice other_programs_do_not_notice

the_kernels_layouts_are_right() {
    make -s standin-uapi XE_HEADERS="${ZEROUTE_BEDS:-$build/beds}/unstable/include"
}

why=$(tools/bed/bed --on intel --setup 2>&1)
if [ $? -eq 77 ]; then
    echo "skipped: the driver: ${why##*$'\n'}"
    promises_skipped=$((promises_skipped + 1))
else
    for cards in 1 2 4; do
        promise "the_driver_sees_${cards}_cards" sees_cards $cards
        for program in memory copy random times ipc virtual threads extensions; do
            promise "${program}_works_on_${cards}_cards" finishes $cards '' $program
        done
    done
    promise the_kernels_layouts_are_right the_kernels_layouts_are_right
    promise every_card_has_its_own_bus_address every_card_has_its_own_bus_address
    promise sixteen_processes_share_a_machine sixteen_processes_share_a_machine
    promise vram_is_as_large_as_set vram_is_as_large_as_set
    promise the_driver_works_without_page_faults finishes 2 faults:off copy
    promise a_slow_copy_is_slow a_slow_copy_is_slow
    promise a_small_copy_is_not a_small_copy_is_not
fi
kept
