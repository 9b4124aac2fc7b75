#!/bin/bash
# What tools/bed/bed promises, with and without a mount namespace.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh

bed() { tools/bed/bed --on intel "$@"; }

# shellcheck disable=SC2016
libc_of_child='grep -o "[^ ]*/libc\.so\.6" /proc/self/maps | head -n 1'

exit_code_is_passed_on() {
    local code=0
    bed sh -c 'exit 7' || code=$?
    same $code 7
}
death_by_signal_is_passed_on() {
    local code=0
    # shellcheck disable=SC2016
    bed sh -c 'kill -USR1 $$' || code=$?
    same $code 138
}
stdout_is_the_programs_alone() { same "$(bed echo word 2>/dev/null)" word; }
stdin_reaches_the_program() { same "$(echo word | bed cat)" word; }
arguments_are_not_touched() { same "$(bed printf '<%s>' 'a b' '' '*' --python)" '<a b><><*><--python>'; }
a_signal_reaches_the_program() {
    local dir code=0
    dir=$(mktemp -d)
    mkfifo "$dir/up"
    tools/bed/bed --on intel sh -c 'echo up; exec sleep 60' >"$dir/up" &
    read -r _ <"$dir/up"
    kill -TERM $!
    wait $! || code=$?
    rm -rf "$dir"
    same $code 143
}
unknown_program_is_127() {
    local code=0
    bed no-such-program-here || code=$?
    same $code 127
}
what_cannot_be_executed_is_126() {
    local code=0
    bed test/promise.sh || code=$?
    same $code 126
}
the_folder_is_kept_and_names_may_have_spaces() {
    local dir code=0
    dir=$(mktemp -d)
    mkdir "$dir/a b"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "$PWD"\n' >"$dir/a b/my program"
    chmod +x "$dir/a b/my program"
    same "$(cd "$dir/a b" && "$OLDPWD/tools/bed/bed" --on intel './my program')" "$dir/a b" || code=1
    same "$(PATH="$dir/a b:$PATH" bed 'my program')" "$PWD" || code=1
    rm -rf "$dir"
    return $code
}
wrong_usage_is_2() {
    local code=0
    tools/bed/bed --on nowhere true || code=$?
    same $code 2 || return
    code=0
    tools/bed/bed --on intel --cards 5 true || code=$?
    same $code 2
}
a_loader_must_be_a_library() {
    local code=0
    bed --loader test/promise.sh true || code=$?
    same $code 2 || return
    code=0
    bed --loader /etc true || code=$?
    same $code 2
}
a_link_to_it_works_from_anywhere() {
    local dir code=0
    dir=$(mktemp -d)
    ln -s "$PWD/tools/bed/bed" "$dir/my-bed"
    same "$(cd / && "$dir/my-bed" --on intel echo word)" word || code=1
    rm -rf "$dir"
    return $code
}
# LD_PRELOAD separates at spaces, LD_LIBRARY_PATH at colons, fstab at both kinds of space.
its_folders_may_have_spaces() {
    local dir beds code=0
    dir=$(mktemp -d)
    mkdir -p "$dir/a b:c/build" "$dir/t t"
    beds=$(realpath "${ZEROUTE_BEDS:-build/beds}")
    ln -s "$beds" "$dir/a b:c/beds"
    cp build/libxe_standin.so build/libbed_stay.so "$dir/a b:c/build/"
    same "$(TMPDIR="$dir/t t" ZEROUTE_BEDS="$dir/a b:c/beds" ZEROUTE_BUILD="$dir/a b:c/build" bed python3 -c '
import ctypes
loader = ctypes.CDLL("libze_loader.so.1")
print(loader.zeInit(0), "libxe_standin" in open("/proc/self/maps").read())' 2>&1)" '0 True' || code=1
    rm -rf "$dir"
    return $code
}
a_build_folder_that_cannot_be_written_is_told() {
    [ -z "$(ZEROUTE_BUILD=/dev/null/build bed true 2>"$folder/told")" ] || return
    grep 'ZEROUTE_BUILD' "$folder/told"
}
help_has_examples() { tools/bed/bed --help | grep -q Examples; }

