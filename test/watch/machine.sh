# shellcheck shell=bash
# A simulated machine with processes on it, for the suites of top and serve: its own ZEROUTE_ROOT, workers that wait on
# a pipe, and a server on a port of its own. Everything that was started is ended by `machine_end`.
Z=$PWD/${B:-build}/zeroute
work=$PWD/${B:-build}/test/process/run_work
dir=$(mktemp -d)
export ZEROUTE_ROOT=$dir/root ZE_ENABLE_ALT_DRIVERS=$PWD/${B:-build}/libze_simgpu.so
export ZE_SIMGPU=${ZE_SIMGPU:-devices:2,vram:16GiB}
unset CONTAINER_NAME POD_NAME POD_NAMESPACE RANK LOCAL_RANK "${!SLURM_@}" "${!PMI@}" "${!OMPI_@}" "${!TORCHELASTIC_@}"
mkdir "$ZEROUTE_ROOT"
"$Z" gc >/dev/null 2>&1 # what other suites have left would be counted
mkfifo "$dir/go"
exec 8<>"$dir/go"
started=()

# worker ARGUMENTS OF run_work...: in the background, under the preload. The environment is the caller's.
worker() {
    (
        export LD_PRELOAD=$PWD/${B:-build}/libzeroute.so
        exec -a run_work "$work" "$@" <"$dir/go" >>"$dir/ready" 2>>"$dir/errors"
    ) &
    started+=($!)
}

# Until so many have said that they are ready.
workers_ready() {
    until_true 30 eval "[ \$(grep -c ready $dir/ready 2>/dev/null) -ge $1 ]"
}

# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# serve OPTIONS...: sets $server (pid) and $url.
serve() {
    rm -f "$dir/serve" # of the last one
    "$Z" serve --listen 127.0.0.1:0 "$@" >"$dir/serve" 2>"$dir/serve.err" &
    server=$!
    started+=($server)
    until_true 10 grep -q http "$dir/serve" || { cat "$dir/serve.err"; return 1; }
    url=$(grep -oE 'http://[^/]*' "$dir/serve")
}

machine_end() {
    kill -KILL "${started[@]}" 2>/dev/null # unshare heeds no other signal
    { wait; } 2>/dev/null
    rm -rf "$dir"
}
trap machine_end EXIT
