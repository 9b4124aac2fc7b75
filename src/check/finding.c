/*
 * What was found: counted in the segment, the first ten printed in full on stderr and in the segment's texts, the rest
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

enum { PRINTED = 10 };

static const struct {
    const char *name, *help;
} finding[ZR_FOUND] = {
#define ZR_FINDING(id, name, help) {"check." name, help},
    ZR_FINDINGS
#undef ZR_FINDING
};
static uint64_t counted[ZR_FOUND]; /* atomic */
static int field[ZR_FOUND];        /* atomic: its number in the segment plus one */
static uint32_t found;             /* atomic */

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* All fields appear with the first block, so that a reader finds a zero and not nothing. */
void zr_check_count(enum zr_finding what, uint64_t n) {
    if (unlikely(!__atomic_load_n(&field[what], __ATOMIC_ACQUIRE)))
        for (unsigned i = 0; i < ZR_FOUND; i++)
            __atomic_store_n(&field[i], zr_named(finding[i].name, "", finding[i].help) + 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&counted[what], n, __ATOMIC_RELAXED);
    zr_count_named(__atomic_load_n(&field[what], __ATOMIC_ACQUIRE) - 1, n);
}

uint32_t zr_check_errors(void) {
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

void zr_origin_here(struct zr_origin *o) {
    uint8_t cut = 0;

    o->thread = (uint32_t)syscall(SYS_gettid);
    o->count = (uint32_t)zr_native_frames(o->frame, ZR_FRAMES, &cut);
}

static bool is_printed(void) {
    return zr_check_errors() < PRINTED;
}

void zr_tell(struct zr_report *r, const char *format, ...) {
    size_t room = sizeof r->text - r->used;
    va_list arguments;
    int n;

    if (!is_printed())
        return;
    va_start(arguments, format);
    n = vsnprintf(r->text + r->used, room, format, arguments);
    va_end(arguments);
    if (n > 0)
        r->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* A library's name may hold anything. */
static void tell_frame(struct zr_report *r, unsigned number, uint64_t frame) {
    struct zr_elf elf;

    if (!zr_elf_find((const void *)(uintptr_t)frame, &elf)) {
        zr_tell(r, "    #%u %#llx\n", number, (unsigned long long)frame);
        return;
    }
    for (char *p = elf.soname; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127)
            *p = '?';
    zr_tell(r, "    #%u %.63s+%#zx\n", number, *elf.soname ? elf.soname : "?", (size_t)(frame - elf.start));
}

void zr_tell_origin(struct zr_report *r, const char *what, const struct zr_origin *o) {
    if (!o->thread || !is_printed())
        return;
    zr_tell(r, "  %-10s by thread %u%s\n", what, o->thread, o->count ? ":" : "");
    for (unsigned i = 0; i < o->count; i++)
        tell_frame(r, i, o->frame[i]);
}

void zr_tell_block(struct zr_report *r, const struct zr_checked *c) {
    static const char *const kind[] = {
        [ZR_KIND_DEVICE] = "device", [ZR_KIND_HOST] = "host", [ZR_KIND_SHARED] = "shared"};

    zr_tell(r, "  block      %#zx, %zu bytes of %s memory", c->base, c->size, kind[c->kind]);
    if (c->kind != ZR_KIND_HOST)
        zr_tell(r, " on card %u", c->account);
    zr_tell(r, ", context %p\n", (void *)c->context);
    zr_tell_origin(r, "allocated", &c->born);
    zr_tell_origin(r, "freed", &c->freed);
}

void zr_found(enum zr_finding what, const struct zr_report *r) {
    static const char prefix[] = "zeroute: ";
    uint32_t number = __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
    struct zr_report all;
    int n, saved = errno;

    zr_check_count(what, 1);
    if (what != ZR_FOUND_LEAK) /* the driver frees what is left, and many programs leave it to that */
        zr_check_count(ZR_FOUND_ERRORS, 1);
    if (number == PRINTED)
        zr_warn("check: more than %d errors: the rest are counted", PRINTED);
    if (number >= PRINTED || !r->used)
        return;
    n = snprintf(all.text, sizeof all.text, "%scheck: %s: %s", prefix, finding[what].name + sizeof "check", r->text);
    all.used = (size_t)n < sizeof all.text ? (size_t)n : sizeof all.text - 1;
    all.text[all.used - 1] = '\n'; /* also where it was cut */
    if (write(2, all.text, all.used) < 0)
        errno = saved; /* nobody to tell */
    zr_text((enum zr_text)(ZR_T_CHECK_1 + number), all.text + sizeof "zeroute: check:");
    all.text[strcspn(all.text, "\n")] = '\0';
    zeroute_mark(all.text); /* the first line, in the record */
    errno = saved;
}

/* --- what verifying finds ----------------------------------------------------------------------------------------- */

/* With the nearest live blocks on both sides. */
static void report(enum zr_finding what, struct zr_report *r, const struct zr_checked *c) {
    const struct zr_checked *below = NULL, *above = NULL;

    zr_tell_block(r, c);
    zr_lock(&zr_check_lock);
    for (const struct zr_checked *n = zr_check_list[ZR_CHECKED_LIVE].oldest; n; n = n->newer)
        if (n->base < c->base && (!below || n->base > below->base))
            below = n;
        else if (n->base > c->base && (!above || n->base < above->base))
            above = n;
    if (below)
        zr_tell(r, "  before it  %#zx, %zu bytes, live, ends %zu bytes before\n", below->base, below->size,
                c->base - below->base - below->size);
    if (above)
        zr_tell(r, "  behind it  %#zx, %zu bytes, live, begins %zu bytes behind\n", above->base, above->size,
                above->base - c->base - c->size);
    zr_unlock(&zr_check_lock);
    zr_found(what, r);
}

/* Whose write it was: of the blocks at both ends of the red zone, that of the nearer end. */
static void report_zone(const struct zr_checked *c, size_t first, size_t last) {
    struct zr_report r = {.used = 0};
    uint64_t word;
    const struct zr_checked *next = zr_checked_of(zr_map_around((const char *)c->base + c->held, &word));

    if (!next || next->base != c->base + c->held || c->held - 1 - last >= first - c->size) {
        zr_tell(&r, "bytes %zu to %zu of a block of %zu bytes were written\n", first, last, c->size);
        report(ZR_FOUND_OVERRUN, &r, c);
        return;
    }
    zr_tell(&r, "bytes -%zu to -%zu before the start of a block of %zu bytes were written\n", c->held - first,
            c->held - last, next->size);
    zr_tell_block(&r, next);
    zr_tell(&r, "  They are bytes %zu to %zu of the block of %zu bytes in front of it:\n", first, last, c->size);
    report(ZR_FOUND_UNDERRUN, &r, c);
}

bool zr_look_at_zone(struct zr_checked *c) {
    size_t first, last;

    if (!zr_poison_look(c, c->size, c->held - c->size, &first, &last))
        return false;
    if (first > last)
        return true;
    zr_lock(&zr_check_lock);
    c->armed = false;
    zr_unlock(&zr_check_lock);
    report_zone(c, first, last);
    return true;
}

bool zr_look_at_freed(struct zr_checked *c) {
    struct zr_report r = {.used = 0};
    size_t first, last;

    if (!zr_poison_look(c, 0, c->size, &first, &last))
        return false;
    if (first > last)
        return true;
    zr_lock(&zr_check_lock);
    c->poisoned = false;
    zr_unlock(&zr_check_lock);
    zr_tell(&r, "bytes %zu to %zu of a freed block of %zu bytes were written\n", first, last, c->size);
    report(ZR_FOUND_WRITE_AFTER_FREE, &r, c);
    return true;
}

void zr_found_summary(void) {
    uint32_t all = zr_check_errors();
    uint64_t unverified = __atomic_load_n(&counted[ZR_FOUND_UNVERIFIED], __ATOMIC_RELAXED);

    if (all > PRINTED)
        zr_warn("check: %u errors, %u of them told in full", all, PRINTED);
    if (unverified)
        zr_warn("check: %llu freed blocks were given back unverified: there was no time, or the device did not rest",
                (unsigned long long)unverified);
}

void zr_found_fork_child(void) {
    memset(counted, 0, sizeof counted);
    memset(field, 0, sizeof field);
    found = 0;
}
