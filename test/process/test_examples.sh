#!/usr/bin/env bash
# Every example of --help, the man pages and the README is run, in a folder in which the programs that they name exist
# (stand-ins that allocate on the simulated GPU), with a live process in the place of 4242. An example is right if it is
# understood: exit codes 0, 1 and 3 are answers, 2 and 125 to 127 are not.
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=$(realpath "${B:-build}")
unset ZEROUTE_CONF ZEROUTE_CONF_FILE ZEROUTE_ROOT ZEROUTE_RUN
. test/promise.sh
work=$(mktemp -d)
holder=
cleanup() {
    exec 9>&- # the process that holds memory ends with its input
    [ -z "$holder" ] || wait "$holder" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# --- the folder: programs by the names that examples use -------------------------------------------------------------
mkdir -p "$work/bin" "$work/bed"
stand_in() { # stand_in NAME: a program that allocates a little, quickly
    printf '#!/bin/sh\nexec "%s/test/process/run_work" alloc 4 keep 1\n' "$B" >"$work/$1"
    chmod +x "$work/$1"
}
for name in bin/python bin/python3 bin/torchrun bin/ollama bin/llama-server train infer llama-server bench demo tests \
    unit-tests my-level-zero-test; do
    stand_in $name
done
# One that holds memory for a moment, so that it can be looked at.
printf '#!/bin/sh\nsleep 0.7 | "%s/test/process/doctor_hold"\n' "$B" >"$work/program" && chmod +x "$work/program"
# The command as it is installed, on the simulated GPU wherever it takes one; short runs.
cat >"$work/bin/zeroute" <<S
#!/bin/sh
command=\$1
[ \$# = 0 ] || shift
case \$command in
ab)
    case " \$* " in
    *" --report "*) exec "$B/zeroute" ab "\$@" ;;
    esac
    exec "$B/zeroute" ab --sim=devices:2 --settle 0.1 "\$@" --runs 1 --quiet ;;
top) exec "$B/zeroute" top --once "\$@" ;;
ctl) exec "$B/zeroute" ctl --timeout 1 "\$@" ;;
report) exec "$B/zeroute" report --no-open "\$@" ;;
mirror-test) exec "$B/zeroute" mirror-test --sim "\$@" --count 3 --step 8MiB --keep 64MiB ;;
doctor)
    case " \$* " in
    *" -- "*) exec "$B/zeroute" doctor --sim=devices:2 --seconds 3 "\$@" ;;
    esac ;;
esac
exec "$B/zeroute" \$command "\$@"
S
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
printf '#!/bin/sh\ncat >/dev/null\n' >"$work/bin/jq"
chmod +x "$work"/bin/*
mkdir -p "$work/build" && cp "$work/demo" "$work/build/demo"

# Files that examples read.
export ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so ZE_SIMGPU=devices:2 PATH=$work/bin:$PATH
cd "$work" || exit 1
zeroute run --preset observe --json mine.json -- ./program 2>/dev/null
zeroute run --preset reroute --json yours.json -- ./program 2>/dev/null
zeroute ab --json=report.json --a observe --b mitigate -- ./program >/dev/null 2>&1
for name in train.zr run.zr before.zr after.zr zeroute.1.zr zeroute.2.zr; do
    "$B/zeroute" record -o $name -- ./train >/dev/null 2>&1
done
mkfifo hold
LD_PRELOAD=$B/libzeroute.so ZEROUTE_CONF=preset:observe,pause:on "$B/test/process/doctor_hold" <hold >said 2>&1 &
holder=$! pid=$!
exec 9>hold
until grep -q ready said; do sleep 0.05; done

# --- the examples ----------------------------------------------------------------------------------------------------
run_example() { # run_example WHERE LINE
    local line=${2//4242/$pid} code=0
    line=${line//4711/$pid}
    line=${line//--watch 60s/--watch 1s}
    timeout 60 bash -c "set -o pipefail; $line" >out 2>err </dev/null || code=$?
    case $code in
    0 | 1 | 3) code=0 ;;
    esac
    verdict "$1: $2 (exit code $code): $(head -n 5 err)" $code
}
# Lines, with those joined that end in a backslash; only what begins with the command.
examples() {
    sed -e :a -e '/\\$/N; s/\\\n *//; ta' | sed 's/^ *//' | grep -E '^(sudo )?zeroute '
}
# What needs Intel's driver, a SYCL runtime, a job or a service of its own is run by the test of its command.
elsewhere() {
    case $1 in
    *" bed --"[op]* | *" serve"* | *" --job "* | *.trace*) return 0 ;;
    esac
    return 1
}
run_all() { # run_all WHERE, examples on stdin
    local line
    while IFS= read -r line; do
        elsewhere "$line" || run_example "$1" "$line"
    done
}

while IFS=$'\t' read -r name _; do
    run_all "zeroute $name --help" < <("$B/zeroute" "$name" --help | sed -n '/^Examples:/,$p' | examples)
done < <("$B/zeroute" --list commands)
run_all "zeroute --help" < <("$B/zeroute" --help | sed -n '/^Examples:/,/^$/p' | examples)
for page in "$top"/man/*.1; do
    run_all "${page##*/}" < <(
        sed -n '/^\.SH EXAMPLES/,/^\.SH [^E]/p' "$page" | sed 's/\\-/-/g; s/\\e$/\\/' | examples
    )
done
run_all README.md < <(sed -n '/^```sh/,/^```$/p' "$top/README.md" | examples)
run_all README.md < <(sed -n 's/^\$ zeroute/zeroute/p' "$top/README.md" | examples)
verdict "there are more than 20 examples, not $promises_kept" $((promises_kept <= 20))

# What a new user sees first: on one screen, with the figure that it is all about.
the_first_look_is_one_screen() {
    (cd "$top" && unset ZE_ENABLE_ALT_DRIVERS ZE_SIMGPU && B=${B#"$top"/} sh examples/first-look) >"$work/look" 2>&1 ||
        { cat "$work/look"; return 1; }
    [ "$(wc -l <"$work/look")" -le 24 ] && ! awk 'length > 80 { print; long = 1 } END { exit !long }' "$work/look" ||
        { echo "more than 24 lines of 80 columns"; cat "$work/look"; return 1; }
    for preset in observe mitigate eager reroute safe; do
        grep -Eq "^  $preset +[0-9.]+( [KMG]iB)? +[0-9.]+ s +[0-9]+ " "$work/look" ||
            { echo "no row of $preset"; cat "$work/look"; return 1; }
    done
    grep -q 'Host RAM .* lower with residency:owner' "$work/look" ||
        { echo "no sentence of ab"; cat "$work/look"; return 1; }
}
promise "what ./setup run shows is one screen of 24 lines" the_first_look_is_one_screen

kept
