"""One cell of the runtime-by-loader matrix: what any SYCL program does, step by step.

Prints each step before it is taken, so that whoever reads the output of a crash knows where it was.
Exit code 0: all steps done and all data right; 3: no device, which is an answer and not a crash.
"""

import sys

import dpctl
import dpctl.memory
import dpctl.utils

BYTES = 5 << 20
PATTERN = bytes(range(256)) * (BYTES // 256)


def step(text):
    print("step", text, flush=True)


def query(device):
    """Every property that dpctl knows; a property may say that it is not supported."""
    count = 0
    for name in sorted(dir(type(device))):
        if isinstance(getattr(type(device), name), property) or not name.startswith("_"):
            try:
                print("ask", name, flush=True)
                value = getattr(device, name)
                if callable(value) and name.startswith(("has_", "is_", "get_")):
                    value = value()
                count += 1
            except Exception as error:  # noqa: BLE001  dpctl raises what the runtime threw
                print("unsupported", name, type(error).__name__)
    dpctl.utils.intel_device_info(device)
    return count


def round_trip(queue, memory):
    """Data to the device and back, by two different buffers of the host."""
    memory.copy_from_host(PATTERN)
    back = bytearray(BYTES)
    memory.copy_to_host(back)
    assert bytes(back) == PATTERN, "wrong data after a round trip"
    queue.wait()


def main():
    step("enumerate")
    devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
    print("devices", len(devices), dpctl.__version__)
    if not devices:
        return 3
    for device in devices:
        step("query " + device.filter_string)
        print("properties", query(device))
    step("context")
    context = dpctl.SyclContext(devices) if len(devices) > 1 else dpctl.SyclContext(devices[0])
    queues = [dpctl.SyclQueue(context, device) for device in devices]
    for number, queue in enumerate(queues):
        for kind in ("Device", "Shared", "Host"):
            step(f"allocate {kind} {number}")
            memory = getattr(dpctl.memory, "MemoryUSM" + kind)(BYTES, queue=queue)
            assert memory.get_usm_type() == kind.lower(), "wrong kind"
            step(f"copy {kind} {number}")
            round_trip(queue, memory)
            step(f"free {kind} {number}")
            del memory
    if len(queues) > 1:
        step("peer copy")
        ours = dpctl.memory.MemoryUSMDevice(BYTES, queue=queues[0])
        theirs = dpctl.memory.MemoryUSMDevice(BYTES, queue=queues[1])
        ours.copy_from_host(PATTERN)
        queues[1].memcpy(theirs, ours, BYTES)
        queues[1].wait()
        back = bytearray(BYTES)
        theirs.copy_to_host(back)
        assert bytes(back) == PATTERN, "wrong data on the other card"
        step("peer free")
        del ours, theirs
    step("end")
    return 0


sys.exit(main())
