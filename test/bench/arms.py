"""Processes that take orders, one per setting: measured in turn, a few milliseconds each."""

import statistics
import subprocess
import sys

from bench import bed, in_turn, program, surroundings

VRAM = "vram:4TiB"  # a thousand blocks of any size fit; they are never touched
SLICES = 3


class Arm:
    """A process that answers each line with one line of its own."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(command, env=env, text=True, bufsize=1, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, order):
        self.process.stdin.write(order + "\n")
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(self.process.wait() or 1)
        return answer

    def close(self):
        self.process.stdin.close()
        if self.process.wait():
            sys.exit(self.process.returncode)


def entry_arms(on, cards, settings):
    """build/bench/entry on a bed, once per setting."""
    return {name: Arm(bed(on, cards) + [program("entry")], surroundings(conf, ZE_SIMGPU=VRAM, XE_STANDIN=VRAM))
            for name, conf in settings.items()}


def close(arms):
    for arm in arms.values():
        arm.close()


def measure(arms, pattern, size, threads, medians):
    """ns per allocation and free, of each arm the lowest of several medians."""
    for name, arm in arms.items():
        if arm.ask(f"begin {pattern} {size} {threads}") != ["ready"]:
            sys.exit(f"entry: {name}: {pattern} of {size} bytes do not fit")
    lowest = dict.fromkeys(arms, 1e18)
    for _ in range(medians):
        slices = {name: [] for name in arms}
        for turn in range(SLICES):
            for name in in_turn(arms, turn):
                slices[name].append(float(arms[name].ask("slice")[0]))
        for name, values in slices.items():
            lowest[name] = min(statistics.median(values), lowest[name])
    for arm in arms.values():
        arm.ask("end")
    return lowest
