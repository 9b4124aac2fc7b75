#!/bin/bash
# A runtime with its adapters and a static Level Zero loader inside, on the loaders that Debian 12 and 13 ship and on
# Intel's driver: it jumps to NULL at the second call of a function that its loader lacks, and the guard answers both.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
tools/bed/bed --on intel --setup >"$dir/setup" 2>&1 || { code=$?; tail -n 1 "$dir/setup"; exit $code; }

swallow=$build/test/process/swallow
on_loader() { # on_loader LOADER COMMAND...
    tools/bed/bed --on intel --loader "$@" >"$dir/out" 2>"$dir/err"
}
crashes_alone() { # crashes_alone LOADER LIBRARY
    local code=0
    on_loader "$1" "$swallow" "$build/test/swallowed/$2" missing || code=$?
    [ $code = 77 ] && return 77
    same $code 139
}
# Each function is called twice, and counted as often.
is_answered() { # is_answered LOADER LIBRARY CALLED...
    local loader=$1 library=$2 name
    shift 2
    on_loader "$loader" "$build/zeroute" run --no-summary --json "$dir/json" -- "$swallow" \
        "$build/test/swallowed/$library" all || { cat "$dir/out" "$dir/err"; return 1; }
    for name in "$@"; do
        same "$name $(field "$dir/json" "guard.calls.$name")" "$name 2" || return 1
    done
    same "$(field "$dir/json" guard.calls)" $((2 * $#)) && grep -q "zeroute answers instead" "$dir/err"
}
width=zeDeviceGetVectorWidthPropertiesExt capture=zeCommandListIsGraphCaptureEnabledExt
for library in libsycl.so.9 libexporting.so libholding.so; do
    promise "Debian 12's loader, $library: SIGSEGV at the second call without zeroute" crashes_alone debian12 $library
    promise "Debian 13's loader, $library: SIGSEGV at the second call without zeroute" crashes_alone debian13 $library
    promise "Debian 12's loader, $library: every call is answered" is_answered debian12 $library $width $capture
    promise "Debian 13's loader, $library: every call is answered" is_answered debian13 $library $width $capture
done
kept
