#!/bin/bash
# Every function that may allocate, free, export or import memory, and every one that gives a device work or waits for
# it, in the headers that are installed, in the newest ones and in Intel's driver, is in the tables of src/ or in
# doc/architecture.md with the reason why it is left alone.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
like='Alloc|Free|Malloc|Reserve|Import|Export|Ipc|Resident|Evict|Create|HostPointer'
like="$like|VirtualMem|PhysicalMem|TempMem|MemMap|^ze(x|xp|Intel)?Mem"
works='Append|Execute|Enqueue|Submit|Launch|Synchronize|QueryStatus|HostSignal|HostReset'
works="$works|Wait(On|For|Ext)|Signal(Event|Ext)|GraphCapture|CaptureIntoGraph|InstantiateGraph"
works="$works|Command(List|Queue)Create"

in_tables() {
    sed -n 's/^ZR_\(ENTRY\|PASS\|MAKES\|MADE\|GONE\)(\([A-Za-z0-9]*\),.*/\2/p' src/base/entries.def
    sed -n 's/^ZR_EXTENSION(\(ze[A-Za-z]*\),.*/\1/p' src/base/extensions.def
    sed -n 's/^ZR_\(SUBMITS\|COPIES\|UNKNOWN_WORK\|WORK\)(\([A-Za-z0-9]*\),.*/\2/p' src/base/work.def
}
left_alone() {
    sed -n '/^## Functions that are left alone/,/^## [^F]/p' doc/architecture.md | grep -oE '`ze[A-Za-z0-9*]+`' |
        tr -d '`'
}
# unknown LIKE: of the names on stdin those that are like it and in neither list
unknown() {
    local like=$1 name pattern tables patterns
    tables=$(in_tables)
    patterns=$(left_alone)
    while read -r name; do
        grep -qx "$name" <<<"$tables" && continue
        for pattern in $patterns; do
            # shellcheck disable=SC2053
            [[ $name != $pattern ]] || continue 2
        done
        echo "$name"
    done < <(grep -E "$like" | grep -v 'ProcAddrTable$' | sort -u)
}
none_is_unknown() { # none_is_unknown NAMES
    local one bad
    for one in "$like" "$works"; do
        [ "$(grep -cE "$one" <<<"$1")" -gt 10 ] || { echo "no names were found"; return 1; }
        bad=$(unknown "$one" <<<"$1")
        same "$bad" '' || return 1
    done
}
of_header() { grep -oE '^zet?[A-Z][A-Za-z0-9]*\($' "$1" | tr -d '('; }
# The tools API allocates nothing that is a block, but it appends to command lists.
no_tool_submits() { # no_tool_submits NAMES
    grep -q 'CommandListAppend' <<<"$1" || { echo "no names were found"; return 1; }
    same "$(unknown "$works" <<<"$1")" ''
}

installed=$(echo '#include <level_zero/ze_api.h>' | ${CC:-cc} -M -xc - | tr ' \\' '\n\n' |
    grep -m 1 'ze_api\.h$')
in_installed() {
    none_is_unknown "$(of_header "$installed")" && no_tool_submits "$(of_header "${installed/ze_api/zet_api}")"
}
promise "the installed headers have no allocation, submission or wait that we do not know" in_installed
newest() {
    local folder
    folder=$(tools/bed/fetch.sh headers) || return $?
    none_is_unknown "$(of_header "$folder/level_zero/ze_api.h")" &&
        no_tool_submits "$(of_header "$folder/level_zero/zet_api.h")"
}
promise "the newest headers have no allocation, submission or wait that we do not know" newest
driver() {
    local folder file
    folder=$(tools/bed/fetch.sh driver) || return $?
    file=$folder/lib/libze_intel_gpu.so.1
    [ -f "$file" ] || file=$(ldconfig -p | awk '/libze_intel_gpu\.so\.1 .*x86-64/ && !n++ { print $NF }')
    none_is_unknown "$(
        grep -aoE 'ze(x|xp|Intel)[A-Z][A-Za-z0-9]{4,}' "$file"
        readelf --dyn-syms -W "$file" | awk '$7 != "UND" { print $8 }' | grep -E '^ze[A-Zx]'
    )" && no_tool_submits "$(grep -aoE 'zet[A-Z][A-Za-z0-9]{4,}' "$file")"
}
promise "Intel's driver has no allocation, submission or wait that we do not know" driver
notices() {
    same "$(unknown "$like" <<<"zeMemAllocOfTomorrow")" zeMemAllocOfTomorrow &&
        same "$(unknown "$works" <<<"zeCommandListAppendTomorrow")" zeCommandListAppendTomorrow &&
        same "$(unknown "$works" <<<"zetCommandListAppendTomorrow")" zetCommandListAppendTomorrow
}
promise "a new name is noticed" notices
kept
