/*
 * What is kept and reused at the Level Zero entry points: the bridge from calls to the whole-block cache.
 *
 * One driver allocation per block. A request is served here only when every property of it is part of the key;
 * anything else is left to the driver and counted.
 */
#include "policy/hit.h"

#include "cache/cache.h"
#include "cache/classes.h"

#include <string.h>

enum {
    RELAXED_LIMITS = 0x00020001, /* ze_relaxed_allocation_limits_exp_desc_t */
    HOST_FLAGS = 0xf, /* those that the specification names: where it is, and how it is cached */
    HOST_ACCOUNT = ZR_ACCOUNTS - 1,
    CONTEXTS = 64
};
#define COARSEST ((size_t)1 << 30)

static struct zr_cache *cache;
static struct zr_lock lock;
static bool limited[ZR_ACCOUNTS]; /* its share of cache_limit is set */

/* Through which hook each context's blocks go back when no call is at hand. */
static struct {
    ze_context_handle_t context;
    uint32_t hook;
} hook_of[CONTEXTS];

/*
 * The call that this thread is in, and the free that it was asked for. Calls nest: to make room, a pool may
 * be trimmed, whose provider frees through our hooks.
 */
static __thread struct now {
    struct zr_call *call;
    const void *freeing;
    const ze_memory_free_ext_desc_t *desc;
    bool refused; /* the limit has refused the last allocation */
    bool full;         /* it was refused, by the limit or by the driver, and may be tried again */
    bool trims;        /* something has gone back since */
    uint32_t returned; /* zr_keep_returned() before it */
    void *out;    /* what the caller's pointer holds; after a refusal, what the driver left in it */
} now;

/* --- the driver below the cache -------------------------------------------------------------------------- */

static uint32_t hook_for(ze_context_handle_t context, uint32_t otherwise)
{
    for (int i = 0; i < CONTEXTS; i++)
        if (__atomic_load_n(&hook_of[i].context, __ATOMIC_ACQUIRE) == context)
            return hook_of[i].hook;
    return otherwise;
}

static void note_hook(ze_context_handle_t context, uint32_t hook)
{
    for (int i = 0; i < CONTEXTS; i++) {
        ze_context_handle_t at = __atomic_load_n(&hook_of[i].context, __ATOMIC_ACQUIRE);

        if (at == context)
            return;
        if (at)
            continue;
        zr_lock(&lock);
        if (!hook_of[i].context) {
            hook_of[i].hook = hook;
            __atomic_store_n(&hook_of[i].context, context, __ATOMIC_RELEASE);
        }
        zr_unlock(&lock);
        if (hook_of[i].context == context)
            return;
    }
}

static int down_alloc(struct zr_call *call, const struct zr_key *key, size_t size, void **out)
{
    size_t alignment = key->align ? (size_t)1 << (key->align - 1) : 0;
    ze_result_t result;

    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    if (key->kind == ZR_KIND_HOST) {
        ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC,
                                         .flags = key->flags};

        result = ZR_DOWN(call, zeMemAllocHost, size, (key->context, &desc, size, alignment, out));
    } else {
        ze_relaxed_allocation_limits_exp_desc_t relaxed = {
            .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC, .flags = key->extra};
        ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                           .pNext = key->extra ? &relaxed : NULL,
                                           .flags = key->flags,
                                           .ordinal = key->ordinal};

        result = ZR_DOWN(call, zeMemAllocDevice, size,
                         (key->context, &desc, size, alignment, key->device, out));
    }
    return (int)result;
}

