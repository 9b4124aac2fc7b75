"""Allocates, fills and reads back device memory on every Level Zero device, by queues of its own; 1: data differ."""
import sys

import dpctl
import dpctl.memory as dpm
import numpy as np

blocks = []
for turn in range(2):
    for device in dpctl.get_devices(backend="level_zero"):
        queue = dpctl.SyclQueue(device)
        for size in (1 << 16, 1 << 20, 6 << 20):
            data = np.full(size, len(blocks) % 250 + 1, dtype=np.uint8)
            block = dpm.MemoryUSMDevice(size, queue=queue)
            block.copy_from_host(data)
            blocks.append((block, data))
wrong = 0
for block, data in blocks:
    back = np.zeros_like(data)
    block.copy_to_host(back)
    wrong += not np.array_equal(back, data)
print(len(blocks), "blocks,", wrong, "wrong")
sys.exit(wrong > 0 or not blocks)
