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
static const char prefix[] = "zeroute: check: ";

static const struct {
    const char *name, *field, *help;
} finding[ZR_FOUND] = {
#define ZR_FINDING(id, name, help) {name, "check." name, help},
    ZR_FINDINGS
#undef ZR_FINDING
};
static uint64_t counted[ZR_FOUND]; /* atomic */
static int field[ZR_FOUND];        /* atomic: its number in the segment plus one */
static uint32_t found;             /* atomic */

/* All fields appear with the first block, so that a reader finds a zero and not nothing. */
void zr_check_count(enum zr_finding what, uint64_t n) {
    if (unlikely(!__atomic_load_n(&field[what], __ATOMIC_ACQUIRE)))
        for (unsigned i = 0; i < ZR_FOUND; i++)
            __atomic_store_n(&field[i], zr_named(finding[i].field, "", finding[i].help) + 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&counted[what], n, __ATOMIC_RELAXED);
    zr_count_named(__atomic_load_n(&field[what], __ATOMIC_ACQUIRE) - 1, n);
}

uint32_t zr_check_errors(void) {
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

void zr_origin_here(struct zr_origin *o) {
    uint8_t cut = 0;

    o->thread = (uint32_t)syscall(SYS_gettid);
    o->count = (uint32_t)zr_native_frames(o->frame, ZR_FRAMES, &cut);
}

void zr_tell(struct zr_report *r, const char *format, ...) {
    size_t room;
    va_list arguments;
    int n;

    if (zr_check_errors() >= PRINTED)
        return;
    if (!r->used)
        r->used = (size_t)snprintf(r->text, sizeof r->text, "%s%s: ", prefix, finding[r->what].name);
    room = sizeof r->text - r->used;
    va_start(arguments, format);
    n = vsnprintf(r->text + r->used, room, format, arguments);
    va_end(arguments);
    r->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
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
    if (!o->thread || zr_check_errors() >= PRINTED)
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

void zr_found(struct zr_report *r) {
    uint32_t number = __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
    int saved = errno;

    zr_check_count(r->what, 1);
    if (r->what != ZR_FOUND_LEAK) /* the driver frees what is left, and many programs leave it to that */
        zr_check_count(ZR_FOUND_ERRORS, 1);
    if (number >= PRINTED || !r->used)
        return;
    r->text[r->used - 1] = '\n'; /* also where it was cut */
    if (write(2, r->text, r->used) < 0)
        errno = saved; /* nobody to tell */
    zr_text((enum zr_text)(ZR_T_CHECK_1 + number), r->text + sizeof prefix - 1);
    r->text[strcspn(r->text, "\n")] = '\0';
    zeroute_mark(r->text); /* the first line, in the record */
    errno = saved;
}

static void tell_beside(struct zr_report *r, const char *where, uintptr_t address) {
    const struct zr_checked *c = zr_checked_at(address);

    if (c && c->place <= ZR_CHECKED_ASKED)
        zr_tell(r, "  %-10s %#zx, %zu bytes, live\n", where, c->base, c->size);
}

static void report(struct zr_report *r, const struct zr_checked *c) {
    zr_tell_block(r, c);
    tell_beside(r, "before it", c->base - 1);
    tell_beside(r, "behind it", c->base + c->held);
    zr_found(r);
}

/* A write into a red zone is by that of the blocks at both its ends which is nearer. */
static void report_zone(const struct zr_checked *c, size_t first, size_t last) {
    struct zr_report r = {.what = ZR_FOUND_OVERRUN};
    const struct zr_checked *next = zr_checked_at(c->base + c->held);

    if (next && next->base == c->base + c->held && c->held - 1 - last < first - c->size) {
        r.what = ZR_FOUND_UNDERRUN;
        zr_tell(&r, "bytes -%zu to -%zu before the start of a block of %zu bytes were written\n", c->held - first,
                c->held - last, next->size);
        zr_tell_block(&r, next);
        zr_tell(&r, "  They are bytes %zu to %zu of the block of %zu bytes in front of it:\n", first, last, c->size);
    } else {
        zr_tell(&r, "bytes %zu to %zu of a block of %zu bytes were written\n", first, last, c->size);
    }
    report(&r, c);
}

bool zr_look(struct zr_checked *c, bool at_zone) {
    struct zr_report r = {.what = ZR_FOUND_WRITE_AFTER_FREE};
    size_t first, last;

    if (!zr_poison_look(c, at_zone ? c->size : 0, at_zone ? c->held : c->size, &first, &last))
        return false;
    if (first > last)
        return true;
    zr_lock(&zr_check_lock);
    *(at_zone ? &c->armed : &c->poisoned) = false; /* reported once */
    zr_unlock(&zr_check_lock);
    if (at_zone) {
        report_zone(c, first, last);
    } else {
        zr_tell(&r, "bytes %zu to %zu of a freed block of %zu bytes were written\n", first, last, c->size);
        report(&r, c);
    }
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
