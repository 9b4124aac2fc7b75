#!/usr/bin/env bash
# The Debian packages: built, read by lintian, unpacked and used. With LONG=1 they are also
# installed, tried by their autopkgtest and purged in fresh roots of Debian 12 and 13.
# Tier: release.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'umount -q "$dir"/root-*/proc 2>/dev/null; rm -rf "$dir"' EXIT
for need in dpkg-buildpackage dh lintian; do
    command -v $need >/dev/null || { echo "no $need"; exit 77; }
done
version=$(sed -n 's/^VERSION := //p' Makefile)
debs=$B/dist/deb

the_versions_agree() {
    same "$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" "$version" && grep -q "^## \[$version\]" CHANGELOG.md
}
the_packages_are_built() {
    packaging/deb "$B/dist" || return 1
    local name
    for name in zeroute zeroute-simgpu libzeroute-dev libzeroute-reader1; do
        [ -f "$debs/${name}_${version}_amd64.deb" ] || { echo "no $name"; return 1; }
    done
}
lintian_is_content() {
    same "$(lintian --fail-on none "$debs"/*.changes 2>&1 | grep -E '^[EW]:')" ''
}
they_work_where_they_are_unpacked() {
    local deb
    for deb in "$debs"/zeroute_*.deb "$debs"/zeroute-simgpu_*.deb; do
        dpkg-deb -x "$deb" "$dir/unpacked" || return 1
    done
    PYTHONPATH=$PWD/test/install "$dir/unpacked/usr/bin/zeroute" run --sim --json "$dir/run.json" -- \
        python3 -c 'import device; device.free(device.allocate(8 << 20))' &&
        grep -q '"allocated_bytes.all.peak": 8388608' "$dir/run.json"
}

# in_root SUITE: a fresh root, the packages installed from files, their autopkgtest, purged.
in_root() {
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || { echo "needs root and debootstrap"; return 77; }
    local root=$dir/root-$1 mirror
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | head -n 1)
    debootstrap --variant=minbase "$1" "$root" "$mirror" >"$dir/log" 2>&1 || { tail -n 5 "$dir/log"; return 77; }
    mount -t proc proc "$root/proc" && mkdir -p "$root/source/examples" && cp "$debs"/*.deb "$root/source/" &&
        cp examples/demo.c "$root/source/examples/" && cp debian/tests/first-look "$root/source/" || return 1
    find "$root/usr" "$root/etc" | sort >"$dir/before"
    chroot "$root" sh -eu -c '
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q update
        apt-get -qy --no-install-recommends install gcc libc6-dev libze-dev pkg-config /source/*.deb
        ZEROUTE_SOURCE=/source sh /source/first-look
        apt-get -qy purge zeroute zeroute-simgpu libzeroute-dev libzeroute-reader1 "*-dbgsym"' >"$dir/log" 2>&1 ||
        { tail -n 20 "$dir/log"; return 1; }
    same "$(find "$root" -xdev -path '*zeroute*' ! -path "$root/source*" ! -path "$root/var/cache*")" ''
}

promise "the versions of Makefile, CHANGELOG and package agree" the_versions_agree
promise "dpkg-buildpackage builds the packages" the_packages_are_built
promise "lintian has neither errors nor warnings" lintian_is_content
promise "the packages work where they are unpacked" they_work_where_they_are_unpacked
[ -z "${LONG:-}" ] || promise "installed, used and purged in Debian 12" in_root bookworm
[ -z "${LONG:-}" ] || promise "installed, used and purged in Debian 13" in_root trixie
kept
