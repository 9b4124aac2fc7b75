"""A random sequence of SYCL memory operations by dpctl, one line of text for each: what was asked and what
came back, without addresses. The same seed gives the same operations whatever the answers are.

  usm.py --seed N [--count N] [--only FIRST-LAST,...]
"""

import argparse
import random
import threading

import dpctl
import dpctl.memory

KINDS = ["Device", "Device", "Device", "Shared", "Host"]
SIZES = [0, 1, 7, 512, 4096, 65536, 65537, 1 << 20, 2 << 20, (2 << 20) + 1, 4 << 20, 20 << 20, 64 << 20, 100 << 20]
ALIGNMENTS = [0, 0, 0, 64, 512, 4096, 65536, 1 << 20, 2 << 20, 8 << 20, 3]
SLOTS = 16
SAMPLE = 1 << 16


class Bed:
    def __init__(self):
        devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
        context = dpctl.SyclContext(devices)
        self.count = len(devices)
        # for each device: the context of all, the platform's own, and one of its own
        self.queues = [dpctl.SyclQueue(context, device) for device in devices]
        self.queues += [dpctl.SyclQueue(device) for device in devices]
        self.queues += [dpctl.SyclQueue(dpctl.SyclContext(device), device) for device in devices]
        self.slots = [None] * SLOTS

    def allocate(self, rng):
        slot, kind, device = rng.randrange(SLOTS), rng.choice(KINDS), rng.randrange(len(self.queues))
        size = rng.choice(SIZES) if rng.random() < 0.5 else rng.randrange(1, 8 << 20)
        alignment = rng.choice(ALIGNMENTS)
        if alignment > 65536 and size < 16 << 20:
            # The runtime's own pool (UMF 1.2) frees such a block at the wrong address: what follows fails or does not.
            alignment = 65536
        self.slots[slot] = None
        try:
            memory = getattr(dpctl.memory, "MemoryUSM" + kind)(
                size, alignment=alignment, queue=self.queues[device])
        except Exception as error:  # noqa: BLE001
            return f"{kind} {size} {alignment} on {device}: {type(error).__name__}"
        self.slots[slot] = (memory, device, size)
        aligned = not alignment or memory._pointer % alignment == 0
        return f"{kind} {size} {alignment} on {device}: {memory.nbytes} bytes, aligned {aligned}"

    def free(self, rng):
        slot = rng.randrange(SLOTS)
        held, self.slots[slot] = self.slots[slot], None
        return "freed" if held else "-"

    def ask(self, rng):
        held, where = self.slots[rng.randrange(SLOTS)], rng.random()
        if not held:
            return "-"
        memory, device, size = held
        queue = self.queues[device]
        inside = dpctl.memory.as_usm_memory(memory) if where < 0.2 else memory
        owner = [i for i, q in enumerate(self.queues[:self.count]) if q.sycl_device == memory.sycl_device]
        return f"{inside.get_usm_type()} {inside.get_usm_type(queue)} {size} of {owner}"

    def copy(self, rng):
        one, two = (self.slots[rng.randrange(SLOTS)] for _ in range(2))
        pattern = rng.randbytes(SAMPLE)
        if not one or not two or one is two or self.queues[one[1]].sycl_context != self.queues[two[1]].sycl_context:
            return "-"
        size = min(one[2], two[2], SAMPLE)
        queue = self.queues[two[1]]
        one[0].copy_from_host(pattern[:size])
        queue.memcpy(two[0], one[0], size)
        queue.wait()
        back = bytearray(two[2])
        two[0].copy_to_host(back)
        return f"{size} from {one[1]} to {two[1]}: {'right' if back[:size] == pattern[:size] else 'WRONG'}"

    def fill(self, rng):
        held, byte = self.slots[rng.randrange(SLOTS)], rng.randrange(256)
        if not held or held[2] > 8 << 20:
            return "-"
        held[0].memset(byte)
        back = bytearray(held[2])
        held[0].copy_to_host(back)
        return f"{held[2]}: {'right' if back.count(byte) == held[2] else 'WRONG'}"

    def threads(self, rng):
        """Blocks that come and go on several threads, some freed by another thread than their own."""
        seeds, left, wrong = [rng.random() for _ in range(4)], [], []

        def work(seed):
            mine = random.Random(seed)
            for _ in range(20):
                queue = self.queues[mine.randrange(len(self.queues))]
                memory = dpctl.memory.MemoryUSMDevice(mine.choice(SIZES[1:9]), queue=queue)
                sample = mine.randbytes(min(memory.nbytes, 4096))
                memory.copy_from_host(sample)
                back = bytearray(memory.nbytes)
                memory.copy_to_host(back)
                if back[:len(sample)] != sample:
                    wrong.append(memory.nbytes)
                if mine.random() < 0.3:
                    left.append(memory)

        started = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return f"{len(left)} left, {len(wrong)} wrong"

    def too_large(self, rng):
        queue = self.queues[rng.randrange(len(self.queues))]
        try:
            return f"{dpctl.memory.MemoryUSMDevice(rng.choice([20, 40]) << 30, queue=queue).nbytes} bytes"
        except Exception as error:  # noqa: BLE001
            return type(error).__name__

    def exhaust(self, rng):
        device, blocks, last = rng.randrange(len(self.queues)), [], "never"
        for _ in range(256):
            try:
                blocks.append(dpctl.memory.MemoryUSMDevice(1 << 30, queue=self.queues[device]))
            except Exception as error:  # noqa: BLE001
                last = type(error).__name__
                break
        return f"{len(blocks)} blocks, then {last}"


def listed(text, number):
    spans = [span.split("-") for span in text.split(",") if span]
    return any(int(span[0]) <= number <= int(span[-1]) for span in spans)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only")
    args = parser.parse_args()
    bed = Bed()
    weights = {"allocate": 40, "free": 25, "ask": 15, "copy": 20, "fill": 6, "threads": 1, "too_large": 1, "exhaust": 1}
    for number in range(args.count):
        rng = random.Random(args.seed * 1000003 + number)
        name = rng.choices(list(weights), list(weights.values()))[0]
        if args.only is None or listed(args.only, number):
            print(f"{number} {name}:", flush=True, end=" ")
            print(getattr(bed, name)(rng), flush=True)
    bed.slots.clear()
    print("end", flush=True)


main()
