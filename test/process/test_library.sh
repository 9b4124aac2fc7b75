#!/usr/bin/env bash
# What the library asks of a system, what it exports, and what it costs a process that has no GPU.
# Tier: check.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
lib=$B/libzeroute.so
export LC_ALL=C

defined_names() {
    sed -n 's/^ZR_\(ENTRY\|PASS\|MAKES\)(\([A-Za-z0-9]*\),.*/\2/p' src/base/entries.def
    sed -n 's/^ZR_TABLE([A-Za-z]*, \([A-Za-z0-9]*\),.*/\1/p' src/base/tables.def
}
exported() { readelf --dyn-syms -W "$lib" | awk '$7 != "UND" && $4 == "FUNC" {print $8}'; }
if [ "${1:-}" = --exports ]; then
    exported | sort >test/process/exports
    exit
fi

# Every name of the tables is exported as a hidden version, dlsym and dlopen in two; of the rest only what a table has.
exports_are_what_the_tables_say() {
    local missing
    [ "$(defined_names | wc -l)" -gt 50 ] || { echo "the tables are not understood"; return 1; }
    missing=$(comm -23 <(defined_names | sed 's/$/@ZEROUTE_0/' | sort) <(exported | sort))
    [ -z "$missing" ] || { echo "missing: $missing"; return 1; }
    local name
    # zeroute_mark is for programs to find; everything else is a hidden version.
    for name in $(exported | grep -vxE 'dl(sym|open)@(@GLIBC_2\.34|GLIBC_2\.2\.5)|zeroute_mark@@ZEROUTE_1'); do
        case $name in *@@*) echo "not hidden: $name"; return 1 ;; esac
        case $name in _ZN4sycl* | _ZNK4sycl*) continue ;; esac
        case $name in *@UMF_*) grep -q "^VERSIONS(${name%@*}, " src/sycl/umf.c && continue ;; esac
        grep -qw "${name%@ZEROUTE_0}" src/*/*.def || { echo "in no table: $name"; return 1; }
    done
    for name in dlsym dlopen; do
        exported | grep -qx "$name@@GLIBC_2.34" && exported | grep -qx "$name@GLIBC_2.2.5" || return 1
    done
}

# The trick of hook/hooks.c holds for version index 2 alone.
the_exports_have_version_index_2() {
    readelf -V "$lib" | grep -q 'Index: 2 .*Name: ZEROUTE_0'
}

no_symbol_is_newer_than_glibc_2_28() {
    local newest
    newest=$(readelf -V "$lib" | sed -n '/version_r/,$p' | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
    [ -n "$newest" ] && [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || {
        echo "needs $newest"
        return 1
    }
}

it_needs_libc_alone() {
    local needed
    needed=$(readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
    [ "$needed" = "libc.so.6 " ] || { echo "needs: $needed"; return 1; }
}

# A process without a GPU: no file but the library, no segment, no thread.
true_opens_nothing_else() {
    command -v strace >/dev/null || { echo "no strace"; return 77; }
    local with without
    without=$(strace -f -o /dev/stdout -e trace=openat,open,memfd_create,clone,clone3 /bin/true |
        grep -oE '"[^"]+"|clone3?\(' | sort -u)
    with=$(LD_PRELOAD="$PWD/$lib" strace -f -o /dev/stdout -e trace=openat,open,memfd_create,clone,clone3 /bin/true |
        grep -oE '"[^"]+"|clone3?\(' | sort -u)
    local more
    grep -q '/libzeroute\.so"' <<<"$with" || { echo "it was not loaded"; return 1; }
    more=$(comm -13 <(echo "$without") <(echo "$with") | grep -v '/libzeroute\.so"')
    [ -z "$more" ] || { echo "opens $more"; return 1; }
}

# What is resolved at start and then read-only, and no stack that could be executed.
it_is_hardened() {
    local headers dynamic
    headers=$(readelf -lW "$1") && dynamic=$(readelf -d "$1") || return 1
    grep -q GNU_RELRO <<<"$headers" || { echo "no relro"; return 1; }
    grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$dynamic" || { echo "not bound at start"; return 1; }
    grep -qE 'GNU_STACK .* RW ' <<<"$headers" || { echo "an executable stack, or none named"; return 1; }
    ! grep -q TEXTREL <<<"$dynamic" || { echo "text relocations"; return 1; }
}

exports_are_the_kept_ones() {
    diff <(exported | sort) test/process/exports || {
        echo "if that is meant: test/process/test_library.sh --exports"
        return 1
    }
}

promise "the preload is hardened" it_is_hardened "$lib"
promise "the command is hardened" it_is_hardened "$B/zeroute"
promise "exports are the kept ones" exports_are_the_kept_ones
promise "exports are what the tables say" exports_are_what_the_tables_say
promise "exports have version index 2" the_exports_have_version_index_2
promise "no symbol is newer than glibc 2.28" no_symbol_is_newer_than_glibc_2_28
promise "it needs libc alone" it_needs_libc_alone
promise "/bin/true opens nothing else" true_opens_nothing_else
kept
