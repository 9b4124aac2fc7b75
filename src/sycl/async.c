/*
 * SYCL's asynchronous allocations: left to the runtime and counted. A block of ours may be freed that way too: the
 * runtime does not know it, so its queue is waited for, and then it is taken back. Within a command group there is no
 * queue to wait for: there a host task takes it back, when its turn has come.
 */
#include "sycl/route.h"

#define EX "_ZN4sycl3_V13ext6oneapi12experimental"
#define WAIT "_ZN4sycl3_V15queue10wait_proxyERKNS0_6detail13code_locationE"

#define ZR_PASSED(name, entry, symbol, parameters, arguments)                                      \
    void *zr_sycl_##name parameters;                                                               \
    ZR_SYCL_EXPORT(name, symbol) void *zr_sycl_##name parameters                                   \
    {                                                                                              \
        struct zr_runtime *runtime = zr_runtime_called(ZR_E_##entry, __builtin_return_address(0)); \
        zr_function real = runtime ? zr_runtime_function(runtime, symbol) : NULL;                  \
                                                                                                   \
        return real ? ((void *(*)parameters)real)arguments : NULL;                                 \
    }

ZR_PASSED(async_malloc, async_malloc,
          EX "12async_mallocERKNS0_5queueENS0_3usm5allocEmRKNS0_6detail13code_locationE",
          (const void *queue, int kind, size_t size, const void *code), (queue, kind, size, code))
ZR_PASSED(async_malloc_h, async_malloc,
          EX "12async_mallocERNS0_7handlerENS0_3usm5allocEm", (void *handler, int kind, size_t size),
          (handler, kind, size))
ZR_PASSED(async_malloc_from_pool, async_malloc_from_pool,
          EX "22async_malloc_from_poolERKNS0_5queueEmRKNS3_11memory_poolERKNS0_6detail13code_locationE",
          (const void *queue, size_t size, const void *pool, const void *code),
          (queue, size, pool, code))
ZR_PASSED(async_malloc_from_pool_h, async_malloc_from_pool,
          EX "22async_malloc_from_poolERNS0_7handlerEmRKNS3_11memory_poolE",
          (void *handler, size_t size, const void *pool), (handler, size, pool))

/* libstdc++'s std::function<void()> with a functor that lies in it. */
struct function {
    struct functor {
        void *ptr;
        const void *caller;
    } functor;
    bool (*manage)(struct functor *to, const struct functor *from, int operation);
    void (*invoke)(const struct functor *functor);
};

static bool manage(struct functor *to, const struct functor *from, int operation)
{
    enum { CLONE = 2 };

    if (operation == CLONE)
        *to = *from;
    return false;
}

static void take_back(const struct functor *functor)
{
    zr_route_free(functor->ptr, functor->caller);
}

/* As a parameter by value, and as a reference in older runtimes: a pointer in either case. */
static zr_function set_host_task(const struct zr_runtime *runtime)
{
    zr_function f = zr_runtime_function(runtime, "_ZN4sycl3_V17handler11SetHostTaskESt8functionIFvvEE");

    return f ? f : zr_runtime_function(runtime, "_ZN4sycl3_V17handler11SetHostTaskEOSt8functionIFvvEE");
}

#define FREE_IN_GROUP EX "10async_freeERNS0_7handlerEPv"
void zr_sycl_async_free_h(void *handler, void *ptr);
ZR_SYCL_EXPORT(async_free_h, FREE_IN_GROUP) void zr_sycl_async_free_h(void *handler, void *ptr)
{
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_async_free, caller);
    zr_function set = runtime && zr_route_owns(ptr) ? set_host_task(runtime) : NULL;
    zr_function real = runtime ? zr_runtime_function(runtime, FREE_IN_GROUP) : NULL;
    struct function task = {{ptr, caller}, manage, take_back};

    if (set)
        ((void (*)(void *, struct function *))set)(handler, &task);
    else if (real)
        ((void (*)(void *, void *))real)(handler, ptr);
}

#define FREE EX "10async_freeERKNS0_5queueEPvRKNS0_6detail13code_locationE"
void zr_sycl_async_free(const void *queue, void *ptr, const void *code);
ZR_SYCL_EXPORT(async_free, FREE) void zr_sycl_async_free(const void *queue, void *ptr, const void *code)
{
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_async_free, caller);
    bool owned = zr_route_owns(ptr);
    zr_function real = runtime ? zr_runtime_function(runtime, owned ? WAIT : FREE) : NULL;

    if (!real)
        return;
    if (!owned) {
        ((void (*)(const void *, void *, const void *))real)(queue, ptr, code);
        return;
    }
    ((void (*)(const void *, const void *))real)(queue, code);
    zr_route_free(ptr, caller);
}
