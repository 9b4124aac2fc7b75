#!/bin/sh
# The first mistake: a host mirror was reported as a fault of the SYCL path, and the report withdrawn, because the
# driver had changed with the path. Here on a simulated machine with two cards and two driver versions.
# The program that is compared is one of the tests': it is built first.
set -u
B=${B:-build}
make -s B="$B" all "$B/test/process/ab_work" || exit 1
program="$B/test/process/ab_work hold=100"
old=env:ZE_SIMGPU=devices:2,mirror:off,version:1.3.32567
new=env:ZE_SIMGPU=devices:2,mirror:on,version:1.6.33000
ab() {
    echo
    echo "\$ zeroute ab --primary host.mirror $* -- ab_work"
    # shellcheck disable=SC2086 # the program has arguments
    "$B/zeroute" ab --sim --runs 5 --primary host.mirror "$@" -- $program
    echo "(exit code $?)"
}

echo "Path and driver changed together: no verdict, and why."
ab --a "route:native,$old" --b "route:sycl,$new"
echo
echo "The path alone: no difference."
ab --a "route:native,$new" --b "route:sycl,$new"
echo
echo "The driver alone: the difference, with its size."
ab --a "$old" --b "$new"
