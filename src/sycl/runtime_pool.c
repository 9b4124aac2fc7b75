/*
 * Pools of ours behind the SYCL runtime: memory from the runtime's own provider (and so from
 * zeMemAllocDevice, under the eyes of our entry points), kept by the slab and split allocator.
 *
 * `reuse` decides what is kept: by default what the runtime's own pool would reuse at once; larger
 * blocks go straight to the provider and back, which may wait for the device as it always did.
 */
#include "sycl/runtime_pool.h"

#include <sched.h>

enum {
    POOLS = 64,
    GRAIN =
        512, /* device memory is compressed in pieces of this size: nothing smaller may be shared */
    PAGE = 64 << 10,
    PROBE = PAGE,
    /* A block that the provider gave for one request alone, and above it which of the first pools asked, plus one. */
    ZR_BLOCK_DIRECT = 1 << 11,
    DIRECT_SHIFT = 12,
    DIRECT_POOLS = 15,
    MOST_TRIES = 16
};

struct zr_umf_pool {
    struct zr_umf umf;
    void *provider;
    struct zr_pool *kept;
    size_t keeps_up_to; /* what is larger goes straight to the provider and back */
    size_t goes_up_to;  /* what is larger stays when the pool goes: the runtime's own would not have had it */
    unsigned number;   /* of the device */
    uint32_t trimming; /* atomic: threads that trim it from outside */
    bool used;
};

static struct zr_umf_pool pools[POOLS];
static uint32_t pools_made; /* atomic: so many of them were ever in use */
static struct zr_lock lock;
static __thread unsigned asked; /* how often this thread's provider was asked */
static uint32_t returned;       /* atomic: how often a provider has got something back that was kept */
static __thread uint32_t then;  /* what that was when this thread's provider was asked last */

/* --- the provider below ----------------------------------------------------------------------- */

/* What the provider does is seen at our hooks, even when a hook of ours has led here. */
struct below {
    uint8_t inside;
    uint16_t pooled;
};

static struct below enter_below(void)
{
    struct below was = {zr_thread.inside, zr_thread.pooled};

    zr_thread.inside = 0;
    zr_thread.pooled = 1;
    return was;
}

static void leave_below(const struct below *was)
{
    zr_thread.inside = was->inside;
    zr_thread.pooled = was->pooled;
}

static int provider_alloc(const struct zr_umf_pool *p, size_t size, size_t alignment, void **out)
{
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    asked++;
    then = zr_pools_returned();
    return p->umf.alloc(p->provider, size, alignment, out);
}

static int provider_free(const struct zr_umf_pool *p, void *ptr, size_t size)
{
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    return p->umf.free(p->provider, ptr, size);
}

static int backing_alloc(void *arg, size_t size, void **out)
{
    return provider_alloc(arg, size, 0, out);
}

static int backing_free(void *arg, void *ptr, size_t size)
{
    int code = provider_free(arg, ptr, size);

    __atomic_fetch_add(&returned, 1, __ATOMIC_RELEASE);
    return code;
}

uint32_t zr_pools_returned(void)
{
    return __atomic_load_n(&returned, __ATOMIC_ACQUIRE);
}

/* --- making and giving back ------------------------------------------------------------------- */

static bool probe(void *arg)
{
    struct zr_umf_pool *p = arg;
    void *ptr = NULL;

    return p->umf.alloc(p->provider, PROBE, 0, &ptr) == 0 &&
           p->umf.free(p->provider, ptr, PROBE) == 0;
}

static void set_limits(struct zr_umf_pool *p, const struct zr_habit *h)
{
    struct zr_call call = {.hook = h->hook};

    zr_pool_set_limits(p->kept, zr_cache_share(&call, h->device), zr_cache_idle());
}

/* What no device could hold is the provider's to refuse: it must not be rounded up past the end of numbers. */
static size_t keeps_up_to(size_t reuses_up_to)
{
    return !zr_config.cache                         ? 0
           : zr_config.reuse == ZR_REUSE_RUNTIME ? reuses_up_to
                                                    : SIZE_MAX / 4;
}

struct zr_umf_pool *zr_umf_pool_new(const struct zr_umf *umf, void *provider, size_t reuses_up_to)
{
    struct zr_umf_pool *p = NULL;
    struct zr_habit habit;

