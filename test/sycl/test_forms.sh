#!/bin/bash
# What a SYCL program is told about its memory (forms.cpp), line by line: with zeroute as without, in every route.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
on_the_stack --cards 2
forms=$(B=$B test/sycl/client forms 2026.2.0) || { code=$?; echo "$forms"; exit $code; }

tell() { # tell ADAPTER CONF [ACT...]: the transcript; the library is preloaded unless CONF is "none"
    local v2=$(($1 - 1)) conf=$2 out=$dir/$1-$2
    shift 2
    [ $# -gt 0 ] || set -- forms odd contexts threads forks ends
    set -- "$forms" "$@"
    [ "$conf" = none ] || set -- env ZEROUTE_CONF="preset:reroute,$conf" \
        "$B/zeroute" run --no-summary --json "$out.json" -- "$@"
    SYCL_UR_USE_LEVEL_ZERO_V2=$v2 timeout 120 tools/bed/bed --on intel --cards 2 --runtime 2026.2.0 "$@" >"$out" 2>&1
    echo "exit code $?" >>"$out"
}
reads_the_same() { # reads_the_same ADAPTER CONF
    [ -e "$dir/$1-none" ] || tell "$1" none
    grep -q '^at the end: freed' "$dir/$1-none" && grep -q 'exit code 0' "$dir/$1-none" || {
        tail "$dir/$1-none"
        return 1
    }
    ! grep WRONG "$dir/$1-none" || return 1
    tell "$1" "$2"
    # The program asks for far too much on purpose; that is explained on stderr.
    sed -i '/^zeroute: out of memory/,/^  try /d; /^zeroute: card [0-9]* is full/d' "$dir/$1-$2"
    diff "$dir/$1-none" "$dir/$1-$2" && served_by "$2" "$dir/$1-$2.json"
}
served_by() { # served_by CONF JSON: what reads the same came from the route that was asked for
    local route=${1#route:}
    grep -q "\"route.in_force\": \"${route%%,*}\"" "$2" || {
        grep '"route' "$2"
        return 1
    }
}
# The pool under route:pool is ours; the program sees what UMF's own would answer.
pool_answers() { # pool_answers ADAPTER
    tell "$1" none pool && tell "$1" route:pool pool
    grep -q '^pool of a block: found' "$dir/$1-none" || { cat "$dir/$1-none"; return 1; }
    diff "$dir/$1-none" "$dir/$1-route:pool" && served_by route:pool "$dir/$1-route:pool.json" &&
        same "$(field "$dir/$1-route:pool.json" calls.pool_calloc.pool calls.pool_realloc.pool)" '1 1'
}
for adapter in 1 2; do
    promise "adapter v$adapter: UMF's calls on a pool of ours" pool_answers $adapter
    rm -f "$dir/$adapter-none"
    for conf in route:native route:sycl route:pool route:sycl,reuse:always; do
        promise "adapter v$adapter, $conf: every form of memory, every answer" reads_the_same $adapter $conf
    done
done
kept