static bool is_full(int code)
{
    return code == (int)ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
           code == (int)ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
           code == (int)ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

/* Asked for once more, by a cache that has found no room: counted if anything has gone back in between. */
static void count_again(void)
{
    uint32_t returned = zr_keep_returned();

    if (now.full && returned != now.returned)
        zr_count(ZR_F_CACHE_RETRIES, 1);
    now.returned = returned;
    now.full = now.trims = false;
}

static int backing_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
{
    struct zr_call own = {.hook = hook_for(key->context, ZR_HOOK_PLT)};
    struct zr_call *call = now.call ? now.call : &own;
    bool counted = key->kind == ZR_KIND_DEVICE;
    int code;

    (void)arg;
    count_again();
    now.refused = now.full = counted && !zr_limit_take(call, key->account, size);
    if (now.refused)
        return (int)ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    *out = now.out;
    code = down_alloc(call, key, size, out);
    now.full = is_full(code);
    if (code != 0)
        now.out = *out;
    if (code == 0) {
        /* Still in the books: it went back to the driver on a way that we did not see. */
        zr_registry_gone(zr_map_take(*out));
        note_hook(key->context, call->hook);
        if (counted)
            zr_book_reserved(key->account, (int64_t)size);
    } else if (counted) {
        zr_limit_drop(key->account, size);
    }
    return code;
}

/*
 * A free that was asked for with a policy goes down with it; everything else by zeMemFree. What is given back on the
 * way may belong to another driver than the call is about: it goes through the hook that its context came through.
 */
static int backing_free(void *arg, const struct zr_block *b)
{
    uint32_t here = now.call ? now.call->hook : ZR_HOOK_PLT;
    struct zr_call own = {.hook = hook_for(b->context, here)};
    void *p = (void *)b->base;
    struct zr_call *call = now.call && now.freeing == p ? now.call : &own;
    ze_result_t result;

    (void)arg;
    if (unlikely(now.full)) {
        zr_count(ZR_F_CACHE_TRIMS, !now.trims);
        zr_count(ZR_F_CACHE_TRIMMED_BYTES, b->held);
        now.trims = true;
    }
    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    if (now.desc && now.freeing == p)
        result = ZR_DOWN(call, zeMemFreeExt, b->held, (b->context, now.desc, p));
    else
        result = ZR_DOWN(call, zeMemFree, b->held, (b->context, p));
    if (b->kind == ZR_KIND_DEVICE && result == ZE_RESULT_SUCCESS) {
        zr_book_reserved(b->device, -(int64_t)b->held);
        zr_limit_drop(b->device, b->held);
    }
    return (int)result;
}

static const struct zr_backing driver = {NULL, backing_alloc, backing_free, is_full};

/* --- keys ------------------------------------------------------------------------------------------------- */

uint32_t zr_cache_idle(void)
{
    uint64_t ms = zr_config.cache_idle / 1000000;

    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static __attribute__((noinline, cold)) struct zr_cache *make_cache(void)
{
    zr_lock(&lock);
    if (!cache) {
        struct zr_cache *c = zr_cache_new(&driver);

        if (c) {
            zr_cache_set_idle(c, zr_cache_idle());
            __atomic_store_n(&cache, c, __ATOMIC_RELEASE);
        }
    }
    zr_unlock(&lock);
    return cache;
}

static inline struct zr_cache *the_cache(void)
{
    struct zr_cache *c = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);

    return likely(c) ? c : make_cache();
}

uint64_t zr_cache_share(struct zr_call *call, ze_device_handle_t device)
{
    uint64_t total = device ? zr_device_memory(call, device) : 0;
    uint64_t usual = total / 50 > (UINT64_C(256) << 20) ? total / 50 : UINT64_C(256) << 20;

    /* Of memory that nobody tells, such as the host's, a percentage says nothing. */
    if (!zr_config.cache_limit.set || (zr_config.cache_limit.percent_x100 && !total))
        return usual;
    return zr_amount_of(&zr_config.cache_limit, total);
}

/*
 * A program that sizes itself by the limit it was told takes all of it in a number of pieces: the largest of them must
 * cost no more than they were asked for with.
 */
enum { OF_LIMIT = 1024 };

/* A share of the card's memory, whichever of its handles is at hand: a sub-device would name less. */
static __attribute__((noinline, cold)) void set_limit(struct zr_cache *c, struct zr_call *call,
                                                     unsigned account, ze_device_handle_t device)
{
    struct zr_call own = {.caller = call->caller};
    ze_device_handle_t card = device ? zr_device_handle(account, &own.hook) : NULL;

    zr_cache_set_limit(c, account, zr_cache_share(&own, card));
    if (zr_config.limit.set && device)
        zr_cache_set_exact(c, account, zr_limit_of(call, account) / OF_LIMIT);
    __atomic_store_n(&limited[account], true, __ATOMIC_RELEASE);
}

/*
 * log2 + 1 of the alignment, 0 for none: what the key holds. False: not a power of two, the driver's to say; or so
 * coarse that there are few such addresses, and Intel's driver ignores the alignment once they are taken up: not kept.
 */
static inline bool align_code(size_t alignment, uint8_t *code)
{
    *code = alignment ? (uint8_t)(__builtin_ctzl(alignment) + 1) : 0;
    return (alignment & (alignment - 1)) == 0 && alignment <= COARSEST;
}

static bool relaxed_only(const void *next, uint32_t *flags)
{
    const ze_relaxed_allocation_limits_exp_desc_t *relaxed = next;

    /* One that relaxes nothing is refused by Intel's driver. */
    if ((uint32_t)relaxed->stype != RELAXED_LIMITS || relaxed->pNext || !relaxed->flags)
        return false;
    *flags = relaxed->flags;
    return true;
}

static __attribute__((noinline, cold)) void count_passed(const ze_device_mem_alloc_desc_t *desc)
{
    if (zr_chain_has(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD))
        zr_count(ZR_F_PASSED_IMPORT, 1);
    else if (zr_chain_has(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC))
        zr_count(ZR_F_PASSED_EXPORT, 1);
    else
        zr_count(ZR_F_PASSED_PNEXT, 1);
}

/* What this call site asks for: as the call before, as far as residency goes. */
static inline struct zr_asker *asker_of(const struct zr_call *call, ze_context_handle_t context,
                                        ze_device_handle_t device)
{
    uintptr_t from = zr_from(call->caller, call->hook);
    struct zr_asker *a = zr_asker_of(from, device);

    if (unlikely(a->site != from || a->key.context != context || a->key.device != device)) {
        memset(a, 0, sizeof *a);
        a->site = from;
        if (zr_thread.asker == a)
            zr_thread.asker = NULL; /* the block was somebody else's */
    }
    a->from = 0;
    a->key = (struct zr_key){.context = context, .device = device, .kind = ZR_KIND_DEVICE, .peers = a->asked};
    a->asked = 0;
    return a;
}

/* --- for the hooks ------------------------------------------------------------------------------------------ */

/* What others keep that may be what is missing: pools of ours, and, of host memory, every account. */
static bool others_gave(struct zr_call *call, const struct zr_key *key, int code)
{
    bool gave = key->kind == ZR_KIND_DEVICE && zr_pools_trim(key->account);

    return (code == (int)ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY && zr_policy_trim(call, ZR_UNKNOWN_DEVICE)) || gave;
}

/*
 * This cache has nothing left for the device: what others keep goes too. Nothing kept there either, and nothing
 * that has just gone back: the answer stands, and a refusal on behalf of the limit is counted.
 */
static __attribute__((noinline, cold)) struct zr_block *once_more(struct zr_cache *c, struct zr_call *call,
                                                                  const struct zr_key *key, size_t size,
                                                                  int *code)
{
    struct zr_block *b = NULL;
    bool refused = now.refused;

    now.full = false;
    if (others_gave(call, key, *code) || (key->kind == ZR_KIND_DEVICE && zr_keep_returned() != now.returned)) {
        zr_count(ZR_F_CACHE_RETRIES, 1);
        now.call = call;
        b = zr_cache_alloc(c, key, size, code);
        now.call = NULL;
        refused = now.refused;
    }
    if (!b && refused && key->kind == ZR_KIND_DEVICE)
        zr_policy_refused(ZR_E_zeMemAllocDevice);
    return b;
}

/*
 * A block of this key, booked. False: no memory for our own books, the caller goes to the driver itself.
 * On a hit the block is resident where the key says; a new one is resident nowhere yet.
 */
static inline bool serve(struct zr_cache *c, struct zr_call *call, const struct zr_key *key, size_t size,
                         void **out, ze_result_t *result, bool *hit)
{
    enum { HIT = 1 };
    int code = HIT;
    struct zr_block *b;

    now.call = call;
    now.out = *out;
    b = zr_cache_alloc(c, key, size, &code);
    now.call = NULL;
    if (unlikely(!b) && is_full(code))
        b = once_more(c, call, key, size, &code);
    *hit = b && code == HIT;
    if (unlikely(!b)) {
        now.full = false;
        *out = now.out;
        *result = (ze_result_t)code;
        return code != ZR_CACHE_TROUBLE;
    }
    if (likely(*hit)) {
        zr_count(ZR_F_CACHE_HITS, 1);
        /* Marks of its life before; nobody else knows the block yet. */
        if (unlikely(b->flags & ~(uint32_t)(ZR_BLOCK_USER - 1)))
            __atomic_store_n(&b->flags, b->flags & (ZR_BLOCK_USER - 1), __ATOMIC_RELAXED);
    } else {
        zr_count(ZR_F_CACHE_MISSES, 1);
        if (unlikely(size > ZR_CLASS_LIMIT))
            zr_count(ZR_F_PASSED_SIZE, 1);
        if (key->peers) {
            __atomic_store_n(&b->peers, 0, __ATOMIC_RELAXED);
            zr_block_mark(b, ZR_BLOCK_MOVED);
        }
    }
    zr_book(key->kind, key->account, size);
    *out = (void *)b->base;
    *result = ZE_RESULT_SUCCESS;
    return true;
}

bool zr_keep_alloc_device(struct zr_call *call, ze_context_handle_t context,
                          const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                          ze_device_handle_t device, void **out, ze_result_t *result)
{
    struct zr_cache *c;
    struct zr_asker *asker;
    unsigned number;
    uint32_t extra = 0;
    uint8_t align;
    bool hit;

    if (unlikely(!context || !desc || !device || !out || !size || !align_code(alignment, &align) ||
                 desc->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC))
        return false;
    if (unlikely(desc->pNext) && !relaxed_only(desc->pNext, &extra)) {
        count_passed(desc);
        return false;
    }
    number = zr_device_number(call, device);
    c = the_cache();
    if (unlikely(number >= HOST_ACCOUNT || !c))
        return false;
    if (unlikely(!__atomic_load_n(&limited[number], __ATOMIC_ACQUIRE)))
        set_limit(c, call, number, device);
    asker = asker_of(call, context, device);
    asker->key.account = (uint16_t)number;
    asker->key.ordinal = desc->ordinal;
    asker->key.flags = desc->flags;
    asker->key.align = align;
    asker->key.extra = extra;
    if (!serve(c, call, &asker->key, size, out, result, &hit))
        return false;
    zr_thread.asker = asker;
    zr_thread.base = *result == ZE_RESULT_SUCCESS ? (uintptr_t)*out : 0;
    zr_hit_learn(asker, call, alignment);
    return true;
}

bool zr_keep_alloc_host(struct zr_call *call, ze_context_handle_t context,
                        const ze_host_mem_alloc_desc_t *desc, size_t size, size_t alignment, void **out,
                        ze_result_t *result)
{
    struct zr_key key = {.context = context, .kind = ZR_KIND_HOST, .account = HOST_ACCOUNT};
    struct zr_cache *c;
    bool hit;

    /* With one of its own flags Intel's driver takes memory of the caller's, named by *out. */
    if (!context || !desc || desc->pNext || desc->flags & ~HOST_FLAGS || !out || !size ||
        !align_code(alignment, &key.align) || desc->stype != ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC)
        return false;
    c = the_cache();
    if (!c)
        return false;
    if (unlikely(!__atomic_load_n(&limited[HOST_ACCOUNT], __ATOMIC_ACQUIRE)))
        set_limit(c, call, HOST_ACCOUNT, NULL);
    key.flags = desc->flags;
    return serve(c, call, &key, size, out, result, &hit);
}

ze_result_t zr_keep_alloc_as(struct zr_call *call, const struct zr_keep_as *as, size_t size,
                             size_t alignment, void **out, bool *hit)
{
    struct zr_key key = {.context = as->context,
                         .device = as->device,
                         .kind = ZR_KIND_DEVICE,
                         .account = as->number,
                         .ordinal = as->ordinal,
                         .flags = as->flags,
                         .peers = as->residents};
    struct zr_cache *c = the_cache();
    ze_result_t result;

    if (!c || as->number >= HOST_ACCOUNT || !align_code(alignment, &key.align))
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (unlikely(!__atomic_load_n(&limited[as->number], __ATOMIC_ACQUIRE)))
        set_limit(c, call, as->number, as->device);
    if (!serve(c, call, &key, size, out, &result, hit))
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    *hit = *hit && zr_residency_is_certain(as->residents);
    return result;
}

/* An address that no driver has ever handed out: what it says of this one, it says of any unknown one. */
static const char nowhere[64];

/* One of the cache, also after its context has gone: the driver may hold more of it than the process knows of. */
static bool came_from_here(const struct zr_block *b)
{
    uint32_t flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);

    return flags & ZR_BLOCK_OURS ||
           (!(flags & ZR_BLOCK_HANDLE) &&
            __atomic_load_n(&b->size, __ATOMIC_RELAXED) != __atomic_load_n(&b->held, __ATOMIC_RELAXED));
}

