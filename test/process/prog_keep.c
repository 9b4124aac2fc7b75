/*
 * What must stay true for a process whose freed blocks are kept (DESIGN.md 1.6): one promise per run, named by the
 * first argument. Two simulated cards in one context, calls counted.
 */
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static struct gpu gpu;

static uint64_t allocs(void)
{
    return figure(&gpu, "calls.zeMemAllocDevice");
}

static uint64_t frees(void)
{
    return figure(&gpu, "calls.zeMemFree");
}

static uint64_t ext_frees(void)
{
    return figure(&gpu, "calls.zeMemFreeExt");
}

struct extension {
    uint32_t stype;
    const void *next;
};

static void release(void *p)
{
    OK(zeMemFree(gpu.context, p));
}

static ze_result_t release_with(void *p, uint32_t policy)
{
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .freePolicy = policy};

    return zeMemFreeExt(gpu.context, &desc, p);
}

static void reuse(void)
{
    void *p = on_card(&gpu, 0, 3 * MIB);
    uint64_t before = allocs();

    release(p);
    EXPECT(on_card(&gpu, 0, 3 * MIB) == p);
    EXPECT(allocs() == before && frees() == 0);
    release(p);
}

/*
 * One call site asks for the same again and again, and then for something else: another card, alignment, size,
 * ordinal, a chained structure. It gets what it asks for each time, and every call is counted (test_keep.c).
 */
enum { STEADY_ROUNDS = 3000 };

static __attribute__((noinline)) void *ask(const void *next, size_t size, size_t alignment, unsigned card)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .pNext = next};
    void *p = NULL;

    OK(zeMemAllocDevice(gpu.context, &desc, size, alignment, gpu.card[card], &p));
    return p;
}

static void steady(void)
{
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    void *first = ask(NULL, 64 * KIB, 0, 0); /* so that no other one is aligned by chance */
    uint64_t before = 0;

    for (unsigned i = 0; i < STEADY_ROUNDS; i++) {
        /* Each kind is asked for 16 times in a row: long enough to be remembered. */
        unsigned kind = i / 16 % 5, card = kind == 1;
        size_t size = kind == 2 ? 192 * KIB : 64 * KIB, alignment = kind == 3 ? MIB : 0;
        ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_device_handle_t device = NULL;
        size_t range = 0;
        void *p = ask(kind == 4 ? &relaxed : NULL, size, alignment, card);

        EXPECT(!alignment || (uintptr_t)p % alignment == 0);
        OK(zeMemGetAllocProperties(gpu.context, p, &properties, &device));
        EXPECT(device == gpu.card[card]);
        OK(zeMemGetAddressRange(gpu.context, p, NULL, &range));
        EXPECT(range == size);
        release(p);
        EXPECT(zeMemFree(gpu.context, p) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
        if (i == 16 * 5)
            before = allocs();
    }
    EXPECT(allocs() == before);
    release(first);
}

/* A call site that is known to ask for this block, and for once asks for something else. */
static __attribute__((noinline)) ze_result_t site_aligned(ze_context_handle_t context,
                                                          const ze_device_mem_alloc_desc_t *desc, size_t alignment,
                                                          ze_device_handle_t device, void **p)
{
    ze_result_t result = zeMemAllocDevice(context, desc, 3 * MIB, alignment, device, p);

    __asm__ volatile("" : "+r"(result)); /* no tail call: the return address is what a site is known by */
    return result;
}

static ze_result_t site(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, ze_device_handle_t device,
                        void **p)
{
    return site_aligned(context, desc, 0, device, p);
}

static void *settled(void)
{
    void *p = NULL;

    for (int i = 0; i < 20; i++) {
        OK(site(gpu.context, &device_desc, gpu.card[0], &p));
        release(p);
    }
    return p;
}

static void for_once(void)
{
    struct extension unknown = {0x7fff0001, NULL};
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .pNext = &unknown,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc[4] = {device_desc, device_desc, device_desc, device_desc};
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    void *kept = settled(), *p;

    desc[0].pNext = &unknown;
    desc[1].pNext = &relaxed;
    desc[2].ordinal = 1;
    desc[3].stype = 0x7fff0001;
    for (int i = 0; i < 4; i++) {
        uint64_t before = allocs();

        EXPECT(settled() == kept && allocs() == before);
        if (site(gpu.context, &desc[i], gpu.card[0], &p) == ZE_RESULT_SUCCESS)
            EXPECT(p != kept);
        EXPECT(allocs() == before + 1);
        if (i != 1)
            continue;
        before = frees();
        release(p);
        EXPECT(frees() == before + 1); /* passed by, so it is not kept either */
    }
    settled();
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, site(gpu.context, &device_desc, gpu.card[0], NULL));
    settled();
    OK(zeContextCreate(gpu.driver, &context_desc, &other));
    OK(site(other, &device_desc, gpu.card[0], &p));
    EXPECT(p != kept);
    OK(zeMemFree(other, p));
    OK(zeContextDestroy(other));
    EXPECT(settled() == kept);
}

