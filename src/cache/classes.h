/*
 * Size classes, log-linear: steps of 64 B up to 512 B, then 8 steps per doubling up to 1 MiB, 16 up to 64 MiB, then
 * 64. Beyond 512 B a block is at most an eighth (a sixteenth, a 64th) larger than what was asked: a card that is filled
 * with few large blocks has no room to waste. The sizes of PyTorch's segments up to 256 MiB, multiples of 2 MiB, are
 * classes of their own and waste nothing.
 */
#ifndef ZEROUTE_CACHE_CLASSES_H
#define ZEROUTE_CACHE_CLASSES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    ZR_CLASS_SMALL = 8,                           /* up to 512 B */
    ZR_CLASS_LARGE = ZR_CLASS_SMALL + 11 * 8,         /* from 1 MiB up */
    ZR_CLASS_HUGE = ZR_CLASS_LARGE + (26 - 20) * 16,  /* from 64 MiB up */
    ZR_CLASSES = ZR_CLASS_HUGE + (36 - 26) * 64,      /* up to 64 GiB */
};
#define ZR_CLASS_LIMIT ((size_t)1 << 36)

/*
 * ZR_CLASSES or more for sizes of 0 and above ZR_CLASS_LIMIT. The exponent and the topmost bits of a fraction are
 * the class: about ten instructions and no search for the topmost bit, which some processors are slow at.
 */
static inline unsigned zr_class_of(size_t size)
{
    size_t last = size - 1;
    double real;
    uint64_t bits;

    if (last < 512)
        return (unsigned)(last >> 6);
    real = (double)(int64_t)last;
    memcpy(&bits, &real, sizeof bits);
    if (last < (size_t)1 << 20)
        return (unsigned)(bits >> 49) - (((1023 + 9) << 3) - ZR_CLASS_SMALL);
    if (last < (size_t)1 << 26)
        return (unsigned)(bits >> 48) - (((1023 + 20) << 4) - ZR_CLASS_LARGE);
    return (unsigned)(bits >> 46) - (((1023 + 26) << 6) - ZR_CLASS_HUGE);
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
    if (c < ZR_CLASS_HUGE) {
        c -= ZR_CLASS_LARGE;
        return (size_t)(16 + c % 16 + 1) << (c / 16 + 16);
    }
    c -= ZR_CLASS_HUGE;
    return (size_t)(64 + c % 64 + 1) << (c / 64 + 20);
}

#endif