same_libc_in_children() {
    local parent child
    parent=$(bed sh -c "$libc_of_child")
    child=$(bed env sh -c "sh -c '$libc_of_child'")
    same "$child" "$parent" && [ -n "$parent" ]
}
system_and_popen_stay_on_the_bed() {
    bed python3 -c '
import os, subprocess
one = subprocess.run(["python3", "-c", "import os; print(os.confstr(2))"], capture_output=True, text=True).stdout
two = os.popen("python3 -c \"import os; print(os.confstr(2))\"").read()
assert one == two == os.confstr(2) + "\n", (one, two, os.confstr(2))'
}
spawned_workers_stay_on_the_bed() {
    local script
    script=$(mktemp --suffix=.py)
    cat >"$script" <<'PY'
import multiprocessing
import os


def libc():
    return os.confstr(2)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with multiprocessing.Pool(1) as pool:
        assert pool.apply(libc) == os.confstr(2)
PY
    bed python3 "$script"
    local code=$?
    rm -f "$script"
    return $code
}
a_script_is_started() {
    local script code=0
    script=$(mktemp)
    # shellcheck disable=SC2016
    printf '#!/bin/sh -e\necho "$0" "$1"\n' >"$script"
    chmod +x "$script"
    same "$(bed "$script" word)" "$script word" || code=1
    rm -f "$script"
    return $code
}
callers_preload_is_kept() {
    [ -e build/libzeroute.so ] || { echo "no preload built"; return 77; }
    LD_PRELOAD=$PWD/build/libzeroute.so bed grep -q libzeroute /proc/self/maps
}
preload_set_inside_keeps_the_beds_own() {
    [ -e build/libzeroute.so ] || { echo "no preload built"; return 77; }
    bed env "LD_PRELOAD=$PWD/build/libzeroute.so" sh -c \
        'grep -q libzeroute /proc/self/maps && grep -q libxe_standin /proc/self/maps'
}
the_command_runs_programs_inside() {
    [ -x build/zeroute ] || { echo "no command built"; return 77; }
    bed build/zeroute run -- sh -c 'grep -q libzeroute /proc/self/maps && grep -q libxe_standin /proc/self/maps'
}
two_drivers_share_a_process() {
    [ -x build/test/process/bind_plt ] || { echo "no test programs built"; return 77; }
    same "$(tools/bed/bed --on sim,intel --cards 2 build/test/process/bind_plt)" "4 devices"
}
an_emptied_environment_leaves_the_bed() {
    same "$(bed env -i sh -c 'grep -c libxe_standin /proc/self/maps')" 0
}
root_is_fresh_and_goes_away() {
    local root
    # shellcheck disable=SC2016
    root=$(ZEROUTE_ROOT='' bed sh -c 'test -d "$ZEROUTE_ROOT" && echo "$ZEROUTE_ROOT"')
    [ -n "$root" ] || return 1
    for _ in $(seq 100); do
        [ -e "$root" ] || return 0
        sleep 0.1
    done
    return 1
}
# A process id of one PID namespace is nobody's, or another's, in the next.
a_bed_in_another_pid_namespace_removes_what_is_left_over_and_no_more() {
    local dir code=0 left
    unshare -pf --mount-proc true 2>/dev/null || { echo "no PID namespace here"; return 77; }
    dir=$(mktemp -d)
    mkfifo "$dir/up" "$dir/go"
    # shellcheck disable=SC2016
    ZEROUTE_ROOT='' TMPDIR=$dir tools/bed/bed --on sim sh -c 'echo up; read -r _; test -d "$ZEROUTE_ROOT"' \
        >"$dir/up" <"$dir/go" &
    exec 7<>"$dir/go"
    read -r _ <"$dir/up"
    left=$dir/zeroute-bed.$(id -u)/left
    mkdir "$left"
    TMPDIR=$dir unshare -pf --mount-proc tools/bed/bed --on sim true || code=1
    [ ! -e "$left" ] || { echo "$left is still there"; code=1; }
    exec 7>&-
    wait $! || { echo "the room of a bed in use is gone"; code=1; }
    rm -rf "$dir"
    return $code
}
callers_root_is_kept() {
    # shellcheck disable=SC2016
    same "$(ZEROUTE_ROOT=/tmp bed sh -c 'echo "$ZEROUTE_ROOT"')" /tmp
}
beds_start_side_by_side() {
    local i pids=()
    for i in 1 2 3 4; do
        bed sh -c "exit $i" &
        pids+=($!)
    done
    for i in 1 2 3 4; do
        wait "${pids[i - 1]}"
        same $? "$i" || return 1
    done
}
loader_of_a_name_is_the_one_loaded() {
    bed --loader debian12 python3 -c '
import ctypes
ctypes.CDLL("libze_loader.so.1")
assert "libze_loader.so.1.8" in open("/proc/self/maps").read()'
}
a_loader_of_ones_own_is_the_one_loaded() {
    local dir code=0
    dir=$(mktemp -d)
    cp -L "$(tools/bed/fetch.sh loader debian12)" "$dir/my-loader.so" || return 77
    bed --loader "$dir/my-loader.so" python3 -c '
import ctypes
ctypes.CDLL("libze_loader.so.1")
assert "my-loader.so" in open("/proc/self/maps").read()' || code=1
    rm -rf "$dir"
    return $code
}

