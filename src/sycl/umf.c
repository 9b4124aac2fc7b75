/*
 * UMF's ops: the runtime makes its memory pools with umfPoolCreate(umfDisjointPoolOps(), provider,
 * ...). For device memory it gets a table of ours instead; UMF goes on tracking every pointer, so
 * all other calls of SYCL work as before. Host and shared memory keep the table that UMF has.
 *
 * The layout of the table is UMF's contract: ops version 0.11, 1.0 and 1.1 are known, others are
 * left alone.
 */
#include "sycl/sycl.h"

#include <stdarg.h>
#include <string.h>

enum {
    UMF_SUCCESS = 0,
    UMF_OUT_OF_HOST_MEMORY = 1,
    UMF_INVALID_ARGUMENT = 3,
    UMF_NOT_SUPPORTED = 5,
    UMF_INVALID_CTL_PATH = 9,
    OPS_0_11 = 0 << 16 | 11,
    OPS_1_0 = 1 << 16 | 0,
    OPS_1_1 = 1 << 16 | 1
};

/* As of 1.1; 1.0 ends before ext_trim_memory, 0.11 before get_name and with two other results (below). */
struct ops {
    uint32_t version;
    int (*initialize)(void *provider, const void *params, void **pool);
    int (*finalize)(void *pool);
    void *(*malloc)(void *pool, size_t size);
    void *(*calloc)(void *pool, size_t count, size_t size);
    void *(*realloc)(void *pool, void *ptr, size_t size);
    void *(*aligned_malloc)(void *pool, size_t size, size_t alignment);
    int (*malloc_usable_size)(void *pool, const void *ptr, size_t *size);
    int (*free)(void *pool, void *ptr);
    int (*get_last_allocation_error)(void *pool);
    int (*get_name)(void *pool, const char **name);
    int (*ext_ctl)(void *pool, int source, const char *name, void *arg, size_t size, int type, va_list arguments);
    int (*ext_trim_memory)(void *pool, size_t keep);
};

/* One of ours, or UMF's own behind our table where the provider turns out not to be for us. */
struct pool {
    struct zr_runtime_pool ours;
    const struct ops *theirs;
    void *their_pool;
    struct pool *next; /* spare */
};

static struct pool *spare;
static struct zr_lock lock;
static const struct ops *real_ops; /* atomic */
static struct zr_umf umf;

/* --- the table ---------------------------------------------------------------------------------------------------- */

static struct pool *take_spare(void) {
    struct pool *p;

    zr_lock(&lock);
    p = spare;
    if (p)
        spare = p->next;
    zr_unlock(&lock);
    return p ? p : zr_piece(sizeof *p);
}

static void put_spare(struct pool *p) {
    zr_lock(&lock);
    *p = (struct pool){.next = spare};
    spare = p;
    zr_unlock(&lock);
}

/* What we cannot serve UMF's own pool does: a runtime gets as many pools as it wants. */
static int initialize(void *provider, const void *params, void **out) {
    struct pool *p;
    int code;

    zr_fork_check();
    p = take_spare();
    if (!p)
        return UMF_OUT_OF_HOST_MEMORY;
    *p = (struct pool){.theirs = real_ops};
    *out = p;
    if (zr_runtime_pool_begin(&p->ours, &umf, provider, zr_thread.sycl.limit)) {
        zr_route_pool_taken();
        return UMF_SUCCESS;
    }
    zr_route_pool_refused("the runtime's provider is not for device memory that we see");
    code = p->theirs->initialize(provider, params, &p->their_pool);
    if (code != UMF_SUCCESS)
        put_spare(p);
    return code;
}

static int finalize(void *pool) {
    struct pool *p = pool;
    int code = UMF_SUCCESS;

    zr_fork_check();
    if (!p->ours.pool)
        code = p->theirs->finalize(p->their_pool);
    else if (zr_exiting())
        return code; /* a thread may still be inside */
    else
        zr_runtime_pool_end(&p->ours);
    put_spare(p);
    return code;
}

void zr_umf_fork_child(void) {
    lock = (struct zr_lock){0};
}

