#!/bin/bash
# Many events under every setting: the program prints what it prints alone, and every event is in the record. A million
# where blocks are cached; fewer where each of them costs the simulated GPU a mapping.
# Tier: release.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
work=$B/test/process/record

# What was said, without check's own words: that it found nothing, and on a device too busy for it to verify every freed
# block in time.
said() {
    grep -vE '^zeroute: check: (0 errors$|[0-9]+ freed blocks were given back unverified|the device was busy)' \
        "$to/said"
}

alike() { # alike SETTINGS STEPS: 40 events a step
    local alone
    alone=$("$B/zeroute" run --no-summary --preset reroute --sim -- "$work" clean "$2") || return
    same "$(ZEROUTE_CONF=$1 "$B/zeroute" record -o "$to/zr" --sim -- "$work" clean "$2" 2>"$to/said")" "$alone" &&
        "$B/zeroute" replay --json "$to/zr" >"$to/json" 2>>"$to/said" && same "$(said)" "" &&
        same "$(grep -oE '"steps": [0-9]+' "$to/json")" "\"steps\": $((40 * $2))"
}
while read -r name conf; do
    [[ $name == \#* || -z $name ]] && continue
    steps=500
    [[ $conf == *cache:on* ]] && steps=25000
    promise "$((40 * steps)) events with $name" alike "$conf" $steps
done <test/settings
kept
