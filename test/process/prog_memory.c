/*
 * Memory as every bed has it: one promise per function, true of Intel's driver and of the simulated GPU,
 * with the preload and without. `memory NAME...` keeps those promises alone; without a name, all.
 */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

enum kind { DEVICE, HOST, SHARED, KINDS };

static struct gpu gpu;
static ze_command_list_handle_t lists[8];

static void *take(enum kind kind, unsigned card, size_t size, size_t alignment) {
    void *p = NULL;

    if (kind == DEVICE)
        OK(zeMemAllocDevice(gpu.context, &device_desc, size, alignment, gpu.card[card], &p));
    else if (kind == HOST)
        OK(zeMemAllocHost(gpu.context, &host_desc, size, alignment, &p));
    else
        OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, size, alignment, gpu.card[card], &p));
    EXPECT(p != NULL);
    return p;
}

static void give(void *p) {
    OK(zeMemFree(gpu.context, p));
}

static void copy(unsigned card, void *to, const void *from, size_t size) {
    OK(zeCommandListAppendMemoryCopy(lists[card], to, from, size, NULL, 0, NULL));
}

static void paint(unsigned char *bytes, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

static void write_pattern(unsigned card, void *p, size_t size, unsigned seed) {
    unsigned char *bytes = malloc(size);

    paint(bytes, size, seed);
    copy(card, p, bytes, size);
    free(bytes);
}

static void expect_pattern(unsigned card, const void *p, size_t size, unsigned seed) {
    unsigned char *bytes = malloc(size), *wanted = malloc(size);

    memset(bytes, 0, size);
    paint(wanted, size, seed);
    copy(card, bytes, p, size);
    EXPECT(memcmp(bytes, wanted, size) == 0);
    free(bytes);
    free(wanted);
}

static void expect_known(char *p, size_t size, enum kind kind, unsigned card) {
    static const ze_memory_type_t type[KINDS] = {ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_SHARED};
    char *places[] = {p, p + size / 2, p + size - 1};

    for (unsigned i = 0; i < 3; i++) {
        ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_device_handle_t device = NULL;
        void *base = NULL;
        size_t length = 0;

        OK(zeMemGetAllocProperties(gpu.context, places[i], &props, &device));
        EXPECT(props.type == type[kind]);
        EXPECT(kind == HOST || device == gpu.card[card]);
        OK(zeMemGetAddressRange(gpu.context, places[i], &base, &length));
        EXPECT(base == p && length == size);
    }
}

static void every_kind_size_and_alignment_is_known_from_base_to_last_byte(void) {
    for (unsigned card = 0; card < gpu.cards; card++) {
        for (enum kind kind = DEVICE; kind < KINDS; kind++) {
            for (size_t size = 1; size <= 64 * MIB; size = size * 4 + 3) {
                for (size_t alignment = 0; alignment <= 2 * MIB; alignment = alignment ? alignment * 64 : 1) {
                    char *p = take(kind, card, size, alignment);

                    EXPECT(!alignment || (uintptr_t)p % alignment == 0);
                    expect_known(p, size, kind, card);
                    give(p);
                }
            }
        }
    }
}

/* There are few such addresses: what is free must not take them up. A driver may refuse what is over 1 GiB. */
static void the_coarsest_alignments_are_honoured_time_and_again(void) {
    for (size_t alignment = GIB; alignment <= (size_t)1 << 43; alignment *= 2) {
        for (int i = 0; i < 6; i++) {
            size_t size = i % 3 == 0 ? 100 : i % 3 == 1 ? 70000 : 3 * MIB;
            void *p = NULL;

            if (zeMemAllocDevice(gpu.context, &device_desc, size, alignment, gpu.card[0], &p) != ZE_RESULT_SUCCESS) {
                EXPECT(alignment > GIB);
                return;
            }
            EXPECT((uintptr_t)p % alignment == 0);
            give(p);
        }
    }
}

static void wrong_arguments_get_the_drivers_own_errors(void) {
    static char ours[64];
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    void *p = NULL;

    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocDevice(gpu.context, &device_desc, 0, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
          zeMemAllocDevice(gpu.context, &device_desc, (size_t)1 << 46, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocHost(gpu.context, &host_desc, 0, 0, &p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, ours));
    OK(zeMemGetAllocProperties(gpu.context, ours, &props, NULL));
    EXPECT(props.type == ZE_MEMORY_TYPE_UNKNOWN);
}

static void bytes_arrive_in_every_kind_and_on_every_card(void) {
    size_t size = 3 * MIB + 17;

    for (unsigned card = 0; card < gpu.cards; card++) {
        for (enum kind kind = DEVICE; kind < KINDS; kind++) {
            void *p = take(kind, card, size, 0);

            write_pattern(card, p, size, card + kind);
            expect_pattern(card, p, size, card + kind);
            give(p);
        }
    }
}

static void bytes_arrive_on_the_other_card(void) {
    size_t size = 5 * MIB;

    for (unsigned card = 1; card < gpu.cards; card++) {
        void *here = take(DEVICE, 0, size, 0), *there = take(DEVICE, card, size, 0);

        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], here, size));
        write_pattern(0, here, size, card);
        copy(card, there, here, size);
        expect_pattern(card, there, size, card);
        give(here);
        give(there);
    }
}

