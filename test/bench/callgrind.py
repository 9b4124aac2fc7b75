"""Instructions of libzeroute.so, as callgrind counts them: the same each time, whatever else the machine does."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from bench import BUILD, bed, program, surroundings


def need_valgrind():
    if not shutil.which("valgrind"):
        print("no valgrind here", file=sys.stderr)
        sys.exit(77)


def counted(conf, order):
    """The instructions executed in libzeroute.so while build/bench/entry carries out an order, on the simulated GPU."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        env = surroundings(conf, ZE_SIMGPU="vram:64GiB")
        env["LD_PRELOAD"] = os.path.join(BUILD, "bench", "libclock.so") + ":" + env["LD_PRELOAD"]
        command = bed("sim") + ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", program("entry")]
        done = subprocess.run(command, env=env, input=order + "\n", text=True, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.stdout != "done\n":
            sys.exit(f"entry: {done.stdout}{done.stderr}")
        with open(out, encoding="utf-8") as file:
            return of_library(file)


def of_library(file):
    """The sum of what stands under the object (its own instructions, not those of what it calls)."""
    names, total, ours, called = {}, 0, False, False
    for line in file:
        m = re.match(r"ob=\((\d+)\)(?: (.*))?", line)
        if m:
            if m[2]:
                names[m[1]] = m[2]
            ours = names[m[1]].strip().endswith("libzeroute.so")
        elif (m := re.match(r"cob=\((\d+)\) (.*)", line)):
            names[m[1]] = m[2]
        elif line.startswith("calls="):
            called = True  # the next line is the cost of the callee
        elif re.match(r"[+\-*\d]", line):
            if ours and not called:
                total += int(line.split()[1])
            called = False
    return total


def per_step(conf, order, few, many):
    """Instructions per step of an order that ends with their number."""
    return (counted(conf, f"{order} {many}") - counted(conf, f"{order} {few}")) / (many - few)
