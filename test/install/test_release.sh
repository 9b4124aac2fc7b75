#!/usr/bin/env bash
# What a release consists of: the source archive, the version, and the files for GitHub.
# Tier: release.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=${B:-build}
beds=$(realpath -m "${ZEROUTE_BEDS:-$B/beds}")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
version=$(sed -n 's/^VERSION := //p' Makefile)
source_name=zeroute-$version

# A clone has git; an archive has not, and nothing may ask for it there. The long run passes its tests as well.
the_source_archive_builds_and_tests_by_itself() {
    git rev-parse -q --verify HEAD >/dev/null || { echo "no git here"; return 77; }
    make -s dist B="$B" >/dev/null && cp "$B/dist/$source_name.tar.gz" "$dir/first.tar.gz" &&
        make -s dist B="$B" >/dev/null && cmp "$B/dist/$source_name.tar.gz" "$dir/first.tar.gz" || return 1
    tar -xzf "$dir/first.tar.gz" -C "$dir" && cd "$dir/$source_name" || return 1
    local target=build/test/unit/config suites=unit/config
    [ "${LONG:-}" != 1 ] || { target=tests suites=unit/; }
    make -s -j2 all "$target" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; return 1; }
    env -u GIT_DIR test/run "$suites" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log"; return 1; }
}
version_says_what_it_is_made_of() {
    local said
    said=$("$B/zeroute" --version --verbose) || return 1
    same "${said%%$'\n'*}" "zeroute $version" &&
        grep -qE '^command: +build id [0-9a-f]{16,}, glibc 2\.[0-9]+' <<<"$said" &&
        grep -qE '^preload: +build id [0-9a-f]{16,}, glibc 2\.28 or later$' <<<"$said" &&
        grep -q '^features: ' <<<"$said" && grep -qE '^libraries: .*jansson 2' <<<"$said"
}
the_changelog_has_the_form_of_keep_a_changelog() {
    local odd
    odd=$(grep -E '^## ' CHANGELOG.md | grep -vE '^## \[(Unreleased|[0-9.]+)\]( - [0-9]{4}-[0-9]{2}-[0-9]{2})?$'
        grep -E '^### ' CHANGELOG.md | grep -vE '^### (Added|Changed|Deprecated|Removed|Fixed|Security)$')
    same "$odd" ''
}
# check-jsonschema carries GitHub's own schemas.
the_files_for_github_follow_their_schemas() {
    local check=$beds/schemas/bin/check-jsonschema
    [ -x "$check" ] || { python3 -m venv "$beds/schemas" &&
        "$beds/schemas/bin/pip" install -q --disable-pip-version-check check-jsonschema; } >/dev/null 2>&1 ||
        { rm -rf "$beds/schemas"; echo "check-jsonschema cannot be had from PyPI"; return 77; }
    "$check" --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/github-workflow.yml
}

promise "make dist gives the same bytes twice, builds and tests by itself" \
    the_source_archive_builds_and_tests_by_itself
promise "--version --verbose says what the build is made of" version_says_what_it_is_made_of
promise "the changelog has the form of Keep a Changelog" the_changelog_has_the_form_of_keep_a_changelog
promise "the files for GitHub follow their schemas" the_files_for_github_follow_their_schemas
kept
