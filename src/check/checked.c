/*
 * What policy/ reports: blocks that are handed out and freed, wrong frees, destroyed contexts, and
 * the end of the process.
 */
#include "check/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ZONE = 64,   /* bytes of a red zone at least */
    GRAIN = 512, /* the least alignment of Intel's driver: a red zone ends at a multiple of it */
    LISTED = 3,  /* blocks that a finding about many of them lists */
    MOST_LOG2 = 44
};

#define POOL_OFF "UR_L0_DISABLE_USM_ALLOCATOR"

static bool too_late; /* an adapter was loaded before its pool was switched off */

/*
 * An adapter that is loaded: as a library of its own, or inside another one, under whatever name.
 * We hold its variable ourselves.
 */
static bool is_adapter(const struct zr_elf *elf, void *unused) {
    uintptr_t ours = (uintptr_t)&too_late;

    (void)unused;
    if (elf->start <= ours && ours < elf->end)
        return false;
    return zr_who_holds_adapter(elf);
}

/*
 * A runtime's pool would hide small blocks: a variable switches it off. The adapter reads it when
 * it is loaded, so it must be set before main; an adapter that is linked to the program has read it
 * even before that. Costs every process one look at its environment.
 */
__attribute__((constructor)) static void before_main(void) {
    const char *conf = secure_getenv("ZEROUTE_CONF"), *check = conf ? strstr(conf, "check:") : NULL;

    if (!check || strncmp(check, "check:none", 10) == 0 || secure_getenv(POOL_OFF))
        return;
    setenv(POOL_OFF, "1", 0);
    too_late = zr_elf_each(is_adapter, NULL) == ZR_LIST_FOUND;
}

bool zr_check_pool_is_off(void) {
    const char *off = secure_getenv(POOL_OFF);

    return off && strcmp(off, "0") != 0 && !too_late;
}

static bool is_memory(enum zr_kind kind) {
    return kind == ZR_KIND_DEVICE || kind == ZR_KIND_HOST || kind == ZR_KIND_SHARED;
}

size_t zr_check_held(enum zr_kind kind, bool plain, size_t size) {
    if (!zr_checks(ZR_CHECK_GUARD) || !is_memory(kind) || !plain || !size || size >> MOST_LOG2)
        return size;
    return (size + ZONE + GRAIN - 1) & ~(size_t)(GRAIN - 1);
}

void zr_check_born(const struct zr_op *op, struct zr_block *b, ze_device_handle_t device,
                   bool plain, zr_release *release) {
    int saved = errno;
    struct zr_checked c;

    if (!b || !is_memory(b->key.kind) || zr_exiting())
        return;
    c = (struct zr_checked){
        .block = b, .base = b->base, .size = b->size, .held = b->held, .hook = op->hook};
    c.context = b->key.context;
    c.account = b->key.account;
    c.kind = b->key.kind;
    c.device = c.kind == ZR_KIND_HOST ? NULL : device;
    c.may_be_kept = plain;
    zr_origin_here(&c.born);
    zr_check_count(ZR_FOUND_BLOCKS, 1);
    if (c.held < zr_check_held(c.kind, plain, c.size))
        zr_check_count(ZR_FOUND_PASSED_ZONE, 1);
    zr_worker_born(&c, release);
    errno = saved;
}

struct zr_checked *zr_checked_of(const struct zr_block *b) {
    struct zr_checked *c =
        b && is_memory(b->key.kind) ? __atomic_load_n(&b->checked, __ATOMIC_ACQUIRE) : NULL;

    return c && c->block == b && c->base == b->base ? c : NULL;
}

struct zr_checked *zr_checked_at(uintptr_t address) {
    uint64_t word;

    return zr_checked_of(zr_map_around((const void *)address, &word));
}

/* Whether a block that is freed is held back. */
static bool is_held_back(const struct zr_checked *c) {
    uint32_t shared = zr_config.check_exported == ZR_CHECK_EXPORTED_POISON ? 0 : ZR_BLOCK_EXPORTED;
    uint32_t flags = zr_block_flags(c->block);

    if (!zr_checks(ZR_CHECK_FREE) || flags & ZR_BLOCK_ORPHANED)
        return false;
    if (c->may_be_kept && !(flags & (shared | ZR_BLOCK_PINNED)) &&
        c->held <= zr_config.check_quarantine.bytes)
        return true;
    zr_check_count(c->held > zr_config.check_quarantine.bytes ? ZR_FOUND_PASSED_SIZE
                                                              : ZR_FOUND_PASSED_SHARED,
                   1);
    return false;
}

