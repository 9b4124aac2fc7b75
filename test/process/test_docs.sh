#!/usr/bin/env bash
# The docs say what the tables say: every setting and preset is in the man page with its values, default and help, every
# command has a page and is completed.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
passed=0 failed=0
promise() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
    fi
}
contains() {
    grep -qF -- "$2" "$1"
}

while IFS=$'\t' read -r name values default help; do
    contains man/zeroute-run.1 ".BI \\-\\-${name//_/\\-} \" $values\"" &&
        contains man/zeroute-run.1 "$help (default $default)"
    promise "man/zeroute-run.1 describes $name as settings.def does" $?
done < <("$B/zeroute" --list settings)
while IFS=$'\t' read -r name _ help; do
    tr '\n' ' ' <man/zeroute-run.1 | grep -qF ".B $name ($help"
    promise "man/zeroute-run.1 describes the preset $name as settings.def does" $?
done < <("$B/zeroute" --list presets)
while IFS=$'\t' read -r name help; do
    grep -A1 -F ".BR zeroute\\-${name//-/\\-} (1)" man/zeroute.1 | grep -qxF "$help"
    promise "man/zeroute.1 lists $name as commands.def does" $?
    [ -f "man/zeroute-$name.1" ]
    promise "there is a man page for $name" $?
    "$B/zeroute" "$name" --help | grep -qi example
    promise "zeroute $name --help has examples" $?
done < <("$B/zeroute" --list commands)
for page in man/*.1; do
    grep -qx '.SH EXAMPLES' "$page"
    promise "$page has examples" $?
    if command -v man >/dev/null; then
        warnings=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l -E UTF-8 -Tutf8 -Z "$page" 2>&1 >/dev/null)
        [ -z "$warnings" ]
        promise "$page is clean roff: $warnings" $?
    fi
done
complete_for() {
    PATH="$PWD/$B:$PATH" bash -c 'source completion/zeroute.bash
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zeroute; echo "${COMPREPLY[*]}"' - "$@"
}
[[ $(complete_for zeroute r) == *run* ]]
promise "commands are completed" $?
[ "$(complete_for zeroute run --preset mi)" = mitigate ]
promise "presets are completed" $?
[ "$(complete_for zeroute run --residency o)" = owner ]
promise "values are completed" $?
[ "$(complete_for zeroute run --peer)" = --peer-callers ]
promise "settings are completed" $?

# Installed anywhere, the command finds what belongs to it, and others can build on the reader.
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
make -s install DESTDIR="$to" PREFIX=/opt/z B="$B" >/dev/null
promise "make install works" $?
[[ $("$to/opt/z/bin/zeroute" run -- sh -c 'echo $LD_PRELOAD') == "$to/opt/z/lib/zeroute/libzeroute.so" ]]
promise "the installed command finds the installed library" $?
cat >"$to/r.c" <<'E'
#include <stdio.h>
#include <zeroute/reader.h>
int main(void)
{
    struct zeroute_list *l = zeroute_list_new();
    puts(l ? "read" : "failed");
    zeroute_list_free(l);
    return 0;
}
E
${CC:-cc} -I"$to/opt/z/include" "$to/r.c" -o "$to/r" -L"$to/opt/z/lib" -lzeroute-reader && [ "$("$to/r")" = read ]
promise "a program of others builds on the installed reader" $?
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