    zr_lock(&lock);
    for (int i = 0; i < POOLS && !p; i++)
        if (!pools[i].used)
            p = &pools[i];
    if (p) {
        if (p - pools >= pools_made)
            __atomic_store_n(&pools_made, (uint32_t)(p - pools) + 1, __ATOMIC_RELEASE);
        p->used = true;
        p->umf = *umf;
        p->provider = provider;
        p->keeps_up_to = keeps_up_to(reuses_up_to);
        p->goes_up_to = reuses_up_to;
        p->number = ZR_UNKNOWN_DEVICE;
        p->kept = NULL;
    }
    zr_unlock(&lock);
    if (!p)
        return NULL;
    /* Only a provider whose blocks are device memory that we see is ours. */
    if (zr_habit_watch(probe, p, PROBE, &habit)) {
        struct zr_pool_backing backing = {p, backing_alloc, backing_free};

        p->kept = zr_pool_new(&backing);
        if (p->kept) {
            set_limits(p, &habit);
            __atomic_store_n(&p->number, habit.number, __ATOMIC_RELEASE);
        }
    }
    if (p->kept)
        return p;
    p->used = false;
    return NULL;
}

/* A program may let its context go while blocks live: the memory goes with the pool. */
static void unbook_all(struct zr_umf_pool *p, unsigned number)
{
    uint64_t bytes, blocks = zr_pool_out(p->kept, &bytes);

    for (; blocks > 0; blocks--, bytes = 0)
        zr_unbook(ZR_KIND_DEVICE, number, bytes);
}

static uint32_t direct_mark(const struct zr_umf_pool *p)
{
    return ZR_BLOCK_DIRECT | (p - pools < DIRECT_POOLS ? (uint32_t)(p - pools) + 1 : 0) << DIRECT_SHIFT;
}

struct leaving {
    struct zr_umf_pool *pool;
    unsigned number;
};

/* With cache:off the provider gave each block for itself: what the runtime's own pool would have had goes too. */
static bool leave(struct zr_block *b, void *arg)
{
    const struct leaving *l = arg;
    uint32_t all = ZR_BLOCK_DIRECT | DIRECT_POOLS << DIRECT_SHIFT;
    size_t size = b->size;

    if (zr_word_state(zr_block_word(b)) == ZR_BLOCK_LIVE && size <= l->pool->goes_up_to &&
        (__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & all) == direct_mark(l->pool) &&
        l->pool - pools < DIRECT_POOLS && provider_free(l->pool, (void *)b->base, size) == 0)
        zr_unbook(ZR_KIND_DEVICE, l->number, size);
    return true;
}

void zr_umf_pool_delete(struct zr_umf_pool *p)
{
    unsigned number = p->number;

    zr_lock(&lock);
    __atomic_store_n(&p->number, ZR_UNKNOWN_DEVICE, __ATOMIC_RELEASE);
    zr_unlock(&lock);
    while (__atomic_load_n(&p->trimming, __ATOMIC_ACQUIRE))
        sched_yield();
    unbook_all(p, number);
    if (p->keeps_up_to < p->goes_up_to)
        zr_block_each(leave, &(struct leaving){p, number});
    zr_pool_delete(p->kept);
    __atomic_store_n(&p->used, false, __ATOMIC_RELEASE);
}

uint64_t zr_umf_pool_trim(struct zr_umf_pool *p, uint64_t keep)
{
    return zr_pool_trim(p->kept, keep);
}

/* True: a pool of this device, that stays until it is let go of. */
static bool seize(struct zr_umf_pool *p, unsigned number)
{
    bool is = false;

    if (!__atomic_load_n(&p->used, __ATOMIC_ACQUIRE))
        return false;
    zr_lock(&lock);
    is = p->used && p->number != ZR_UNKNOWN_DEVICE && (number == ZR_UNKNOWN_DEVICE || p->number == number);
    if (is)
        __atomic_fetch_add(&p->trimming, 1, __ATOMIC_RELAXED);
    zr_unlock(&lock);
    return is;
}

static uint64_t trim_others(const struct zr_umf_pool *but, unsigned number)
{
    uint64_t bytes = 0;

    for (int i = 0; i < POOLS; i++) {
        if (&pools[i] == but || !seize(&pools[i], number))
            continue;
        bytes += zr_umf_pool_trim(&pools[i], 0);
        __atomic_fetch_sub(&pools[i].trimming, 1, __ATOMIC_RELEASE);
    }
    return bytes;
}

/* Inside a pool its lock is held: there it gives back itself before it fails. */
uint64_t zr_pools_trim(unsigned number)
{
    return zr_thread.pooled ? 0 : trim_others(NULL, number);
}

/* --- requests --------------------------------------------------------------------------------- */

/* *size becomes what is to be booked. */
static __attribute__((noinline)) int straight(struct zr_umf_pool *p, size_t *size, size_t alignment, void **out)
{
    int code = provider_alloc(p, *size, alignment, out);
    struct zr_block *b = code == 0 ? zr_map_base(*out) : NULL;

    if (b) {
        zr_block_mark(b, direct_mark(p));
        *size = b->size;
    }
    return code;
}

/*
 * An alignment above the page of device memory the runtime's pool pays for with that much memory more, and so leaves
 * most such blocks to its provider. All of them go there: nobody who counted on a free that waits is hurt, nothing is
 * wasted.
 */
