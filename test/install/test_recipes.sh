#!/usr/bin/env bash
# The recipes: what can be run without Docker, Slurm or conda, is run.
set -u
cd "$(dirname "$0")/../.." || exit 1
. test/promise.sh
B=$(realpath "${B:-build}")
dir=$(mktemp -d) || exit 1
make -s B="$B" "$B/demo" || exit 1
trap 'rm -rf "$dir"' EXIT

the_page_shows_the_files_as_they_are() {
    python3 - doc/recipes.md examples/docker/Dockerfile examples/systemd/zeroute.conf examples/slurm/task-prolog \
        examples/conda/activate.sh <<'PY'
import sys
page = open(sys.argv[1]).read()
missing = [name for name in sys.argv[2:] if "\n" + open(name).read().rstrip("\n") + "\n```" not in page]
sys.exit(f"not as in the file: {missing}" if missing else 0)
PY
}
# FROM, ADD, RUN and COPY done by hand: the archive's tree at /opt/zeroute of another root, entered without privileges.
the_dockerfiles_steps_give_a_working_root() {
    grep -q '^ENV PATH=/opt/zeroute/bin' examples/docker/Dockerfile || return 1
    same "$(sed -n 's/^ADD \(.*\) .*/\1/p' examples/docker/Dockerfile)" \
        "zeroute-$(sed -n 's/^VERSION := //p' Makefile)-x86_64.tar.gz" || return 1
    unshare -rm true 2>/dev/null || { echo "no mount namespace to be had"; return 77; }
    flock "$B" make -s install DESTDIR="$dir/image" PREFIX=/opt/zeroute B="$B" || return 1
    cp "$B/demo" "$dir/image/opt/"
    unshare -rm sh -eu -c 'mount --bind "$1/image/opt" /opt; export PATH=/opt/zeroute/bin:$PATH
        lib=/opt/zeroute/lib/zeroute
        ZE_ENABLE_ALT_DRIVERS=$lib/libze_simgpu.so LD_PRELOAD=$lib/libzeroute.so ZEROUTE_CONF=preset:observe \
            sh -c "echo \$\$ >$1/pid; exec /opt/demo 1" >/dev/null
        zeroute stat --json "$(cat "$1/pid")"' - "$dir" >"$dir/stat.json" &&
        grep -q '"allocated_bytes.all.peak": [1-9]' "$dir/stat.json"
}
systemd_accepts_the_drop_in() {
    command -v systemd-analyze >/dev/null || { echo "no systemd-analyze"; return 77; }
    mkdir -p "$dir/units/demo.service.d"
    printf '[Unit]\nDescription=demo\n[Service]\nExecStart=/bin/true\n' >"$dir/units/demo.service"
    cp examples/systemd/zeroute.conf "$dir/units/demo.service.d/"
    same "$(SYSTEMD_UNIT_PATH="$dir/units:" systemd-analyze verify --recursive-errors=no \
        "$dir/units/demo.service" 2>&1)" ''
}
the_task_prolog_prints_exports_for_jobs_that_asked() {
    same "$(examples/slurm/task-prolog)" '' &&
        same "$(WITH_ZEROUTE=observe ZEROUTE_LIBRARY=$B/libzeroute.so LD_PRELOAD='' examples/slurm/task-prolog)" \
            "export LD_PRELOAD=$B/libzeroute.so"$'\n'"export ZEROUTE_CONF=preset:observe" &&
        same "$(WITH_ZEROUTE=observe ZEROUTE_LIBRARY=/nowhere examples/slurm/task-prolog)" ''
}
activation_sets_the_preload_and_deactivation_takes_it_back() {
    PYTHONPATH=$PWD/python PATH=$dir/bin:$PATH bash -eu -c 'mkdir "$1/bin"
        ln -s "$(command -v python3)" "$1/bin/python"
        . examples/conda/activate.sh; [[ $LD_PRELOAD == */libzeroute.so ]]
        . examples/conda/deactivate.sh; [ -z "${LD_PRELOAD+set}" ]
        export LD_PRELOAD=libm.so.6
        . examples/conda/activate.sh; [[ $LD_PRELOAD == */libzeroute.so:libm.so.6 ]]
        . examples/conda/deactivate.sh; [ "$LD_PRELOAD" = libm.so.6 ]' - "$dir"
}

promise "the page shows the files as they are" the_page_shows_the_files_as_they_are
promise "the Dockerfile's steps give a working root" the_dockerfiles_steps_give_a_working_root
promise "systemd accepts the drop-in" systemd_accepts_the_drop_in
promise "the task prolog prints exports for jobs that asked" the_task_prolog_prints_exports_for_jobs_that_asked
promise "activation sets the preload, deactivation takes it back" \
    activation_sets_the_preload_and_deactivation_takes_it_back
kept
