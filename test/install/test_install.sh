#!/usr/bin/env bash
# make install, make uninstall, what others build on, and completion.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
make -s B="$B" "$B/demo" || exit 1
trap 'rm -rf "$dir"' EXIT
z=$dir/root/opt/z

all_files_of_the_list_are_there() {
    flock "$B" make -s install DESTDIR="$dir/root" PREFIX=/opt/z B="$B" || return 1
    local file
    while read -r file; do
        [ -e "$z/$file" ] || { echo "$file is missing"; return 1; }
    done < <(B=$B packaging/stage list)
    [ "$(B=$B packaging/stage list | wc -l)" -gt 15 ]
}
debug_symbols_lie_where_debuggers_look() {
    local file id
    for file in bin/zeroute lib/zeroute/libzeroute.so lib/libzeroute-reader.so.1; do
        ! readelf -S "$z/$file" | grep -q '\.debug_info' || { echo "$file is not stripped"; return 1; }
        id=$(readelf -n "$z/$file" | sed -n 's/.*Build ID: //p')
        readelf -S "$z/lib/debug/.build-id/${id:0:2}/${id:2}.debug" | grep -q '\.debug_info' || return 1
    done
}
the_command_finds_its_files_wherever_it_lies() {
    mv "$dir/root/opt" "$dir/elsewhere" || return 1
    same "$("$dir/elsewhere/z/bin/zeroute" run -- sh -c 'echo $LD_PRELOAD')" \
        "$dir/elsewhere/z/lib/zeroute/libzeroute.so" || return 1
    mv "$dir/elsewhere" "$dir/root/opt"
}
the_readers_symbols_have_versions() {
    local odd
    odd=$(nm -D --defined-only --with-symbol-versions "$z/lib/libzeroute-reader.so.1" | awk '{ print $3 }' |
        grep -vE '^(zeroute_[a-z_]+@@)?ZEROUTE_READER_1$')
    same "$odd" ''
}
a_program_builds_by_pkg_config() {
    export PKG_CONFIG_PATH=$z/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root
    # shellcheck disable=SC2046
    ${CC:-cc} examples/cmake/peaks.c -o "$dir/peaks" $(pkg-config --cflags --libs zeroute-reader) &&
        LD_LIBRARY_PATH=$z/lib "$dir/peaks"
}
a_program_builds_by_cmake() {
    command -v cmake >/dev/null || { echo "no cmake"; return 77; }
    export PKG_CONFIG_PATH=$z/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root
    cmake -S examples/cmake -B "$dir/cmake" && cmake --build "$dir/cmake" && "$dir/cmake/peaks"
}
nothing_is_left_after_uninstalling() {
    make -s uninstall DESTDIR="$dir/root" PREFIX=/opt/z B="$B" || return 1
    same "$(find "$z" -mindepth 1 ! -path "$z/bin" ! -path "$z/lib" ! -path "$z/include" ! -path "$z/share")" ''
}
files_of_others_stay() {
    flock "$B" make -s install DESTDIR="$dir/root" PREFIX=/opt/z B="$B" || return 1
    touch "$z/share/man/man1/other.1" "$z/lib/zeroute/kept"
    make -s uninstall DESTDIR="$dir/root" PREFIX=/opt/z B="$B" || return 1
    [ -e "$z/share/man/man1/other.1" ] && [ -e "$z/lib/zeroute/kept" ]
}

# --- the beds, from an installed zeroute -----------------------------------------------------------
the_installed_bed_runs_a_program() {
    flock "$B" make -s install DESTDIR="$dir/root" PREFIX=/opt/z B="$B" || return 1
    (cd / && XDG_CACHE_HOME=$dir/cache "$z/bin/zeroute" bed --cards 2 -- "$z/bin/zeroute" run --json "$dir/bed.json" \
        --no-summary -- "$OLDPWD/$B/demo" >/dev/null) && grep -q '"allocated_bytes.all.peak": [1-9]' "$dir/bed.json"
}
offline_brings_nothing() {
    local said code=0
    said=$(ZEROUTE_BEDS=$dir/empty "$z/bin/zeroute" bed --on intel --offline -- true 2>&1) || code=$?
    same $code 77 && [[ $said == *"nothing is downloaded offline"* ]] && [ ! -e "$dir/empty/unstable" ]
}
the_installed_bed_has_intels_driver() {
    local beds=${ZEROUTE_BEDS:-$PWD/build/beds}
    [ -e "$beds/unstable/packages" ] || { echo "the driver is not in $beds"; return 77; }
    ZEROUTE_BEDS=$beds "$z/bin/zeroute" bed --on intel --offline -- "$z/bin/zeroute" run --json "$dir/intel.json" \
        --no-summary -- "$PWD/$B/demo" 1 >/dev/null && grep -q '"allocated_bytes.all.peak": [1-9]' "$dir/intel.json"
}

