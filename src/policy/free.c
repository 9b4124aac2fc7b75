/*
 * Every free: into the cache where the block may be reused at once, else back to the driver.
 *
 * zeMemFree vouches that no command uses the block; zeMemFreeExt with BLOCKING or DEFER does not, so such a block goes
 * to the driver.
 */
#include "policy/policy.h"
#include "record/record.h"

static enum zr_field policy_field(const ze_memory_free_ext_desc_t *desc) {
    if (desc && desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)
        return ZR_F_FREE_POLICY_BLOCKING;
    if (desc && desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE)
        return ZR_F_FREE_POLICY_DEFER;
    return ZR_F_FREE_POLICY_DEFAULT;
}

/* A free as it was asked for. */
struct request {
    ze_context_handle_t context;
    const ze_memory_free_ext_desc_t *desc;
    void *ptr;
    bool ext;       /* by zeMemFreeExt */
    bool may_cache; /* no command uses the block any more */
};

static ze_result_t ask_driver(struct zr_call *call, const struct request *r, size_t held) {
    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    if (r->ext)
        return ZR_DOWN(call, zeMemFreeExt, held, (r->context, r->desc, r->ptr));
    return ZR_DOWN(call, zeMemFree, held, (r->context, r->ptr));
}

void zr_policy_release(const struct zr_block *b) {
    struct zr_call call = {.hook = zr_block_hook(b)};
    struct request r = {.context = b->key.context, .ptr = (void *)b->base};
    bool inside = zr_thread.inside;
    ze_result_t result;

    zr_thread.inside = true; /* a call of ours, also from a pool's retry loop: hooks further down pass it on */
    result = ask_driver(&call, &r, b->held);
    zr_thread.inside = inside;
    if (result == ZE_RESULT_SUCCESS && b->key.kind == ZR_KIND_DEVICE) {
        zr_book_reserved(b->key.account, -(int64_t)b->held);
        zr_limit_drop(b->key.account, b->held);
    }
}

/* --- pointers that no block begins at ----------------------------------------------------------------------------- */

static bool driver_knows(struct zr_call *call, const struct request *r) {
    void *base = NULL;
    size_t size = 0;

    return ZR_BELOW(call, zeMemGetAddressRange)(r->context, r->ptr, &base, &size) == ZE_RESULT_SUCCESS &&
           base == r->ptr;
}

/*
 * Intel's driver accepts some of these: its own cache takes what is free already and what points into a block, and
 * hands that out again. Where we cache they are refused; where we only observe they are counted and passed on.
 */