/* Of a site that is known, and of one that is not because it asks for relaxed limits: the driver judges each value. */
static void no_alignment(void)
{
    static const size_t alignment[] = {3, SIZE_MAX, SIZE_MAX - 1};
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc[2] = {device_desc, device_desc};

    desc[1].pNext = &relaxed;
    for (int i = 0; i < 6; i++) {
        void *p;

        for (int times = 0; times < 20; times++) {
            OK(site(gpu.context, &desc[i / 3], gpu.card[0], &p));
            release(p);
        }
        GIVES(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
              site_aligned(gpu.context, &device_desc, alignment[i % 3], gpu.card[0], &p));
    }
}

/*
 * A handler of signals that allocates and frees in the middle of calls that are served from what is kept: every other
 * time by the same call site for another context, else as the site itself does, each time a little more, so that each
 * is a new peak. Not while the program has a block: both together would be the peak for good.
 */
enum { SIGNALS = 4000, MOST = 100000 };
static ze_context_handle_t others;
static volatile unsigned signals, more, holds;

static __attribute__((noinline)) void *grow(ze_context_handle_t context)
{
    void *p = NULL;

    more += more < MOST;
    OK(zeMemAllocDevice(context, &device_desc, 2 * MIB + more, 0, gpu.card[0], &p));
    return p;
}

static void come_between(int signal)
{
    (void)signal;
    for (int i = 0; i < 3 && !holds; i++) {
        ze_context_handle_t context = signals % 2 ? others : gpu.context;

        OK(zeMemFree(context, grow(context)));
    }
    signals++;
}

static void interrupted(void)
{
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    void *kept = grow(gpu.context), *p;

    release(kept);
    OK(zeContextCreate(gpu.driver, &context_desc, &others));
    OK(zeMemFree(others, grow(others)));
    EXPECT(signal(SIGALRM, come_between) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (signals < SIGNALS) {
        p = grow(gpu.context);
        holds = 1;
        EXPECT(p == kept);
        release(p);
        holds = 0;
    }
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    OK(zeContextDestroy(others));
}

/* More devices than a thread remembers call sites: each gets memory of its own. With tiles:2. */
static void many_devices(void)
{
    ze_device_handle_t device[24], owner;
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    unsigned n = 0;
    void *p;

    for (unsigned i = 0; i < gpu.cards; i++) {
        uint32_t two = 2;

        device[n++] = gpu.card[i];
        OK(zeDeviceGetSubDevices(gpu.card[i], &two, &device[n]));
        n += two;
    }
    EXPECT(n == 24);
    for (unsigned i = 0; i < 20 * n; i++) {
        OK(site(gpu.context, &device_desc, device[i % n], &p));
        OK(zeMemGetAllocProperties(gpu.context, p, &properties, &owner));
        EXPECT(owner == device[i % n]);
        release(p);
    }
}

/* Blocking, deferred: a command may still use it. */
static void policies(void)
{
    for (uint32_t policy = 1; policy <= 2; policy++) {
        uint64_t before = ext_frees();

        OK(release_with(on_card(&gpu, 0, MIB), policy));
        EXPECT(ext_frees() == before + 1);
    }
    uint64_t before = ext_frees() + frees();
    OK(release_with(on_card(&gpu, 0, MIB), 0));
    EXPECT(ext_frees() + frees() == before);
    before = ext_frees();
    struct extension unknown = {0x7fff0001, NULL};
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .pNext = &unknown};
    OK(zeMemFreeExt(gpu.context, &desc, on_card(&gpu, 0, MIB)));
    EXPECT(ext_frees() == before + 1);
    desc = (ze_memory_free_ext_desc_t){.stype = 0x7fff0001};
    zeMemFreeExt(gpu.context, &desc, on_card(&gpu, 0, MIB));
    EXPECT(ext_frees() == before + 2);
}

