# shellcheck shell=bash
# For suites written in shell: `promise NAME COMMAND...` runs a check, `kept` ends with the count that
# test/run adds up. A check is a command, usually a function, that fails when the promise is broken.
# Exit code 77 of a check counts as skipped.
promises_kept=0 promises_broken=0 promises_skipped=0

promise() {
    local name=$1 out code=0
    shift
    out=$("$@" 2>&1) || code=$?
    case $code in
    0) promises_kept=$((promises_kept + 1)) ;;
    77)
        promises_skipped=$((promises_skipped + 1))
        echo "skipped: $name: ${out##*$'\n'}"
        ;;
    *)
        promises_broken=$((promises_broken + 1))
        echo "BROKEN: $name (exit code $code)"
        echo "    ${out//$'\n'/$'\n'    }"
        ;;
    esac
}

# verdict NAME CODE: counts a check that was made already, by its exit code.
verdict() {
    if [ "$2" = 0 ]; then
        promises_kept=$((promises_kept + 1))
    else
        promises_broken=$((promises_broken + 1))
        echo "BROKEN: $1"
    fi
}

kept() {
    echo "$promises_kept passed, $promises_broken failed, $promises_skipped skipped"
    [ "$promises_broken" = 0 ]
}

# same WHAT WANTED: fails and shows both where they differ
same() {
    [ "$1" = "$2" ] || {
        echo "got:      $1"
        echo "expected: $2"
        return 1
    }
}

# field FILE NAME...: these fields of the first process in what `zeroute run --json` or `stat --json` wrote, in a line.
field() {
    python3 -c 'import json, sys
fields = json.load(open(sys.argv[1]))["processes"][0]["fields"]
print(*(fields.get(name, "absent") for name in sys.argv[2:]))' "$@"
}

# on_the_stack [OPTIONS]: sets up Intel's driver and the newest SYCL runtime, and makes the folder $dir,
# which goes at the end. Ends the suite with the reason and the bed's exit code where that cannot be.
on_the_stack() {
    local code=0
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    tools/bed/bed --on intel --runtime newest "$@" --setup >"$dir/setup" 2>&1 || code=$?
    [ $code = 0 ] || {
        tail -n 1 "$dir/setup"
        exit $code
    }
}
