/* Kinds of memory, as they are booked. */
#ifndef ZEROUTE_KIND_H
#define ZEROUTE_KIND_H

enum zr_kind {
    ZR_KIND_DEVICE,
    ZR_KIND_SHARED,
    ZR_KIND_PHYSICAL,
    ZR_KINDS_ON_DEVICE, /* these are allocated_bytes.all; the rest have accounts of their own */
    ZR_KIND_HOST = ZR_KINDS_ON_DEVICE,
    ZR_KIND_VIRTUAL, /* reserved address ranges */
    ZR_KIND_MAPPED,  /* physical memory mapped into them */
    ZR_KIND_IMPORTED,
    ZR_KIND_ROUNDED, /* host memory in exact powers of two above 1 MiB: part of ZR_KIND_HOST */
    ZR_KIND_POINTER, /* memory of the program that was imported into the driver */
    ZR_KIND_IMAGE,   /* from here on: objects that take memory without an allocation call */
    ZR_KIND_MODULE,
    ZR_KIND_EVENT_POOL,
    ZR_KIND_LIST,
    ZR_KIND_QUEUE,
    ZR_KINDS
};

#endif
