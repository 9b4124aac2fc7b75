/*
 * What must stay true for a process whose freed blocks are kept and reused: `cache NAME` keeps
 * one promise. Started by test_cache.c with the settings that each needs, on the simulated GPU with count:on.
 */
#include "sim.h"

#include <level_zero/zes_api.h>
#include <pthread.h>
#include <sys/wait.h>

static struct gpu gpu;

static uint64_t allocs(void) {
    return figure(&gpu, "calls.zeMemAllocDevice");
}

static uint64_t held(void) {
    return figure(&gpu, "vram.0");
}

static void *get(size_t size) {
    return on_card(&gpu, 0, size);
}

static void put(void *p) {
    OK(zeMemFree(gpu.context, p));
}

static void put_with(void *p, unsigned policy) {
    OK(free_with(&gpu, p, policy));
}

static void freed_blocks_are_reused(void) {
    void *p = get(3 * MIB);
    uint64_t before = allocs();

    for (int i = 0; i < 1000; i++) {
        put(p);
        EXPECT(get(3 * MIB) == p);
    }
    EXPECT(allocs() == before);
    put_with(p, 0);
    EXPECT(get(3 * MIB) == p);
    EXPECT(allocs() == before);
}

static void expect_range(const void *p, const void *base, size_t size) {
    void *found = NULL;
    size_t length = 0;

    OK(zeMemGetAddressRange(gpu.context, p, &found, &length));
    EXPECT(found == base && length == size);
}

static ze_memory_type_t type_of(const void *p, ze_device_handle_t *device) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};

    *device = NULL;
    OK(zeMemGetAllocProperties(gpu.context, p, &properties, device));
    return properties.type;
}

static void questions_are_answered_for_the_asked_size(void) {
    static const size_t sizes[] = {3 * MIB, 3 * MIB - 1, 3 * MIB - 4097};
    char *p = NULL;
    ze_device_handle_t device;

    for (int i = 0; i < 3; i++) {
        p = get(sizes[i]);
        expect_range(p, p, sizes[i]);
        expect_range(p + 12345, p, sizes[i]);
        expect_range(p + sizes[i] - 1, p, sizes[i]);
        EXPECT(type_of(p, &device) == ZE_MEMORY_TYPE_DEVICE && device == gpu.card[0]);
        EXPECT(type_of(p + sizes[i] - 1, &device) == ZE_MEMORY_TYPE_DEVICE && device == gpu.card[0]);
        put(p);
        EXPECT(type_of(p, &device) == ZE_MEMORY_TYPE_UNKNOWN);
        EXPECT(type_of(p + 100, &device) == ZE_MEMORY_TYPE_UNKNOWN);
        EXPECT(zeMemGetAddressRange(gpu.context, p, NULL, NULL) != ZE_RESULT_SUCCESS);
    }
    EXPECT(type_of(&gpu, &device) == ZE_MEMORY_TYPE_UNKNOWN);
}

static void a_free_that_waits_goes_to_the_driver(void) {
    void *p = get(3 * MIB), *q = get(3 * MIB);
    uint64_t before = held();

    put_with(p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
    EXPECT(held() < before);
    before = held();
    put_with(q, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE);
    EXPECT(held() < before);
    EXPECT(figure(&gpu, "calls.zeMemFreeExt") == 2);
}

/* The command reads at its end: were the block handed out meanwhile, it would read the new owner's bytes. */
static void a_block_in_use_is_not_handed_out(void) {
    ze_command_list_handle_t list = immediate(&gpu, 0, false);
    ze_event_handle_t gate = new_event(&gpu), done = new_event(&gpu);
    char *p = get(3 * MIB), *q, back = 0;

    p[0] = 'p';
    OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, done, 1, &gate));
    put_with(p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE);
    q = get(3 * MIB);
    EXPECT(q != p);
    q[0] = 'q';
    OK(zeEventHostSignal(gate));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
    EXPECT(back == 'p');
    put(q);
}

