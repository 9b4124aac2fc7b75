/*
 * Which library a call came from. Address ranges are appended to a table that is read without a
 * lock: a handful of libraries ever call, so it is scanned. A range counts only in the generation
 * of the dynamic linker's list in which it was last seen: libraries come and go, and one may be
 * loaded where another was.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 96, RANGES = 1024, CHECK_EVERY = 1024 };

static struct zr_library unknown = {
    .name = "unknown", .counters = unknown.own, .who = ZR_WHO_PROGRAM};
static struct zr_library others = {.name = "others", .counters = others.own, .who = ZR_WHO_PROGRAM};
/*
 * While a thread forks, a library that has not called before cannot be told: counted as unknown,
 * and asked again.
 */
static struct zr_library busy_library = {.name = "unknown", .counters = unknown.own};

static struct zr_lock libraries_lock;
static struct zr_library ranges[RANGES];
static unsigned range_count, name_count;
static uint64_t list_generation;

static const struct zr_library *library_scan(uintptr_t address) {
    uint64_t now = __atomic_load_n(&list_generation, __ATOMIC_ACQUIRE);
    unsigned n = __atomic_load_n(&range_count, __ATOMIC_ACQUIRE);

    for (const struct zr_library *l = ranges; l < ranges + n; l++)
        if (address - l->start < l->end - l->start &&
            __atomic_load_n(&l->generation, __ATOMIC_RELAXED) == now)
            return l;
    return NULL;
}

/*
 * After libraries were loaded or unloaded, no range counts until it is seen again. Returns false if
 * it cannot tell.
 */
static bool check_generation(void) {
    uint64_t now;

    if (!zr_elf_generation(&now))
        return false;
    if (__atomic_exchange_n(&list_generation, now, __ATOMIC_ACQ_REL) != now)
        zr_fingerprint_refresh();
    else
        zr_fingerprint_complete();
    return true;
}

/*
 * Uses the counters of a library with the same name, its own while there is room for names, else
 * those of "others".
 */
static void library_append(struct zr_library *l, const struct zr_elf *elf, uint64_t seen_in,
                           const struct zr_library *alike) {
    l->start = elf->start;
    l->end = elf->end;
    l->generation = seen_in;
    l->who = zr_who_is(elf);
    memcpy(l->name, elf->soname, strnlen(elf->soname, sizeof l->name - 1));
    if (alike)
        l->counters = alike->counters;
    else
        l->counters = name_count++ < NAMES ? l->own : others.own;
    __atomic_store_n(&range_count, range_count + 1, __ATOMIC_RELEASE);
}

/* If the table is full, returns one of the same name that was loaded elsewhere. */
static const struct zr_library *library_add(const struct zr_elf *elf, uint64_t seen_in) {
    const struct zr_library *alike = NULL;
    struct zr_library *l = ranges;

    zr_lock(&libraries_lock);
    for (; l < ranges + range_count; l++) {
        if (strncmp(l->name, elf->soname, sizeof l->name - 1) != 0)
            continue;
        if (l->start == elf->start && l->end == elf->end)
            break;
        if (!alike)
            alike = l;
    }
    if (l < ranges + range_count)
        __atomic_store_n(&l->generation, seen_in, __ATOMIC_RELAXED);
    else if (range_count < RANGES)
        library_append(l, elf, seen_in, alike);
    zr_unlock(&libraries_lock);
    if (l < ranges + RANGES)
        return l;
    return alike ? alike : &others;
}

/* No lock of ours is held while the dynamic linker walks its list. */
static const struct zr_library *library_walk(const void *address) {
    enum zr_answer answer;
    uint64_t seen_in;
    struct zr_elf elf;

    check_generation();
    seen_in = __atomic_load_n(&list_generation, __ATOMIC_ACQUIRE);
    answer = zr_elf_find(address, &elf);
    if (unlikely(answer == ZR_LIST_BUSY))
        return &busy_library;
    return answer == ZR_LIST_FOUND ? library_add(&elf, seen_in) : &unknown;
}

