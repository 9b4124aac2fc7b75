"""zeroute from Python: where the preload is, how to start a program under it, and what this process has counted.

    import subprocess, zeroute
    subprocess.run(["python", "train.py"], env=zeroute.env(preset="observe"))

    zeroute.stats()["allocated_bytes.all.peak"]    # in a process that runs under the preload
    zeroute.mark("epoch 3")                        # a line in its record

Pure Python over the C library by ctypes; works with Python 3.9 and later.
"""

import ctypes
import os

from . import _files, _reader

__all__ = ["env", "mark", "preload_path", "stats", "__version__"]
__version__ = _files.version()


def preload_path():
    """The path of libzeroute.so, for LD_PRELOAD."""
    return _files.find("libzeroute.so")


def _value(value):
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def env(preset=None, base=None, **settings):
    """A copy of the environment (`base`, or os.environ) in which a program runs under the preload.

    Settings are keyword arguments: env(preset="mitigate", limit="12GiB", cache_host=True). What ZEROUTE_CONF says
    already stays in force where nothing here overrides it.
    """
    result = dict(os.environ if base is None else base)
    preload = preload_path()
    others = [p for p in result.get("LD_PRELOAD", "").replace(":", " ").split() if os.path.basename(p) != "libzeroute.so"]
    result["LD_PRELOAD"] = ":".join([preload, *others])
    conf = [f"preset:{preset}"] if preset else [result["ZEROUTE_CONF"]] if result.get("ZEROUTE_CONF") else []
    for name, value in settings.items():
        text = _value(value)
        if "," in text:
            raise ValueError(f"zeroute: {name}={text!r}: a setting's value cannot hold a comma")
        conf.append(f"{name}:{text}")
    if conf:
        result["ZEROUTE_CONF"] = ",".join(conf)
    return result


def stats():
    """What this process has counted so far, by field name; {} where it does not run under the preload, or has not
    touched a device yet. Names that torch.xpu.memory_stats() has mean the same here."""
    return _reader.own_fields()


def mark(text):
    """Puts a named line into the record of this process. False where nothing records."""
    try:
        function = ctypes.CDLL(None).zeroute_mark
    except AttributeError:
        return False
    function.argtypes, function.restype = [ctypes.c_char_p], None
    function(os.fsencode(text))
    return True