bool zr_check_free(const struct zr_op *op, ze_context_handle_t context, struct zr_block *b,
                   enum zr_use use) {
    struct zr_checked *c = zr_checked_of(b);
    struct zr_report r = {.what = ZR_FOUND_WRONG_CONTEXT};
    int saved = errno;
    bool ours;

    if (!c)
        return false;
    zr_origin_here(&c->freed);
    if (context != c->context && op->hook == c->hook) {
        zr_tell(&r, "a block of %zu bytes was freed through context %p, which is not its own\n",
                c->size, (void *)context);
        zr_tell_block(&r, c);
        zr_found(&r);
    }
    if (zr_block_flags(b) & ZR_BLOCK_EXPORTED)
        zr_exports_freed(c);
    /* A write before its start hits the red zone of the block in front of it. */
    ours = zr_worker_free(c, zr_checked_at(c->base - 1), is_held_back(c), use);
    errno = saved;
    return ours;
}

void zr_check_remapped(const void *ptr, size_t size, const struct zr_origin *unmapped) {
    struct zr_report r = {.what = ZR_FOUND_REMAPPED};
    struct zr_origin here;

    zr_origin_here(&here);
    zr_tell(&r,
            "%zu bytes were mapped at %p, where other memory was mapped before: another card may "
            "read that\n",
            size, ptr);
    zr_tell_origin(&r, "unmapped", unmapped);
    zr_tell_origin(&r, "mapped", &here);
    zr_found(&r);
}

void zr_check_bad_free(const void *ptr, const struct zr_block *around, uint64_t word) {
    bool live = around && zr_word_state(word) == ZR_BLOCK_LIVE;
    const struct zr_checked *known = zr_checked_of(around);
    struct zr_report r = {.what = ZR_FOUND_FOREIGN_FREE};
    struct zr_checked c = {.base = 0};
    struct zr_origin here;

    zr_lock(&zr_check_lock);
    for (const struct zr_checked *old = zr_check_list[ZR_CHECKED_GONE].newest; !known && old;
         old = old->older)
        if (old->base == (uintptr_t)ptr)
            known = old;
    if (known)
        c = *known;
    zr_unlock(&zr_check_lock);
    if (!known) {
        zr_tell(&r, "%p was freed, where no allocation begins\n", ptr);
    } else if (c.base == (uintptr_t)ptr) {
        r.what = ZR_FOUND_DOUBLE_FREE;
        zr_tell(&r, "a block of %zu bytes was freed twice\n", c.size);
    } else {
        r.what = ZR_FOUND_INTERIOR_FREE;
        zr_tell(&r, "%p was freed, which is %zu bytes into a block%s\n", ptr,
                (uintptr_t)ptr - c.base, live ? "" : " that is free already");
    }
    if (known)
        zr_tell_block(&r, &c);
    zr_origin_here(&here);
    zr_tell_origin(&r, known && !live ? "then freed" : "freed", &here);
    zr_found(&r);
}

/*
 * Reports the blocks of a context, or all (NULL), but none whose context is gone, and names the
 * largest.
 */
static void report_live(enum zr_finding what, const char *when, const void *context) {
    struct zr_checked largest[LISTED + 1]; /* and room to insert */
    struct zr_report r = {.what = what};
    size_t blocks = 0, listed = 0;
    uint64_t bytes = 0;

    zr_lock(&zr_check_lock);
    for (enum zr_checked_place p = ZR_CHECKED_LIVE; p <= ZR_CHECKED_ASKED; p++)
        for (const struct zr_checked *c = zr_check_list[p].newest; c; c = c->older) {
            uint32_t left_out = ZR_BLOCK_ORPHANED | (context ? ZR_BLOCK_WITH_CONTEXT : 0);
            size_t at = listed;

            if (c->ticket || (context && c->context != context) || !c->block ||
                zr_block_flags(c->block) & left_out)
                continue;
            for (; at && largest[at - 1].size < c->size; at--)
                largest[at] = largest[at - 1];
            largest[at] = *c;
            listed += listed < LISTED;
            blocks++;
            bytes += c->size;
        }
    zr_unlock(&zr_check_lock);
    if (!blocks)
        return;
    zr_tell(&r, "%zu blocks, %llu bytes, were still allocated %s%s\n", blocks,
            (unsigned long long)bytes, when, blocks > LISTED ? "; the largest:" : "");
    for (size_t i = 0; i < listed; i++)
        zr_tell_block(&r, &largest[i]);
    zr_found(&r);
}

void zr_check_context_ends(const void *context) {
    report_live(ZR_FOUND_CONTEXT_LIVE, "when their context was destroyed", context);
}

void zr_check_process_end(void) {
    if (!zr_checking())
        return;
    zr_imports_end();
    report_live(ZR_FOUND_LEAK, "at the end of the process", NULL);
    zr_found_summary();
}
