"""check_training.py RECORD THREADS SEGMENT: what a record says of training.py. SEGMENT: the peak that the segment has,
which is exact without threads."""

import sys

from record import Record

r = Record(sys.argv[1])
peak, _, odd = r.peak()
threads, segment = int(sys.argv[2]), int(sys.argv[3])
wrong = []
if (peak != segment and not threads) or odd or peak < 66 << 20 or peak > segment:
    wrong.append(f"peak {peak}, that of the segment {segment}; {odd} odd events")
with open("test/record/training.py", encoding="utf-8") as text:
    lines = text.read().splitlines()
wanted = {name: n for n, line in enumerate(lines, 1) for name in [line.split("# ")[-1]] if "  # " in line}
for size, place, count in ((24 << 20, "weights", 1), (12 << 20, "activations", 15 + 3 * threads),
                           (6 << 20, "scratch", 5 + threads)):
    events = [e for e in r.events if e.type == "ALLOC" and e.kind == "device" and e.size == size]
    if len(events) != count:
        wrong.append(f"{len(events)} allocations of {size}, not {count}")
    for e in events:
        frames = [(name, line) for file, name, line, _ in r.lines(e.stack) if file.endswith("training.py")]
        if not frames or frames[0][1] != wanted[place]:
            wrong.append(f"{place}: {frames}, not line {wanted[place]}")
        if place != "weights" and "step" not in [name for name, _ in frames]:
            wrong.append(f"{place}: no step in {frames}")
print(f"{len(r.events)} events, {len(r.stack)} stacks, {len(r.code)} code objects, {r.texts.get('python')}")
print("\n".join(wrong[:5]))
sys.exit(len(wrong) != 0)
