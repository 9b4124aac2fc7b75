"""A program of dpctl's as a record sees it: nested calls, a generator, as many threads as it is told; prints its
process id."""

import os
import sys
import threading

import dpctl
import dpctl.memory as dpm

MIB = 1 << 20
queue = dpctl.SyclQueue("level_zero:gpu")


def weights():
    return dpm.MemoryUSMDevice(24 * MIB, queue=queue)  # weights


def activations(n):
    for _ in range(n):
        yield dpm.MemoryUSMDevice(12 * MIB, queue=queue)  # activations


def step():
    kept = list(activations(3))
    kept.append(dpm.MemoryUSMDevice(6 * MIB, queue=queue))  # scratch
    return len(kept)


model = weights()
for _ in range(5):
    step()
threads = [threading.Thread(target=step) for _ in range(int(sys.argv[1]))]
for t in threads:
    t.start()
    t.join()
print(os.getpid())
