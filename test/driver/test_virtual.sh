#!/bin/bash
# Virtual memory: mapped anew where another card read other memory, unmapped over several mappings and over parts.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

tools/bed/bed --on intel true
if [ $? = 77 ]; then
    exit 77
fi
# Driver 26.27 lets a second card read what was mapped at an address before (doc/driver-defects.md). A reservation of
# which nothing is mapped is made anew; where a piece of it stays mapped, the mapping is counted, and said once.
remapped() { # remapped BED whole|part CONF FIELD COUNT ROUNDS
    local pid
    LD_PRELOAD=$build/libzeroute.so ZEROUTE_CONF=$3 tools/bed/bed --on "$1" --cards 2 \
        "$build/test/driver/remap" "$2" >"$dir/out" 2>"$dir/err" &
    pid=$!
    wait $pid || return 1
    same "$(paste -sd' ' "$dir/out")" "$6" || return 1
    same "$("$build/zeroute" stat --json $pid | grep -oE "\"virtual.$4\": [0-9]+")" "\"virtual.$4\": $5" || return 1
    [ "$5" = 0 ] || [ "$2" != part ] || grep -q "expandable_segments:False" "$dir/err" || return 1
    [[ $3 != check* || $2 != part ]] || with_both_stacks
}
with_both_stacks() { # the finding, and who unmapped and who mapped there
    grep -A99 "check: remapped_under_peer" "$dir/err" | awk '
        /^  unmapped/ { at = "unmapped" } /^  mapped/ { at = "mapped" } /^    #0 remap/ { seen[at]++ }
        END { exit !(seen["unmapped"] && seen["mapped"]) }'
}
alone=$(tools/bed/bed --on intel --cards 2 "$build/test/driver/remap" whole | paste -sd' ')
promise "the driver alone gives old memory" same "$alone" "round 0: new round 1: old round 2: old"
alone=$(tools/bed/bed --on intel --cards 2 "$build/test/driver/remap" shift | paste -sd' ')
promise "the driver alone gives old memory by the address at which a mapping begins" \
    same "$alone" "round 0: new round 1: new round 2: old"
for conf in preset:observe check:all; do
    promise "every card sees new memory, $conf" remapped intel whole $conf remade 2 \
        "round 0: new round 1: new round 2: new"
    promise "every card sees new memory where mappings overlap, $conf" remapped intel shift $conf remade 2 \
        "round 0: new round 1: new round 2: new"
    promise "what cannot be made anew is reported, $conf" remapped intel part $conf remapped_under_peer 2 \
        "round 0: new round 1: old round 2: old"
    promise "a driver that reserves where it likes loses nothing, $conf" remapped sim whole $conf remade 0 \
        "round 0: new round 1: new round 2: new"
done
# zeVirtualMemUnmap takes what lies in the range as a whole, and nothing else. What is left: a letter for each 2 MiB.
unmapped() { # unmapped BED FROM TO LEFT
    local answer left bytes
    tools/bed/bed --on "$1" "$build/zeroute" run --no-summary --json "$dir/json" -- \
        "$build/test/driver/unmap" "$2" "$3" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
    read -r answer left bytes <"$dir/out"
    same "$answer $left" "0 $4" && same "$(field "$dir/json" virtual_bytes.mapped.current)" "$bytes"
}
while read -r from to left what; do
    for on in intel sim; do
        promise "unmapping $what is booked as the driver has it, $on" unmapped $on "$from" "$to" "$left"
    done
done <<'END'
0 8 ....dd.. several mappings
0 16 ........ a whole reservation
2 4 abbcdd.. half of a mapping
0 4 .bbcdd.. a mapping and half of the next
4 10 abb.dd.. a mapping and halves of both beside it
14 16 abbcdd.. where nothing is mapped
END
kept