static void an_exported_block_is_really_freed(void) {
    ze_ipc_mem_handle_t handle;
    void *p = get(3 * MIB);
    uint64_t before = held();

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    put(p);
    EXPECT(held() < before);
}

static uint64_t free_by_sysman(void) {
    zes_device_handle_t device = (zes_device_handle_t)gpu.card[0];
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    zes_mem_handle_t module;
    uint32_t one = 1;

    OK(zesDeviceEnumMemoryModules(device, &one, &module));
    OK(zesMemoryGetState(module, &state));
    return state.free;
}

static uint64_t free_by_properties(uint64_t *total) {
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    uint32_t one = 1;

    OK(zeDeviceGetMemoryProperties(gpu.card[0], &one, &memory));
    if (total)
        *total = memory.totalSize;
    return usable_memory(gpu.card[0]);
}

static void what_is_kept_does_not_look_used(void) {
    uint64_t sysman = free_by_sysman(), usable = free_by_properties(NULL);
    void *p = get(64 * MIB);

    EXPECT(free_by_sysman() == sysman - 64 * MIB);
    put(p);
    EXPECT(held() >= 64 * MIB);
    EXPECT(free_by_sysman() == sysman);
    put(get(64 * MIB));
    EXPECT(free_by_properties(NULL) == usable);
    EXPECT(held() == 0);
}

/* With limit:1GiB on a card of 4 GiB. */
static void the_limit_holds_and_is_told(void) {
    uint64_t total, usable = free_by_properties(&total);
    void *p, *q = NULL;

    EXPECT(total == GIB && usable == GIB);
    p = get(600 * MIB);
    EXPECT(free_by_properties(NULL) <= 424 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 600 * MIB, 0, gpu.card[0], &q));
    put(p);
    EXPECT(get(900 * MIB) != NULL);
}

static void physical_memory_counts_against_the_limit(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 600 * MIB};
    ze_physical_mem_handle_t physical, second;
    void *q = NULL;

    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 600 * MIB, 0, gpu.card[0], &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &second));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    EXPECT(get(600 * MIB) != NULL);
}

/* With vram:128MiB. */
static void a_full_card_gets_back_what_is_kept(void) {
    void *p = get(80 * MIB), *q = NULL;

    put(p);
    EXPECT(held() >= 80 * MIB);
    q = get(100 * MIB);
    EXPECT(held() >= 100 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 64 * MIB, 0, gpu.card[0], &p));
    put(q);
}

static void a_destroyed_context_leaves_nothing_behind(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    void *mine = get(3 * MIB), *p = NULL;
    uint64_t before;

    put(mine);
    before = held();
    OK(zeContextCreate(gpu.driver, &desc, &other));
    OK(zeMemAllocDevice(other, &device_desc, 5 * MIB, 0, gpu.card[0], &p));
    OK(zeMemFree(other, p));
    EXPECT(held() > before);
    OK(zeContextDestroy(other));
    EXPECT(held() == before);
    EXPECT(get(3 * MIB) == mine);
}

static void misuse_is_refused(void) {
    char *p = get(3 * MIB), *again;
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    int local;

    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, &local));
    put(p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    again = get(3 * MIB);
    EXPECT(again == p);
    EXPECT(get(3 * MIB) != p);
    OK(zeContextCreate(gpu.driver, &desc, &other));
    OK(zeMemFree(other, again));
}

