"""Processes that take orders (build/bench/entry): one per setting, measured in turn, a few milliseconds each."""

import statistics
import subprocess
import sys

from bench import bed, in_turn, program, surroundings

VRAM = "vram:4TiB"  # a thousand blocks of any size fit; they are never touched
SLICES = 3


class Arm:
    """A process that takes orders."""

    def __init__(self, on, cards, conf, counts):
        line, more = [], {"ZE_SIMGPU": VRAM, "XE_STANDIN": VRAM, "XE_STANDIN_COUNTS": counts}
        if on == "null":
            more["ZE_ENABLE_ALT_DRIVERS"] = program("libze_null.so")
        else:
            line = bed(on, cards)
        self.counts = counts
        self.process = subprocess.Popen(line + [program("entry")], env=surroundings(conf, **more), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(self.process.wait() or 1)
        return answer

    def buffers(self):
        """Buffers that the kernel was asked for so far; only the stand-in tells."""
        try:
            with open(self.counts, encoding="ascii") as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("gem_create "))
        except OSError:
            return 0

    def close(self):
        self.process.stdin.close()
        if self.process.wait():
            sys.exit(self.process.returncode)


def measure(arms, pattern, size, threads, medians):
    """ns of each arm, and how often the driver alone asked the kernel for memory, per allocation."""
    for name, arm in arms.items():
        if arm.ask(f"begin {pattern} {size} {threads}") != ["ready"]:
            sys.exit(f"entry: {name}: {pattern} of {size} bytes do not fit")
    best, asked, steps = {}, -arms["driver"].buffers(), 0
    for _ in range(medians):
        slices = {name: [] for name in arms}
        for turn in range(SLICES):
            for name in in_turn(arms, turn):
                ns, count = arms[name].ask("slice")
                slices[name].append(float(ns))
                steps += int(count) * threads if name == "driver" else 0
        for name, values in slices.items():
            best[name] = min(statistics.median(values), best.get(name, 1e18))
    asked += arms["driver"].buffers()
    for arm in arms.values():
        arm.ask("end")
    return dict(best, kernel=asked / steps)
