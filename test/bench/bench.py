"""What the benchmarks of this folder share: where things lie, the machine, goals, and build/bench.json."""

import json
import os
import platform
import sys

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ZEROUTE_BUILD", os.path.join(TOP, "build"))
RESULTS = os.path.join(BUILD, "bench.json")
PICTURE = os.path.join(BUILD, "bench.svg")


def size_text(size):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "?")
    return f"{model}, {os.cpu_count()} processors, Linux {platform.release()}"


def program(name):
    return os.path.join(BUILD, "bench", name)


def bed(on, cards=1, *options):
    """The first words of a command line that starts a program on this bed."""
    return [os.path.join(TOP, "test", "bed"), "--on", on, "--cards", str(cards), *options]


def surroundings(conf, **more):
    """The environment of a program: without the preload (conf None), or under it with these settings."""
    env = dict(os.environ, **more)
    env.pop("LD_PRELOAD", None)
    if conf is not None:
        env.update(LD_PRELOAD=os.path.join(BUILD, "libzeroute.so"), ZEROUTE_CONF=conf)
    return env


def in_turn(arms, turn):
    """The names in order, then backwards: what drifts with time hits all alike."""
    return list(arms) if turn % 2 == 0 else list(reversed(list(arms)))


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("| --- " * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def goal(what, short):
    """One line per goal; test/bench/run looks for these. `short` lists where it is not reached."""
    print(f"goal: {what}: " + ("yes" if not short else "NO: " + "; ".join(short)), flush=True)
    return not short


def results():
    try:
        with open(RESULTS, encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def save(name, figures):
    """Puts one benchmark's figures into build/bench.json, beside those of the others, and draws all of them."""
    known = {key: value for key, value in results().items() if isinstance(value, dict)}
    known[name] = dict(figures, machine=machine(), load=os.getloadavg()[0])
    with open(RESULTS, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    from picture import draw  # which needs this module

    if draw(known, PICTURE):
        print(f"\n{os.path.relpath(RESULTS)}, {os.path.relpath(PICTURE)}")
