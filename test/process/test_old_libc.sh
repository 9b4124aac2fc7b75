#!/usr/bin/env bash
# The library for other machines (packaging/portable) on the C library of Debian 11 (glibc 2.31): it loads, binds and
# counts.
# Tier: release.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
made=$B/test/old
libc=$(tools/bed/fetch.sh libc bullseye 2>/dev/null | tail -n 1)
[ -n "$libc" ] && [ -x "$libc/ld-linux-x86-64.so.2" ] || { echo "no Debian 11 libc to be had"; exit 77; }
mkdir -p "$made"
${MAKE:-make} -s B="$B" "$B/portable/libzeroute.so" || exit 1
${CC:-cc} -std=gnu11 -O1 -shared -fPIC -Wl,-soname,libze_loader.so.1 test/process/tiny_loader.c \
    -o "$made/libze_loader.so.1" &&
    ${CC:-cc} -std=gnu11 -O1 -fno-stack-protector -nostartfiles test/process/old_program.c -o "$made/program" \
        "$made/libze_loader.so.1" -Wl,--no-as-needed -l:libdl.so.2 &&
    ${CC:-cc} -std=gnu11 -O1 -shared -fPIC test/process/old_plugin.c -o "$made/libplugin.so" \
        -Wl,--no-as-needed -l:libdl.so.2 &&
    ${CC:-cc} -std=gnu11 -O1 -fno-stack-protector -nostdlib test/process/old_bare.c -o "$made/bare" \
        "$libc/libc.so.6" "$libc/ld-linux-x86-64.so.2" || exit 1

on_old() { # on_old PRELOAD [PROGRAM]: what the program prints there
    (exec "$libc/ld-linux-x86-64.so.2" --library-path "$libc:$made" ${1:+--preload "$1"} "$made/${2:-program}")
}
exec_old() { # under the process id of the shell
    exec "$libc/ld-linux-x86-64.so.2" --library-path "$libc:$made" --preload "$PWD/$B/portable/libzeroute.so" \
        "$made/program"
}
the_program_runs_there() {
    [ "$(on_old '')" = "$(printf 'plt 0x78000007\ndlsym 0x78000007')" ]
}
it_runs_there_with_us() {
    [ "$(on_old "$PWD/$B/portable/libzeroute.so" 2>&1)" = "$(on_old '')" ]
}
with_every_symbol_bound_at_start() {
    [ "$(LD_BIND_NOW=1 on_old "$PWD/$B/portable/libzeroute.so" 2>&1)" = "$(on_old '')" ]
}
libdl_may_come_late() {
    [ "$(on_old '' bare)" = "plugin 3" ] && [ "$(on_old "$PWD/$B/portable/libzeroute.so" bare 2>&1)" = "plugin 3" ]
}
both_calls_are_counted() {
    local pid json
    ZEROUTE_CONF=preset:observe exec_old >"$made/printed" &
    pid=$!
    wait $pid
    json=$("$B/zeroute" stat $pid --json) || { echo "no statistics of $pid: $json"; return 1; }
    grep -qE '"calls.zeMemFree.plt": ?1\b' <<<"$json" && grep -qE '"calls.zeMemFree.dlsym": ?1\b' <<<"$json" ||
        { echo "$json" | grep -o '"calls[^,]*: *[1-9][^,]*'; return 1; }
    rm -f /dev/shm/zeroute-*/$pid.*
}

promise "the program runs on Debian 11's libc" the_program_runs_there
promise "and with the preload" it_runs_there_with_us
promise "and with every symbol bound at start" with_every_symbol_bound_at_start
promise "a program without libdl may get it with a plugin of its libc" libdl_may_come_late
promise "both its calls are counted" both_calls_are_counted
kept
