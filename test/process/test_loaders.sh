#!/usr/bin/env bash
# Every way of binding, on one and on two drivers, on the loaders that other distributions ship.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}

ways_on() { test/bed --on sim --loader "$1" "$B/test/process/suite_binding"; }

promise "every way is counted on Debian 13's loader (1.20)" ways_on debian13
promise "every way is counted on Debian unstable's loader (1.32)" ways_on unstable
kept
