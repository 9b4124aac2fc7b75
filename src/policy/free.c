/*
 * Every free: into the cache where the block may be reused at once, else back to the driver.
 *
 * zeMemFree vouches that no command uses the block; zeMemFreeExt with BLOCKING or DEFER does not,
 * so such a block goes to the driver.
 */
#include "check/check.h"
#include "pause/pause.h"
#include "policy/policy.h"
#include "work/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum zr_field policy_field(const ze_memory_free_ext_desc_t *desc) {
    uint32_t policy = desc ? desc->freePolicy : 0;

    if (policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)
        return ZR_F_FREE_POLICY_BLOCKING;
    if (policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE)
        return ZR_F_FREE_POLICY_DEFER;
    return ZR_F_FREE_POLICY_DEFAULT;
}

/* Whether it was a block of a process that may be paused, and is freed. */
static ZR_COLD bool free_pausable(const struct zr_free *f) {
    uint64_t word;
    const struct zr_block *b = zr_map_look(f->ptr, &word);

    return zr_pause_free(f->ptr, b && zr_block_flags(b) & ZR_BLOCK_EXPORTED);
}

static inline ze_result_t ask_driver(struct zr_op *op, const struct zr_free *f, size_t held) {
    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    if (zr_pausing() && f->context && free_pausable(f))
        return ZE_RESULT_SUCCESS;
    if (f->ext)
        return ZR_DOWN(op, zeMemFreeExt, held, (f->context, f->desc, f->ptr));
    return ZR_DOWN(op, zeMemFree, held, (f->context, f->ptr));
}

static bool driver_knows(struct zr_op *op, const struct zr_free *f) {
    void *base = NULL;
    size_t size = 0;

    return ZR_BELOW(op, zeMemGetAddressRange)(f->context, f->ptr, &base, &size) ==
               ZE_RESULT_SUCCESS &&
           base == f->ptr;
}

enum zr_released (*zr_policy_release_direct)(struct zr_block *b);

/* What the driver does not know any more is gone, whatever it answers. */
enum zr_released zr_policy_release(struct zr_block *b) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = b->free_policy};
    struct zr_free f = {
        .context = b->key.context, .ptr = (void *)b->base, .ext = b->free_ext, .desc = &desc};
    ze_result_t result;
    ZR_OWN_OP(op, zr_block_hook(b));

    if (zr_block_flags(b) & ZR_BLOCK_DIRECT)
        return zr_policy_release_direct(b);
    zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    result = ask_driver(&op, &f, b->held);
    if (unlikely(result != ZE_RESULT_SUCCESS) && driver_knows(&op, &f)) {
        zr_registry_record(ZEROUTE_EVENT_RESERVE, b, 0);
        return ZR_RELEASE_REFUSED;
    }
    zr_registry_released(b);
    return ZR_RELEASED;
}

/* --- frees that are wrong --------------------------------------------------------------------- */

/* The descriptor may be another block's by now: what it says goes into the message only. */
ZR_COLD void zr_policy_wrong_free(enum zr_field kind, const void *caller, const void *ptr,
                                  const struct zr_block *b) {
    static const char *const text[] = {
        ", which no allocation returned", ", which lies within a block", " twice",
        " through another context than its own", " after its context was destroyed"};
    static bool said[sizeof text / sizeof *text];
    unsigned which = kind - ZR_F_FREE_INVALID_UNKNOWN;
    enum zr_block_state state = b ? zr_word_state(zr_block_word(b)) : ZR_BLOCK_NONE;
    char history[256] = "";

    zr_count(kind, 1);
    if (zr_checking() ||
        __atomic_exchange_n(&said[which], true, __ATOMIC_RELAXED)) /* check tells more */
        return;
    if (b) {
        const void *allocator = __atomic_load_n(&b->caller, __ATOMIC_RELAXED);
        const void *freer = __atomic_load_n(&b->freed_by, __ATOMIC_RELAXED);
        char where[16] = "host";

        if (b->key.account != ZR_HOST_ACCOUNT)
            snprintf(where, sizeof where, "card %u", b->key.account);
        snprintf(history, sizeof history, " (%zu bytes at %p, %s, allocated by %s%s%s)", b->size,
                 (void *)b->base, where, zr_library_of(allocator)->name,
                 state == ZR_BLOCK_LIVE ? "" : ", freed before by ",
                 state == ZR_BLOCK_LIVE ? "" : zr_library_of(freer)->name);
    }
    zr_warn("%s freed %p%s%s; free.invalid.* counts such frees", zr_library_of(caller)->name, ptr,
            text[which], history);
}

