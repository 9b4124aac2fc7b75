#!/bin/bash
# The answers of the driver alone and under the preload agree, for a few fixed seeds.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
# Without safe: both programs fill a card, and safe refuses, on purpose, before the driver does.
level_zero=observe,mitigate,eager,native-cache,always,check,pause
for run in "calls --settings $level_zero --seed 1 --cards 1,2" "calls --settings $level_zero --seed 2 --cards 1,2" \
    "usm --settings observe,path,sycl-cache,pool-cache,reroute,check,pause --seed 1 --cards 2 --count 100"; do
    # shellcheck disable=SC2086
    test/differ/differ --program $run
    code=$?
    [ $code != 77 ] || exit 77
    verdict "no difference: $run" $code
done
kept
