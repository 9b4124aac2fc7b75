#!/bin/bash
# What `make lint` looks for is not there: lines that are too long, calls upward, assembly, and whatever cppcheck finds,
# without a suppression. And it is found where it is.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh
B=${B:-build}
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT

lint() {
    command -v cppcheck >/dev/null || {
        echo "no cppcheck here"
        return 77
    }
    make -s lint
}
promise "no line is longer than 120 columns" test/lint/columns
promise "src/ has 100 columns, one condition and one assignment at a time, and names of its own" test/lint/plain
promise "cppcheck finds nothing in the library and the tools" lint

# A copy of the sources in which rules are broken.
cp -r --parents src doc/architecture.md include tools/common test/lint examples completion setup "$to" || exit 1
mkdir -p "$to/build"
ln -s "$PWD/$B/lib" "$to/build/lib"

# finds FILE LINE [CHECK]: with this line at the end of the file, test/lint/CHECK (layers) fails and names the file.
finds() {
    local out code=0
    cp "$to/$1" "$to/whole" || return 1
    printf '%s\n' "$2" >>"$to/$1"
    out=$("$to/test/lint/${3:-layers}") || code=$?
    cp "$to/whole" "$to/$1"
    [ $code != 0 ] && grep -qF "$1" <<<"$out" || {
        echo "not found in $1: $2"
        return 1
    }
}
includes() {
    finds src/cache/map.c '#include "policy/policy.h"' && finds src/stats/stats.c '#include "driver/driver.h"' &&
        finds src/policy/room.c '#include "cache/fit.h"'
}
promise "an include upward, or of a private header, is found" includes
symbols() { # an object that calls upward, without an include
    rm "$to/build/lib" && cp -r "$B/lib" "$to/build/lib" &&
        echo 'void zr_policy_trim(unsigned n); void up(void); void up(void) { zr_policy_trim(0); }' |
        cc -x c -c - -o "$to/build/lib/src/cache/fit.o" && ! out=$("$to/test/lint/layers") &&
        grep -qF 'cache must not use zr_policy_trim of policy' <<<"$out"
    local code=$?
    rm -rf "$to/build/lib" && ln -s "$PWD/$B/lib" "$to/build/lib"
    return $code
}
promise "a call upward is found in the objects" symbols
assembly() {
    finds src/cache/map.c 'static void f(void) { __asm__ volatile("pause"); }' &&
        finds src/cache/map.c 'static void f(void) { asm("pause"); }' && finds src/hook/dlsym.c '__asm__("nop");' &&
        finds src/sycl/usm.def '__asm__("nop"); __asm__(".symver a, b@C");'
}
promise "assembly is found but in the tail jumps and in symbol versions" assembly
placement() {
    finds src/cache/map.c 'long f(void) { return syscall(SYS_membarrier, 8, 0); }' &&
        finds src/cache/map.c '__attribute__((section(".text.hot"))) void f(void);' &&
        finds src/cache/map.c '__attribute__((__section__(".text.hot"))) void f(void);' &&
        finds src/cache/map.c 'static __thread int x;' && finds src/cache/map.c 'static _Thread_local int x;'
}
promise "membarrier, sections and thread-local variables are found" placement
locks() { finds src/cache/fit.c 'static struct zr_lock lock;'; }
promise "a lock that is not in the table of locks is found" locks
namesakes() {
    cp "$to/src/cache/fit.h" "$to/src/policy/" && ! out=$("$to/test/lint/layers") && rm "$to/src/policy/fit.h" &&
        grep -qF 'there is src/' <<<"$out"
}
promise "a file of another process that is opened beside the helper is found" \
    finds tools/common/cards.c 'static const char *const path = "/proc/%d/maps";'
promise "two files of one name are found" namesakes
doors() {
    finds tools/common/text.c 'static int f(void) { return fork(); }' &&
        finds tools/common/text.c 'static FILE *f(void) { return fopen("x", "we"); }'
}
promise "a program that is started, or a file that is written, past the one door is found" doors
columns() { finds src/cache/map.c "/* $(printf 'x%.0s' {1..115}) */" columns; }
promise "a line of 121 columns is found" columns
plain() {
    finds src/cache/map.c "/* $(printf 'x%.0s' {1..95}) */" plain &&
        finds src/cache/map.c 'static int f(int a) { return a > 2 ? 1 : a > 1 ? 2 : 3; }' plain &&
        finds src/cache/map.c 'static int f(int a) { return a ? g(a > 1 ? 2 : 3) : 4; }' plain &&
        finds src/cache/map.c 'static void f(int a) { if ((a = g())) h(a); }' plain &&
        finds src/cache/map.c 'static void f(int a) { h(a = g()); }' plain &&
        finds src/cache/map.c 'static void f(int *a, int *b) { *(b ? a : b) = 1; }' plain &&
        finds src/cache/map.c 'static void f(int a, int b) { for (; a; a++, b++) h(); }' plain &&
        finds src/cache/map.c 'static void f(int a, int b) { a = 1, b = a; }' plain &&
        finds src/cache/map.c "static bool precedes(int a) { return a; }" plain &&
        ! finds src/cache/map.c 'static void f(int a) { while ((a = g(a ? 1 : 2, a ? 3 : 4))) h(a == 1); }' plain \
            >/dev/null &&
        ! finds src/cache/map.c 'static void f(int a) { int b = 1, c = *(a ? &b : &a); g(b, c); }' plain >/dev/null
}
promise "101 columns, conditions and assignments inside others, commas, and one name twice are found in src/" plain
kept
