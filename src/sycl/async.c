/*
 * SYCL's asynchronous frees. The runtime does not know our blocks, so we wait for its queue and
 * then free the block ourselves. Within a command group there is no queue to wait for: a host task
 * frees the block in its turn.
 */
#include "sycl/sycl.h"

#define EX "_ZN4sycl3_V13ext6oneapi12experimental"
#define WAIT "_ZN4sycl3_V15queue10wait_proxyERKNS0_6detail13code_locationE"

/* libstdc++'s std::function<void()> with a functor that lies in it. */
struct function {
    struct functor {
        void *ptr;
        const void *caller;
    } functor;
    bool (*manage)(struct functor *to, const struct functor *from, int operation);
    void (*invoke)(const struct functor *functor);
};

static bool manage(struct functor *to, const struct functor *from, int operation) {
    enum { CLONE = 2 };

    if (operation == CLONE)
        *to = *from;
    return false;
}

static void task_take_back(const struct functor *functor) {
    zr_route_free(functor->ptr, ZR_E_async_free, functor->caller);
}

/* The parameter is passed by value, in older runtimes by reference: a pointer in either case. */
static zr_function set_host_task(const struct zr_runtime *runtime, const void *caller) {
    zr_function f =
        zr_runtime_function(runtime, "_ZN4sycl3_V17handler11SetHostTaskESt8functionIFvvEE", caller);

    return f ? f
             : zr_runtime_function(runtime, "_ZN4sycl3_V17handler11SetHostTaskEOSt8functionIFvvEE",
                                   caller);
}

#define FREE_IN_GROUP EX "10async_freeERNS0_7handlerEPv"
void zr_sycl_async_free_h(void *handler, void *ptr);
ZR_SYCL_EXPORT(async_free_h, FREE_IN_GROUP) void zr_sycl_async_free_h(void *handler, void *ptr) {
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_async_free, caller);
    zr_function set = zr_route_block(ptr) ? set_host_task(runtime, caller) : NULL;
    zr_function real = zr_runtime_function(runtime, FREE_IN_GROUP, caller);
    struct function task = {{ptr, caller}, manage, task_take_back};

    if (set)
        ((void (*)(void *, struct function *))set)(handler, &task);
    else if (real)
        ((void (*)(void *, void *))real)(handler, ptr);
}

#define FREE EX "10async_freeERKNS0_5queueEPvRKNS0_6detail13code_locationE"
void zr_sycl_async_free(const void *queue, void *ptr, const void *code);
ZR_SYCL_EXPORT(async_free, FREE)
void zr_sycl_async_free(const void *queue, void *ptr, const void *code) {
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_async_free, caller);
    bool owned = zr_route_block(ptr) != NULL;
    zr_function real = zr_runtime_function(runtime, owned ? WAIT : FREE, caller);

    if (!real)
        return;
    if (!owned) {
        ((void (*)(const void *, void *, const void *))real)(queue, ptr, code);
        return;
    }
    ((void (*)(const void *, const void *))real)(queue, code);
    zr_route_free(ptr, ZR_E_async_free, caller);
}
