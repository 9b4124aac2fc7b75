/*
 * The map of the preload: what crosses files, grouped by the file that defines it.
 * Way of an allocation: entry/ -> policy -> cache/ -> driver. stats and trace are written from the side.
 */
#ifndef ZEROUTE_INTERNAL_H
#define ZEROUTE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
