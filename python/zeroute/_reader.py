"""This process's own segment, read through libzeroute-reader by ctypes."""

import ctypes
import os
import threading

from . import _files


class _Field(ctypes.Structure):
    """struct zeroute_field of <zeroute/reader.h>."""
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("help", ctypes.c_char_p),
                ("type", ctypes.c_int), ("value", ctypes.c_uint64), ("text", ctypes.c_char_p),
                ("buckets", ctypes.POINTER(ctypes.c_uint64))]


_HISTOGRAM, _TEXT = 4, 5  # enum zeroute_type of <zeroute/segment.h>
_lock = threading.Lock()
_library = None
_open = (None, -1)  # the segment's path and a descriptor of it


def _load():
    global _library
    if _library is None:
        library = ctypes.CDLL(_files.find("libzeroute-reader.so.1"))
        library.zeroute_snapshot_of_fd.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        library.zeroute_snapshot_of_fd.restype = ctypes.c_void_p
        library.zeroute_fields.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(_Field))]
        library.zeroute_fields.restype = ctypes.c_size_t
        library.zeroute_snapshot_free.argtypes = [ctypes.c_void_p]
        library.zeroute_snapshot_free.restype = None
        _library = library
    return _library


def _segment():
    """The path of the segment that this process has mapped, or None."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.startswith("dev/shm/zeroute-") and not path.endswith(" (deleted)"):
                return "/" + path
    return None


def _descriptor():
    """Opened once and never closed: closing it would drop the lock by which readers know that this process lives."""
    global _open
    path = _segment()
    if path is None:
        return -1
    if _open[0] != path:
        _open = (path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
    return _open[1]


def own_fields():
    with _lock:
        fd = _descriptor()
        if fd < 0:
            return {}
        library = _load()
        why = ctypes.create_string_buffer(256)
        snapshot = library.zeroute_snapshot_of_fd(fd, why, len(why))
    if not snapshot:
        raise OSError(f"zeroute: the statistics of this process cannot be read: {why.value.decode(errors='replace')}")
    try:
        fields = ctypes.POINTER(_Field)()
        count = library.zeroute_fields(snapshot, ctypes.byref(fields))
        return {f.name.decode(): (f.text or b"").decode(errors="replace") if f.type == _TEXT else f.value
                for f in fields[:count] if f.type != _HISTOGRAM}
    finally:
        library.zeroute_snapshot_free(snapshot)
