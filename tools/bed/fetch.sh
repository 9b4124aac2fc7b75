#!/bin/bash
# Brings Debian packages into the beds' folder and unpacks them there; nothing is installed.
#
#   fetch.sh driver             Intel's driver, its loader, compiler, libc and libstdc++ (unstable)
#   fetch.sh loader NAME        one libze_loader.so.1; NAME is a row of tools/bed/versions
#   fetch.sh loaders            the names of that table with the suites they come from
#   fetch.sh headers            the newest Level Zero headers (unstable)
#   fetch.sh opencl             OpenCL: its loader, Intel's driver for it, and headers (unstable)
#   fetch.sh newest SUITE PACKAGE   the version that the archive has now; nothing is unpacked
#   fetch.sh libc SUITE         the C library of a suite, for tests on an old glibc
#   fetch.sh python 3.N         an interpreter with its headers (unstable); DIR/python starts it
#
# Prints the folder (for a loader: the file) on stdout, progress on stderr. Exit code 77: cannot be had
# here, with the reason. apt does the work, in a state folder of its own: it verifies the release's
# signature, the index against the release and each package against the index.
#
#   ZEROUTE_BEDS            where things are kept (build/beds)
#   ZEROUTE_DEBIAN_MIRROR   a Debian mirror, where the machine's apt configuration names none
#   ZEROUTE_BED_DRIVER      `fetched`: take unstable's driver although the machine has one
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
beds=${ZEROUTE_BEDS:-$top/build/beds}
triplet=x86_64-linux-gnu

loader_table() { awk '$1 == "loader" { print $2, $3 }' "$here/versions"; }

say() { echo "fetch: $*" >&2; }
skip() { say "skipped: $*"; exit 77; }

# The machine's own mirror: apt itself reads its configuration, whatever the format of the file.
mirror() {
    if [ -n "${ZEROUTE_DEBIAN_MIRROR:-}" ]; then
        echo "${ZEROUTE_DEBIAN_MIRROR%/}"
        return
    fi
    command -v apt-get >/dev/null || skip "this machine has no apt"
    local uri
    # shellcheck disable=SC2016
    uri=$({
        apt-get indextargets --format '$(REPO_URI)'
        # before the machine's first `apt-get update` it lists nothing
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} |
            grep -vE '^ *#' | grep -oE '[a-z+]+:[^] ]*//?[^] ]+'
    } 2>/dev/null | grep -E '/debian/?$' | head -n 1 || true)
    [ -n "$uri" ] || skip "the apt configuration names no Debian mirror; set ZEROUTE_DEBIAN_MIRROR"
    echo "${uri%/}"
}

keyring() {
    local f
    for f in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        if [ -r "$f" ]; then
            echo "$f"
            return
        fi
    done
}

# apt_of SUITE ARGS...: apt-get with a state of its own for one suite.
apt_of() {
    local suite=$1 state=$beds/apt/$1
    shift
    apt-get -qq -o "Dir::State=$state" -o "Dir::State::lists=$state/lists" \
        -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache" \
        -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false \
        -o Debug::NoLocking=1 "$@" 1>&2
}

update() {
    local suite=$1 state=$beds/apt/$1 from keys how
    from=$(mirror)
    keys=$(keyring)
    if [ -n "$keys" ]; then
        how=signed-by=$keys
    else
        say "no debian-archive-keyring here: checksums are checked, the release's signature is not"
        how=trusted=yes
    fi
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    : >"$state/status"
    echo "deb [arch=amd64 $how] $from $suite main" >"$state/sources.list"
    apt_of "$suite" -o APT::Update::Error-Mode=any update ||
        skip "the index of $suite cannot be had from the machine's mirror"
}

# unpack DIR DEB...: the libraries to DIR/lib, the C and C++ base to DIR/libc, uAPI headers to DIR/include.
unpack() {
    local dir=$1 deb name raw
    shift
    mkdir -p "$dir/lib" "$dir/libc"
    for deb in "$@"; do
        name=$(dpkg-deb -f "$deb" Package)
        echo "$name $(dpkg-deb -f "$deb" Version) $(sha256sum <"$deb" | cut -d' ' -f1)" >>"$dir/packages"
        raw=$dir/raw
        mkdir "$raw"
        dpkg-deb -x "$deb" "$raw"
        case $name in
        linux-libc-dev)
            mkdir -p "$dir/include"
            cp -a "$raw/usr/include/drm" "$dir/include/"
            ;;
        libze-dev)
            mkdir -p "$dir/include"
            cp -a "$raw/usr/include/level_zero" "$dir/include/"
            ;;
        opencl-c-headers)
            mkdir -p "$dir/include"
            cp -a "$raw/usr/include/CL" "$dir/include/"
            ;;
        libc6 | libc-gconv-modules-extra | libstdc++6 | libgcc-s1 | zlib1g)
            merge "$raw" "$dir/libc"
            ;;
        python3.* | libpython3.*)
            cp -a "$raw/usr" "$dir/"
            ;;
        *)
            merge "$raw" "$dir/lib"
            ;;
        esac
        rm -rf "$raw"
    done
}

# Older packages keep files in /lib, newer ones in /usr/lib.
merge() {
    local raw=$1 to=$2 from
    for from in "$raw/lib/$triplet" "$raw/usr/lib/$triplet"; do
        [ -d "$from" ] || continue
        cp -a "$from/." "$to/"
        # links of the -dev kind or to a place outside would dangle
        find "$to" -xtype l -delete
    done
    for from in "$raw/lib64/ld-linux-x86-64.so.2" "$raw/usr/lib64/ld-linux-x86-64.so.2"; do
        if [ -f "$from" ] && [ ! -e "$to/ld-linux-x86-64.so.2" ]; then
            cp "$from" "$to/ld-linux-x86-64.so.2"
        fi
    done
    rm -rf "$to/audit" "$to/pkgconfig"
}