static void *allocate(struct pool *p, enum zr_entry entry, size_t size, size_t alignment, const void *caller) {
    const struct zr_library *library;
    void *out = NULL;
    int code;

    if (zr_exiting()) /* nothing is registered any more */
        return p->ours.umf.alloc(p->ours.provider, size, alignment, &out) ? NULL : out;
    zr_fork_check();
    zr_control_check();
    zr_count_call(entry, ZR_VIA_POOL);
    if (unlikely(size == 0 || alignment & (alignment - 1)))
        code = UMF_INVALID_ARGUMENT;
    else if (unlikely(zr_host_refuses(size))) {
        zr_shortage(NULL, ZR_CAUSE_FLOOR, entry, p->ours.number, size, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        code = UMF_OUT_OF_HOST_MEMORY;
    } else
        code = zr_runtime_pool_malloc(&p->ours, size, alignment, &out);
    library = zr_library_of(caller);
    zr_count_caller(library, ZR_CALLER_CALLS, 1);
    if (likely(code == UMF_SUCCESS))
        zr_count_caller(library, ZR_CALLER_BYTES, size);
    zr_thread.sycl.error = code == ZR_NO_MEMORY ? UMF_OUT_OF_HOST_MEMORY : code;
    return out;
}

static void *pool_malloc(void *pool, size_t size) {
    struct pool *p = pool;

    if (unlikely(!p->ours.pool))
        return p->theirs->malloc(p->their_pool, size);
    return allocate(p, ZR_E_pool_malloc, size, 0, __builtin_return_address(0));
}

static void *pool_aligned_malloc(void *pool, size_t size, size_t alignment) {
    struct pool *p = pool;

    if (unlikely(!p->ours.pool))
        return p->theirs->aligned_malloc(p->their_pool, size, alignment);
    return allocate(p, ZR_E_pool_aligned_malloc, size, alignment, __builtin_return_address(0));
}

/* As UMF's own: device memory cannot be written from here. */
static void *not_supported(enum zr_entry entry) {
    zr_count_call(entry, ZR_VIA_POOL);
    zr_thread.sycl.error = UMF_NOT_SUPPORTED;
    return NULL;
}

static void *pool_calloc(void *pool, size_t count, size_t size) {
    struct pool *p = pool;

    return p->ours.pool ? not_supported(ZR_E_pool_calloc) : p->theirs->calloc(p->their_pool, count, size);
}

static void *pool_realloc(void *pool, void *ptr, size_t size) {
    struct pool *p = pool;

    return p->ours.pool ? not_supported(ZR_E_pool_realloc) : p->theirs->realloc(p->their_pool, ptr, size);
}

static int pool_usable(void *pool, const void *ptr, size_t *size) {
    struct pool *p = pool;

    if (unlikely(!p->ours.pool))
        return p->theirs->malloc_usable_size(p->their_pool, ptr, size);
    zr_count_call(ZR_E_pool_malloc_usable_size, ZR_VIA_POOL);
    *size = ptr ? zr_runtime_pool_usable(&p->ours, ptr) : 0;
    return UMF_SUCCESS;
}

static int pool_free(void *pool, void *ptr) {
    struct pool *p = pool;

    if (unlikely(!p->ours.pool))
        return p->theirs->free(p->their_pool, ptr);
    if (unlikely(!ptr || zr_exiting()))
        return UMF_SUCCESS;
    zr_fork_check();
    zr_control_check();
    zr_count_call(ZR_E_pool_free, ZR_VIA_POOL);
    return zr_runtime_pool_free(&p->ours, ptr, __builtin_return_address(0)) ? UMF_SUCCESS : UMF_INVALID_ARGUMENT;
}

static int pool_last_error(void *pool) {
    struct pool *p = pool;

    return p->ours.pool ? zr_thread.sycl.error : p->theirs->get_last_allocation_error(p->their_pool);
}

static int pool_name(void *pool, const char **name) {
    struct pool *p = pool;

    if (p && !p->ours.pool)
        return p->theirs->get_name(p->their_pool, name);
    *name = "zeroute";
    return UMF_SUCCESS;
}

static int pool_ctl(void *pool, int source, const char *name, void *arg, size_t size, int type, va_list arguments) {
    struct pool *p = pool;

    if (p && !p->ours.pool && p->theirs->ext_ctl)
        return p->theirs->ext_ctl(p->their_pool, source, name, arg, size, type, arguments);
    return UMF_INVALID_CTL_PATH;
}

static int pool_trim(void *pool, size_t keep) {
    struct pool *p = pool;

    if (!p->ours.pool)
        return p->theirs->ext_trim_memory ? p->theirs->ext_trim_memory(p->their_pool, keep) : UMF_NOT_SUPPORTED;
    zr_fork_check();
    zr_pool_trim(p->ours.pool, keep);
    return UMF_SUCCESS;
}

/* The size itself is the result in 0.11. */
static size_t pool_usable_0_11(void *pool, const void *ptr) {
    struct pool *p = pool;
    size_t size = 0;

    if (!p->ours.pool)
        return ((size_t(*)(void *, const void *))(zr_function)p->theirs->malloc_usable_size)(p->their_pool, ptr);
    pool_usable(pool, ptr, &size);
    return size;
}

static struct ops ours = {.initialize = initialize,
                          .finalize = finalize,
                          .malloc = pool_malloc,
                          .calloc = pool_calloc,
                          .realloc = pool_realloc,
                          .aligned_malloc = pool_aligned_malloc,
                          .malloc_usable_size = pool_usable,
                          .free = pool_free,
                          .get_last_allocation_error = pool_last_error,
                          .get_name = pool_name,
                          .ext_ctl = pool_ctl,
                          .ext_trim_memory = pool_trim};

/* Once: which table this UMF knows, and the two functions of its provider. Of two threads that come at once both find
 * the same. */
static bool adopt(const struct ops *real, const void *caller) {
    struct zr_umf found = {
        .alloc = (int (*)(void *, size_t, size_t, void **))zr_definition("umfMemoryProviderAlloc", caller),
        .free = (int (*)(void *, void *, size_t))zr_definition("umfMemoryProviderFree", caller)};

    if (!found.alloc || !found.free)
        return false;
    zr_lock(&lock);
    if (!real_ops) {
        umf = found;
        ours.version = real->version;
        if (real->version == OPS_0_11)
            ours.malloc_usable_size = (int (*)(void *, const void *, size_t *))(zr_function)pool_usable_0_11;
        real_ops = real;
    }
    zr_unlock(&lock);
    return real_ops == real;
}

static const struct ops *table_for(const struct ops *real, const void *caller) {
    const char *why = NULL;

    if (real->version != OPS_0_11 && real->version != OPS_1_0 && real->version != OPS_1_1)
        why = "a UMF whose pools have a layout that is not known";
    else if (zr_runtime_is_foreign())
        why = ZR_RUNTIME_NOT_KNOWN;
    else if (!adopt(real, caller))
        why = "a second UMF in this process, or one without providers";
    if (!why)
        return &ours;
    zr_route_pool_refused(why);
    return real;
}

/* --- what the adapter calls --------------------------------------------------------------------------------------- */

#define REAL(name, caller) ((__typeof__(&zr_##name))zr_definition(#name, caller))

const void *zr_umfDisjointPoolOps(void);
int zr_umfDisjointPoolParamsSetName(void *params, const char *name);
int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size);

