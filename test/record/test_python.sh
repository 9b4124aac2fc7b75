#!/bin/bash
# stacks:python: the lines of a record are those of the program, in every Python that is known and at hand.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT

known() { grep -oE '^ +X\([0-9]+' src/record/python.def | grep -oE '[0-9]+$'; } # minor versions
pythons() { # one of each minor version; those that are known and not at hand come from Debian unstable
    local p minor seen=" "
    for p in "$HOME"/.pyenv/versions/3.*/bin/python /usr/bin/python3 $(command -v python3); do
        minor=$("$p" -c 'import sys; print(sys.version_info[1])' 2>/dev/null) || continue
        [[ $seen == *" $minor "* ]] || echo "$minor $p"
        seen+="$minor "
    done
    for minor in $(known); do
        [[ $seen == *" $minor "* ]] && continue
        p=$(tools/bed/fetch.sh python "3.$minor" 2>"$to/why") && echo "$minor $p/python" || echo "$minor"
    done
}
run() { # run PYTHON FILE PROGRAM...
    local python=$1 file=$2
    shift 2
    rm -f "$file"
    LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=stats:off,record:$file,stacks:python timeout 100 "$python" "$@"
}

lines() { run "$1" "$to/lines" test/record/frames.py && python3 test/record/check_frames.py "$to/lines"; }
offsets() { # offsets PYTHON: src/record/python.def against its headers
    local include
    include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$include/internal/pycore_frame.h" ] || { echo "no headers of $1"; return 77; }
    ${CC:-cc} -w -I"$include" -I"$include/internal" -I"$include/.." test/record/offsets.c -o "$to/offsets" || return
    "$to/offsets" >"$to/line" && cat "$to/line" && grep -qFf "$to/line" src/record/python.def
}
unknown() {
    run "$1" "$to/unknown" test/record/frames.py 2>"$to/said" || return
    grep -qE "^zeroute: record: Python 3\.[0-9.]+: its frames are not known, .*; native frames are recorded$" \
        "$to/said" && same "$(wc -l <"$to/said")" 1
}
absent() { cat "$to/why"; return 77; }
tried=0
while read -r minor python; do
    if [ -z "$python" ]; then
        promise "the lines of Python 3.$minor are right" absent
    elif known | grep -qx "$minor"; then
        tried=$((tried + 1))
        promise "the lines of Python 3.$minor are right" lines "$python"
        promise "the offsets for Python 3.$minor are those of its headers" offsets "$python"
    elif [ "$minor" -ge 7 ]; then
        promise "Python 3.$minor is not known, and that is said" unknown "$python"
    fi
done < <(pythons)
promise "there is a Python to try this with" test $tried -gt 0
kept
