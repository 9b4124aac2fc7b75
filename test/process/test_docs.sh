#!/usr/bin/env bash
# The docs say what the tables say: every setting and preset is in the man page with its values, default and help, and
# in doc/settings.md; doc/statistics.md has every field, every benchmark is in doc/performance.md; every
# command has a page and is completed. Links lead somewhere, and the tests that test/promises.md names exist.
# With --man: writes the settings of man/zeroute-run.1 and the commands of man/zeroute.1 as their tables have them.
# Tier: check.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
# replace PAGE HEADING NEXT: puts what is read in the place of the list between two headings, which begins with .TP
replace() {
    local page
    page=$(sed "/^\.SH $2/,\$d" "$1" && sed -n "/^\.SH $2/,/^\.TP/p" "$1" | sed '$d' && cat &&
        sed -n "/^\.SH $3/,\$p" "$1") && printf '%s\n' "$page" >"$1"
}
if [ "${1:-}" = --man ]; then
    while IFS=$'\t' read -r name values default help; do
        printf '.TP\n.BI \\-\\-%s " %s"\n%s (default %s)\n' "${name//_/\\-}" "$values" "$help" "$default"
    done < <("$B/zeroute" --list settings) | replace man/zeroute-run.1 SETTINGS 'EXIT STATUS' || exit 1
    while IFS=$'\t' read -r name help; do
        printf '.TP\n.BR zeroute\\-%s (1)\n%s\n' "${name//-/\\-}" "$help"
    done < <("$B/zeroute" --list commands) | replace man/zeroute.1 COMMANDS ENVIRONMENT
    exit
fi
. test/promise.sh
contains() {
    grep -qF -- "$2" "$1"
}

while IFS=$'\t' read -r name values default help; do
    contains man/zeroute-run.1 ".BI \\-\\-${name//_/\\-} \" $values\"" &&
        contains man/zeroute-run.1 "$help (default $default)"
    verdict "man/zeroute-run.1 describes $name as settings.def does" $?
    documented=$(grep "^| \`$name\` | " doc/settings.md | cut -d'|' -f3)
    [ -n "$documented" ]
    verdict "doc/settings.md describes $name" $?
    for value in $(tr '|' '\n' <<<"$values" | grep -x '[a-z0-9]*'); do
        grep -qw "$value" <<<"$documented"
        verdict "doc/settings.md has the value $value of $name" $?
    done
done < <("$B/zeroute" --list settings)
while IFS=$'\t' read -r name settings help; do
    contains doc/settings.md "| \`$name\` | \`$settings\` |"
    verdict "doc/settings.md has the preset $name as settings.def does" $?
    tr '\n' ' ' <man/zeroute-run.1 | grep -qF ".B $name ($help"
    verdict "man/zeroute-run.1 describes the preset $name as settings.def does" $?
done < <("$B/zeroute" --list presets)
while IFS=$'\t' read -r name help; do
    grep -A1 -F ".BR zeroute\\-${name//-/\\-} (1)" man/zeroute.1 | grep -qxF "$help"
    verdict "man/zeroute.1 lists $name as commands.def does" $?
    [ -f "man/zeroute-$name.1" ]
    verdict "there is a man page for $name" $?
    "$B/zeroute" "$name" --help | grep -qi example
    verdict "zeroute $name --help has examples" $?
    wide=$("$B/zeroute" "$name" --help | awk 'length > 80')
    [ -z "$wide" ]
    verdict "zeroute $name --help fits 80 columns: $wide" $?
done < <("$B/zeroute" --list commands)
wide=$("$B/zeroute" --help | awk 'length > 80')
[ -z "$wide" ]
verdict "zeroute --help fits 80 columns: $wide" $?
for page in man/*.1; do
    grep -qx '.SH EXAMPLES' "$page"
    verdict "$page has examples" $?
    if command -v man >/dev/null; then
        warnings=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l -E UTF-8 -Tutf8 -Z "$page" 2>&1 >/dev/null)
        [ -z "$warnings" ]
        verdict "$page is clean roff: $warnings" $?
    fi
done

promise "doc/statistics.md has the fields that a process shows, and no others" python3 test/process/fields.py "$B"

# Families without the endings that Prometheus gives to parts of a histogram.
shared_metrics() {
    local name bad=
    for name in $(grep -oh 'zeroute_[a-z_]*' share/prometheus/*.yml share/grafana/*.json |
        sed 's/_\(bucket\|sum\|count\)$//' | sort -u); do
        grep -qw "$name" doc/watching.md || bad="$bad $name"
    done
    [ -z "$bad" ] || { echo "not in doc/watching.md:$bad"; return 1; }
}
promise "Prometheus rules and the Grafana page use metrics that are documented" shared_metrics

for bench in test/bench/bench_*; do
    [ -x "$bench" ] || continue
    contains doc/performance.md "| \`${bench##*/bench_}\` |"
    verdict "doc/performance.md has the benchmark ${bench##*/}" $?
done

for page in README.md CONTRIBUTING.md SECURITY.md doc/*.md test/*.md tools/bed/*/README.md; do
    while read -r link; do
        [ -e "$(dirname "$page")/${link%%#*}" ]
        verdict "$page: the link to $link leads somewhere" $?
    done < <(grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https\?:\|^#')
done

# The ways that doc/architecture.md describes: every function and every file on them exists.
while read -r name; do
    grep -qrE "\\b$name\\b" src
    verdict "doc/architecture.md names $name, which is in src/" $?
done < <(sed -n '/^## The way of a call/,/^## Locks/p' doc/architecture.md | grep -oE '`[^`]+`' |
    grep -oE '\b(zr|ZR)_[A-Za-z_]+|\b[a-z]+_[a-z_]+\b' | sort -u)
while read -r name; do
    compgen -G "src/*/$name" >/dev/null || compgen -G "src/$name" >/dev/null || [ -e "$name" ]
    verdict "doc/architecture.md names the file $name, which exists" $?
done < <(grep -oE '`[a-z_/]+\.(c|h|def|sh)`' doc/architecture.md | tr -d '`' | sort -u)

# A row of the promises: `test_SUITE` and after it tests of that suite.
while read -r word; do
    case $word in
    test_*)
        suite=$(echo test/*/"$word".c test/*/"$word".sh | tr ' ' '\n' | grep -v '\*')
        [ -n "$suite" ]
        verdict "test/promises.md names the suite $word, which exists" $?
        ;;
    *)
        # shellcheck disable=SC2086 # one file or several
        [ -n "$suite" ] && grep -qw -- "$word" $suite
        verdict "test/promises.md names the test $word of ${suite##*/}, which exists" $?
        ;;
    esac
done < <(grep -E '^\|.*`test_' test/promises.md | sed 's/.*| \(`test_.*\) |$/\1/' | grep -oE '`[a-z_0-9]+`' | tr -d '`')

kept