const void *zr_keep_asked_about(struct zr_call *call, ze_context_handle_t context, const void *ptr)
{
    void *base = NULL;
    size_t size = 0;
    struct zr_block *b;
    uint64_t word;

    if (!__atomic_load_n(&cache, __ATOMIC_RELAXED) || zr_map_find(ptr))
        return ptr;
    if (ZR_BELOW(call, zeMemGetAddressRange)(context, ptr, &base, &size) != ZE_RESULT_SUCCESS)
        return ptr;
    b = zr_map_look(base, &word);
    return b && zr_word_state(word) != ZR_BLOCK_NONE && came_from_here(b) ? nowhere : ptr;
}

const void *zr_keep_to_close(struct zr_call *call, ze_context_handle_t context, const void *ptr)
{
    struct zr_block *b = __atomic_load_n(&cache, __ATOMIC_RELAXED) ? zr_map_find(ptr) : NULL;

    return b && came_from_here(b) ? nowhere : zr_keep_asked_about(call, context, ptr);
}

bool zr_keep_address_range(ze_context_handle_t context, const void *ptr, void **base, size_t *size)
{
    struct zr_block *b = context && __atomic_load_n(&cache, __ATOMIC_RELAXED) ? zr_map_find(ptr) : NULL;

    if (!b || !came_from_here(b))
        return false;
    if (base)
        *base = (void *)b->base;
    if (size)
        *size = b->size;
    return true;
}

