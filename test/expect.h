/* How the programs of the suites say that something is not so: where, what, and the values; then they end with 1. */
#ifndef TEST_EXPECT_H
#define TEST_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void equal_at(const char *file, int line, const char *what, long long got, long long want) {
    if (got == want)
        return;
    fprintf(stderr, "%s:%d: %s: got %lld (%#llx), expected %lld (%#llx)\n", file, line, what, got,
            (unsigned long long)got, want, (unsigned long long)want);
    exit(1);
}
#define EQUAL(got, want) equal_at(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))

#endif
