#!/bin/bash
# A record of a program of dpctl's on the real runtime and Intel's driver: its peak is the segment's, its Python lines
# are the program's, whoever serves.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
on_the_stack

recorded() { # recorded SETTINGS THREADS
    rm -f "$dir"/zr*
    LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF="$1,record:$dir/zr,stacks:python" \
        tools/bed/bed --on intel --runtime newest --python test/record/training.py "$2" >"$dir/pid" || return
    local peak
    peak=$("$B/zeroute" stat --json "$(cat "$dir/pid")" |
        python3 -c 'import json,sys
print(json.load(sys.stdin)["processes"][0]["fields"]["allocated_bytes.all.peak"])') || return
    python3 test/record/check_training.py "$dir/zr" "$2" "$peak"
}
while read -r name conf; do
    [[ $name == \#* || -z $name ]] && continue
    promise "with $name the peak is the segment's and the lines are the program's" recorded "$conf" 0
done <test/settings
promise "with threads, too" recorded route:native,cache:off 3
kept