static void exported(void)
{
    void *p = on_card(&gpu, 0, MIB);
    ze_ipc_mem_handle_t handle;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    release(p);
    EXPECT(frees() == 1);
    EXPECT(figure(&gpu, "vram.0") == 0);
}

/* A descriptor of the block's memory is one, too. */
static void exported_by_descriptor(void)
{
    ze_external_memory_export_fd_t fd = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
                                         .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
                                                    .pNext = &fd};
    void *p = on_card(&gpu, 0, 3 * MIB);

    OK(zeMemGetAllocProperties(gpu.context, p, &properties, NULL));
    close(fd.fd);
    release(p);
    EXPECT(frees() == 1);
}

static size_t range(const char *p, void **base)
{
    size_t size = 0;

    *base = NULL;
    return zeMemGetAddressRange(gpu.context, p, base, &size) == ZE_RESULT_SUCCESS ? size : 0;
}

static ze_memory_type_t type_of(const void *p)
{
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;

    if (zeMemGetAllocProperties(gpu.context, p, &properties, &device) != ZE_RESULT_SUCCESS)
        return ZE_MEMORY_TYPE_UNKNOWN;
    return properties.type;
}

/* Of a size that no class has: what lies behind it is nobody's. */
static void questions(void)
{
    size_t size = 3 * MIB + 5 * KIB;
    char *p = on_card(&gpu, 0, size);
    ze_ipc_mem_handle_t handle;
    void *base;

    EXPECT(range(p, &base) == size && base == p);
    EXPECT(range(p + size / 2, &base) == size && base == p);
    EXPECT(range(p + size - 1, &base) == size && base == p);
    EXPECT(range(p + size, &base) == 0);
    EXPECT(type_of(p + size - 1) == ZE_MEMORY_TYPE_DEVICE);
    EXPECT(type_of(p + size) == ZE_MEMORY_TYPE_UNKNOWN);
    EXPECT(zeMemGetIpcHandle(gpu.context, p + size, &handle) != ZE_RESULT_SUCCESS);
    release(p);
    EXPECT(frees() == 0);
    EXPECT(range(p, &base) == 0 && range(p + 5, &base) == 0);
    EXPECT(type_of(p) == ZE_MEMORY_TYPE_UNKNOWN);
    EXPECT(zeMemGetIpcHandle(gpu.context, p, &handle) != ZE_RESULT_SUCCESS);
}

static void misuse(void)
{
    char *p = on_card(&gpu, 0, MIB);
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    int local;

    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, &local));
    release(p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, release_with(p, 1));
    EXPECT(frees() == 0);
    OK(zeContextCreate(gpu.driver, &desc, &other));
    OK(zeMemFree(other, on_card(&gpu, 0, MIB)));
    EXPECT(frees() == 0 && on_card(&gpu, 0, MIB) == p);
}

/* Each as the bare driver answers, with blocks kept that would fit. */
static void wrong_arguments(void)
{
    ze_device_handle_t card = gpu.card[0];
    void *p = on_card(&gpu, 0, MIB), *out = &gpu;

    release(p);
    p = on_card(&gpu, 0, 2 * MIB);
    for (int round = 0; round < 2; round++) {
        unsigned n = 0, code[12];
        uint64_t before = allocs();

        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, 0, 0, card, &out);
        EXPECT(out == NULL);
        out = &gpu;
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 3, card, &out);
        code[n++] = zeMemAllocDevice(gpu.context, NULL, MIB, 0, card, &out);
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, card, NULL);
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, NULL, &out);
        for (unsigned i = 0; i < n; i++) {
            printf("%x ", code[i]);
            EXPECT(code[i] != 0);
        }
        EXPECT(out == &gpu);
        EXPECT(allocs() >= before + n);
        code[0] = zeMemFreeExt(gpu.context, NULL, p);
        code[1] = zeMemFree(gpu.context, NULL);
        printf("%x %x\n", code[0], code[1]);
        EXPECT(ext_frees() == 1u + (unsigned)round && code[0] != 0 && code[1] != 0);
    }
    release(p); /* is still whole */
    EXPECT(on_card(&gpu, 0, 2 * MIB) == p);
}

