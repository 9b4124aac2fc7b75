"""Device memory from Python, by ctypes on the Level Zero loader: for tests of what is installed."""

import ctypes

ze = ctypes.CDLL("libze_loader.so.1")


def check(result):
    assert result == 0, hex(result & 0xffffffff)


class Desc(ctypes.Structure):
    _fields_ = [("stype", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("ordinal", ctypes.c_uint32)]


def first(get, *args):
    count, handle = ctypes.c_uint32(1), ctypes.c_void_p()
    check(get(*args, ctypes.byref(count), ctypes.byref(handle)))
    return handle


check(ze.zeInit(0))
driver = first(ze.zeDriverGet)
device = first(ze.zeDeviceGet, driver)
context = ctypes.c_void_p()
check(ze.zeContextCreate(driver, ctypes.byref(Desc(0xd)), ctypes.byref(context)))


def allocate(size):
    pointer = ctypes.c_void_p()
    check(ze.zeMemAllocDevice(context, ctypes.byref(Desc(0x15)), ctypes.c_size_t(size), ctypes.c_size_t(0), device,
                              ctypes.byref(pointer)))
    return pointer


def free(pointer):
    check(ze.zeMemFree(context, pointer))
