/* What the fuzzers share: bytes as a file, and a claim that ends the run when it does not hold. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool claim) {
    if (!claim)
        abort();
}

/* A file in memory that holds the input: always the same descriptor. */
static inline int fuzz_file(const uint8_t *data, size_t size) {
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    must(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static inline double fuzz_seconds(void) {
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
