"""Allocates through dpctl's queues and keeps books, as torchlike.cpp does: for runtimes without headers."""
import os
import subprocess
import sys

import dpctl
import dpctl.memory as dpm
import numpy as np

MIB = 1 << 20
devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
context = dpctl.SyclContext(devices)
queues = [dpctl.SyclQueue(context, d) for d in devices]
held = [[] for _ in queues]
calls = {"asked": 0, "freed": 0}


def books(act):
    live = " ".join(str(sum(m.nbytes for m in blocks)) for blocks in held)
    print("books", act, calls["asked"], 0, calls["freed"], live, flush=True)
    if os.environ.get("ZEROUTE_STAT"):
        subprocess.run(os.environ["ZEROUTE_STAT"].split() + [str(os.getpid()), act], check=True)


def free(blocks):
    calls["freed"] += len(blocks)
    blocks.clear()


books("start")
pattern = np.arange(20 * MIB // 4, dtype=np.uint32).view(np.uint8)
for queue, blocks in zip(queues, held):
    for size in (2 * MIB, 20 * MIB, 2 * MIB, 34 * MIB, 20 * MIB):
        blocks.append(dpm.MemoryUSMDevice(size, queue=queue))
        calls["asked"] += 1
books("tensors")
back = np.zeros(pattern.nbytes, dtype=np.uint8)
held[0][1].copy_from_host(pattern)
held[-1][4].copy_from_device(held[0][1])
held[-1][4].copy_to_host(back)
right = np.array_equal(pattern, back)
books("copies")
for blocks in held:
    free(blocks)
books("end")
sys.exit(not right)
