/*
 * Which library a call came from. Address ranges are appended to a table that is read without a lock: a handful of
 * libraries ever call, so it is scanned. A range counts only in the generation of the dynamic linker's list in which
 * it was last seen: libraries come and go, and one may be loaded where another was.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 96, RANGES = 1024, CHECK_EVERY = 1024 };

/* Without a range of its own: what is returned when the table of ranges is full. */
struct name {
    struct zr_library library;
    struct zr_library_counters counters;
};
struct range {
    struct zr_library library;
    uint64_t generation;
};

static struct name unknown = {.library = {.name = "unknown", .counters = &unknown.counters}};
static struct name others = {.library = {.name = "others", .counters = &others.counters}};

static struct zr_lock lock;
static struct name names[NAMES];
static unsigned name_count;
static struct range ranges[RANGES];
static unsigned range_count;
static uint64_t generation;

static const struct zr_library *scan(uintptr_t address) {
    uint64_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    unsigned n = __atomic_load_n(&range_count, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n; i++) {
        const struct zr_library *l = &ranges[i].library;

        if (address - l->start < l->end - l->start && __atomic_load_n(&ranges[i].generation, __ATOMIC_RELAXED) == now)
            return l;
    }
    return NULL;
}

/* Libraries that have come or gone: no range counts until it is seen again. */
static void check_generation(void) {
    uint64_t now = zr_elf_generation();

    if (__atomic_exchange_n(&generation, now, __ATOMIC_ACQ_REL) != now)
        zr_fingerprint_refresh();
}

static bool begins(const char *name, const char *stem) {
    return strncmp(name, stem, strlen(stem)) == 0;
}

static struct zr_library library_of(const struct zr_elf *elf) {
    struct zr_library l = {.start = elf->start, .end = elf->end};

    memcpy(l.name, elf->soname, strnlen(elf->soname, sizeof l.name - 1));
    l.is_adapter =
        begins(l.name, "libur_adapter_level_zero") || begins(l.name, "libpi_level_zero") || begins(l.name, "libumf");
    l.is_loader = begins(l.name, "libze_loader");
    return l;
}

/* The entry of its name, made if there is room; else that of all others. With the lock held. */
static struct name *name_of(const struct zr_library *l) {
    unsigned n = 0;

    while (n < name_count && strcmp(names[n].library.name, l->name) != 0)
        n++;
    if (n == NAMES)
        return &others;
    if (n == name_count) {
        names[n].library = *l;
        names[n].library.start = names[n].library.end = 0;
        names[n].library.counters = &names[n].counters;
        name_count++;
    }
    return &names[n];
}

static const struct zr_library *add(const struct zr_elf *elf, uint64_t seen_in) {
    struct zr_library l = library_of(elf);
    const struct zr_library *found;
    struct name *name;
    unsigned n = 0;

    zr_lock(&lock);
    name = name_of(&l);
    l.counters = &name->counters;
    while (n < range_count && !(ranges[n].library.start == l.start && ranges[n].library.end == l.end &&
                                strcmp(ranges[n].library.name, l.name) == 0))
        n++;
    found = n < RANGES ? &ranges[n].library : &name->library;
    if (n < RANGES) {
        __atomic_store_n(&ranges[n].generation, seen_in, __ATOMIC_RELAXED);
        if (n == range_count) {
            ranges[n].library = l;
            __atomic_store_n(&range_count, n + 1, __ATOMIC_RELEASE);
        }
    }
    zr_unlock(&lock);
    return found;
}

/* No lock of ours is held while the dynamic linker walks its list. */
static const struct zr_library *walk(const void *address) {
    uint64_t seen_in;
    struct zr_elf elf;

    check_generation();
    seen_in = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    return zr_elf_find(address, &elf) ? add(&elf, seen_in) : &unknown.library;
}

const struct zr_library *zr_library_find(const void *address) {
    const struct zr_library *l;
    int saved = errno;

    if (zr_thread.stats.library_checks <= 1) {
        check_generation();
        zr_thread.stats.library_checks = CHECK_EVERY;
    } else {
        zr_thread.stats.library_checks--;
    }
    l = scan((uintptr_t)address);
    if (!l)
        l = walk(address);
    zr_thread.stats.library = l;
    errno = saved;
    return l;
}

/* A counter of this library as struct zr_library_counters has it. The same name gives the same number to all. */
static int name_counter(const struct zr_library *l, const char *what, const char *unit, const char *help) {
    const char *who = l->counters == &others.counters ? others.library.name : l->name;
    char name[80];
    int number;

    snprintf(name, sizeof name, "callers.%s.%s", who, what);
    number = zr_named(name, unit, help);
    return number < 0 ? -1 : number + 1;
}

ZR_COLD void zr_count_caller_slow(const struct zr_library *l, uint64_t bytes) {
    struct zr_library_counters *c = l->counters;

    if (__atomic_load_n(&c->calls, __ATOMIC_RELAXED) < 0)
        return;
    __atomic_store_n(&c->bytes, name_counter(l, "bytes", "bytes", "bytes requested by this library"), __ATOMIC_RELAXED);
    __atomic_store_n(&c->calls, name_counter(l, "calls", "", "calls from this library"), __ATOMIC_RELEASE);
    if (__atomic_load_n(&c->calls, __ATOMIC_RELAXED) > 0)
        zr_count_caller(l, bytes);
}

void zr_count_skipped(const struct zr_library *l, uint64_t bytes) {
    struct zr_library_counters *c = l->counters;

    if (unlikely(!__atomic_load_n(&c->skipped_calls, __ATOMIC_ACQUIRE))) {
        __atomic_store_n(&c->skipped_bytes,
                         name_counter(l, "skipped_bytes", "bytes", "bytes of its calls that residency:owner skipped"),
                         __ATOMIC_RELAXED);
        __atomic_store_n(&c->skipped_calls,
                         name_counter(l, "skipped_calls", "", "calls of this library that residency:owner skipped"),
                         __ATOMIC_RELEASE);
    }
    zr_count_named(__atomic_load_n(&c->skipped_calls, __ATOMIC_RELAXED) - 1, 1);
    zr_count_named(__atomic_load_n(&c->skipped_bytes, __ATOMIC_RELAXED) - 1, bytes);
}

/* The same libraries are loaded; their counters get new numbers in the segment of the child. */
void zr_libraries_fork_child(void) {
    lock = (struct zr_lock){0};
    unknown.counters = others.counters = (struct zr_library_counters){0};
    for (unsigned n = 0; n < NAMES; n++)
        names[n].counters = (struct zr_library_counters){0};
}
