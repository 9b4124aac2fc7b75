#!/bin/bash
# Storms of processes, threads, signals and kills with busy threads beside them (prog_storm.c): nothing hangs, the
# program ends as without us, and its books say what it did. LONG=1: as often as doc/promises.md says.
# Tier: storm, first.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. test/promise.sh
B=${B:-build}
storm=$PWD/$B/test/process/storm zeroute=$PWD/$B/zeroute
export ZE_ENABLE_ALT_DRIVERS=$PWD/$B/libze_simgpu.so ZE_SIMGPU=devices:2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
if [ -n "${LONG:-}" ]; then
    forks=2500 cycles=100 kills=1000 seconds=1800
else
    forks=40 cycles=20 kills=25 seconds=300
fi

# The storm as a process of its own: the books of its pid, not those of its children.
storms() { # KIND PRESET TIMES
    local made said
    made=$(LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=preset:$2 timeout $seconds bash -c \
        'echo $$ >"$0/pid"; exec "$1" "$2" "$3"' "$dir" "$storm" "$1" "$3" 2>"$dir/said") ||
        { echo "exit code $?: $(tail -n 3 "$dir/said")"; return 1; }
    same "$(cat "$dir/said")" '' || return 1
    said=$("$zeroute" stat --json "$(cat "$dir/pid")") || { echo "no segment of the parent"; return 1; }
    echo "$said" >"$dir/json"
    same "$(field "$dir/json" allocated_bytes.all.current allocation.all.allocated)" "0 $made" || return 1
    "$zeroute" gc >/dev/null
}
tried() { # WHAT TIMES
    echo "tried: $2 x $1, with 4 busy threads"
}
for preset in observe reroute; do
    for kind in fork vfork spawn daemon; do
        promise "$kind, $preset" storms $kind $preset $forks
        tried "$kind, $preset" $forks
    done
    for kind in signal cancel dlclose; do
        promise "$kind, $preset" storms $kind $preset $cycles
        tried "$kind, $preset" $cycles
    done
done

# Python's multiprocessing, by fork and by spawn, in a process that has used a GPU and has threads at work.
cat >"$dir/workers.py" <<'P'
import ctypes, multiprocessing, sys, threading
def refused():
    ze = ctypes.CDLL("libze_loader.so.1")
    assert sys.argv[1] == "fork" or ze.zeInit(0) == 0
    assert ze.zeMemFree(None, None) != 0
if __name__ == "__main__":
    ze = ctypes.CDLL("libze_loader.so.1")
    assert ze.zeInit(0) == 0
    over = threading.Event()
    def busy():
        while not over.is_set():
            ze.zeMemFree(None, None)
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for t in threads:
        t.start()
    context = multiprocessing.get_context(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        p = context.Process(target=refused)
        p.start()
        p.join(60)
        assert p.exitcode == 0, p.exitcode
    over.set()
P
multiprocessing() { # METHOD PRESET TIMES
    local code=0
    LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=preset:$2 timeout $seconds \
        python3 "$dir/workers.py" "$1" "$3" >"$dir/out" 2>&1 || code=$?
    [ $code = 0 ] || { echo "exit code $code"; tail -n 5 "$dir/out"; }
    "$zeroute" gc >/dev/null
    return $code
}
for preset in observe reroute; do
    for method in fork spawn; do
        promise "multiprocessing by $method, $preset" multiprocessing $method $preset $((cycles / 2))
        echo "tried: $((cycles / 2)) x multiprocessing by $method, $preset, with 2 busy threads"
    done
done

# kill -9 at any instant, while readers run: they never fail, hang or show a figure that cannot be, and the next gc
# leaves nothing behind.
killed() { # PRESET TIMES
    local i pid reader bad=0 pids=()
    (
        while [ ! -e "$dir/stop" ]; do
            timeout 60 "$zeroute" stat --prometheus >"$dir/figures" 2>"$dir/complaint" ||
                echo "stat failed: $?" >>"$dir/bad"
            # Nothing is below zero, and nobody has a hundred petabytes.
            grep -E '^[a-z_]+(\{.*\})? (-[0-9]|[0-9]{18})' "$dir/figures" >>"$dir/bad"
        done
    ) &
    reader=$!
    for ((i = 0; i < $2; i++)); do
        LD_PRELOAD=$PWD/$B/libzeroute.so ZEROUTE_CONF=preset:$1 "$storm" spawn 1000000 >/dev/null 2>&1 &
        pid=$!
        pids+=("$pid")
        sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
        kill -9 $pid
        wait $pid 2>/dev/null
    done
    touch "$dir/stop"
    wait $reader
    rm -f "$dir/stop"
    [ ! -s "$dir/bad" ] || { head -n 5 "$dir/bad"; bad=1; }
    "$zeroute" gc >/dev/null || bad=1
    local file left=0
    for pid in "${pids[@]}"; do
        for file in /dev/shm/zeroute-*/"$pid".*; do
            [ ! -e "$file" ] || left=$((left + 1))
        done
    done
    [ $left = 0 ] || { echo "left behind: $left"; bad=1; }
    return $bad
}
for preset in observe reroute; do
    promise "kill -9, $preset" killed $preset $kills
    echo "tried: $kills x kill -9 at a random instant, $preset, while a reader runs"
done
kept