static inline bool is_alone(const struct zr_umf_pool *p, size_t size, size_t alignment)
{
    return size > p->keeps_up_to || alignment > PAGE;
}

static inline int once(struct zr_umf_pool *p, size_t *size, size_t alignment, void **out)
{
    if (unlikely(is_alone(p, *size, alignment)))
        return straight(p, size, alignment, out);
    return zr_pool_malloc(p->kept, *size, alignment < GRAIN ? GRAIN : alignment, out);
}

/* Nothing may be left to give back because another thread has just done so: then there is room all the same. */
static __attribute__((noinline)) int again(struct zr_umf_pool *p, size_t *size, size_t alignment, void **out,
                                           int code)
{
    for (int tries = 0; code != 0 && tries < MOST_TRIES; tries++) {
        if (is_alone(p, *size, alignment))
            zr_pool_trim(p->kept, 0);
        trim_others(p, p->number);
        if (zr_pools_returned() == then)
            break;
        zr_count(ZR_F_CACHE_RETRIES, 1);
        code = once(p, size, alignment, out);
    }
    return code;
}

int zr_umf_pool_malloc(struct zr_umf_pool *p, size_t size, size_t alignment, void **out)
{
    unsigned before = asked;
    int code = once(p, &size, alignment, out);

    if (unlikely(code != 0) && (code = again(p, &size, alignment, out, code)) != 0)
        return code;
    zr_count(likely(asked == before) ? ZR_F_CACHE_HITS : ZR_F_CACHE_MISSES, 1);
    zr_book(ZR_KIND_DEVICE, p->number, size);
    return 0;
}

static struct zr_block *direct(const void *ptr)
{
    struct zr_block *b = zr_map_base(ptr);

    return b && __atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_DIRECT ? b : NULL;
}

size_t zr_umf_pool_usable(struct zr_umf_pool *p, const void *ptr)
{
    size_t size = zr_pool_usable(p->kept, ptr);
    struct zr_block *b = size ? NULL : direct(ptr);

    return b ? b->size : size;
}

static __attribute__((noinline)) bool free_straight(struct zr_umf_pool *p, void *ptr)
{
    struct zr_block *b = direct(ptr);
    size_t size = b ? b->size : 0;

    if (!b || provider_free(p, ptr, size) != 0) {
        zr_count(ZR_F_FREE_INVALID_UNKNOWN, 1);
        return false;
    }
    zr_unbook(ZR_KIND_DEVICE, p->number, size);
    return true;
}

bool zr_umf_pool_free(struct zr_umf_pool *p, void *ptr)
{
    size_t size = 0;

    switch (zr_pool_free_size(p->kept, ptr, &size)) {
    case ZR_FREED:
        zr_unbook(ZR_KIND_DEVICE, p->number, size);
        return true;
    case ZR_FREED_TWICE:
        zr_count(ZR_F_FREE_INVALID_TWICE, 1);
        return false;
    default:
        return free_straight(p, ptr);
    }
}

/*
 * A pool that goes loses its number before anything of its memory: whoever still sees the number has no block that
 * lies where one of this pool lay.
 */
bool zr_umf_pool_recycle(struct zr_umf_pool *p, void *ptr)
{
    unsigned number = __atomic_load_n(&p->number, __ATOMIC_ACQUIRE);
    size_t size = 0;

    if (unlikely(number == ZR_UNKNOWN_DEVICE) || unlikely(zr_pool_free_size(p->kept, ptr, &size) != ZR_FREED))
        return false;
    zr_unbook(ZR_KIND_DEVICE, number, size);
    return true;
}

struct zr_umf_pool *zr_umf_pools_recycle(void *ptr)
{
    const struct zr_block *b = direct(ptr);
    uint32_t made = __atomic_load_n(&pools_made, __ATOMIC_ACQUIRE);

    if (b) {
        uint32_t which = __atomic_load_n(&b->flags, __ATOMIC_RELAXED) >> DIRECT_SHIFT & DIRECT_POOLS;
        struct zr_umf_pool *p = which ? &pools[which - 1] : NULL;
        unsigned number = p ? __atomic_load_n(&p->number, __ATOMIC_ACQUIRE) : ZR_UNKNOWN_DEVICE;
        size_t size = b->size;

        if (number == ZR_UNKNOWN_DEVICE || provider_free(p, ptr, size) != 0)
            return NULL;
        zr_unbook(ZR_KIND_DEVICE, number, size);
        return p;
    }
    for (uint32_t i = 0; i < made; i++)
        if (zr_umf_pool_recycle(&pools[i], ptr))
            return &pools[i];
    return NULL;
}

void zr_fork_child_pool(void)
{
    zr_pool_fork_child();
    for (int i = 0; i < POOLS; i++)
        pools[i].trimming = 0;
    lock = (struct zr_lock){0};
}
