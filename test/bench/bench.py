"""What the benchmarks of this folder share: where things lie, the machine, tables of 80 columns, and goals."""

import os
import platform
import sys
import textwrap

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ZEROUTE_BUILD", os.path.join(TOP, "build"))
LIBRARY = os.path.join(BUILD, "libzeroute.so")


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def times(ratio):
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "?")
    print(f"{model}, {os.cpu_count()} processors, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")


def program(name):
    return os.path.join(BUILD, "bench", name)


def bed(on, cards=1, *options):
    """The first words of a command line that starts a program on this bed."""
    return [os.path.join(TOP, "tools", "bed", "bed"), "--on", on, "--cards", str(cards), *options]


def surroundings(conf, **more):
    """The environment of a program: without the preload (conf None), or under it with these settings."""
    env = dict(os.environ, **more)
    env.pop("LD_PRELOAD", None)
    if conf is not None:
        if not os.path.exists(LIBRARY):
            sys.exit(f"{LIBRARY} is missing: the dynamic linker would go on without it")
        env.update(LD_PRELOAD=LIBRARY, ZEROUTE_CONF=conf)
    return env


def in_turn(arms, turn):
    """The names in order, then backwards: what drifts with time hits all alike."""
    return list(arms) if turn % 2 == 0 else list(reversed(list(arms)))


def table(head, rows):
    """The first column to the left, the others to the right."""
    widths = [max(2, *(len(row[i]) for row in [head, *rows])) for i in range(len(head))]
    line = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in [head, line, *rows]:
        print("| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |")
    sys.stdout.flush()


def goal(what, short):
    """One line per goal, and below it where it is not reached (`short`); test/bench/run looks for these."""
    print(f"goal: {what}: " + ("NO" if short else "yes"))
    if short:
        print(textwrap.fill("; ".join(short), 80, initial_indent="  ", subsequent_indent="  "))
    sys.stdout.flush()
