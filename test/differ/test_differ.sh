#!/bin/bash
# The answers of the driver alone and under the preload agree, for a few fixed seeds.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
passed=0 failed=0
for run in "calls --seed 1 --cards 1,2" "calls --seed 2 --cards 1,2" "usm --seed 1 --cards 2 --count 150"; do
    # shellcheck disable=SC2086
    test/differ/differ --program $run
    case $? in
    0) passed=$((passed + 1)) ;;
    77) exit 77 ;;
    *) failed=$((failed + 1)) ;;
    esac
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
