/*
 * The counts: plain memory, shared by the processes of one machine, and a text file
 * (XE_STANDIN_COUNTS, %p becomes the process id) that always shows them: one "name value" line
 * each, numbers of fixed width, mapped, so that keeping it up to date is a store of twenty bytes
 * and never a system call.
 */
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIGITS 20
#define NAME_WIDTH 26
#define LINE (NAME_WIDTH + 1 + DIGITS + 1)

static const char *const names[] = {
#define XS_COUNT(name) #name,
#include "counts.def"
#undef XS_COUNT
};

static char *_Atomic text;

/* About 10 ns: two digits at a time into a register's worth of spaces, then one copy. */
void xs_format_number(char *place, unsigned width, uint64_t value) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536"
                                "37383940414243444546474849505152535455565758596061626364656667686970717273"
                                "7475767778798081828384858687888990919293949596979899";
    char digits[24] = "                       ";
    unsigned at = sizeof(digits);
    while (value >= 100) {
        unsigned pair = (unsigned)(value % 100) * 2;
        value /= 100;
        at -= 2;
        memcpy(digits + at, pairs + pair, 2);
    }
    if (value >= 10) {
        at -= 2;
        memcpy(digits + at, pairs + value * 2, 2);
    } else {
        digits[--at] = (char)('0' + value);
    }
    memcpy(place, digits + sizeof(digits) - width, width);
}

static void show(char *file, unsigned what, _Atomic uint64_t *count) {
    char *place = file + what * LINE + NAME_WIDTH + 1;
    uint64_t value = atomic_load(count);
    for (;;) {
        xs_format_number(place, DIGITS, value);
        uint64_t now = atomic_load(count);
        if (now == value)
            return;
        value = now;
    }
}

void xs_counts_open(void) {
    if (!xs_config.counts[0] || atomic_load(&text))
        return;
    int fd = open(xs_config.counts, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, LINE * XS_COUNTS)) {
        xs_say("counts file '%s' cannot be written", xs_config.counts);
        if (fd >= 0)
            close(fd);
        return;
    }
    char *file = mmap(NULL, LINE * XS_COUNTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return;
    for (unsigned i = 0; i < XS_COUNTS; i++) {
        char *line = file + i * LINE;
        memset(line, ' ', LINE);
        memcpy(line, names[i], strlen(names[i]));
        line[LINE - 1] = '\n';
        show(file, i, &xs_machine_counts()[i]);
    }
    atomic_store(&text, file);
}

void xs_count(enum xs_count what, uint64_t n) {
    _Atomic uint64_t *count = &xs_machine_counts()[what];
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
    char *file = atomic_load_explicit(&text, memory_order_acquire);
    if (file)
        show(file, what, count);
}