static bool driver_knows(struct zr_call *call, ze_context_handle_t context, void *ptr)
{
    void *base = NULL;
    size_t size = 0;

    return ZR_BELOW(call, zeMemGetAddressRange)(context, ptr, &base, &size) == ZE_RESULT_SUCCESS &&
           base == ptr;
}

static inline bool take_back(struct zr_call *call, ze_context_handle_t context,
                             const ze_memory_free_ext_desc_t *desc, void *ptr, bool keep,
                             ze_result_t *result)
{
    struct zr_cache *c = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);
    struct zr_freed_block was = {0};
    struct zr_call *outer = now.call;
    enum zr_freed freed;

    if (unlikely(!c || !ptr || !context))
        return false;
    now.call = call;
    now.desc = desc;
    now.freeing = ptr;
    freed = zr_cache_free(c, ptr, keep, &was);
    now.call = outer;
    now.desc = NULL;
    now.freeing = NULL;
    *result = ZE_RESULT_SUCCESS;
    switch (freed) {
    case ZR_FREED:
        zr_count(ZR_F_CACHE_KEPT, 1);
        zr_unbook(was.kind, was.device, was.size);
        if (was.kind == ZR_KIND_DEVICE)
            zr_hit_learn_free(c, call, was.device);
        return true;
    case ZR_FREED_BY_DRIVER:
        zr_unbook(was.kind, was.device, was.size);
        return true;
    case ZR_FREED_REFUSED:
        *result = (ze_result_t)was.code;
        return true;
    case ZR_FREED_FOREIGN:
        return false;
    case ZR_FREED_TWICE:
        zr_count(ZR_F_FREE_INVALID_TWICE, 1);
        break;
    case ZR_FREED_INSIDE:
        zr_count(ZR_F_FREE_INVALID_INTERIOR, 1);
        break;
    case ZR_FREED_UNKNOWN:
        /* The driver's own cache takes what is already free, and what points into a block. */
        if (driver_knows(call, context, ptr))
            return false;
        zr_count(ZR_F_FREE_INVALID_UNKNOWN, 1);
        break;
    }
    *result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return true;
}

