#!/usr/bin/env bash
# Screens of the main commands at 80 columns are those of test/golden, where figures that differ from run to run are
# masked. UPDATE=1 test/process/test_screens.sh writes them anew: git diff shows what changed.
# Tier: check.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
export COLUMNS=80 NO_COLOR=1
unset ZEROUTE_CONF ZEROUTE_CONF_FILE ZEROUTE_ROOT ZEROUTE_RUN
. test/promise.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sim=--sim=devices:2,mirror:on
Z=$B/zeroute
"$Z" gc >/dev/null

# What differs from run to run, and how wide columns are because of it.
mask() {
    sed -E -e "s|$B/|build/|g; s|$PWD/||g; s|$work/||g" \
        -e '/^(host memory|host RAM|mirror  )/d; /^ {16}.*(since the start|[GM]iB\)?|available\))$/d' \
        -e '/^ze[A-Z]/d; /^host\.[a-z_]*bytes/d' \
        -e "/^device\.[0-9]+\.(vram|gtt|unseen)_bytes/d; /^GPUActive/,/other processes'/d" \
        -e 's/^[0-9]+ +(route:|no answer)/PID \1/; s/0x[0-9a-f]{12}/ADDRESS/g; s/thread [0-9]+/thread N/' \
        -e 's/[0-9][0-9.,]* (ns|us|ms)\b/TIME/g; s/\b[0-9]+(\.[0-9]+)? s\b/TIME/g; s/\b[0-9]+(m|h)? ?[0-9]*s\b/AGE/g' \
        -e 's/(MemAvailable|VmRSS|cgroup) [0-9.]+ [KMGT]?i?B( of [0-9.]+ [KMGT]?i?B)?/\1 SIZE/g' \
        -e 's/^( *)[0-9]+  build\/demo/\1PID  build\/demo/; s/(process )[0-9]+/\1PID/' \
        -e 's/^ *[0-9]+ +(AGE|TIME)/PID AGE/' \
        -e 's/\b[0-9a-f]{12} /BUILDID /; s/(Level Zero loader +)[0-9.]+/\1VERSION/; s/\.\.\.[^ ]*//' \
        -e 's/[^ ]*libze_loader[.so0-9]*//; s/kernel [0-9.]+/kernel N/g; s/(VmRSS +)[0-9.]+ [KM]iB/\1SIZE/' \
        -e 's/^[0-9]+ latencies/N latencies/; s/^and [0-9]+ more/and N more/' \
        -e 's/ms_per_step.*/ms_per_step/; s/[-+][0-9.]+ %/CHANGE/g' \
        -e 's/^( *[0-9]+ +[0-9.]+ MiB .*) [0-9.]+ [KM]iB +([0-9.]+ MiB)$/\1 RSS \2/; s/ +$//; s/^ +pid/pid/' | tr -s ' '
}

# screen NAME COMMAND...: its output, both streams, is test/golden/NAME.txt, and no line is wider than 80.
screen() {
    local name=$1 wide
    shift
    "$@" >"$work/$name" 2>&1
    wide=$(sed "s|$PWD/||g" "$work/$name" | awk 'length > 80')
    verdict "the screen $name fits 80 columns: $wide" "${#wide}"
    mask <"$work/$name" >"$work/$name.txt"
    [ -z "${UPDATE:-}" ] || cp "$work/$name.txt" "test/golden/$name.txt"
    promise "the screen $name (- test/golden, + now)" diff -u "test/golden/$name.txt" "$work/$name.txt"
}

# The part of a comparison that does not hang on how busy the machine is.
verdict_of_ab() {
    "$@" | sed -n '1,/^Verdict/p; s/; wall time.*//; /^  Host RAM/p'
}
# A process that holds memory while it is looked at.
held() {
    mkfifo "$work/hold"
    "$Z" run $sim --preset observe -- "$B/test/process/doctor_hold" <"$work/hold" >"$work/said" &
    local run=$!
    exec 9>"$work/hold"
    until grep -q ready "$work/said" 2>/dev/null; do sleep 0.05; done
    "$@"
    local code=$?
    exec 9>&-
    wait $run
    rm "$work/hold"
    return $code
}
doctor_of_held() { # OPTIONS...
    "$Z" doctor "$@" "$(pgrep -n -x doctor_hold)" |
        sed 's|[^ ]*libze_simgpu.so|libze_simgpu.so|; s|[^ ]*libzeroute.so|libzeroute.so|'
}
stat_of_held() {
    "$Z" stat | grep -E '^ *pid |doctor_hold' | sed -E 's|[^ ]*doctor_hold|doctor_hold|; s/^ *[0-9]+ /PID /'
}
ctl_of_held() { "$Z" ctl "$(pgrep -n -x doctor_hold)" "$@"; }
page_of_held() {
    "$Z" stat "$(pgrep -n -x doctor_hold)" | sed -E 's|[^ ]*doctor_hold|doctor_hold|; s/^[0-9]+ /PID /'
}
finished() { "$Z" stat --finished | grep -E '^ *pid |demo|^finished'; } # others may have left theirs

usage() { "$Z" 2>&1 | sed '/^Commands:/,/^$/d'; } # which there are is the table's matter
screen usage usage
screen run "$Z" run $sim --preset observe --summary -- "$B/demo"
screen run-reroute "$Z" run --cache-idle 10m $sim --preset reroute --json "$work/second.json" --summary -- "$B/demo"
screen run-limit "$Z" run $sim --preset observe --limit 100MiB --summary -- "$B/demo"
screen stat-finished finished
"$Z" run $sim --preset observe --json "$work/first.json" -- "$B/demo" >/dev/null
screen diff "$Z" diff "$work/first.json" "$work/second.json"
screen stat held stat_of_held
screen stat-page held page_of_held
screen ctl held ctl_of_held get
screen ctl-idle held ctl_of_held --timeout 0.3 trim
screen check "$Z" run $sim --check all --fail-on-error -- "$B/test/process/check" double_free
screen doctor held doctor_of_held
screen doctor-verbose held doctor_of_held --verbose
screen mirror-test "$Z" mirror-test --sim --step 16MiB --count 4 --keep 256MiB
screen mirror-test-all "$Z" mirror-test --sim --all --step 16MiB --count 4 --keep 256MiB
screen ab verdict_of_ab "$Z" ab $sim --runs 5 --settle 1 --quiet --a observe --b mitigate -- "$B/demo" 2
kept