static ze_result_t refuse(const struct zr_free *f) {
    zr_count_failure(f->ext ? ZR_E_zeMemFreeExt : ZR_E_zeMemFree, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    zr_record(ZEROUTE_EVENT_FAIL, ZR_KIND_DEVICE, ZR_UNKNOWN_DEVICE, f->ptr, 0, 0,
              ZEROUTE_REFUSED_BY_ZEROUTE, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

/* --- pointers that were allocated past us ----------------------------------------------------- */

/*
 * Addresses that a thread wants to know about: is this memory that came past us, or has the driver
 * just handed the address to a thread that is about to register it? Whoever registers a block there
 * says so.
 */
enum { SUSPECTS = 8 };
static struct {
    const void *ptr; /* atomic, and so is the other; NULL: unused */
    bool registered;
} suspect[SUSPECTS];
uint32_t zr_suspects; /* atomic: how many there are */

ZR_COLD void zr_suspect_registered(const void *base) {
    for (unsigned i = 0; i < SUSPECTS; i++)
        if (__atomic_load_n(&suspect[i].ptr, __ATOMIC_SEQ_CST) == base)
            __atomic_store_n(&suspect[i].registered, true, __ATOMIC_SEQ_CST);
}

/* Returns the place; -1 if all are taken. */
static int begin_suspicion(const void *ptr) {
    for (int i = 0; i < SUSPECTS; i++) {
        const void *none = NULL;

        if (!__atomic_compare_exchange_n(&suspect[i].ptr, &none, ptr, false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&suspect[i].registered, false, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&zr_suspects, 1, __ATOMIC_SEQ_CST);
        return i;
    }
    return -1;
}

static void end_suspicion(int i) {
    __atomic_fetch_sub(&zr_suspects, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&suspect[i].ptr, NULL, __ATOMIC_SEQ_CST);
}

static bool is_in_map(const void *ptr) {
    uint64_t word = 0;

    return zr_map_look(ptr, &word) && zr_word_state(word) != ZR_BLOCK_NONE;
}

/*
 * Whether the driver knows a pointer that no block begins at. Then it was allocated past us, unless
 * an allocation that is in progress was given it: such a free is a stale one, and would take
 * another thread's block.
 */
static ZR_COLD bool is_past_us(struct zr_op *op, const struct zr_free *f, bool refuses) {
    bool past_us;
    int i;

    if (!f->context || !refuses)
        return f->context && driver_knows(op, f);
    if (zr_checking() && zr_check_owns(f->ptr))
        return false;
    i = begin_suspicion(f->ptr);
    if (i < 0)
        return false;
    past_us = !is_in_map(f->ptr) && driver_knows(op, f) && !zr_policy_in_flight() &&
              !is_in_map(f->ptr) && !__atomic_load_n(&suspect[i].registered, __ATOMIC_SEQ_CST);
    end_suspicion(i);
    return past_us;
}

/* --- and others ------------------------------------------------------------------------------- */

/* What kind of wrong free it is: counts and reports it. `known` is the last block at this address,
 * or NULL. */
static void tell_wrong(const struct zr_op *op, const struct zr_free *f,
                       const struct zr_block *known, uint64_t word) {
    if (!f->ptr) {
        zr_count(ZR_F_FREE_INVALID_NULL, 1);
        return;
    }
    if (known && known->base == (uintptr_t)f->ptr)
        zr_policy_wrong_free(ZR_F_FREE_INVALID_TWICE, op->caller, f->ptr, known);
    else if (known && zr_word_state(word) == ZR_BLOCK_LIVE)
        zr_policy_wrong_free(ZR_F_FREE_INVALID_INTERIOR, op->caller, f->ptr, known);
    else
        zr_policy_wrong_free(ZR_F_FREE_INVALID_UNKNOWN, op->caller, f->ptr, NULL);
    if (zr_checking() && !(op->above && op->above->told == f->ptr))
        zr_check_bad_free(f->ptr, known, word);
}

/*
 * The driver has accepted a free that we took for a wrong one. If another thread was given the
 * address meanwhile, it is that thread's block that is gone, and the books have to know. Not if the
 * driver has handed it out once more by now.
 */
static ze_result_t pass_down(struct zr_op *op, const struct zr_free *f) {
    ze_result_t result = ask_driver(op, f, 0);
    uint64_t word;
    struct zr_block *b;

    if (result != ZE_RESULT_SUCCESS)
        return result;
    b = zr_map_look(f->ptr, &word);
    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE || driver_knows(op, f) ||
        !zr_block_shift(b, word, ZR_BLOCK_FREEING))
        return result;
    zr_registry_record(ZEROUTE_EVENT_FREE, b, 0);
    zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    zr_registry_gone(b);
    return result;
}

/*
 * Another thread's free of this address may be at the driver. What it comes to decides about ours:
 * waits for it, at most 100 ms.
 */
static void await_other_free(const void *ptr) {
    static const struct timespec little = {0, 50000};
    uint64_t word = 0;

    for (int i = 0; i < 2000 && zr_map_look(ptr, &word); i++) {
        if (zr_word_state(word) != ZR_BLOCK_FREEING)
            break;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
    }
}

/*
 * Intel's driver accepts some of these: its own cache takes double frees and interior pointers, and
 * hands them out again. Where we cache they are refused; where we only observe they are counted and
 * passed on. What is in our cache, or on its way to the driver, is refused whatever the setting
 * says by now: its first free has done the work.
 */
static ZR_COLD ze_result_t free_unknown(struct zr_op *op, const struct zr_free *f) {
    uint64_t word = 0;
    struct zr_block *b;
    bool refuses;

    await_other_free(f->ptr);
    b = f->ptr ? zr_map_around(f->ptr, &word) : NULL;
    refuses = zr_config.cache || zr_checking() || (b && zr_word_state(word) != ZR_BLOCK_LIVE);

    /*
     * Freed, and its descriptor not used again yet. The driver's word is no proof here: Intel's
     * knows what it keeps for reuse.
     */
    if (!b && f->ptr && !__atomic_load_n(&zr_registry_lacks, __ATOMIC_RELAXED))
        b = zr_map_look(f->ptr, &word);
    if (!b && f->ptr && is_past_us(op, f, refuses))
        return pass_down(op, f);
    tell_wrong(op, f, b, word);
    if (!f->ptr || !f->context || !refuses)
        return pass_down(op, f);
    return refuse(f);
}

void zr_policy_free_above(struct zr_op *op, const void *ptr) {
    uint64_t word = 0;
    struct zr_block *b;

    if (!ptr || !zr_checking() || !zr_check_pool_is_off() || zr_exiting())
        return;
    b = zr_map_around(ptr, &word);
    if (b && zr_word_state(word) == ZR_BLOCK_LIVE && b->base == (uintptr_t)ptr)
        return;
    zr_check_bad_free(ptr, b, word);
    *op = (struct zr_op){.admits = true, .told = ptr};
    zr_op_begin(op);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Without a descriptor, or with an unknown one, the driver answers an extended free. */
static bool is_known(const struct zr_free *f) {
    return !f->ext ||
           (f->desc && f->desc->stype == ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC && !f->desc->pNext);
}

/* Whether no command uses the block. Adapter v2 frees host USM with a policy that waits;
 * reuse:always needs no wait. */
static bool is_idle(const struct zr_free *f, const struct zr_block *b) {
    if (!f->ext)
        return f->reusable;
    if (!is_known(f))
        return false;
    return f->desc->freePolicy ? zr_config.reuse == ZR_REUSE_ALWAYS && b->key.kind == ZR_KIND_HOST
                               : f->reusable;
}

static bool may_be_cached(const struct zr_free *f, const struct zr_block *b) {
    return zr_config.cache && f->context &&
           (zr_block_flags(b) & (ZR_BLOCK_CACHEABLE | ZR_BLOCK_NOT_KEPT)) == ZR_BLOCK_CACHEABLE &&
           zr_cache_takes(b->key.account, b->held);
}

/*
 * Whether the block may be kept although commands may use it: it is reused once none of them can.
 * *epoch: the one in which it is freed, 0 if nobody needs to wait.
 */
static bool is_kept(const struct zr_free *f, const struct zr_block *b, uint64_t *epoch) {
    *epoch = 0;
    if (is_idle(f, b))
        return true;
    if (zr_config.reuse != ZR_REUSE_PROVEN || !is_known(f) || !zr_work_is_sure())
        return false;
    *epoch = zr_work_freed();
    return true;
}

/*
 * The block is CACHED and owned by this thread: puts it into the cache, or among those that wait
 * for a proof. It leaves the books first, because another thread may reuse it at once. It remembers
 * who freed it.
 */
static void keep(const struct zr_op *op, const struct zr_free *f, struct zr_block *b,
                 uint64_t epoch) {
    zr_registry_unbook(b);
    zr_residency_remember(b);
    __atomic_store_n(&b->freed_by, op->caller, __ATOMIC_RELAXED);
    zr_count(ZR_F_CACHE_RETURNED, 1);
    zr_pending_keep(b, f, epoch);
}

/*
 * The same for check's quarantine. Returns false if check does not take it over: it is FREEING and
 * must go to the driver. What check has taken may be gone, and its descriptor another block's, so
 * it leaves the books as it was.
 */
static bool quarantine(const struct zr_op *op, const struct zr_free *f, struct zr_block *b) {
    enum zr_use use = f->ext && f->desc->freePolicy ? ZR_USE_POSSIBLE : ZR_USE_DENIED;
    const struct zr_block was = {.size = b->size, .flags = zr_block_flags(b), .key = b->key};

    __atomic_store_n(&b->freed_by, op->caller, __ATOMIC_RELAXED);
    if (zr_work_is_sure() && zr_work_is_idle(zr_work_freed()))
        use = ZR_USE_ENDED;
    if (zr_check_free(op, f->context, b, use)) {
        zr_registry_unbook(&was);
        return true;
    }
    __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_FREEING, __ATOMIC_RELEASE);
    return false;
}

/* The block is FREEING and owned by this thread. */
static inline ze_result_t to_driver(struct zr_op *op, const struct zr_free *f, struct zr_block *b) {
    ze_result_t result;

    zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    __atomic_store_n(&b->freed_by, op->caller, __ATOMIC_RELAXED);
    result = ask_driver(op, f, b->held);
    if (unlikely(zr_recording()))
        zr_record_freed(op);
    /* A free of the same address, which we took for a wrong one, may have been faster. */
    if (unlikely(result != ZE_RESULT_SUCCESS) && f->context && !driver_knows(op, f)) {
        zr_registry_gone(b);
        return result;
    }
    return zr_registry_answered(b, result);
}

static inline ze_result_t hold_or_free(struct zr_op *op, const struct zr_free *f,
                                       struct zr_block *b) {
    if (unlikely(zr_config.ipc == ZR_IPC_HOLD) && is_known(f) && f->context &&
        zr_hold_block(b, f)) {
        __atomic_store_n(&b->freed_by, op->caller, __ATOMIC_RELAXED);
        return ZE_RESULT_SUCCESS;
    }
    return to_driver(op, f, b);
}

/*
 * A block of another context than the call names, both seen at the same hook, or of a destroyed
 * context: the driver answers. But Intel's crashes on the handle of a destroyed context, so where
 * wrong frees are refused this is, too.
 */
static ZR_COLD bool is_refused(struct zr_op *op, const struct zr_free *f,
                               const struct zr_block *b) {
    bool orphaned = zr_block_flags(b) & ZR_BLOCK_ORPHANED;

    zr_policy_wrong_free(orphaned ? ZR_F_FREE_INVALID_ORPHANED : ZR_F_FREE_INVALID_CONTEXT,
                         op->caller, f->ptr, b);
    return orphaned && (zr_config.cache || zr_checking()) && f->context == b->key.context;
}

/*
 * A pool gives a block to its provider that was cached: release_direct() of sycl/umf.c. Then it is
 * FREEING.
 */
static ZR_COLD bool is_pools_release(const struct zr_op *op, struct zr_block *b, uint64_t word) {
    return b && zr_word_state(word) == ZR_BLOCK_LEAVING && zr_block_flags(b) & ZR_BLOCK_DIRECT &&
           zr_op_is_pooled(op) && zr_block_shift(b, word, ZR_BLOCK_FREEING);
}

ze_result_t zr_policy_free(struct zr_op *op, const struct zr_free *f) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_look(f->ptr, &word);
    bool wrong, cache, checked;
    uint64_t epoch = 0;

    if (likely(f->ptr))
        zr_count(policy_field(f->desc), 1);
    if (unlikely(zr_hold_any()))
        zr_hold_look(false);
    if (unlikely(!b || zr_word_state(word) != ZR_BLOCK_LIVE))
        return is_pools_release(op, b, word) ? hold_or_free(op, f, b) : free_unknown(op, f);
    if (unlikely(zr_block_flags(b) & ZR_BLOCK_UNBORN)) /* by a stale pointer */
        return free_unknown(op, f);
    wrong = zr_block_flags(b) & ZR_BLOCK_ORPHANED ||
            (b->key.context != f->context && f->context && zr_block_hook(b) == op->hook);
    if (unlikely(wrong) && is_refused(op, f, b))
        return refuse(f);
    cache = !wrong && may_be_cached(f, b) && is_kept(f, b, &epoch);
    checked = zr_checking() && f->context && is_known(f);
    if (unlikely(!zr_block_shift(b, word, cache || checked ? ZR_BLOCK_CACHED : ZR_BLOCK_FREEING)))
        return free_unknown(op, f); /* another thread has freed it first */
    zr_registry_record(ZEROUTE_EVENT_FREE, b, cache || checked ? ZEROUTE_FLAG_CACHED : 0);
    if (unlikely(checked) && quarantine(op, f, b))
        return ZE_RESULT_SUCCESS;
    if (cache && !checked) {
        if (likely(!(zr_block_flags(b) & ZR_BLOCK_NOT_KEPT))) {
            keep(op, f, b, epoch);
            return ZE_RESULT_SUCCESS;
        }
        /* It was exported since we looked. */
        __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_FREEING,
                         __ATOMIC_RELEASE);
    }
    return wrong ? to_driver(op, f, b) : hold_or_free(op, f, b);
}

/* --- the end of a context --------------------------------------------------------------------- */

enum {
    CONTEXT_MS = 5000
}; /* waited at most for blocks of the context that other threads are freeing */

struct context_end {
    struct zr_op *op;
    ze_context_handle_t context;
};

/* Blocks that the program still holds will not be reused: their context is part of their key. */
static bool free_with_context(struct zr_block *b, void *arg) {
    const struct context_end *l = arg;
    uint64_t word = zr_block_word(b);
    struct zr_free f = {.context = l->context};

    if (zr_word_state(word) != ZR_BLOCK_LIVE ||
        __atomic_load_n(&b->key.context, __ATOMIC_RELAXED) != (void *)l->context)
        return true;
    if (!(zr_block_flags(b) & ZR_BLOCK_WITH_CONTEXT)) {
        __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_CACHEABLE, __ATOMIC_RELAXED);
        zr_block_mark(b, ZR_BLOCK_ORPHANED);
    } else if (zr_block_shift(b, word, ZR_BLOCK_FREEING)) { /* still the same block */
        f.ptr = (void *)b->base;
        zr_registry_record(ZEROUTE_EVENT_FREE, b, 0);
        zr_count(ZR_F_FREE_POLICY_DEFAULT, 1);
        to_driver(l->op, &f, b);
    }
    return true;
}

