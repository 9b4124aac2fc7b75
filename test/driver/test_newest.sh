#!/bin/bash
# The newest loader, driver and SYCL runtime that the registries have, beside those that the beds hold. A newer one is
# tried in beds of its own, and if it does not work that is a failure: users have it by then.
# Tier: release.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
exec 3>&1
beds=${ZEROUTE_BEDS:-$build/beds}

# tried WHAT COMMAND...: 77 only if it cannot be had
tried() {
    local what=$1 out code=0
    shift
    out=$("$@" 2>&1) || code=$?
    [ $code != 0 ] || return 0
    echo "$out" | tail -n 5
    if [ $code = 77 ]; then
        echo "$what cannot be had here"
        return 77
    fi
    echo "$what is newer than what the beds hold, and does not work with this zeroute"
    return 1
}
works() { # works ENVIRONMENT...: bindings of every kind, and data through the newest runtime
    env "$@" tools/bed/bed --on intel --cards 2 test/driver/ways "$build" &&
        env "$@" LD_PRELOAD="$build/libzeroute.so" tools/bed/bed --on intel --cards 2 --runtime "${runtime:-newest}" \
            --python test/sycl/usm_right.py
}
of_debian() {
    local now part name suite package version
    while read -r part name suite package version; do
        case $part in '#'* | '') continue ;; esac
        [ "$suite" = unstable ] || continue
        now=$(tools/bed/fetch.sh newest "$suite" "$package") || return $?
        [ "$now" != "$version" ] || continue
        rm -rf "$beds/newest"
        mkdir -p "$beds/newest"
        ln -s "$beds/python" "$beds/sycl" "$beds/newest/"
        tried "$part $name: $package $now (shown to work: $version)" works "ZEROUTE_BEDS=$beds/newest" || return $?
        echo "$part $name: $package $now works; tools/bed/versions has $version" >&3
        rm -rf "$beds/newest"
    done <tools/bed/versions
}
promise "Debian's newest loader and driver work" of_debian
of_pypi() {
    local python now pinned row runtime
    python=$(tools/bed/env.sh --python) || return $?
    pinned=$(grep -vE '^(#|$)' tools/bed/runtimes | tail -n 1)
    now=$("$python" -m pip index versions intel-sycl-rt --disable-pip-version-check 2>/dev/null |
        sed -n 's/^intel-sycl-rt (\(.*\))$/\1/p')
    [ -n "$now" ] || { echo "PyPI cannot be asked"; return 77; }
    [ "$now" != "${pinned%% *}" ] || return 0
    read -r _ row <<<"$pinned"
    runtime=$now
    tried "SYCL runtime $now" works "ZEROUTE_RUNTIME=$now $row"
}
promise "PyPI's newest SYCL runtime works" of_pypi
kept
