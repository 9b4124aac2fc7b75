#!/bin/bash
# Makes the Python and the SYCL runtimes of the beds, from PyPI; nothing is installed in the system.
#
#   env.sh VERSION     a runtime of tools/bed/runtimes (or `newest`); prints its folder: lib, include, site
#   env.sh --python    prints the Python that runs dpctl, numpy and pytest
#   env.sh --list      the versions that this machine's Python can run
#
# One virtual environment holds what all share; each runtime is a folder of its own, for LD_LIBRARY_PATH
# and PYTHONPATH. Exit code 77: cannot be had here, with the reason.
#   ZEROUTE_BEDS         where things are kept (build/beds)
#   ZEROUTE_BED_PYTHON   the Python to build on (python3)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
beds=${ZEROUTE_BEDS:-$here/../../build/beds}

say() { echo "sycl: $*" >&2; }
skip() { say "skipped: $*"; exit 77; }
online() { [ "${ZEROUTE_BED_OFFLINE:-}" != 1 ] || skip "$1 is not in $beds yet, and nothing is downloaded offline"; }

# ZEROUTE_RUNTIME: one more row, of a runtime that is to be tried.
table() {
    grep -vE '^(#|$)' "$here/runtimes"
    [ -z "${ZEROUTE_RUNTIME:-}" ] || echo "$ZEROUTE_RUNTIME"
}

# able RANGE PYTHON-VERSION
able() {
    local low=${1%-*} high=${1#*-}
    [ "${2#3.}" -ge "${low#3.}" ] && [ "${2#3.}" -le "${high#3.}" ]
}

# The first Python that can run all runtimes, or else the newest one.
choose() {
    local python version row newest
    newest=$(table | tail -n 1)
    for row in "$(table | head -n 1)" "$newest"; do
        for python in ${ZEROUTE_BED_PYTHON:-python3 python3.11 python3.10 python3.12 python3.13 python3.14}; do
            version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
            if able "${row##* }" "$version" && able "${newest##* }" "$version"; then
                "$python" -c 'import sys, os; print(os.path.realpath(sys.executable))'
                return
            fi
        done
    done
    skip "no Python of a version that dpctl has packages for"
}

lock() {
    { mkdir -p "$beds" 2>/dev/null && [ -w "$beds" ]; } || skip "$beds cannot be written"
    exec 8>"$beds/.sycl.lock"
    flock 8
}

python() {
    local base venv=$beds/python
    if ! [ -e "$venv/ready" ] || ! [ -x "$venv/bin/python3" ]; then
        lock
        if ! [ -e "$venv/ready" ] || ! [ -x "$venv/bin/python3" ]; then
            online "the Python environment"
            base=$(choose)
            say "making a Python environment on $base in $venv"
            rm -rf "$venv"
            "$base" -m venv "$venv" 1>&2 || skip "$base cannot make a virtual environment (python3-venv)"
            "$venv/bin/python3" -m pip install -q --disable-pip-version-check \
                -r "$here/common-packages" 1>&2 || skip "numpy and pytest cannot be had from PyPI"
            "$venv/bin/python3" -c 'import sys; print("%d.%d" % sys.version_info[:2])' >"$venv/ready"
        fi
        exec 8>&-
    fi
    echo "$venv/bin/python3"
}

# dpctl's modules are made for one version of Python: a system that got a newer one needs others.
fits() {
    [ -e "$1/ready" ] && cmp -s "$1/python" "$beds/python/ready"
}

runtime() {
    local version=$1 row dir temp dpctl more range wanted
    if [ "$version" = newest ]; then
        version=$(table | tail -n 1 | awk '{ print $1 }')
    fi
    row=$(table | awk -v v="$version" '$1 == v')
    [ -n "$row" ] || { say "no runtime $version; known: $(table | awk '{ print $1 }' | paste -sd' ')"; exit 2; }
    read -r _ dpctl more range <<<"$row"
    dir=$beds/sycl/$version
    python >/dev/null
    if ! able "$range" "$(cat "$beds/python/ready")"; then
        skip "dpctl $dpctl has no package for Python $(cat "$beds/python/ready"), only for $range"
    fi
    if ! fits "$dir"; then
        lock
        if ! fits "$dir"; then
            online "SYCL runtime $version"
            say "downloading SYCL runtime $version with dpctl $dpctl into $dir"
            rm -rf "$beds"/.sycl.*/
            temp=$(mktemp -d "$beds/.sycl.XXXXXX")
            # shellcheck disable=SC2064
            trap "rm -rf '$temp'" EXIT
            wanted="dpctl==$dpctl intel-sycl-rt==$version intel-cmplr-lib-rt==$version intel-cmplr-lib-ur==$version"
            if [ "$more" != - ]; then
                wanted="$wanted ${more//,/ }"
            fi
            # shellcheck disable=SC2086
            "$beds/python/bin/python3" -m pip download -q --disable-pip-version-check --no-deps \
                --no-cache-dir --only-binary :all: -d "$temp/wheels" $wanted 1>&2 ||
                skip "cannot be had from PyPI: $wanted"
            mkdir "$temp/dir"
            "$beds/python/bin/python3" "$here/unpack.py" "$temp/dir" "$temp"/wheels/*.whl
            cp "$beds/python/ready" "$temp/dir/python"
            echo "$wanted" >"$temp/dir/ready"
            chmod -R a+rX "$temp/dir"
            mkdir -p "$beds/sycl"
            rm -rf "$dir"
            mv -T "$temp/dir" "$dir"
            rm -rf "$temp"
            trap - EXIT
        fi
        exec 8>&-
    fi
    echo "$dir"
}

list() {
    local version range
    python >/dev/null
    while read -r version _ _ range; do
        if able "$range" "$(cat "$beds/python/ready")"; then
            echo "$version"
        fi
    done < <(table)
}

case ${1:-} in
--python) python ;;
--list) list ;;
newest | [0-9]*) runtime "$1" ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
