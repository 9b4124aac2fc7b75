/*
 * Size classes, log-linear: steps of 64 B up to 512 B, then 8 steps per doubling up to 1 MiB, then 16. A
 * block is at most an eighth (from 1 MiB up: a sixteenth) larger than what was asked, beyond 512 B. The sizes
 * of PyTorch's segments up to 64 MiB, multiples of 2 MiB, are classes of their own and waste nothing.
 */
#ifndef ZEROUTE_CACHE_CLASSES_H
#define ZEROUTE_CACHE_CLASSES_H

#include <stddef.h>
#include <stdint.h>

enum {
    ZR_CLASS_SMALL = 8,                           /* up to 512 B */
    ZR_CLASS_LARGE = ZR_CLASS_SMALL + 11 * 8,     /* from 1 MiB up */
    ZR_CLASSES = ZR_CLASS_LARGE + (36 - 20) * 16, /* up to 64 GiB */
};
#define ZR_CLASS_LIMIT ((size_t)1 << 36)

/* For sizes of 1 to ZR_CLASS_LIMIT. About six instructions. */
static inline unsigned zr_class_of(size_t size)
{
    size_t last = size - 1;
    unsigned top;

    if (last < 512)
        return (unsigned)(last >> 6);
    top = 63 - (unsigned)__builtin_clzll(last);
    if (top < 20)
        return ZR_CLASS_SMALL + (top - 9) * 8 + (unsigned)(last >> (top - 3) & 7);
    return ZR_CLASS_LARGE + (top - 20) * 16 + (unsigned)(last >> (top - 4) & 15);
}

/* The size of every block of a class. */
static inline size_t zr_class_size(unsigned c)
{
    if (c < ZR_CLASS_SMALL)
        return (size_t)(c + 1) << 6;
    if (c < ZR_CLASS_LARGE) {
        c -= ZR_CLASS_SMALL;
        return (size_t)(8 + c % 8 + 1) << (c / 8 + 6);
    }
    c -= ZR_CLASS_LARGE;
    return (size_t)(16 + c % 16 + 1) << (c / 16 + 16);
}

#endif
