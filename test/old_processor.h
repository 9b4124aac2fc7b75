/* Included before everything: the processor says that it has neither AVX nor a clock of constant rate. */
#ifndef ZEROUTE_TEST_OLD_PROCESSOR_H
#define ZEROUTE_TEST_OLD_PROCESSOR_H

#include <cpuid.h>

static inline int old_cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    if (!__get_cpuid(leaf, a, b, c, d))
        return 0;
    if (leaf == 1)
        *c &= ~(unsigned)bit_AVX;
    if (leaf == 0x80000007)
        *d = 0;
    return 1;
}
#define __get_cpuid old_cpuid

#endif