static void a_block_can_be_resident_on_every_card(void) {
    for (unsigned owner = 0; owner < gpu.cards; owner++) {
        for (size_t size = 4096; size <= 20 * MIB; size *= 8) {
            char *p = take(DEVICE, owner, size, 0);

            for (unsigned card = 0; card < gpu.cards; card++)
                OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], p, size));
            OK(zeContextEvictMemory(gpu.context, gpu.card[owner], p, size));
            OK(zeContextMakeMemoryResident(gpu.context, gpu.card[owner], p, size));
            expect_known(p, size, DEVICE, owner);
            give(p);
        }
    }
}

/*
 * Freed last. The driver (26.27) remembers what it opened by process id, descriptor number and offset of the
 * handle, and forgets it only with the exporter's own records: a block that is exported under a descriptor
 * number that was used before is answered with the earlier block. On one card small blocks lie in a pool whose
 * descriptor stays.
 */
static void a_handle_opens_in_the_same_process(void) {
    char *blocks[3];

    for (unsigned i = 0; i < 3; i++) {
        size_t size = 64 * KIB << 4 * i;
        ze_ipc_mem_handle_t handle;
        void *q = NULL;

        blocks[i] = take(DEVICE, 0, size, 0);
        write_pattern(0, blocks[i], size, 5);
        OK(zeMemGetIpcHandle(gpu.context, blocks[i], &handle));
        OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &q));
        expect_pattern(0, q, size, 5);
        OK(zeMemCloseIpcHandle(gpu.context, q));
    }
    for (unsigned i = 0; i < 3; i++)
        give(blocks[i]);
}

static int open_handle(const char *hex, size_t size) {
    ze_ipc_mem_handle_t handle;
    void *p = NULL;

    for (size_t i = 0; i < sizeof(handle); i++) {
        unsigned byte;

        EXPECT(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        handle.data[i] = (char)byte;
    }
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &p));
    expect_pattern(0, p, size, 6);
    write_pattern(0, p, size, 7);
    OK(zeMemCloseIpcHandle(gpu.context, p));
    return 0;
}

static void a_handle_opens_in_another_process_which_writes_back(void) {
    for (size_t size = 64 * KIB; size <= 16 * MIB; size *= 16) {
        char *p = take(DEVICE, 0, size, 0), hex[2 * sizeof(ze_ipc_mem_handle_t) + 1], text[32];
        ze_ipc_mem_handle_t handle;
        int status;
        pid_t child;

        write_pattern(0, p, size, 6);
        OK(zeMemGetIpcHandle(gpu.context, p, &handle));
        for (size_t i = 0; i < sizeof(handle); i++)
            snprintf(hex + 2 * i, 3, "%02x", (unsigned char)handle.data[i]);
        snprintf(text, sizeof(text), "%zu", size);
        fflush(stdout);
        child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "memory", "--open", hex, text, (char *)NULL);
            _exit(127);
        }
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
        expect_pattern(0, p, size, 7);
        give(p);
    }
}

static void virtual_memory_holds_bytes(void) {
    for (unsigned card = 0; card < gpu.cards; card++) {
        size_t size = 4 * MIB, page = 0;
        ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, NULL, 0, size};
        ze_physical_mem_handle_t physical;
        void *p = NULL;

        OK(zeVirtualMemQueryPageSize(gpu.context, gpu.card[card], size, &page));
        EXPECT(page && size % page == 0);
        OK(zeVirtualMemReserve(gpu.context, NULL, 2 * size, &p));
        OK(zePhysicalMemCreate(gpu.context, gpu.card[card], &desc, &physical));
        OK(zeVirtualMemMap(gpu.context, p, size, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
        write_pattern(card, p, size, card);
        expect_pattern(card, p, size, card);
        OK(zeVirtualMemUnmap(gpu.context, p, size));
        OK(zePhysicalMemDestroy(gpu.context, physical));
        OK(zeVirtualMemFree(gpu.context, p, 2 * size));
    }
}

static void contexts_come_and_go_with_their_blocks(void) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};

    for (unsigned turn = 0; turn < 20; turn++) {
        ze_context_handle_t context;
        void *p[4];

        OK(zeContextCreate(gpu.driver, &desc, &context));
        for (unsigned i = 0; i < 4; i++)
            OK(zeMemAllocDevice(context, &device_desc, (2 + i) * MIB, 0, gpu.card[0], &p[i]));
        for (unsigned i = 0; i < 4; i++)
            OK(zeMemFree(context, p[i]));
        OK(zeContextDestroy(context));
    }
}

static void the_default_context_serves_all_cards(void) {
    ze_context_handle_t (*standard)(ze_driver_handle_t);
    ze_context_handle_t context;

    *(void **)&standard = dlsym(RTLD_DEFAULT, "zeDriverGetDefaultContext");
    if (!standard || !(context = standard(gpu.driver)))
        return;
    for (unsigned card = 0; card < gpu.cards; card++) {
        void *p = NULL;

        OK(zeMemAllocDevice(context, &device_desc, 2 * MIB, 512, gpu.card[card], &p));
        OK(zeMemFree(context, p));
    }
}

