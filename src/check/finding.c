/*
 * What was found: counted in the segment, the first ten told in full on stderr and in the segment's texts, the rest
 * counted. One write(2) per finding, so that those of several processes do not mix.
 */
#include "check/check.h"
#include "record/record.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TOLD = 10 };

static const struct {
    const char *name, *help;
} finding[ZR_FOUND] = {
#define ZR_FINDING(id, name, help) {name, help},
    ZR_FINDINGS
#undef ZR_FINDING
};
static const struct {
    const char *name, *help;
} count[ZR_CHECKED_COUNTS] = {
#define ZR_CHECK_COUNT(id, name, help) {name, help},
    ZR_CHECK_COUNTS
#undef ZR_CHECK_COUNT
};
static const char errors_help[] = "errors that check has found, leaks at the end not counted";
static uint64_t counted[ZR_CHECKED_COUNTS];                                  /* atomic */
static int found_field[ZR_FOUND], count_field[ZR_CHECKED_COUNTS], all_field; /* atomic: numbers of fields plus one */
static uint32_t found;                                                       /* atomic */

/* --- counting ----------------------------------------------------------------------------------------------------- */

static int field(int *known, const char *name, const char *help) {
    char full[80];
    int n = __atomic_load_n(known, __ATOMIC_ACQUIRE);

    if (unlikely(!n)) {
        snprintf(full, sizeof full, "check.%s", name);
        n = zr_named(full, "", help) + 1;
        __atomic_store_n(known, n, __ATOMIC_RELEASE);
    }
    return n - 1;
}

/* All of them appear with the first block, so that a reader finds a zero and not nothing. */
static void describe(void) {
    if (likely(__atomic_load_n(&all_field, __ATOMIC_ACQUIRE)))
        return;
    for (unsigned i = 0; i < ZR_FOUND; i++)
        field(&found_field[i], finding[i].name, finding[i].help);
    for (unsigned i = 0; i < ZR_CHECKED_COUNTS; i++)
        field(&count_field[i], count[i].name, count[i].help);
    field(&all_field, "errors", errors_help);
}

void zr_check_count(enum zr_check_count what, uint64_t n) {
    describe();
    __atomic_fetch_add(&counted[what], n, __ATOMIC_RELAXED);
    zr_count_named(field(&count_field[what], count[what].name, count[what].help), n);
}

/* --- stacks ------------------------------------------------------------------------------------------------------- */

void zr_origin_here(struct zr_origin *o) {
    uint8_t cut = 0;

    o->thread = (uint32_t)syscall(SYS_gettid);
    o->count = (uint32_t)zr_native_frames(o->frame, ZR_FRAMES, &cut);
}

/* --- telling ------------------------------------------------------------------------------------------------------ */

void zr_tell(struct zr_account_of *t, const char *format, ...) {
    size_t room = sizeof t->text - t->used;
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(t->text + t->used, room, format, arguments);
    va_end(arguments);
    if (n > 0)
        t->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* A library's name may hold anything. */
static void tell_frame(struct zr_account_of *t, uint64_t frame) {
    static const char odd[] = "?";
    struct zr_elf elf;
    char name[64];

    if (!zr_elf_find((const void *)(uintptr_t)frame, &elf)) {
        zr_tell(t, " %#llx\n", (unsigned long long)frame);
        return;
    }
    snprintf(name, sizeof name, "%.63s", *elf.soname ? elf.soname : odd);
    for (char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127)
            *p = '?';
    zr_tell(t, " %s+%#zx\n", name, (size_t)(frame - elf.start));
}

void zr_tell_origin(struct zr_account_of *t, const char *what, const struct zr_origin *o) {
    if (!o->thread)
        return;
    zr_tell(t, "  %-10s by thread %u%s\n", what, o->thread, o->count ? ":" : "");
    for (unsigned i = 0; i < o->count; i++) {
        zr_tell(t, "    #%u", i);
        tell_frame(t, o->frame[i]);
    }
}

static const char *kind_name(uint8_t kind) {
    return kind == ZR_KIND_HOST ? "host" : kind == ZR_KIND_SHARED ? "shared" : "device";
}

void zr_tell_block(struct zr_account_of *t, const struct zr_checked *c) {
    zr_tell(t, "  block      %#zx, %zu bytes of %s memory", c->base, c->size, kind_name(c->kind));
    if (c->kind != ZR_KIND_HOST)
        zr_tell(t, " on card %u", c->account);
    zr_tell(t, ", context %p\n", (void *)c->context);
}

struct neighbours {
    const struct zr_checked *of;
    uintptr_t below, above; /* bases */
    size_t below_size, above_size;
};

static bool nearest(struct zr_block *b, void *arg) {
    struct neighbours *n = arg;
    uintptr_t base = __atomic_load_n(&b->base, __ATOMIC_RELAXED);
    size_t size = __atomic_load_n(&b->size, __ATOMIC_RELAXED);

    if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_LIVE || zr_block_flags(b) & ZR_BLOCK_HANDLE)
        return true;
    if (base < n->of->base && base > n->below) {
        n->below = base;
        n->below_size = size;
    } else if (base > n->of->base && base < n->above) {
        n->above = base;
        n->above_size = size;
    }
    return true;
}