/* As the driver answers it, down to what it leaves in the pointer. */
static void refusals(void)
{
    ze_relaxed_allocation_limits_exp_desc_t nothing = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC};
    ze_device_mem_alloc_desc_t relaxed = device_desc;
    void *out = &gpu;

    relaxed.pNext = &nothing;
    release(on_card(&gpu, 0, MIB)); /* would fit */
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT,
          zeMemAllocDevice(gpu.context, &relaxed, MIB, 0, gpu.card[0], &out));
    on_card(&gpu, 1, 60 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, gpu.card[1], &out));
    EXPECT(out == &gpu);
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
          zeMemAllocDevice(gpu.context, &device_desc, SIZE_MAX, 0, gpu.card[0], &out));
    EXPECT(out == NULL);
}

/* A descriptor with something chained to it that we do not know. */
static void chained(void)
{
    struct extension unknown = {0x7fff0001, NULL};
    ze_device_mem_alloc_desc_t desc = device_desc;
    uint64_t before;
    void *p;

    release(on_card(&gpu, 0, MIB));
    before = allocs();
    desc.pNext = &unknown;
    OK(zeMemAllocDevice(gpu.context, &desc, MIB, 0, gpu.card[0], &p));
    EXPECT(allocs() == before + 1);
    release(p);
    EXPECT(frees() == 1);
}

/* Larger than what the driver takes from slabs, which are resident as a whole. */
#define BLOCK (4 * MIB)

static __attribute__((noinline)) void *resident_on_both(size_t size)
{
    void *p = on_card(&gpu, 0, size);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, size));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, size));
    return p;
}

/* One place that asks for the peer, and another that does not. */
static void peers(void)
{
    void *p = NULL, *q;
    uint64_t before;

    for (int i = 0; i < 4; i++) {
        p = resident_on_both(BLOCK);
        release(p);
    }
    before = figure(&gpu, "calls.zeContextMakeMemoryResident");
    EXPECT(resident_on_both(BLOCK) == p);
    EXPECT(figure(&gpu, "calls.zeContextMakeMemoryResident") == before);
    EXPECT(residency(&gpu, p) == 3);
    release(p);
    EXPECT(residency(&gpu, p) == 3);
    OK(zeMemAllocDevice(gpu.context, &device_desc, BLOCK, 0, gpu.card[0], &q));
    EXPECT(q != p && residency(&gpu, q) != 3);
}

/* One place that asked for the peer for long, and then does not: what it gets is not on the peer. */
static __attribute__((noinline)) void *resident_if(bool asked)
{
    void *p = on_card(&gpu, 0, BLOCK);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, BLOCK));
    if (asked)
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
    return p;
}

static void no_longer_asked(void)
{
    for (int i = 0; i < 20; i++)
        release(resident_if(true));
    release(resident_if(false)); /* could not be foreseen */
    for (int i = 0; i < 20; i++) {
        void *p = resident_if(false);

        EXPECT(residency(&gpu, p) == 1);
        release(p);
    }
}

/* What was evicted is not answered from the books. */
static void evicted(void)
{
    void *p = NULL;

    for (int i = 0; i < 4; i++) {
        p = resident_on_both(BLOCK);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK));
        EXPECT((residency(&gpu, p) & 2) == 0);
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
        EXPECT(residency(&gpu, p) == 3);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK));
        release(p);
        EXPECT((residency(&gpu, p) & 2) == 0);
    }
    p = resident_on_both(BLOCK);
    EXPECT(residency(&gpu, p) == 3);
}

static void owner_only(void)
{
    for (int i = 0; i < 4; i++) {
        void *p = resident_on_both(BLOCK);

        EXPECT((residency(&gpu, p) & 2) == 0);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK)); /* of what it does not have */
        release(p);
    }
    EXPECT(figure(&gpu, "calls.zeContextEvictMemory") == 0);
}

/* The cards hold 64 MiB. */
static void full(void)
{
    void *p = on_card(&gpu, 0, 40 * MIB), *q = NULL;

    release(p);
    release(on_card(&gpu, 1, 2 * MIB)); /* of no use to the other card: stays */
    EXPECT(frees() == 0);
    p = on_card(&gpu, 0, 60 * MIB);
    EXPECT(frees() == 1);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 40 * MIB, 0, gpu.card[0], &q));
    EXPECT(q == NULL);
    q = on_card(&gpu, 1, 40 * MIB);
    release(p);
    release(q);
}