ze_result_t zr_policy_context_made(ze_result_t result, const ze_context_handle_t *context) {
    if (result == ZE_RESULT_SUCCESS)
        zr_record(ZEROUTE_EVENT_CONTEXT, ZR_KIND_DEVICE, ZR_UNKNOWN_DEVICE, *context, 0, 0, 0, 0);
    return result;
}

void zr_policy_before_context_destroy(struct zr_op *op, ze_context_handle_t context) {
    struct context_end l = {op, context};

    if (!context)
        return;
    zr_record(ZEROUTE_EVENT_CONTEXT_GO, ZR_KIND_DEVICE, ZR_UNKNOWN_DEVICE, context, 0, 0, 0, 0);
    if (zr_checking()) {
        zr_check_drain(context);
        zr_check_context_ends(context); /* before its blocks are marked: an earlier context may have
                                           had this handle */
    }
    zr_block_each(free_with_context, &l);
    zr_residency_forget(context);
    zr_pending_drain(ZR_ACCOUNTS, context);
    zr_hold_drain(context);
    zr_cache_trim(ZR_ACCOUNTS, context);
    zr_cache_await(CONTEXT_MS);
    zr_cache_try_again(context, NULL); /* what the driver has refused */
    zr_cache_await(CONTEXT_MS);        /* or another thread tries again */
    if (zr_pausing())
        zr_pause_context_ends(context);
}

/* Its memory went with its context, whose handle is no use any more. */
static enum zr_released went_with_context(struct zr_block *b) {
    zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    zr_registry_released(b);
    return ZR_RELEASED;
}

void zr_policy_context_destroyed(ze_context_handle_t context) {
    zr_cache_try_again(context, went_with_context);
    if (zr_pausing())
        zr_pause_context_gone(context);
}

/* Undoes that: the driver refused to destroy the context. */
static bool adopt(struct zr_block *b, void *context) {
    if (__atomic_load_n(&b->key.context, __ATOMIC_RELAXED) == context)
        __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_ORPHANED, __ATOMIC_RELAXED);
    return true;
}

void zr_policy_context_stays(ze_context_handle_t context) {
    zr_block_each(adopt, context);
}

void zr_free_fork_child(void) {
    memset(suspect, 0, sizeof suspect);
    zr_suspects = 0;
}