static void wrong_arguments_get_the_drivers_own_answer(void) {
    ze_device_mem_alloc_desc_t ordinal = device_desc;
    void *p = NULL;
    uint64_t before = allocs();

    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocDevice(gpu.context, &device_desc, 0, 0, gpu.card[0], &p));
    EXPECT(zeMemAllocDevice(gpu.context, &device_desc, MIB, 3, gpu.card[0], &p) != ZE_RESULT_SUCCESS);
    EXPECT(allocs() >= before + 2);
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
          zeMemAllocDevice(gpu.context, &device_desc, (size_t)1 << 45, 0, gpu.card[0], &p));
    ordinal.ordinal = 1000;
    put(get(3 * MIB));
    before = allocs();
    if (zeMemAllocDevice(gpu.context, &ordinal, 3 * MIB, 0, gpu.card[0], &p) == ZE_RESULT_SUCCESS)
        put(p);
    EXPECT(allocs() == before + 1); /* whatever it says, it was asked */
    EXPECT(zeMemFree(gpu.context, NULL) == ZE_RESULT_ERROR_INVALID_ARGUMENT ||
           zeMemFree(gpu.context, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
}

static void alignment_is_honoured(void) {
    for (size_t align = 1; align <= 64 * MIB; align *= 2) {
        void *p = NULL, *q = NULL;

        OK(zeMemAllocDevice(gpu.context, &device_desc, 70000, align, gpu.card[0], &p));
        EXPECT(((uintptr_t)p & (align - 1)) == 0);
        put(p);
        OK(zeMemAllocDevice(gpu.context, &device_desc, 70000, align, gpu.card[0], &q));
        EXPECT(((uintptr_t)q & (align - 1)) == 0);
        put(q);
    }
    EXPECT(((uintptr_t)get(2 * MIB) & 0xffff) == 0);
}

static void *resident_on_both(size_t size) {
    void *p = get(size);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, size));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, size));
    return p;
}

static void *on_one_card_only(size_t size) {
    return get(size);
}

/* With devices:2. */
static void residency_is_kept_and_answered_from_the_books(void) {
    void *p = NULL;
    uint64_t asked;

    for (int i = 0; i < 3; i++) {
        p = resident_on_both(3 * MIB);
        EXPECT(residency(&gpu, p) == 3);
        put(p);
    }
    asked = figure(&gpu, "calls.zeContextMakeMemoryResident");
    EXPECT(resident_on_both(3 * MIB) == p);
    EXPECT(residency(&gpu, p) == 3);
    EXPECT(figure(&gpu, "calls.zeContextMakeMemoryResident") == asked);
    put(p);
    put(on_one_card_only(3 * MIB)); /* could not be foreseen */
    EXPECT((residency(&gpu, on_one_card_only(3 * MIB)) & 2) == 0);
}

/* With cache_idle:50ms. */
static void what_lies_unused_goes_back_on_later_calls(void) {
    uint64_t end = now_ms() + 20000;

    put(get(64 * MIB));
    EXPECT(held() >= 64 * MIB);
    do {
        usleep(5000);
        put(get(3 * MIB));
    } while (held() >= 64 * MIB && now_ms() < end);
    EXPECT(held() < 64 * MIB);
}

/* With cache_limit:32MiB. */
static void no_more_is_kept_than_cache_limit(void) {
    void *p[16];

    for (int i = 0; i < 16; i++)
        p[i] = get(4 * MIB);
    for (int i = 0; i < 16; i++)
        put(p[i]);
    EXPECT(held() <= 32 * MIB);
    EXPECT(held() >= 16 * MIB);
}

static void host_memory_is_kept_only_when_asked(void) {
    bool kept = strstr(getenv("ZEROUTE_CONF"), "cache_host:on") != NULL;
    uint64_t before;
    void *p = NULL;

    OK(zeMemAllocHost(gpu.context, &host_desc, 3 * MIB, 0, &p));
    put(p);
    before = figure(&gpu, "calls.zeMemAllocHost");
    OK(zeMemAllocHost(gpu.context, &host_desc, 3 * MIB, 0, &p));
    EXPECT(figure(&gpu, "calls.zeMemAllocHost") == before + !kept);
    put(p);
}

/* With inject:zeMemAllocDevice@2=0x70000003+zeMemAllocDevice@5=0x78000004. */
static void injected_failures_meet_the_cache(void) {
    void *p = get(3 * MIB), *q;

    put(p);
    q = get(5 * MIB); /* call 2 fails, what is kept is given back, call 3 succeeds */
    EXPECT(q != NULL);
    get(7 * MIB);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemAllocDevice(gpu.context, &device_desc, 9 * MIB, 0, gpu.card[0], &p));
}

