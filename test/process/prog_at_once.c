/*
 * Threads that do everything at once, from the first call of the process on: start, enumerate, allocate every kind of
 * memory on every card, free it in every way and by any thread, export and open, make resident and evict, map, ask,
 * trim, misuse, make and destroy contexts. A limit may be set: a refusal is an answer. Every block is stamped by its
 * owner, so that one which was handed out twice shows. Arguments: threads, rounds per thread.
 */
#include "sim.h"

#include <level_zero/zes_api.h>
#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 16, BLOCKS = 12, EXCHANGE = 32 };

struct self {
    struct gpu gpu; /* the cards, and a context of its own */
    uint64_t me;
    uint32_t seed;
    uint64_t *mine[BLOCKS];
};

static ze_context_handle_t shared_context;
static pthread_barrier_t together;
static int rounds;
static _Atomic(void *) exchange[EXCHANGE];

static uint32_t draw(struct self *s, uint32_t below) {
    s->seed = s->seed * 1664525 + 1013904223;
    return (s->seed >> 8) % below;
}

static size_t size_of(struct self *s) {
    return draw(s, 4) ? (size_t)(2 + draw(s, 7)) * MIB : 1 + draw(s, 200000);
}

/* OUT_OF_DEVICE_MEMORY is an answer where a limit is set. */
static bool granted(ze_result_t result) {
    EXPECT(result == ZE_RESULT_SUCCESS || result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    return result == ZE_RESULT_SUCCESS;
}

static ze_device_handle_t any_card(struct self *s) {
    return s->gpu.card[draw(s, s->gpu.cards)];
}

static void *take(struct self *s, uint64_t stamp) {
    uint64_t *p = NULL;
    size_t size = size_of(s) + 8;
    size_t alignment = draw(s, 4) ? 0 : (size_t)1 << (6 + draw(s, 12));
    ze_result_t result;

    switch (draw(s, 8)) {
    case 0:
        result = zeMemAllocHost(shared_context, &host_desc, size, alignment, (void **)&p);
        break;
    case 1:
        result = zeMemAllocShared(shared_context, &device_desc, &host_desc, size, alignment, any_card(s), (void **)&p);
        break;
    default:
        result = zeMemAllocDevice(shared_context, &device_desc, size, alignment, any_card(s), (void **)&p);
    }
    if (!granted(result))
        return NULL;
    EXPECT(p && (!alignment || (uintptr_t)p % alignment == 0));
    *p = stamp; /* the simulated card's memory can be written here */
    return p;
}

static void give(struct self *s, void *p) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .freePolicy = draw(s, 3)};

    if (draw(s, 4))
        OK(zeMemFree(draw(s, 8) ? shared_context : s->gpu.context, p));
    else
        OK(zeMemFreeExt(shared_context, &desc, p));
}