static unsigned fill_up(void **blocks, unsigned most) {
    for (unsigned n = 0; n < most; n++) {
        ze_result_t r;

        blocks[n] = NULL;
        r = zeMemAllocDevice(gpu.context, &device_desc, 512 * MIB, 0, gpu.card[0], &blocks[n]);
        if (r != ZE_RESULT_SUCCESS) {
            GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, r);
            return n;
        }
    }
    return most;
}

static void a_full_card_says_so_and_recovers(void) {
    enum { MOST = 128 };
    void *blocks[MOST];
    unsigned first = 0;

    for (unsigned turn = 0; turn < 3; turn++) {
        unsigned n = fill_up(blocks, MOST);

        EXPECT(n > 0 && n < MOST);
        EXPECT(!first || n == first);
        first = n;
        for (unsigned i = 0; i < n; i++)
            give(blocks[i]);
        /* what smaller blocks left in a cache must not be in the way of the next turn */
        for (unsigned i = 0; i < 16; i++)
            give(take(DEVICE, 0, 20 * MIB, 0));
    }
}

static void *worker(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument, card = seed % gpu.cards;

    for (unsigned i = 0; i < 100; i++) {
        size_t size = (size_t)1 << (9 + (i * 7 + seed) % 14);
        char *p = take((enum kind)(i % KINDS), card, size, 0);

        expect_known(p, size, (enum kind)(i % KINDS), card);
        give(p);
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void) {
    pthread_t threads[8];

    for (uintptr_t i = 0; i < 8; i++)
        EXPECT(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (unsigned i = 0; i < 8; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
}

enum { FEW = 16, MANY = 2000 };

static void *take_many(void *blocks) {
    for (unsigned i = 0; i < MANY; i++)
        ((void **)blocks)[i] = take(DEVICE, 0, 131072, 0);
    return NULL;
}

static void *take_and_give_few(void *unused) {
    void *blocks[FEW];

    for (unsigned i = 0; i < FEW; i++)
        blocks[i] = take(DEVICE, 0, 131072, 0);
    for (unsigned i = 0; i < FEW; i++)
        give(blocks[i]);
    return unused;
}

static void in_a_thread(void *(*run)(void *argument), void *argument) {
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, run, argument) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* The driver gives addresses out again, to a thread for which the preload has no books left (lib_no_pages.c). */
static void what_one_thread_has_freed_another_can_have_and_free(void) {
    ze_memory_free_ext_desc_t blocking = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                          .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    static void *many[MANY];
    void *few[FEW];

    for (unsigned i = 0; i < FEW; i++)
        few[i] = take(DEVICE, 0, 131072, 0);
    EXPECT(setenv("NO_PAGES", "0", 1) == 0);
    in_a_thread(take_many, many);
    for (unsigned i = 0; i < FEW; i++)
        OK(zeMemFreeExt(gpu.context, &blocking, few[i]));
    in_a_thread(take_and_give_few, NULL);
    EXPECT(unsetenv("NO_PAGES") == 0);
    for (unsigned i = 0; i < MANY; i++)
        give(many[i]);
}

static const struct part promises[] = {
    PART(every_kind_size_and_alignment_is_known_from_base_to_last_byte),
    PART(the_coarsest_alignments_are_honoured_time_and_again),
    PART(wrong_arguments_get_the_drivers_own_errors),
    PART(bytes_arrive_in_every_kind_and_on_every_card),
    PART(bytes_arrive_on_the_other_card),
    PART(a_block_can_be_resident_on_every_card),
    PART(a_handle_opens_in_the_same_process),
    PART(a_handle_opens_in_another_process_which_writes_back),
    PART(virtual_memory_holds_bytes),
    PART(contexts_come_and_go_with_their_blocks),
    PART(the_default_context_serves_all_cards),
    PART(a_full_card_says_so_and_recovers),
    PART(threads_do_not_disturb_each_other),
    PART(what_one_thread_has_freed_another_can_have_and_free),
};

int main(int argc, char **argv) {
    int kept = 0;

    gpu = first_gpu();
    for (unsigned card = 0; card < gpu.cards; card++)
        lists[card] = immediate(&gpu, card, true);
    if (argc == 4 && strcmp(argv[1], "--open") == 0)
        return open_handle(argv[2], strtoul(argv[3], NULL, 0));
    for (unsigned i = 0; i < sizeof(promises) / sizeof(promises[0]); i++) {
        bool wanted = argc == 1;

        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], promises[i].name) == 0;
        if (!wanted)
            continue;
        printf("%s\n", promises[i].name);
        fflush(stdout);
        promises[i].run();
        kept++;
    }
    EXPECT(argc == 1 || kept == argc - 1);
    for (unsigned card = 0; card < gpu.cards; card++)
        OK(zeCommandListDestroy(lists[card]));
    OK(zeContextDestroy(gpu.context));
    puts("end");
    return 0;
}