static void context_destroyed(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t first = gpu.context;
    void *kept[8], *other;

    other = on_card(&gpu, 0, MIB);
    release(other);
    OK(zeContextCreate(gpu.driver, &desc, &gpu.context));
    for (int i = 0; i < 8; i++)
        kept[i] = on_card(&gpu, (unsigned)i % 2, (size_t)(i + 1) * MIB);
    for (int i = 0; i < 8; i++)
        release(kept[i]);
    EXPECT(frees() == 0);
    OK(zeContextDestroy(gpu.context));
    EXPECT(frees() == 8 && figure(&gpu, "faults") == 0); /* before the context was gone */
    gpu.context = first;
    EXPECT(on_card(&gpu, 0, MIB) == other);
    release(other);
}

/* Blocks that outlive their context: counted once, and gone when they are freed through another one. */
static void orphans(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t first = gpu.context;
    void *p;

    OK(zeContextCreate(gpu.driver, &desc, &gpu.context));
    p = on_card(&gpu, 0, 3 * MIB + 5 * KIB);
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeContextDestroy(NULL));
    release(p);
    EXPECT(frees() == 0); /* kept: a wrong argument has forgotten nothing */
    EXPECT(on_card(&gpu, 0, 3 * MIB + 5 * KIB) == p);
    OK(zeContextDestroy(gpu.context));
    gpu.context = first;
    printf("after: %x\n", (unsigned)zeMemFree(gpu.context, p));
}

static void forked(void)
{
    void *p = on_card(&gpu, 0, MIB), *q = on_card(&gpu, 0, 2 * MIB);
    int status;
    pid_t pid;

    release(p);
    pid = fork();
    if (pid == 0) {
        void *mine = NULL;
        /* Nothing that the parent keeps: the child's own driver may well refuse all of it. */
        if (zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, gpu.card[0], &mine) == ZE_RESULT_SUCCESS)
            _exit(mine == p);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(on_card(&gpu, 0, MIB) == p);
    release(p);
    release(q);
}

/* No handler is told of raw clone: the shortest way sees it, too. */
static void cloned(void)
{
    void *p = settled(), *mine = NULL;
    int status;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        _exit(site(gpu.context, &device_desc, gpu.card[0], &mine) == ZE_RESULT_SUCCESS && mine == p);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(settled() == p);
}