/* With inject:zeMemAllocDevice@1=0x70000001: only want of memory is tried again with the very size. */
static void another_failure_is_not_tried_again(void) {
    void *p = NULL;

    GIVES(ZE_RESULT_ERROR_DEVICE_LOST, zeMemAllocDevice(gpu.context, &device_desc, 3000001, 0, gpu.card[0], &p));
}

/* With cache_limit:0. */
static void what_is_not_cached_is_counted_once(void) {
    for (int i = 0; i < 3; i++)
        put(get(3 * MIB));
}

/* A handle is no range of memory: a pointer behind it points into nothing. */
static void a_handle_is_no_range(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 2 * MIB};
    ze_physical_mem_handle_t physical;

    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    EXPECT(zeMemFree(gpu.context, (char *)physical + MIB) != ZE_RESULT_SUCCESS);
    OK(zePhysicalMemDestroy(gpu.context, physical));
}

static void a_child_starts_with_nothing(void) {
    void *p = get(3 * MIB);
    pid_t child;
    int status;

    put(p);
    child = fork();
    if (child == 0)
        _exit(get(3 * MIB) == p);
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(get(3 * MIB) == p);
}

enum { THREADS = 4, ROUNDS = 300 };

/* Each block carries its thread's mark from start to end: nobody else may have been given it. */
static void *work(void *arg) {
    uintptr_t me = (uintptr_t)arg;

    for (uintptr_t i = 0; i < ROUNDS; i++) {
        size_t size = (2 + (i + me) % 3) * MIB;
        char *p = get(size);
        ze_ipc_mem_handle_t handle;
        ze_device_handle_t device;
        uint64_t mark = me << 32 | i, back;

        memcpy(p, &mark, sizeof mark);
        if (i % 16 == me)
            OK(zeMemGetIpcHandle(gpu.context, p, &handle));
        if (i % 8 == me)
            EXPECT(free_by_properties(NULL) > 0);
        expect_range(p + 100, p, size);
        EXPECT(type_of(p, &device) == ZE_MEMORY_TYPE_DEVICE);
        memcpy(&back, p, sizeof back);
        EXPECT(back == mark);
        if (i % 7 == 0)
            put_with(p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
        else
            put(p);
    }
    return NULL;
}

static void threads_allocate_free_export_and_query_at_once(void) {
    pthread_t thread[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(figure(&gpu, "faults") == 0);
    free_by_properties(NULL);
    EXPECT(held() == 0);
}

static const struct part all[] = {
    PART(freed_blocks_are_reused),
    PART(questions_are_answered_for_the_asked_size),
    PART(a_free_that_waits_goes_to_the_driver),
    PART(a_block_in_use_is_not_handed_out),
    PART(an_exported_block_is_really_freed),
    PART(what_is_kept_does_not_look_used),
    PART(the_limit_holds_and_is_told),
    PART(physical_memory_counts_against_the_limit),
    PART(a_full_card_gets_back_what_is_kept),
    PART(a_destroyed_context_leaves_nothing_behind),
    PART(misuse_is_refused),
    PART(wrong_arguments_get_the_drivers_own_answer),
    PART(alignment_is_honoured),
    PART(residency_is_kept_and_answered_from_the_books),
    PART(what_lies_unused_goes_back_on_later_calls),
    PART(no_more_is_kept_than_cache_limit),
    PART(host_memory_is_kept_only_when_asked),
    PART(injected_failures_meet_the_cache),
    PART(another_failure_is_not_tried_again),
    PART(what_is_not_cached_is_counted_once),
    PART(a_handle_is_no_range),
    PART(a_child_starts_with_nothing),
    PART(threads_allocate_free_export_and_query_at_once),
    {NULL, NULL},
};

int main(int argc, char **argv) {
    setenv("ZES_ENABLE_SYSMAN", "1", 0);
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
