#!/bin/bash
# OpenCL on Intel's driver: what zeroute does not see of it, and that every command says so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
build=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
for part in driver opencl; do
    "tools/bed/fetch.sh" $part >"$dir/$part" 2>"$dir/why" || { code=$?; tail -n 1 "$dir/why"; exit $code; }
done
opencl=$(cat "$dir/opencl")
cc -std=gnu11 -D_GNU_SOURCE -Itest -I"$opencl/include" -o "$dir/opencl_program" test/driver/opencl.c \
    "$opencl/lib/libOpenCL.so.1" -lze_loader -Wl,--allow-shlib-undefined || exit 1
lost="another driver (OpenCL or video) uses the cards of this process"
sentence="this program uses OpenCL: zeroute does not see its memory, and limits do not hold for it"

# on_bed COMMAND...: OpenCL's loader finds Intel's driver for it and no other
on_bed() {
    OCL_ICD_VENDORS=${driver:-$opencl/lib/intel-opencl/libigdrcl.so} LD_LIBRARY_PATH=$opencl/lib \
        timeout 120 tools/bed/bed --on intel "$@"
}
under_run() { # under_run "RUN OPTIONS" ARGUMENTS...: stderr in $dir/err, the JSON in $dir/json
    local options=$1
    shift
    # shellcheck disable=SC2086
    on_bed "$build/zeroute" run --no-summary --json "$dir/json" $options -- "$dir/opencl_program" "$@" \
        >"$dir/out" 2>"$dir/err" || { cat "$dir/out" "$dir/err"; return 1; }
}
# told [TIMES]: run said it so often, and the segment holds it
told() {
    same "$(grep -c "$sentence" "$dir/err")" "${1:-1}" && same "$(field "$dir/json" hooks)" "$sentence" &&
        ! grep -q deep-bound "$dir/err" "$dir/json"
}

data_is_right() { under_run "" && told; }
limit_says_so() { under_run "--limit 100M" && told && grep -q done "$dir/out"; }
with_the_cache() { under_run "--preset reroute" ze && told && same "$(field "$dir/json" reuse.lost)" "$lost"; }
with_level_zero() { under_run "" ze && told && same "$(field "$dir/json" allocated_bytes.all.peak)" $((64 << 20)); }
on_top_of_level_zero() {
    NEOReadDebugKeys=1 EnableLEO=1 under_run "" && grep -q 'OpenCL 3.0 LEO' "$dir/out" && told
}
served_by_the_driver_itself() {
    driver=$(cat "$dir/driver")/lib/libze_intel_gpu.so.1
    driver=$driver NEOReadDebugKeys=1 EnableLEO=1 under_run "" && grep -q 'OpenCL 3.0 LEO' "$dir/out" && told
}
# The runtime of SYCL loads OpenCL's driver to list its devices.
beside_a_sycl_runtime() {
    echo 'int nothing;' | cc -shared -fPIC -x c -Wl,-soname,libsycl.so.9 -o "$dir/libsycl.so.9" - &&
        on_bed env LD_PRELOAD="$dir/libsycl.so.9" "$build/zeroute" run --no-summary --json "$dir/json" \
            --preset reroute -- "$dir/opencl_program" ze 2>"$dir/err" && same "$(cat "$dir/err")" "" &&
        same "$(field "$dir/json" hooks reuse.lost)" " "
}
promise "an OpenCL program works under run, which says that its memory is not seen" data_is_right
promise "with a limit, too" limit_says_so
promise "with the cache, too" with_the_cache
promise "a program that uses Level Zero as well is told so, and what it asked of that is counted" with_level_zero
promise "OpenCL on top of Level Zero (EnableLEO) is OpenCL" on_top_of_level_zero
promise "OpenCL that the Level Zero driver serves without libigdrcl is OpenCL" served_by_the_driver_itself
promise "a SYCL program whose runtime has loaded OpenCL's driver hears nothing and loses nothing" beside_a_sycl_runtime

# --- a program that runs -----------------------------------------------------------------------------------
cat >"$dir/look" <<'END'
# look ZEROUTE DIR START...: starts what comes last, asks every command about it, and lets it end
zeroute=$1 dir=$2
shift 2
mkfifo "$dir/in"
"$@" <"$dir/in" >"$dir/held" 2>"$dir/err" &
exec 7>"$dir/in"
for _ in $(seq 600); do
    grep -qs done "$dir/held" && break
    sleep 0.1
done
pid=$(pgrep -f "^$dir/opencl_program" | head -n 1)
echo "$pid" >"$dir/pid"
"$zeroute" stat >"$dir/stat"
"$zeroute" stat "$pid" >"$dir/stat-pid" 2>&1
"$zeroute" stat --json >"$dir/stat-json"
"$zeroute" doctor "$pid" >"$dir/doctor"
"$zeroute" doctor --verbose "$pid" >"$dir/doctor-verbose"
"$zeroute" top --json >"$dir/top-json"
"$zeroute" top --once >"$dir/top"
exec 7>&-
wait
rm "$dir/in"
END
look() { on_bed bash "$dir/look" "$build/zeroute" "$dir" "$@"; }
words() { tr -s ' \n' ' ' <"$1"; } # a page without its line breaks
says() { words "$1" | grep -qF "$2" || { echo "not in ${1##*/}: $2"; cat "$1"; return 1; }; }

every_command_says_so() {
    local pid
    look "$build/zeroute" run --no-summary -- "$dir/opencl_program" hold && pid=$(cat "$dir/pid") || return 1
    says "$dir/stat" "$pid: $sentence; its cards hold" && says "$dir/stat-pid" "$sentence" &&
        says "$dir/stat-json" "\"hooks\": \"$sentence\"" && says "$dir/doctor" "$sentence" &&
        says "$dir/doctor-verbose" "Intel OpenCL driver" && says "$dir/top-json" "$sentence" &&
        says "$dir/top" "$pid: $sentence"
}
kernel_figures_are_shown() {
    python3 - "$dir/stat-json" "$(cat "$dir/pid")" <<'END'
import json, sys
process = [p for p in json.load(open(sys.argv[1]))["processes"] if p["pid"] == int(sys.argv[2])][0]
assert process["allocated_bytes"] == 0, process["allocated_bytes"]
assert process["vram_bytes"] >= 256 << 20, process["vram_bytes"]
END
}
without_zeroute() {
    look "$dir/opencl_program" hold || return 1
    says "$dir/stat-pid" "uses OpenCL" && says "$dir/doctor" "$sentence"
}
promise "stat, top and doctor say so of a program that runs" every_command_says_so
promise "what the kernel counts for it is shown" kernel_figures_are_shown
promise "without zeroute, stat and doctor name OpenCL" without_zeroute
kept