#define EXPORT __attribute__((visibility("default")))

EXPORT const void *zr_umfDisjointPoolOps(void) {
    const void *caller = __builtin_return_address(0);
    const void *(*real)(void) = REAL(umfDisjointPoolOps, caller);
    const struct ops *ops = real ? real() : NULL;

    if (!ops || zr_exiting() || !zr_thread.sycl.for_device || !zr_library_of(caller)->is_adapter ||
        !zr_route_wants_pool())
        return ops;
    return table_for(ops, caller);
}

EXPORT int zr_umfDisjointPoolParamsSetName(void *params, const char *name) {
    int (*real)(void *, const char *) = REAL(umfDisjointPoolParamsSetName, __builtin_return_address(0));

    zr_thread.sycl.for_device = name && strcmp(name, "Device") == 0;
    if (zr_thread.sycl.for_device && zr_thread.sycl.params == params)
        zr_route_pool_limit(zr_thread.sycl.limit);
    return real ? real(params, name) : UMF_NOT_SUPPORTED;
}

EXPORT int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size) {
    int (*real)(void *, size_t) = REAL(umfDisjointPoolParamsSetMaxPoolableSize, __builtin_return_address(0));

    zr_thread.sycl.params = params;
    zr_thread.sycl.limit = size;
    return real ? real(params, size) : UMF_NOT_SUPPORTED;
}

/* Callers name the version of UMF that they were linked against. */
#define VERSIONS(name)                                                                                                 \
    __asm__(".symver zr_" #name ", " #name "@UMF_1.0\n"                                                                \
            ".globl zr_" #name "_0_11\n"                                                                               \
            ".type zr_" #name "_0_11, @function\n"                                                                     \
            ".set zr_" #name "_0_11, zr_" #name "\n"                                                                   \
            ".symver zr_" #name "_0_11, " #name "@UMF_0.11\n")
VERSIONS(umfDisjointPoolOps);
VERSIONS(umfDisjointPoolParamsSetName);
VERSIONS(umfDisjointPoolParamsSetMaxPoolableSize);