static void tell_neighbours(struct zr_account_of *t, const struct zr_checked *c) {
    struct neighbours n = {.of = c, .above = UINTPTR_MAX};

    zr_block_each(nearest, &n);
    if (n.below)
        zr_tell(t, "  before it  %#zx, %zu bytes, live, ends %zu bytes before\n", n.below, n.below_size,
                c->base - n.below - n.below_size);
    if (n.above != UINTPTR_MAX)
        zr_tell(t, "  behind it  %#zx, %zu bytes, live, begins %zu bytes behind\n", n.above, n.above_size,
                n.above - c->base - c->size);
}

uint32_t zr_check_errors(void) {
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

bool zr_found_is_told(void) {
    return __atomic_load_n(&found, __ATOMIC_RELAXED) < TOLD;
}

static void print(const char *text, size_t length) {
    int saved = errno;

    if (write(2, text, length) < 0)
        length = 0; /* nobody to tell */
    errno = saved;
}

void zr_found(enum zr_finding what, const struct zr_account_of *t) {
    uint32_t number = __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
    struct zr_account_of all = {.used = 0};

    describe();
    zr_count_named(field(&found_field[what], finding[what].name, finding[what].help), 1);
    if (what != ZR_FOUND_LEAK) /* the driver frees what is left, and many programs leave it to that */
        zr_count_named(field(&all_field, "errors", errors_help), 1);
    if (number >= TOLD) {
        if (number == TOLD)
            zr_warn("check: more than %d errors: the rest are counted", TOLD);
        return;
    }
    zr_tell(&all, "zeroute: check: %s: %s", finding[what].name, t->text);
    if (all.text[all.used - 1] != '\n')
        all.text[all.used - 1] = '\n';
    print(all.text, all.used);
    all.text[strcspn(all.text, "\n")] = '\0';
    zeroute_mark(all.text); /* the first line, in the record */
    all.text[strlen(all.text)] = '\n';
    zr_text((enum zr_text)(ZR_T_CHECK_1 + number), all.text + sizeof "zeroute: check: " - 1);
}

/* --- what verifying finds ----------------------------------------------------------------------------------------- */

static void tell_all(struct zr_account_of *t, const struct zr_checked *c) {
    if (!zr_found_is_told())
        return;
    zr_tell_block(t, c);
    zr_tell_origin(t, "allocated", &c->born);
    zr_tell_origin(t, "freed", &c->freed);
    tell_neighbours(t, c);
}

/* Whose write it was: the block that begins where the red zone ends, if only its near end was hit. */
static void report_zone(const struct zr_checked *c, size_t first, size_t last) {
    struct zr_account_of t = {.used = 0};
    uint64_t word;
    struct zr_block *next = zr_map_around((const void *)(c->base + c->held), &word);
    bool under = next && next->base == c->base + c->held && first > c->size && last == c->held - 1;

    if (under) {
        zr_tell(&t, "bytes -%zu to -%zu before the start of a block of %zu bytes were written\n", c->held - first,
                c->held - last, next->size);
        zr_tell(&t, "  block      %#zx; the bytes belong to the red zone of the block before it:\n", next->base);
    } else {
        zr_tell(&t, "bytes %zu to %zu of a block of %zu bytes were written\n", first, last, c->size);
    }
    tell_all(&t, c);
    zr_found(under ? ZR_FOUND_UNDERRUN : ZR_FOUND_OVERRUN, &t);
}

bool zr_look_at_zone(struct zr_checked *c) {
    size_t first, last;

    if (!zr_poison_look(c, c->size, c->held - c->size, &first, &last))
        return false;
    if (first > last)
        return true;
    report_zone(c, first, last);
    zr_lock(&zr_check_lock);
    c->armed = false; /* said once */
    zr_unlock(&zr_check_lock);
    return true;
}

bool zr_look_at_freed(struct zr_checked *c) {
    struct zr_account_of t = {.used = 0};
    size_t first, last;

    if (!zr_poison_look(c, 0, c->size, &first, &last))
        return false;
    if (first > last)
        return true;
    c->clean = false; /* said once */
    zr_tell(&t, "bytes %zu to %zu of a freed block of %zu bytes were written\n", first, last, c->size);
    tell_all(&t, c);
    zr_found(ZR_FOUND_WRITE_AFTER_FREE, &t);
    return true;
}

void zr_found_summary(void) {
    uint32_t all = __atomic_load_n(&found, __ATOMIC_RELAXED);
    uint64_t unverified = __atomic_load_n(&counted[ZR_CHECKED_UNVERIFIED], __ATOMIC_RELAXED);

    if (all > TOLD)
        zr_warn("check: %u errors, %u of them told in full", all, TOLD);
    if (unverified)
        zr_warn("check: %llu freed blocks were given back unverified: there was no time, or the device did not rest",
                (unsigned long long)unverified);
}

void zr_found_fork_child(void) {
    memset(counted, 0, sizeof counted);
    memset(found_field, 0, sizeof found_field);
    memset(count_field, 0, sizeof count_field);
    all_field = 0;
    found = 0;
}