bool zr_keep_free(struct zr_call *call, ze_context_handle_t context,
                  const ze_memory_free_ext_desc_t *desc, void *ptr, ze_result_t *result)
{
    return take_back(call, context, desc, ptr, !(desc && (desc->freePolicy || desc->pNext)), result);
}

bool zr_keep_not(struct zr_call *call, ze_context_handle_t context, void *ptr, ze_result_t *result)
{
    return take_back(call, context, NULL, ptr, false, result);
}

/* --- residency ------------------------------------------------------------------------------------------------ */

bool zr_keep_is_resident(struct zr_block *b, unsigned number)
{
    uint64_t bit = number < 64 ? UINT64_C(1) << number : 0;
    struct zr_asker *asker = zr_thread.asker;

    if (asker && zr_thread.base == b->base)
        asker->asked |= bit;
    return (__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_OURS) &&
           (__atomic_load_n(&b->peers, __ATOMIC_RELAXED) & bit);
}

void zr_keep_moved(struct zr_block *b)
{
    if (__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_OURS)
        zr_block_mark(b, ZR_BLOCK_MOVED);
}

/* --- giving back ------------------------------------------------------------------------------------------------ */

uint64_t zr_keep_trim(struct zr_call *call, unsigned number)
{
    struct zr_cache *c = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);
    uint64_t bytes;

    if (!c)
        return 0;
    now.call = call;
    bytes = zr_cache_trim(c, number == ZR_UNKNOWN_DEVICE ? ZR_ACCOUNTS : number, NULL, 0);
    zr_cache_await(c);
    now.call = NULL;
    if (bytes) {
        zr_count(ZR_F_CACHE_TRIMS, 1);
        zr_count(ZR_F_CACHE_TRIMMED_BYTES, bytes);
    }
    return bytes;
}

uint32_t zr_keep_returned(void)
{
    struct zr_cache *c = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);

    return (c ? zr_cache_returned(c) : 0) + zr_pools_returned();
}

void zr_keep_drop_context(struct zr_call *call, ze_context_handle_t context)
{
    struct zr_cache *c = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);

    if (!c)
        return;
    now.call = call;
    zr_cache_drop_context(c, context);
    now.call = NULL;
    zr_lock(&lock);
    for (int i = 0; i < CONTEXTS; i++)
        if (hook_of[i].context == context)
            __atomic_store_n(&hook_of[i].context, NULL, __ATOMIC_RELEASE);
    zr_unlock(&lock);
    zr_hit_forget();
}

void zr_fork_child_keep(void)
{
    lock = (struct zr_lock){0};
    memset(limited, 0, sizeof limited);
    memset(hook_of, 0, sizeof hook_of);
    zr_hit_forget();
}