static ZR_COLD ze_result_t free_unknown(struct zr_call *call, const struct request *r) {
    uint64_t word = 0;
    struct zr_block *b = r->ptr ? zr_map_around(r->ptr, &word) : NULL;
    bool past_us = !b && r->ptr && zr_config.cache && r->context && driver_knows(call, r);

    if (!r->ptr)
        zr_count(ZR_F_FREE_INVALID_NULL, 1);
    else if (b && zr_word_state(word) == ZR_BLOCK_LIVE)
        zr_count(ZR_F_FREE_INVALID_INTERIOR, 1);
    else if (b && b->base == (uintptr_t)r->ptr)
        zr_count(ZR_F_FREE_INVALID_TWICE, 1);
    else if (!past_us)
        zr_count(ZR_F_FREE_INVALID_UNKNOWN, 1);
    if (!r->ptr || !r->context || !zr_config.cache || past_us)
        return ask_driver(call, r, 0);
    zr_count_failure(r->ext ? ZR_E_zeMemFreeExt : ZR_E_zeMemFree, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static bool may_be_cached(const struct request *r, const struct zr_block *b) {
    return r->may_cache && r->context &&
           (zr_block_flags(b) & (ZR_BLOCK_CACHEABLE | ZR_BLOCK_EXPORTED | ZR_BLOCK_PINNED)) == ZR_BLOCK_CACHEABLE &&
           zr_cache_takes(b->key.account, b->held);
}

/* The block is CACHED, and ours alone. Out of the books first: another thread may reuse it at once. */
static bool put(struct zr_block *b) {
    zr_registry_unbook(b);
    zr_residency_remember(b);
    if (likely(zr_cache_put(b))) {
        zr_count(ZR_F_CACHE_RETURNED, 1);
        return true;
    }
    zr_registry_book(b);
    __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
    return false;
}

/* The block is NONE, and ours alone. */
static ze_result_t to_driver(struct zr_call *call, const struct request *r, struct zr_block *b) {
    ze_result_t result = ask_driver(call, r, b->held);

    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

/* A free is recorded before it takes effect, so that an address is never there twice. */
static bool record(const struct zr_block *b) {
    bool recorded = b->key.kind == ZR_KIND_DEVICE && !(zr_block_flags(b) & (ZR_BLOCK_POOLED | ZR_BLOCK_FOREIGN));

    if (recorded)
        zr_record_free((const void *)b->base, b->key.account);
    return recorded;
}

static ze_result_t free_block(struct zr_call *call, const struct request *r) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_look(r->ptr, &word);
    bool cache, recorded;
    ze_result_t result;
    size_t size;

    if (unlikely(!b || zr_word_state(word) != ZR_BLOCK_LIVE))
        return free_unknown(call, r);
    cache = may_be_cached(r, b);
    if (unlikely(!zr_block_shift(b, word, cache ? ZR_BLOCK_CACHED : ZR_BLOCK_NONE)))
        return free_unknown(call, r); /* another thread was faster with the same pointer */
    size = b->size;
    recorded = unlikely(zr_recording()) && record(b);
    if (cache && put(b))
        return ZE_RESULT_SUCCESS;
    result = to_driver(call, r, b);
    if (unlikely(recorded) && result != ZE_RESULT_SUCCESS)
        zr_record_alloc(r->ptr, size, b->key.account);
    return result;
}

ze_result_t zr_policy_free(struct zr_call *call, ze_context_handle_t context, void *ptr) {
    struct request r = {.context = context, .ptr = ptr, .may_cache = true};

    if (likely(ptr))
        zr_count(ZR_F_FREE_POLICY_DEFAULT, 1);
    return free_block(call, &r);
}

ze_result_t zr_policy_free_ext(struct zr_call *call, ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc,
                               void *ptr) {
    struct request r = {.context = context, .desc = desc, .ptr = ptr, .ext = true};

    /* Without a descriptor, or with another one, the answer is the driver's. */
    r.may_cache = desc && desc->stype == ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC && !desc->freePolicy && !desc->pNext;
    if (likely(ptr))
        zr_count(policy_field(desc), 1);
    return free_block(call, &r);
}

ze_result_t zr_policy_free_to_driver(struct zr_call *call, ze_context_handle_t context, void *ptr) {
    struct request r = {.context = context, .ptr = ptr};

    zr_count(ZR_F_FREE_POLICY_DEFAULT, 1);
    return free_block(call, &r);
}

ze_result_t zr_policy_destroy_physical(struct zr_call *call, ze_context_handle_t context,
                                       ze_physical_mem_handle_t physical) {
    struct zr_block *b = zr_map_take(physical);
    bool recorded = b && b->key.kind == ZR_KIND_PHYSICAL && zr_recording();
    ze_result_t result;

    if (recorded)
        zr_record_free(physical, b->key.account);
    result = ZR_DOWN(call, zePhysicalMemDestroy, b ? b->held : 0, (context, physical));
    if (recorded && result != ZE_RESULT_SUCCESS)
        zr_record_alloc(physical, b->held, b->key.account);
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

/* --- the end of a context ----------------------------------------------------------------------------------------- */

enum { CONTEXT_MS = 5000 }; /* for blocks of the context that other threads are giving back */

struct leaving {
    struct zr_call *call;
    ze_context_handle_t context;
};

/* What the program keeps is not reused any more: its context is part of its key. */
static bool leave(struct zr_block *b, void *arg) {
    const struct leaving *l = arg;
    uint64_t word = zr_block_word(b);
    struct request r = {.context = l->context};

    if (zr_word_state(word) != ZR_BLOCK_LIVE ||
        __atomic_load_n(&b->key.context, __ATOMIC_RELAXED) != (void *)l->context)
        return true;
    if (!(zr_block_flags(b) & ZR_BLOCK_WITH_CONTEXT)) {
        __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_CACHEABLE, __ATOMIC_RELAXED);
    } else if (zr_block_shift(b, word, ZR_BLOCK_NONE)) { /* it is the block that was looked at */
        r.ptr = (void *)b->base;
        if (zr_recording())
            record(b);
        zr_count(ZR_F_FREE_POLICY_DEFAULT, 1);
        to_driver(l->call, &r, b);
    }
    return true;
}

void zr_policy_before_context_destroy(struct zr_call *call, ze_context_handle_t context) {
    struct leaving l = {call, context};

    if (!context)
        return;
    zr_block_each(leave, &l);
    zr_residency_forget(context);
    zr_cache_trim(ZR_ACCOUNTS, context);
    zr_cache_await(CONTEXT_MS);
}