# --- completion: asks the command for everything ---------------------------------------------------
in_bash() {
    PATH="$PWD/$B:$PATH" bash -c 'source completion/zeroute.bash
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zeroute; echo "${COMPREPLY[*]}"' - zeroute "$@"
}
# _describe prints what it would offer.
in_zsh() {
    PATH="$PWD/$B:$PATH" zsh -fc '_describe() { print -l -- ${(P)2}; }; _files() { print files; }
        _command_names() { print commands; }; _pids() { print pids; }; compdef() { :; }
        words=("$@"); CURRENT=$#; source completion/_zeroute' - zeroute "$@"
}
in_fish() {
    PATH="$PWD/$B:$PATH" fish --no-config -c "source completion/zeroute.fish; complete -C '$1'"
}
bash_completes() {
    [[ $(in_bash r) == *run* ]] && same "$(in_bash run --preset mi)" mitigate &&
        same "$(in_bash run --residency o)" owner && same "$(in_bash run --peer)" --peer-callers &&
        same "$(in_bash stat --js)" --json
}
zsh_completes() {
    command -v zsh >/dev/null || { echo "no zsh"; return 77; }
    zsh -n completion/_zeroute || return 1
    in_zsh '' | grep -q '^run:' && in_zsh run --preset '' | grep -q '^mitigate:' &&
        in_zsh run --residency '' | grep -qx owner && in_zsh stat --js | grep -q '^--json:'
}
fish_completes() {
    command -v fish >/dev/null || { echo "no fish"; return 77; }
    in_fish 'zeroute ru' | grep -q '^run' && in_fish 'zeroute run --preset ' | grep -q '^mitigate' &&
        in_fish 'zeroute run --residency ' | grep -q '^owner' && in_fish 'zeroute stat --js' | grep -q '^--json'
}
every_command_lists_its_options() {
    local command
    for command in $("$B/zeroute" --list commands | cut -f1); do
        "$B/zeroute" "$command" --list-options | grep -q '^--help' || { echo "$command does not"; return 1; }
    done
}
man_pages_are_clean() {
    local page said
    for page in man/*.1; do
        said=$(MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
        same "$page: $said" "$page: " || return 1
        command -v mandoc >/dev/null || continue
        said=$(mandoc -Tlint -W warning "$page")
        same "$page: $said" "$page: " || return 1
    done
}

promise "make install puts every file of the list in its place" all_files_of_the_list_are_there
promise "debug symbols lie where debuggers look for them" debug_symbols_lie_where_debuggers_look
promise "the installed command finds its files wherever it lies" the_command_finds_its_files_wherever_it_lies
promise "the reader exports versioned symbols only" the_readers_symbols_have_versions
promise "a program of others builds on the reader by pkg-config" a_program_builds_by_pkg_config
promise "the example builds with CMake" a_program_builds_by_cmake
promise "the installed bed runs a program on the simulated GPU" the_installed_bed_runs_a_program
promise "offline, a bed brings nothing and says so" offline_brings_nothing
promise "the installed bed runs a program on Intel's driver" the_installed_bed_has_intels_driver
promise "make uninstall leaves nothing" nothing_is_left_after_uninstalling
promise "make uninstall leaves other people's files alone" files_of_others_stay
promise "bash completes commands, options, presets and values" bash_completes
promise "zsh does" zsh_completes
promise "fish does" fish_completes
promise "every command lists its options" every_command_lists_its_options
promise "man and mandoc find nothing wrong with the man pages" man_pages_are_clean
kept