# Both retry for a while: they run beside the others.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
ZEROUTE_BEDS=$folder/beds ZEROUTE_DEBIAN_MIRROR=http://127.0.0.1:1/debian ZEROUTE_BED_DRIVER=fetched \
    tools/bed/bed --on intel true >"$folder/driver" 2>&1 &
without_mirror=$!
ZEROUTE_BEDS=$folder/beds PIP_INDEX_URL=http://127.0.0.1:1/simple PIP_RETRIES=0 \
    tools/bed/env.sh newest >"$folder/runtime" 2>&1 &
without_index=$!

# More libraries than a pipe holds, behind one more than the machine has.
mkdir "$folder/bin"
cat >"$folder/bin/ldconfig" <<'SH'
#!/bin/sh
[ -z "$FIRST" ] || printf '\t%s (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/%s\n' "$FIRST" "$FIRST"
yes '	libother.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libother.so.1' | head -n 4000
SH
chmod +x "$folder/bin/ldconfig"
of_the_machine() { FIRST=$1 PATH=$folder/bin:$PATH tools/bed/bed --on "$2" --setup 2>&1; }
the_machines_own_driver_is_taken() { of_the_machine libze_intel_gpu.so.1 intel | grep 'driver of the system'; }
the_machines_own_loader_is_taken() { of_the_machine libze_loader.so.1 sim | grep 'driver of the system'; }
without_a_loader_one_is_fetched() { of_the_machine '' sim | grep "driver .*unstable"; }
a_place_that_cannot_be_written_is_a_skip() {
    local code=0
    ZEROUTE_BEDS=/dev/null/beds tools/bed/bed --on intel true || code=$?
    same $code 77 || return
    code=0
    ZEROUTE_BEDS=/dev/null/beds tools/bed/env.sh newest || code=$?
    same $code 77
}
skipped() { # CODE FILE
    same "$1" 77 && grep 'skipped: .*cannot be had' "$folder/$2"
}

bed true
if [ $? = 77 ]; then
    exit 77
fi
for way in 1 0; do
    export ZEROUTE_BED_NS=$way
    for check in $(declare -F | awk '{ print $3 }' | grep _ | grep -v of_the_machine); do
        promise "$check (ZEROUTE_BED_NS=$way)" "$check"
    done
done
wait $without_mirror
promise without_a_mirror_the_driver_is_skipped skipped $? driver
wait $without_index
promise without_an_index_the_runtime_is_skipped skipped $? runtime
kept