/* A child that uses the card as its parent does, and ends in good order. */
static void ends_in_order(pid_t pid)
{
    int status;

    if (pid == 0) {
        release(on_card(&gpu, 0, 2 * MIB));
        exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
}

static void child_exits(void)
{
    void *p = on_card(&gpu, 0, MIB);

    ends_in_order(fork());
    release(p);
}

/*
 * Named counters have other numbers in a child, whose own segment begins empty: those of the parent must not be used
 * there. The child ends without a word, so that the suite finds its segment by its pid.
 */
static __attribute__((noinline)) void ask_peer(void *p, int times)
{
    while (times-- > 0) /* one place: the numbers are kept per caller */
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
}

static void withheld_in_child(void)
{
    void *p = on_card(&gpu, 0, BLOCK);
    int status;
    pid_t pid;

    ask_peer(p, 1);
    pid = fork();
    if (pid == 0) {
        ask_peer(p, 5);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    printf("child %d\n", (int)pid);
    release(p);
}

/* With a host_floor of 4 GiB: a block at hand is no way around it. */
static void say_available(const char *root, const char *kib)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    file = fopen(path, "w");
    EXPECT(file && fprintf(file, "MemTotal: 99999999 kB\nMemAvailable: %s kB\n", kib) > 0 && fclose(file) == 0);
}

static void below_the_floor(void)
{
    char root[] = "/tmp/zeroute-floor.XXXXXX", proc[64], meminfo[80];
    void *p = NULL;

    EXPECT(mkdtemp(root) != NULL);
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", proc);
    EXPECT(mkdir(proc, 0700) == 0 && setenv("ZEROUTE_ROOT", root, 1) == 0);
    say_available(root, "8388608");
    settled();
    say_available(root, "1048576");
    pause_ms(30); /* it is looked at every 10 ms */
    GIVES(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, site(gpu.context, &device_desc, gpu.card[0], &p));
    EXPECT(p == NULL);
    say_available(root, "8388608");
    pause_ms(30);
    settled();
    EXPECT(unlink(meminfo) == 0 && rmdir(proc) == 0 && rmdir(root) == 0);
}

/* Of everything over 10 MiB it is refused; what is kept makes room first. */
static void limited(void)
{
    void *p = on_card(&gpu, 0, 6 * MIB), *q = NULL;
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 8 * MIB};
    ze_physical_mem_handle_t physical;

    release(p);
    p = on_card(&gpu, 0, 8 * MIB);
    for (int i = 0; i < 3; i++)
        GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
              zeMemAllocDevice(gpu.context, &device_desc, 4 * MIB, 0, gpu.card[0], &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    q = on_card(&gpu, 1, 8 * MIB);
    release(p);
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    p = on_card(&gpu, 0, 9 * MIB + 900 * KIB);
    release(p);
    release(q);
    for (int i = 0; i < 100; i++) {
        p = on_card(&gpu, 0, (size_t)(i % 10 + 1) * MIB - 3 * KIB);
        OK(i % 2 ? release_with(p, 1) : zeMemFree(gpu.context, p));
    }
    p = on_card(&gpu, 0, 10 * MIB);
    release(p);
}

static void queried(void)
{
    release(on_card(&gpu, 0, MIB));
    release(on_card(&gpu, 1, MIB));
    usable_memory(gpu.card[0]);
    EXPECT(frees() == 1);
}

static void nothing_kept(void)
{
    for (int i = 0; i < 3; i++)
        release(on_card(&gpu, 0, 3 * MIB + (size_t)i));
    EXPECT(frees() == 3);
    EXPECT(figure(&gpu, "vram.0") == 0);
}

/* With a cache_limit of half of 64 MiB, and with 2 % of 100 GiB. */
static void kept_up_to(size_t most)
{
    release(on_card(&gpu, 0, most + most / 4));
    EXPECT(frees() == 1);
    release(on_card(&gpu, 0, most / 2));
    EXPECT(frees() == 1);
}

static void half_kept(void)
{
    kept_up_to(32 * MIB);
}

static void two_percent_kept(void)
{
    kept_up_to(1700 * MIB); /* 2 GiB lie between the two */
}

/* One page at a time is noticed at the next call. */
static void idle(void)
{
    void *p = on_card(&gpu, 0, MIB);

    release(p);
    for (int i = 0; i < 200 && frees() == 0; i++) {
        pause_ms(10);
        release(on_card(&gpu, 0, 4 * KIB));
    }
    EXPECT(frees() > 0);
}

static void host(void)
{
    void *p, *q;

    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &p));
    release(p);
    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &q));
    EXPECT(p == q && frees() == 0);
    memset(q, 1, MIB);
    release(q);
}

/* With this flag of Intel's own the caller names the memory: none that is kept will do. */
static void host_of_the_caller(void)
{
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, .flags = 1u << 30};
    void *p;

    for (unsigned i = 1; i <= 2; i++) {
        OK(zeMemAllocHost(gpu.context, &desc, 2 * MIB, 0, &p));
        release(p);
        EXPECT(frees() == i && figure(&gpu, "calls.zeMemAllocHost") == i);
    }
}

/* As a library through which a SYCL runtime calls would: its program may have freed early. */
static void take_and_release_as_an_adapter(void)
{
    void *p, *q;

    program_invocation_short_name = (char *)(uintptr_t) "libur_adapter_level_zero.so.0";
    p = on_card(&gpu, 0, 3 * MIB);
    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &q));
    release(p);
    release(q);
}

static void adapter(void)
{
    take_and_release_as_an_adapter();
    EXPECT(frees() == 2);
}

static void adapter_vouched(void)
{
    take_and_release_as_an_adapter();
    EXPECT(frees() == 0);
}

static const struct part all[] = {
    PART(reuse), PART(policies), PART(exported), PART(steady), PART(questions), PART(misuse),
    PART(wrong_arguments), PART(refusals), PART(chained), PART(peers), PART(evicted),
    PART(owner_only), PART(full), PART(context_destroyed), PART(orphans), PART(forked),
    PART(withheld_in_child), PART(child_exits), PART(below_the_floor), PART(limited), PART(queried), PART(nothing_kept),
    PART(idle), PART(exported_by_descriptor), PART(for_once), PART(no_alignment), PART(interrupted), PART(many_devices),
    PART(no_longer_asked), PART(cloned), PART(half_kept), PART(two_percent_kept), PART(host),
    PART(host_of_the_caller), PART(adapter), PART(adapter_vouched), {NULL, NULL}};

int main(int argc, char **argv)
{
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