const struct zr_library *zr_library_find(const void *address) {
    const struct zr_library *l;
    int saved = errno;

    if (zr_thread.stats.library_checks-- <= 1)
        zr_thread.stats.library_checks = check_generation() ? CHECK_EVERY : 1;
    l = library_scan((uintptr_t)address);
    if (!l)
        l = library_walk(address);
    zr_thread.stats.library = l;
    errno = saved;
    return l;
}

const struct zr_library *zr_library_find_now(const void *address) {
    const struct zr_library *l = zr_library_of(address);
    int saved = errno;
    struct zr_elf elf;

    if (unlikely(l == &busy_library)) {
        l = &unknown;
        if (zr_elf_find_now(address, &elf))
            l = library_add(&elf, __atomic_load_n(&list_generation, __ATOMIC_ACQUIRE));
        errno = saved;
    }
    return l;
}

/* Name and exports did not tell: its memory does, if it is this library's still. */
static enum zr_who look_inside(const struct zr_library *l, const struct zr_elf *elf) {
    enum zr_who who = ZR_WHO_PROGRAM;

    if (elf->start != l->start || elf->end != l->end)
        return who;
    if (zr_who_holds_adapter(elf))
        who = ZR_WHO_RUNTIME;
    __atomic_store_n((uint32_t *)(uintptr_t)&l->who, who, __ATOMIC_RELAXED);
    return who;
}

ZR_COLD enum zr_who zr_library_ask_who(const struct zr_library *l) {
    enum zr_answer answer = ZR_LIST_BUSY;
    struct zr_elf elf;

    if (l != &busy_library)
        answer = zr_elf_find((const void *)l->start, &elf);
    if (answer == ZR_LIST_BUSY)
        return ZR_WHO_NOT_KNOWN;
    return answer == ZR_LIST_FOUND ? look_inside(l, &elf) : ZR_WHO_PROGRAM;
}

ZR_COLD enum zr_who zr_library_who_now(const void *address) {
    const struct zr_library *l = zr_library_find_now(address);
    enum zr_who who = zr_library_who(l);
    struct zr_elf elf;

    if (unlikely(who == ZR_WHO_NOT_KNOWN))
        who = zr_elf_find_now(address, &elf) ? look_inside(l, &elf) : ZR_WHO_PROGRAM;
    return who;
}

/*
 * Names the counters for calls and bytes together. Racing threads get the same number for a name.
 */
ZR_COLD void zr_count_caller_slow(const struct zr_library *l, enum zr_caller what, uint64_t n) {
    static const struct {
        const char *name, *unit, *help;
    } field[ZR_CALLER_FIELDS] = {
        {"calls", "", "calls from this library"},
        {"bytes", "bytes", "bytes requested by this library"},
        {"skipped_calls", "", "calls of this library that residency:owner skipped"},
        {"skipped_bytes", "bytes", "bytes of its calls that residency:owner skipped"},
    };
    char name[80];

    if (__atomic_load_n(&l->counters[what], __ATOMIC_RELAXED) < 0)
        return;
    for (unsigned i = what & ~1u; i <= (what | 1u); i++) {
        int number;

        snprintf(name, sizeof name, "callers.%s.%s",
                 l->counters == others.own ? others.name : l->name, field[i].name);
        number = zr_named(name, field[i].unit, field[i].help);
        __atomic_store_n(&l->counters[i], number < 0 ? -1 : number + 1, __ATOMIC_RELAXED);
        if (i == what)
            zr_count_named(number, n);
    }
}

/* The child has the same libraries; their counters get new numbers in its segment. */
void zr_libraries_fork_child(void) {
    memset(unknown.own, 0, sizeof unknown.own);
    memset(others.own, 0, sizeof others.own);
    for (unsigned n = 0; n < RANGES; n++)
        memset(ranges[n].own, 0, sizeof ranges[n].own);
}
