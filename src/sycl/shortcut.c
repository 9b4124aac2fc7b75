/*
 * From the SYCL entry points straight to the pool that the runtime would ask, where that is ours (route:pool). Between
 * the two the runtime only looks at arguments and finds the pool of a context and device; UMF tracks what the pool
 * takes from its provider and nothing of what it hands out. So a block from the pool is as good as one that came
 * through the runtime, which takes it back, copies, exports and tells about it like any other.
 *
 * That a request reaches the pool as it is, and its block the program, is not assumed: for each pair of objects the
 * first request is made of the runtime, and watched. Where a layer between them changes sizes, or answers itself,
 * everything is left to the runtime; so it is where somebody asked to see or to track its calls.
 */
#include "sycl/runtime_pool.h"

__thread struct zr_shortcut zr_shortcut;

/* What the pool did while this thread asked the runtime, and what it is to refuse. */
static __thread struct {
    struct zr_pool_way way;
    size_t size, alignment;
    const void *out;
    unsigned requests;
    struct {
        const struct zr_umf_pool *pool;
        size_t size, alignment;
        int code;
    } refused;
} seen;

/* Tracing and validation of the runtime's calls, and its own tracking of blocks for kernels with indirect access. */
static bool is_observed(void)
{
    static const char *const names[] = {
        "XPTI_TRACE_ENABLE",      "UR_ENABLE_LAYERS",
        "SYCL_UR_TRACE",          "SYCL_PI_TRACE",
        "UR_LOG_TRACING",         "UR_L0_TRACK_INDIRECT_ACCESS_MEMORY",
        "UR_LOG_VALIDATION",      "SYCL_PI_LEVEL_ZERO_TRACK_INDIRECT_ACCESS_MEMORY",
    };
    static uint32_t known; /* atomic: 1 no, 2 yes */
    uint32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (answer == 0) {
        answer = 1;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (getenv(names[i]))
                answer = 2;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

void zr_shortcut_refuse(const struct zr_request *request, int code)
{
    seen.refused.pool = zr_shortcut.way.pool;
    seen.refused.size = request->size;
    seen.refused.alignment = request->alignment;
    seen.refused.code = code;
}

int zr_shortcut_refused(const struct zr_umf_pool *pool, size_t size, size_t alignment)
{
    if (seen.refused.pool != pool || seen.refused.size != size || seen.refused.alignment != alignment)
        return 0;
    seen.refused.pool = NULL;
    return seen.refused.code;
}

void zr_shortcut_saw(const struct zr_pool_way *way, size_t size, size_t alignment, const void *out)
{
    seen.requests++;
    seen.way = *way;
    seen.size = size;
    seen.alignment = alignment;
    seen.out = out;
}

static void stop_asking(const uint32_t *was)
{
    zr_shortcut.asking = *was;
    seen.refused.pool = NULL;
}

/* The runtime may throw: nothing of this stays behind. */
static void *ask_runtime(const struct zr_runtime *runtime, const struct zr_request *request, zr_ask ask)
{
    uint32_t was __attribute__((cleanup(stop_asking), unused)) = zr_shortcut.asking;

    seen.requests = 0;
    zr_shortcut.asking = 1;
    return ask(runtime, request);
}

static void note(const struct zr_request *r, const struct zr_pool_way *way, uint32_t epoch)
{
    struct zr_shortcut *s = &zr_shortcut;

    s->first = zr_shared(r->queue ? r->queue : r->context)->control;
    s->second = r->queue ? NULL : zr_shared(r->device)->implementation;
    s->way = *way;
    s->from = way->pool;
    s->epoch = epoch;
}

static bool is_noted(const struct zr_request *r, uint32_t epoch)
{
    const struct zr_shortcut *s = &zr_shortcut;

    return s->first == zr_shared(r->queue ? r->queue : r->context)->control &&
           s->second == (r->queue ? NULL : zr_shared(r->device)->implementation) && s->epoch == epoch;
}

bool zr_shortcut_slow(const struct zr_runtime *runtime, const struct zr_request *request, zr_ask ask, void **out)
{
    uint32_t epoch = __atomic_load_n(&zr_habit_epoch, __ATOMIC_ACQUIRE);
    struct zr_pool_way way = {0};

    if (is_observed())
        return false;
    if (!is_noted(request, epoch) && zr_habit_pool(runtime, request, &way)) {
        note(request, &way, epoch);
        *out = zr_shortcut_alloc(request);
        if (*out)
            return true;
    }
    if (is_noted(request, epoch)) {
        if (!seen.refused.pool)
            return false;
        *out = ask_runtime(runtime, request, ask);
        return true;
    }
    *out = ask_runtime(runtime, request, ask);
    if (!*out)
        return true;
    if (seen.requests == 1 && seen.out == *out && seen.size == request->size && seen.alignment == request->alignment)
        way = seen.way;
    zr_habit_keep_pool(runtime, request, &way);
    return true;
}

/* Only where the program's context or queue is one whose blocks come from a pool of ours: others are for the runtime
 * to refuse. */
bool zr_shortcut_free_slow(const struct zr_runtime *runtime, void *ptr, const void *object)
{
    uint32_t epoch = __atomic_load_n(&zr_habit_epoch, __ATOMIC_ACQUIRE);
    struct zr_shortcut *s = &zr_shortcut;
    struct zr_umf_pool *from;

    if (!ptr || !runtime->ours)
        return false;
    if (s->freed != zr_shared(object)->control || s->freed_epoch != epoch) {
        if (!zr_habit_is_pooled(object))
            return false;
        s->freed = zr_shared(object)->control;
        s->freed_epoch = epoch;
    }
    from = zr_umf_pools_recycle(ptr);
    if (!from)
        return false;
    s->from = from;
    zr_count_call(ZR_E_pool_free, ZR_VIA_POOL);
    zr_trace('f', ptr, 0, 0);
    return true;
}
