#!/usr/bin/env bash
# The wheel and the archive: built, checked, installed where nothing else is, used on the simulated GPU, removed.
# Needs ziglang, auditwheel and pytest from PyPI; they are kept in the beds' folder.
# Tier: release.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
beds=$(realpath -m "${ZEROUTE_BEDS:-$B/beds}")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export ZEROUTE_ZIG=$beds/zig
if [ ! -x "$beds/zig/bin/auditwheel" ]; then
    { mkdir -p "$beds" && python3 -m venv "$beds/zig" &&
        "$beds/zig/bin/pip" install -q --disable-pip-version-check ziglang auditwheel; } >"$dir/pip" 2>&1 ||
        { rm -rf "$beds/zig"; echo "ziglang and auditwheel cannot be had from PyPI: $(tail -n 1 "$dir/pip")"; exit 77; }
fi
version=$(sed -n 's/^VERSION := //p' Makefile)
wheel=$B/dist/zeroute-$version-py3-none-manylinux_2_28_x86_64.whl
archive=$B/dist/zeroute-$version-x86_64.tar.gz
v=$dir/venv

both_are_built() {
    make -s wheel dist-bin B="$B" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; return 1; }
    [ -f "$wheel" ] && [ -f "$archive" ]
}
auditwheel_agrees() {
    "$beds/zig/bin/auditwheel" show "$wheel" | tr '\n' ' ' |
        grep -q 'consistent with the following platform tag: "manylinux_2_28'
}
the_same_input_gives_the_same_bytes() {
    cp "$wheel" "$archive" "$dir/" && packaging/wheel "$B/portable" "$version" "$B/dist" >/dev/null &&
        make -s dist-bin B="$B" >/dev/null 2>&1 &&
        cmp "$wheel" "$dir/${wheel##*/}" && cmp "$archive" "$dir/${archive##*/}"
}
it_installs_into_an_empty_environment() {
    python3 -m venv "$v" && find "$v" | sort >"$dir/before" &&
        "$v/bin/pip" install -q --no-deps --disable-pip-version-check "$wheel"
}
the_command_runs_a_program() {
    same "$("$v/bin/zeroute" --version)" "zeroute $version" &&
        (cd "$dir" && PYTHONPATH=$OLDPWD/test/install "$v/bin/zeroute" run --sim --json "$dir/run.json" -- \
            "$v/bin/python" -c 'import device; device.free(device.allocate(8 << 20))') &&
        grep -q '"allocated_bytes.all.peak": 8388608' "$dir/run.json"
}
python_dash_m_is_the_command() {
    same "$("$v/bin/python" -m zeroute run -- sh -c 'echo $LD_PRELOAD')" \
        "$("$v/bin/python" -c 'import zeroute; print(zeroute.preload_path())')"
}
env_starts_a_program_under_the_preload() {
    cat >"$dir/env.py" <<'PY'
import os, subprocess, sys, zeroute
sim = os.path.join(os.path.dirname(zeroute.preload_path()), "libze_simgpu.so")
code = """
import device, zeroute
kept = device.allocate(4 << 20)
device.free(device.allocate(2 << 20))
s = zeroute.stats()
assert s["allocated_bytes.all.current"] == 4 << 20, s["allocated_bytes.all.current"]
assert s["allocated_bytes.all.peak"] == 6 << 20
assert s == {**s, **zeroute.stats()}
assert isinstance(zeroute.mark("here"), bool)
"""
env = zeroute.env(preset="observe", base={**os.environ, "ZE_ENABLE_ALT_DRIVERS": sim}, limit="1GiB", cache_host=False)
assert env["ZEROUTE_CONF"] == "preset:observe,limit:1GiB,cache_host:off", env["ZEROUTE_CONF"]
assert zeroute.env(base=env)["LD_PRELOAD"] == env["LD_PRELOAD"]
try:
    zeroute.env(limit="1,2")
    sys.exit("a comma was taken")
except ValueError:
    pass
assert zeroute.stats() == {}, "this process is not under the preload"
sys.exit(subprocess.run([sys.executable, "-c", code], env=env).returncode)
PY
    PYTHONPATH=$PWD/test/install "$v/bin/python" "$dir/env.py"
}
# What pytest says of each sample is what its name says.
the_pytest_plugin_holds_tests_to_their_bounds() {
    "$v/bin/pip" install -q --disable-pip-version-check pytest || { echo "no pytest"; return 77; }
    cp test/install/device.py test/install/sample_marks.py "$dir/"
    (cd "$dir" && PYTHONPATH=$dir "$v/bin/python" -m pytest -p no:cacheprovider -rA --zeroute-args=--sim \
        sample_marks.py) >"$dir/pytest" 2>&1
    grep -q '3 failed, 3 passed' "$dir/pytest" &&
        grep -q 'peak device memory 32.00 MiB, 16.00 MiB over the limit of 16.00 MiB' "$dir/pytest" &&
        grep -q '1.00 MiB of device memory left allocated' "$dir/pytest" &&
        grep -qE '^PASSED .*test_is_refused_by_the_limit' "$dir/pytest" &&
        grep -qE '^FAILED .*test_fails_by_itself' "$dir/pytest" || { tail -n 40 "$dir/pytest"; return 1; }
}
pip_removes_it_without_a_trace() {
    "$v/bin/pip" uninstall -q -y --disable-pip-version-check zeroute >"$dir/log" 2>&1
    same "$(find "$v" -path '*zeroute*')" ''
}
the_archive_works_from_any_folder() {
    mkdir "$dir/any-folder" && tar -xzf "$archive" -C "$dir/any-folder" || return 1
    PYTHONPATH=$PWD/test/install "$dir/any-folder"/zeroute-*/bin/zeroute run --sim --json "$dir/tar.json" -- \
        python3 -c 'import device; device.free(device.allocate(8 << 20))' &&
        grep -q '"allocated_bytes.all.peak": 8388608' "$dir/tar.json"
}
# Debian 11's is the oldest C library that can be had here (2.31); the symbols say 2.28.
it_runs_on_an_old_c_library() {
    local libc file newest
    for file in "$dir/any-folder"/zeroute-*/{bin/zeroute,lib/zeroute/*.so,lib/*.so.1}; do
        newest=$(objdump -p "$file" | sed -n '/Version References/,$p' | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
        same "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" GLIBC_2.28 || return 1
    done
    libc=$(tools/bed/fetch.sh libc bullseye 2>/dev/null | tail -n 1)
    [ -x "$libc/ld-linux-x86-64.so.2" ] || { echo "no Debian 11 libc to be had"; return 77; }
    same "$("$libc/ld-linux-x86-64.so.2" --library-path "$libc" "$dir/any-folder"/zeroute-*/bin/zeroute --version)" \
        "zeroute $version"
}

promise "make wheel and make dist-bin work" both_are_built
promise "auditwheel agrees with the wheel's name" auditwheel_agrees
promise "the same input gives the same bytes" the_same_input_gives_the_same_bytes
promise "the wheel installs into an empty environment" it_installs_into_an_empty_environment
promise "its command runs a program on its simulated GPU" the_command_runs_a_program
promise "python -m zeroute is the command" python_dash_m_is_the_command
promise "env(), stats() and mark() work" env_starts_a_program_under_the_preload
promise "the pytest plugin holds tests to their bounds" the_pytest_plugin_holds_tests_to_their_bounds
promise "pip removes it without a trace" pip_removes_it_without_a_trace
promise "the archive works from any folder" the_archive_works_from_any_folder
promise "it runs on an old C library" it_runs_on_an_old_c_library
kept
