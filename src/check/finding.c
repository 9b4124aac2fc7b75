/*
 * Findings: all are counted in the segment, the first ten are printed in full on stderr and in the
 * segment's texts. One write(2) per finding, so that those of several processes do not mix.
 */
#include "check/check.h"
#include "record/record.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PRINTED = 10, NEAR = 1 << 20 /* bytes, as far as a slab of Intel's driver may reach */ };
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

/* All fields appear with the first block, so that a reader finds zeros rather than nothing. */
static void finding_publish(void) {
    const char *pool =
        "a SYCL runtime's own pool hides its small blocks: set UR_L0_DISABLE_USM_ALLOCATOR=1";

    if (zr_check_pool_is_off())
        pool = "a SYCL runtime's pool is off (UR_L0_DISABLE_USM_ALLOCATOR): each of its blocks is "
               "seen";
    zr_text(ZR_T_CHECK, pool);
    for (unsigned i = 0; i < ZR_FOUND; i++)
        __atomic_store_n(&field[i], zr_named(finding[i].field, "", finding[i].help) + 1,
                         __ATOMIC_RELEASE);
}

void zr_check_count(enum zr_finding what, uint64_t n) {
    if (unlikely(!__atomic_load_n(&field[what], __ATOMIC_ACQUIRE)))
        finding_publish();
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
        r->used =
            (size_t)snprintf(r->text, sizeof r->text, "%s%s: ", prefix, finding[r->what].name);
    room = sizeof r->text - r->used;
    va_start(arguments, format);
    n = vsnprintf(r->text + r->used, room, format, arguments);
    va_end(arguments);
    if (n >= 0)
        r->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* Each library once: its name is in the frames, its path is what their lines are looked up in. */
static void note_module(struct zr_report *r, struct zr_elf *elf) {
    char path[512], entry[640];
    ssize_t n = *elf->path ? -1 : readlink("/proc/self/exe", path, sizeof path - 1);

    if (n >= 0)
        path[n] = '\0';
    else if (snprintf(path, sizeof path, "%s", elf->path) >= (int)sizeof path || !*path)
        return;
    int size = snprintf(entry, sizeof entry, " %.63s=%s", zr_printable(elf->soname), path);
    if (size >= (int)sizeof entry || strpbrk(path, " \n") || strstr(r->modules, entry) ||
        r->modules_used + (size_t)size >= sizeof r->modules)
        return;
    memcpy(r->modules + r->modules_used, entry, (size_t)size + 1);
    r->modules_used += (size_t)size;
}

void zr_tell_origin(struct zr_report *r, const char *what, const struct zr_origin *o) {
    struct zr_elf elf;

    if (!o->thread || zr_check_errors() >= PRINTED)
        return;
    zr_tell(r, "  %-10s by thread %u%s\n", what, o->thread, o->count ? ":" : "");
    for (unsigned i = 0; i < o->count; i++) {
        if (zr_elf_find((const void *)(uintptr_t)o->frame[i], &elf) == ZR_LIST_FOUND) {
            zr_tell(r, "    #%u %.63s+%#zx\n", i, zr_printable(elf.soname),
                    (size_t)(o->frame[i] - elf.bias));
            note_module(r, &elf);
        } else {
            zr_tell(r, "    #%u %#llx\n", i, (unsigned long long)o->frame[i]);
        }
    }
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

/*
 * `zeroute run` prints the whole with names and lines at the end of the run: until then its first
 * line will do.
 */
static size_t to_print(const struct zr_report *r) {
    if (zr_stats_is_open() && secure_getenv("ZEROUTE_RUN"))
        return strcspn(r->text, "\n") + 1;
    return r->used;
}

/* As the last line of what is published; a long report is cut before it. */
static void add_modules(struct zr_report *r) {
    size_t needed = r->modules_used + sizeof "  libraries \n", at = r->used;

    if (!r->modules_used)
        return;
    if (at - (sizeof prefix - 1) + needed > ZR_TEXT_ROOM)
        at = ZR_TEXT_ROOM - needed + sizeof prefix - 1;
    r->text[at - 1] = '\n';
    snprintf(r->text + at, sizeof r->text - at, "  libraries %s\n", r->modules);
}

void zr_found(struct zr_report *r) {
    uint32_t number = __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
    int saved = errno;

    zr_check_count(r->what, 1);
    if (r->what != ZR_FOUND_LEAK) /* many programs leave that to the driver */
        zr_check_count(ZR_FOUND_ERRORS, 1);
    if (number >= PRINTED || !r->used)
        return;
    r->text[r->used - 1] = '\n'; /* also where it was cut */
    (void)!write(2, r->text, to_print(r));
    add_modules(r);
    zr_text((enum zr_text)(ZR_T_CHECK_1 + number), r->text + sizeof prefix - 1);
    r->text[strcspn(r->text, "\n")] = '\0';
    zeroute_mark(r->text); /* the first line, in the record */
    errno = saved;
}

/*
 * The nearest block on each side, if near, that is live or was when c was freed: later frees have
 * higher tickets.
 */
static void tell_beside(struct zr_report *r, const struct zr_checked *c) {
    const struct zr_checked *nearest[2] = {NULL, NULL}; /* before it, behind it */
    size_t least[2] = {NEAR, NEAR};

    zr_lock(&zr_check_lock);
    for (enum zr_checked_place p = ZR_CHECKED_LIVE; p < ZR_PLACES; p++)
        for (const struct zr_checked *n = zr_check_list[p].newest; n; n = n->older) {
            bool behind = n->base > c->base;
            size_t gap = behind ? n->base - (c->base + c->size) : c->base - (n->base + n->size);

            if (gap < least[behind] &&
                (n->ticket ? c->ticket && n->ticket > c->ticket : p <= ZR_CHECKED_ASKED)) {
                nearest[behind] = n;
                least[behind] = gap;
            }
        }
    for (unsigned i = 0; i < 2; i++) {
        const char *side = i ? "behind it" : "before it";

        if (nearest[i])
            zr_tell(r, "  %-10s %zu bytes away: %#zx, %zu bytes, %s\n", side, least[i],
                    nearest[i]->base, nearest[i]->size,
                    nearest[i]->ticket ? "freed later" : "live");
    }
    zr_unlock(&zr_check_lock);
}

/* A write into a red zone is attributed to the nearer of the two blocks beside it. */
bool zr_look(struct zr_checked *c, bool at_zone) {
    struct zr_report r = {.what = at_zone ? ZR_FOUND_OVERRUN : ZR_FOUND_WRITE_AFTER_FREE};
    const struct zr_checked *next = at_zone ? zr_checked_at(c->base + c->held) : NULL;
    size_t from = at_zone ? c->size : 0, to = at_zone ? c->held : c->size, first, last;

    if (!zr_poison_look(c, from, to, &first, &last))
        return false;
    if (first > last)
        return true;
    zr_lock(&zr_check_lock);
    if (at_zone) /* it is reported once */
        c->armed = false;
    else
        c->poisoned = false;
    zr_unlock(&zr_check_lock);
    if (next && next->base == c->base + c->held && c->held - 1 - last < first - c->size) {
        r.what = ZR_FOUND_UNDERRUN;
        zr_tell(&r, "bytes -%zu to -%zu before the start of a block of %zu bytes were written\n",
                c->held - first, c->held - last, next->size);
        zr_tell_block(&r, next);
        zr_tell(&r, "  They are bytes %zu to %zu of the block of %zu bytes in front of it:\n",
                first, last, c->size);
    } else {
        zr_tell(&r, "bytes %zu to %zu of a %sblock of %zu bytes were written\n", first, last,
                at_zone ? "" : "freed ", c->size);
    }
    zr_tell_block(&r, c);
    tell_beside(&r, c);
    zr_found(&r);
    return true;
}

void zr_found_summary(void) {
    uint32_t all = zr_check_errors();
    uint64_t unverified = __atomic_load_n(&counted[ZR_FOUND_UNVERIFIED], __ATOMIC_RELAXED);

    if (all > PRINTED)
        zr_warn("check: %u errors, %u of them printed in full", all, PRINTED);
    if (unverified)
        zr_warn("check: %llu freed blocks were given back unverified: there was no time, or the "
                "device did not rest",
                (unsigned long long)unverified);
}

void zr_found_fork_child(void) {
    memset(counted, 0, sizeof counted);
    memset(field, 0, sizeof field);
    found = 0;
}
