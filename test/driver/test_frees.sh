#!/bin/bash
# Wrong frees are found in every preset, on the simulated GPU and on Intel's driver: counted, reported once with who
# freed and what is known of the block, and answered as the driver answers where nothing is cached.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=$PWD/${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
kinds='twice interior foreign context orphaned destroyed'
INVALID=0x78000004
presets=$("$build/zeroute" run --help | sed -n '/^  --preset/,/^  --sim/s/^ \+\([a-z]\+\): .*/\1/p')
[ -n "$presets" ] || exit 1

# The field that a kind counts in, and what is said of it. The program's name is its library's.
field_of() { case $1 in foreign) echo unknown ;; destroyed) echo orphaned ;; *) echo "$1" ;; esac; }
text_of() {
    local block="\\(4194304 bytes at 0x[0-9a-f]+, card 0, allocated by frees"
    case $1 in
    twice) echo " twice $block, freed before by frees\\)" ;;
    interior) echo ", which lies within a block $block\\)" ;;
    foreign) echo ", which no allocation returned" ;;
    context) echo " through another context than its own $block\\)" ;;
    *) echo " after its context was destroyed $block\\)" ;;
    esac
}
# What must be refused where blocks are cached; the rest is the driver's to answer.
is_ours() { case $2 in reroute) case $1 in context | orphaned) false ;; esac ;; *) false ;; esac; }

on() { tools/bed/bed --on "$1" "${@:2}"; }
free_wrongly() { # BED PRESET KIND
    local wanted got
    if is_ours "$3" "$2"; then
        wanted="$3 $INVALID"$'\n'"$3 $INVALID"
    else
        wanted=$(on "$1" "$build/test/process/frees" "$3" 2>"$dir/bare") || { cat "$dir/bare"; return 1; }
    fi
    got=$(on "$1" "$build/zeroute" run --no-summary --preset "$2" --json "$dir/json" -- \
        "$build/test/process/frees" "$3" 2>"$dir/said") || { echo "exit code $?"; cat "$dir/said"; return 1; }
    same "$got" "$wanted" || return 1
    same "$(field "$dir/json" "free.invalid.$(field_of "$3")")" 2 || return 1
    same "$(grep -cE "^zeroute: libfreer.so freed 0x[0-9a-f]+$(text_of "$3"); " "$dir/said")" 1 || {
        cat "$dir/said"
        return 1
    }
}

beds=sim
on intel true && beds='sim intel' || [ $? != 77 ] || promise "Intel's driver" sh -c 'echo cannot be had; exit 77'
# What answers on Intel's driver is our cache or the driver: a preset of each kind, all of them in the long run.
of_intel=$presets
[ -n "${LONG:-}" ] || of_intel='observe reroute'
for bed in $beds; do
    [ $bed = sim ] || presets=$of_intel
    for preset in $presets; do
        for kind in $kinds; do
            # Intel's driver crashes on the handle of a context that is gone: only where it is not asked.
            [ "$bed $kind" != "intel destroyed" ] || [ $preset = reroute ] || continue
            promise "$kind on $bed, $preset" free_wrongly "$bed" "$preset" "$kind"
        done
    done
done
kept