static void ask_about(struct self *s, void *p) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner;
    void *base = NULL;
    size_t size = 0;

    OK(zeMemGetAllocProperties(shared_context, p, &properties, &owner));
    EXPECT(properties.type != ZE_MEMORY_TYPE_UNKNOWN);
    OK(zeMemGetAddressRange(shared_context, (char *)p + draw(s, 8), &base, &size));
    EXPECT(base == p);
    EXPECT(zeMemFree(shared_context, (char *)p + 1 + draw(s, 7)) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

static void share(struct self *s, void *p) {
    ze_ipc_mem_handle_t handle;
    void *open = NULL;

    if (zeMemGetIpcHandle(shared_context, p, &handle) != ZE_RESULT_SUCCESS)
        return; /* host memory */
    if (!granted(zeMemOpenIpcHandle(shared_context, any_card(s), handle, 0, &open)))
        return;
    EXPECT(*(uint64_t *)open == *(uint64_t *)p);
    OK(zeMemCloseIpcHandle(shared_context, open));
}

static void map(struct self *s) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC,
                                   .size = (size_t)(1 + draw(s, 4)) * 2 * MIB};
    ze_physical_mem_handle_t physical;
    void *range = NULL;

    if (!granted(zePhysicalMemCreate(shared_context, any_card(s), &desc, &physical)))
        return;
    OK(zeVirtualMemReserve(shared_context, NULL, desc.size, &range));
    OK(zeVirtualMemMap(shared_context, range, desc.size, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    OK(zeVirtualMemUnmap(shared_context, range, desc.size));
    OK(zeVirtualMemFree(shared_context, range, desc.size));
    OK(zePhysicalMemDestroy(shared_context, physical));
}

static void how_much_is_free(struct self *s) {
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    zes_mem_handle_t module;
    uint32_t one = 1;

    usable_memory(any_card(s));
    OK(zeDeviceGetMemoryProperties(any_card(s), &one, &memory));
    one = 1;
    OK(zesDeviceEnumMemoryModules((zes_device_handle_t)any_card(s), &one, &module));
    OK(zesMemoryGetState(module, &state));
    EXPECT(state.free <= state.size);
}

/* A context that goes while others work, with what is kept for it. */
static void come_and_go(struct self *s) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t context;
    void *p[4];
    int n = 0;

    OK(zeContextCreate(s->gpu.driver, &desc, &context));
    while (n < 4 && granted(zeMemAllocDevice(context, &device_desc, size_of(s), 0, any_card(s), &p[n])))
        n++;
    while (n--)
        OK(zeMemFree(context, p[n]));
    OK(zeContextDestroy(context));
}

static void turn(struct self *s) {
    unsigned n = draw(s, BLOCKS);
    uint64_t stamp = s->me << 32 | n, *p = s->mine[n];

    if (!p) {
        s->mine[n] = take(s, stamp);
        return;
    }
    EXPECT(*p == stamp);
    switch (draw(s, 32)) {
    case 0:
        how_much_is_free(s);
        break;
    case 1:
        come_and_go(s);
        break;
    case 2:
    case 3:
        map(s);
        break;
    case 4:
    case 5:
        share(s, p);
        break;
    case 6:
    case 7:
        OK(zeContextMakeMemoryResident(shared_context, any_card(s), p, 8));
        break;
    case 8:
        OK(zeContextEvictMemory(shared_context, any_card(s), p, 8));
        break;
    case 9:
    case 10:
        ask_about(s, p);
        break;
    case 11:
    case 12:
    case 13:
        s->mine[n] = NULL;
        p = atomic_exchange(&exchange[draw(s, EXCHANGE)], p);
        if (p)
            give(s, p);
        break;
    default:
        s->mine[n] = NULL;
        give(s, p);
    }
}

static void *work(void *arg) {
    struct self s = {.me = (uintptr_t)arg, .seed = (uint32_t)(uintptr_t)arg * 7919};
    ze_context_handle_t none = NULL;

    pthread_barrier_wait(&together);
    s.gpu = first_gpu();
    if (__atomic_compare_exchange_n(&shared_context, &none, s.gpu.context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        use_driver(&s.gpu, s.gpu.driver); /* another one for itself */
    pthread_barrier_wait(&together);
    for (int i = 0; i < rounds; i++)
        turn(&s);
    for (int i = 0; i < BLOCKS; i++)
        if (s.mine[i])
            give(&s, s.mine[i]);
    OK(zeContextDestroy(s.gpu.context));
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t thread[MOST];
    struct self s = {.seed = 1};

    rounds = argc > 2 ? atoi(argv[2]) : 1000;
    EXPECT(threads > 0 && threads <= MOST && pthread_barrier_init(&together, NULL, (unsigned)threads) == 0);
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++)
        EXPECT(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    s.gpu = first_gpu();
    for (int i = 0; i < EXCHANGE; i++)
        if (exchange[i])
            OK(zeMemFree(shared_context, exchange[i]));
    OK(zeContextDestroy(shared_context));
    for (unsigned i = 0; i < s.gpu.cards; i++) {
        char name[16];

        snprintf(name, sizeof name, "vram.%u", i);
        EXPECT(figure(&s.gpu, name) == 0);
    }
    return 0;
}
