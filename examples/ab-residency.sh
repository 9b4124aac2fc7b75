#!/bin/sh
# The second mistake: a change of path was taken for the cure, when it was the residency that went with it.
# The program that is compared asks for no peer residency under route:sycl, as such a path would.
# The program that is compared is one of the tests': it is built first.
set -u
B=${B:-build}
make -s B="$B" all "$B/test/process/ab_work" || exit 1
card=devices:2,mirror:on
ab() {
    echo
    echo "\$ zeroute ab --primary host.mirror $* -- ab_work"
    "$B/zeroute" ab --sim=$card --runs 5 --primary host.mirror --same-output "$@" -- \
        "$B/test/process/ab_work" hold=100 sycl_drops=1
    echo "(exit code $?)"
}

echo "The mirror is gone under the other path, but residency changed with it: no verdict about the path."
ab --a route:native --b route:sycl
echo
echo "Residency alone: the difference, with its size."
ab --a residency:default --b residency:owner
