"""Marks from every kind of place in a Python program; each mark says the lines of the frames that it was made from."""

import asyncio
import ctypes
import sys
import threading

released = ctypes.CDLL(None).zeroute_mark  # lets go of the GIL for the call
held = ctypes.PyDLL(None).zeroute_mark
LONGEST = 255


def mark(how):
    lines, frame = [], sys._getframe(0)
    at = f"{sys._getframe(0).f_lineno + 6}"  # of the call below
    while frame.f_back:
        frame = frame.f_back
        lines.append(f"{frame.f_lineno}{frame.f_code.co_name[:3]}")
    text = ",".join([at + "mar", *lines])
    cut = text[:LONGEST].encode()
    return how(
        cut)


def nested(depth, how):
    if depth:
        return nested(
            depth - 1,
            how)
    mark(how)


def generator(how):
    for _ in range(2):
        mark(how)
        yield


class Object:
    def __del__(self):
        mark(held)

    @property
    def attribute(self):
        mark(released)


async def coroutine(how):
    await asyncio.sleep(0)
    mark(how)


async def several():
    await asyncio.gather(coroutine(held), coroutine(released))


def everything():
    for how in held, released:
        nested(12, how)
        for _ in generator(how):
            pass
        list(map(lambda _: mark(how), range(2)))  # through C
        sorted([2, 1], key=lambda _: mark(how) or 0)
    Object().attribute
    exec("mark(released)\n\n\nmark(held)", globals())
    asyncio.run(several())


everything()
threads = [threading.Thread(target=everything) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