# bring DIR SUITE deps|alone PACKAGE...: once, by one process at a time, seen by others only when whole.
bring() {
    local dir=$1 suite=$2 how=$3 temp state=$beds/apt/$2
    shift 3
    if [ -e "$dir/packages" ]; then
        return
    fi
    { mkdir -p "$beds" 2>/dev/null && [ -w "$beds" ]; } || skip "$beds cannot be written"
    exec 9>"$beds/.fetch.lock"
    flock 9
    if [ ! -e "$dir/packages" ]; then
        [ "${ZEROUTE_BED_OFFLINE:-}" != 1 ] || skip "$* of $suite: not in $beds yet, and nothing is downloaded offline"
        say "downloading $* of Debian $suite into $dir"
        command -v dpkg-deb >/dev/null || skip "this machine has no dpkg-deb"
        rm -rf "$beds"/.new.*
        update "$suite"
        temp=$(mktemp -d "$beds/.new.XXXXXX")
        # shellcheck disable=SC2064
        trap "rm -rf '$temp'" EXIT
        if [ "$how" = deps ]; then
            apt_of "$suite" -y --no-install-recommends --download-only install "$@" ||
                skip "packages of $suite cannot be had: $*"
            mv "$state"/cache/archives/*.deb "$temp/"
        else
            (cd "$temp" && apt_of "$suite" download "$@") ||
                skip "packages of $suite cannot be had: $*"
        fi
        mkdir "$temp/dir"
        unpack "$temp/dir" "$temp"/*.deb
        chmod -R a+rX "$temp/dir"
        mkdir -p "$(dirname "$dir")"
        rm -rf "$dir"
        mv -T "$temp/dir" "$dir"
        rm -rf "$temp" "$beds/apt/$suite"
        trap - EXIT
        say "done: $(cut -d' ' -f1,2 "$dir/packages" | paste -sd, | sed 's/,/, /g')"
    fi
    exec 9>&-
}

driver() {
    local own
    own=$(ldconfig -p 2>/dev/null | awk '/libze_intel_gpu\.so\.1 .*x86-64/ && !found++ { print $NF }')
    if [ -n "$own" ] && [ "${ZEROUTE_BED_DRIVER:-}" != fetched ]; then
        say "the machine's own driver is used: $own"
        echo system
        return
    fi
    bring "$beds/unstable" unstable deps \
        libze-intel-gpu1 libze1 libigc2 libigdgmm12 libc6 libstdc++6 linux-libc-dev
    echo "$beds/unstable"
}

# Loaders that no reachable distribution has (1.16.1 is Ubuntu 24.04's): used where somebody has put one.
own_loader() {
    [ -e "$beds/loader/$1/lib/libze_loader.so.1" ] ||
        skip "loader $1 is in no reachable archive; put one into $beds/loader/$1/lib"
}

loader() {
    local suite
    suite=$(loader_table | awk -v n="$1" '$1 == n { print $2 }')
    [ -n "$suite" ] || {
        say "no loader of the name $1; known: $(loader_table | cut -d' ' -f1 | paste -sd' ')"
        exit 2
    }
    if [ "$suite" = own ]; then
        own_loader "$1"
    else
        bring "$beds/loader/$1" "$suite" alone libze1
    fi
    echo "$beds/loader/$1/lib/libze_loader.so.1"
}

# Of the driver's version: both come from one source package.
opencl() {
    bring "$beds/opencl" unstable alone intel-opencl-icd ocl-icd-libopencl1 opencl-c-headers
    echo "$beds/opencl"
}

libc() {
    bring "$beds/libc/$1" "$1" alone libc6 libgcc-s1
    echo "$beds/libc/$1/libc"
}

# Started through the C library that it was built for: the machine's own may be older.
python() {
    local dir=$beds/python$1
    bring "$dir" unstable alone "python$1-minimal" "libpython$1-minimal" "libpython$1-stdlib" "libpython$1-dev" \
        libexpat1 libffi8 zlib1g libc6 libgcc-s1
    if [ ! -x "$dir/python" ]; then
        cat >"$dir/python.$$" <<END
#!/bin/sh
export PYTHONHOME="$dir/usr"
exec "$dir/libc/ld-linux-x86-64.so.2" --library-path "$dir/libc:$dir/lib" "$dir/usr/bin/python$1" "\$@"
END
        chmod +x "$dir/python.$$"
        mv "$dir/python.$$" "$dir/python"
    fi
    echo "$dir"
}

case ${1:-} in
driver) driver ;;
loader) loader "${2:?loader NAME}" ;;
loaders) loader_table ;;
newest)
    beds=$(mktemp -d)
    trap 'rm -rf "$beds"' EXIT
    update "${2:?newest SUITE PACKAGE}"
    (cd "$beds" && apt_of "$2" download --print-uris "${3:?newest SUITE PACKAGE}" 2>&1) |
        sed -n "s/^'.*' ${3}_\\([^_]*\\)_[a-z0-9]*\\.deb .*/\\1/p" | sed 's/%3a/:/'
    ;;
headers)
    bring "$beds/headers" unstable alone libze-dev
    echo "$beds/headers/include"
    ;;
opencl) opencl ;;
libc) libc "${2:?libc SUITE}" ;;
python) python "${2:?python 3.N}" ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
