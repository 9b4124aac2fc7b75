#!/bin/bash
# Brings UMF's library (and the libhwloc that it needs) from PyPI into the beds' folder, once; prints the folder.
# Exit code 77: cannot be had here, with the reason.
set -eu
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
to=${ZEROUTE_BEDS:-$top/build/beds}/umf
if [ ! -e "$to/ready" ]; then
    mkdir -p "$to"
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$to" umf==1.2.0 tcmlib==1.6.0 >&2 ||
        { echo "umf: skipped: PyPI cannot be reached" >&2; exit 77; }
    for wheel in "$to"/*.whl; do
        python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$wheel" "$to/wheel"
    done
    mkdir -p "$to/lib"
    find "$to/wheel" \( -name 'libumf.so.1*' -o -name 'libhwloc.so.15*' \) -exec cp -P {} "$to/lib" \;
    touch "$to/ready"
fi
echo "$to"
