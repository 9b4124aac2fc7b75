#!/bin/bash
# The host mirror on Intel's driver: what mirror-test measures, by Level Zero's calls and through the SYCL
# runtime, and what residency:owner leaves right.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
on_the_stack --cards 4
tools/bed/bed --on intel --runtime newest --cards 4 "$B/zeroute" mirror-test --all --markdown --step 64MiB --count 4 \
    --keep 512MiB >"$dir/table" 2>"$dir/errors"
[ $? -le 1 ] || cat "$dir/table" "$dir/errors"

# row LABEL CELLS: host bytes per device byte with 1, 2 and 4 cards
row() {
    local got
    got=$(grep -F "| $1 " "$dir/table" | awk -F'|' '{ gsub(/ /, ""); print $3, $4, $5; exit }')
    same "$got" "$2"
}

promise "Level Zero, as requested" row 'as requested' '0.00 1.00 1.00'
promise "Level Zero, residency:owner" row 'residency:owner' '0.00 0.00 0.00'
promise "Level Zero, backing:eager" row 'backing:eager (EnableDeferBacking=0)' '0.00 0.00 0.00'
promise "Level Zero, no peer access" row 'no peer access' '0.00 0.00 0.00'
promise "IPC, as requested" row 'IPC, as requested' '1.00 1.00 1.00'
promise "IPC, residency:owner does not end it" row 'IPC, residency:owner' '1.00 1.00 1.00'
promise "IPC, backing:eager ends it" row 'IPC, backing:eager' '0.00 0.00 0.00'
for v in 1 2; do
    promise "SYCL v$v, as requested" row "SYCL v$v, as requested" '0.00 1.00 1.00'
    promise "SYCL v$v, residency:owner" row "SYCL v$v, residency:owner" '0.00 0.00 0.00'
    promise "SYCL v$v, backing:eager" row "SYCL v$v, backing:eager" '0.00 0.00 0.00'
done
promise "SYCL v2, the runtime's own variable" row 'SYCL v2, SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1' '0.00 0.00 0.00'
promise "SYCL v1, the runtime's own variable" row 'SYCL v1, UR_L0_USM_RESIDENT=0x1' '0.00 0.00 0.00'
promise "route:pool alone changes nothing of the mirror" row 'SYCL v2, route:pool' '0.00 1.00 1.00'
promise "route:sycl alone changes nothing of the mirror" row 'SYCL v2, route:sycl' '0.00 1.00 1.00'

imports_stay_under_eager() {
    local json
    json=$(tools/bed/bed --on intel --cards 2 "$B/zeroute" mirror-test --json --backing eager --step 64MiB --count 3 \
        --keep 512MiB)
    grep -q '"verdict": "not mirrored"' <<<"$json" &&
        [ "$(sed -n 's/.*"import_bytes": \([0-9]*\).*/\1/p' <<<"$json" | tail -n 1)" -ge $((3 * 64 << 20)) ] &&
        grep -q '"data": "intact"' <<<"$json"
}
promise "imports stay under backing:eager" imports_stay_under_eager

# copy PRESET: "before N after N same" of a copy from card to card
copy() {
    tools/bed/bed --on intel --cards 2 "$B/zeroute" run --no-summary --preset "$1" -- "$B/test/process/mirror_copy" |
        tail -n 1
}
copy_under_owner() { same "$(copy mitigate)" 'before 0 after 8192 same'; }
copy_as_asked() { same "$(copy observe)" 'before 24576 after 24576 same'; }
copy_under_eager() { same "$(copy eager)" 'before 0 after 0 same'; }
promise "a copy between cards under residency:owner is right and mirrors its one buffer" copy_under_owner
promise "a copy between cards as asked" copy_as_asked
promise "a copy between cards under backing:eager" copy_under_eager
kept
