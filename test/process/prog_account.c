/*
 * One account per card: what a limit refuses, what it tells, what a refused free leaves behind, and what passes the
 * cache by. One promise per run, named by the first argument; sizes are over 1 MiB, so that the simulated driver
 * takes none of them from a slab.
 */
#include "sim.h"

#include <dlfcn.h>
#include <level_zero/zes_api.h>
#include <sys/wait.h>

static struct gpu gpu;

/* Sysman by itself: from loader 1.9 on. Its devices are others than those of the core API. */
static ze_result_t (*sysman_init)(uint32_t);
static ze_result_t (*sysman_drivers)(uint32_t *, zes_driver_handle_t *);
static ze_result_t (*sysman_devices)(zes_driver_handle_t, uint32_t *, zes_device_handle_t *);

static void start_sysman(void) {
    const char *const names[] = {"zesInit", "zesDriverGet", "zesDeviceGet"};
    void *found[3];

    for (int i = 0; i < 3; i++)
        if (!(found[i] = dlsym(RTLD_DEFAULT, names[i]))) {
            printf("the loader has no %s\n", names[i]);
            exit(77);
        }
    memcpy(&sysman_init, &found[0], sizeof found[0]);
    memcpy(&sysman_drivers, &found[1], sizeof found[1]);
    memcpy(&sysman_devices, &found[2], sizeof found[2]);
    OK(sysman_init(0));
}

static uint64_t on_vram(unsigned card) {
    char name[16];

    snprintf(name, sizeof name, "vram.%u", card);
    return figure(&gpu, name);
}

static ze_result_t ask(unsigned card, size_t size, void **p) {
    return zeMemAllocDevice(gpu.context, &device_desc, size, 0, gpu.card[card], p);
}

/* --- what is told ------------------------------------------------------------------------------------- */
struct told {
    uint64_t total, physical, usable, usable_by_region, module_size, module_free, largest;
};

/* The module of the card with this PCI bus: 3 and up, in the order of the cards. */
static zes_mem_handle_t module_of(unsigned card) {
    zes_driver_handle_t driver;
    zes_device_handle_t devices[8];
    zes_mem_handle_t module;
    uint32_t one = 1, count = 8;

    if (!sysman_init) {
        count = gpu.cards;
        memcpy(devices, gpu.card, sizeof devices);
    } else {
        OK(sysman_drivers(&one, &driver));
        OK(sysman_devices(driver, &count, devices));
    }
    for (uint32_t i = 0; i < count; i++) {
        zes_pci_properties_t pci = {.stype = ZES_STRUCTURE_TYPE_PCI_PROPERTIES};

        OK(zesDevicePciGetProperties(devices[i], &pci));
        one = 1;
        if (pci.address.bus != 3 + card)
            continue;
        OK(zesDeviceEnumMemoryModules(devices[i], &one, &module));
        EXPECT(one == 1);
        return module;
    }
    EXPECT(!"such a card");
    return NULL;
}

static struct told tell(unsigned card) {
    struct usable usable = USABLE, by_region = USABLE;
    ze_device_memory_ext_properties_t more = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES,
                                              .pNext = &by_region};
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &more};
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &usable};
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    uint32_t count = 4;
    ze_device_memory_properties_t room[4] = {memory};

    OK(zeDeviceGetMemoryProperties(gpu.card[card], &count, room));
    EXPECT(count == 1);
    OK(zeDeviceGetProperties(gpu.card[card], &device));
    OK(zesMemoryGetState(module_of(card), &state));
    return (struct told){room[0].totalSize, more.physicalSize, usable.bytes,          by_region.bytes,
                         state.size,        state.free,        device.maxMemAllocSize};
}

static void tells(unsigned card, uint64_t total, uint64_t free) {
    struct told t = tell(card);

    printf("card %u: %zu %zu %zu %zu %zu %zu MiB\n", card, t.total / MIB, t.physical / MIB, t.usable / MIB,
           t.usable_by_region / MIB, t.module_size / MIB, t.module_free / MIB);
    EXPECT(t.total == total && t.physical == total && t.module_size == total && t.largest <= total);
    EXPECT(t.usable == free && t.usable_by_region == free && t.module_free == free);
}

/* All that is told as free can be had, in however many pieces of whatever size. */
static void fits(void) {
    static const size_t pieces[] = {1, 3, 7, 10, 11, 32, 100, 300, 999};
    void *p[999];

    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        size_t size = usable_memory(gpu.card[0]) / pieces[i];

        for (size_t n = 0; n < pieces[i]; n++)
            p[n] = on_card(&gpu, 0, size);
        for (size_t n = 0; n < pieces[i]; n++)
            OK(zeMemFree(gpu.context, p[n]));
    }
}

/* Cards of 1 GiB with a limit of 256 MiB, told before anything was allocated and for each card its own. */
static void told(void) {
    void *p, *q;

    for (unsigned card = 0; card < gpu.cards; card++)
        tells(card, 256 * MIB, 256 * MIB);
    p = on_card(&gpu, 1, 64 * MIB);
    tells(1, 256 * MIB, 192 * MIB);
    tells(0, 256 * MIB, 256 * MIB);
    tells(2, 256 * MIB, 256 * MIB);
    q = on_card(&gpu, 2, 192 * MIB);
    tells(2, 256 * MIB, 64 * MIB);
    tells(1, 256 * MIB, 192 * MIB);
    OK(zeMemFree(gpu.context, p));
    tells(1, 256 * MIB, 256 * MIB); /* what is kept is given back first */
    OK(zeMemFree(gpu.context, q));
}

/* Only a question about free memory gives back what is kept, and only on the card that it is about. */
static void plain_questions(void) {
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    uint32_t one = 1;
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};

    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 8 * MIB)));
    OK(zeMemFree(gpu.context, on_card(&gpu, 1, 8 * MIB)));
    OK(zeDeviceGetMemoryProperties(gpu.card[0], &one, &memory));
    OK(zeDeviceGetProperties(gpu.card[0], &device));
    EXPECT(on_vram(0) == 8 * MIB && on_vram(1) == 8 * MIB);
    OK(zesMemoryGetState(module_of(1), &state));
    EXPECT(on_vram(0) == 8 * MIB && on_vram(1) == 0);
    tell(0);
    EXPECT(on_vram(0) == 0);
}

/* --- what is refused ---------------------------------------------------------------------------------- */

/* 64 MiB for each card, and every kind of memory counts. */
static void every_kind(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 20 * MIB};
    ze_physical_mem_handle_t physical;
    ze_ipc_mem_handle_t handle, small;
    void *p = NULL, *open = NULL, *q = &gpu, *tiny = NULL;

    p = on_card(&gpu, 0, 20 * MIB);
    tiny = on_card(&gpu, 1, 2 * MIB);
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemGetIpcHandle(gpu.context, tiny, &small));
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &open));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(0, 20 * MIB, &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &q));
    EXPECT(figure(&gpu, "calls.zeMemCloseIpcHandle") == 1);
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], small, 0, &q)); /* 62 of 64 */
    OK(zeMemCloseIpcHandle(gpu.context, q));
    OK(zeMemCloseIpcHandle(gpu.context, open));
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &open));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    OK(ask(0, 20 * MIB, &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zeMemCloseIpcHandle(gpu.context, open));
    OK(zeMemFree(gpu.context, p));
    OK(zeMemFree(gpu.context, q));
    OK(zeMemFree(gpu.context, tiny));
    OK(ask(0, 64 * MIB, &p));
    OK(zeMemFree(gpu.context, p));
}

/* What is kept makes room for an import and for physical memory, too. */
static void makes_room(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 40 * MIB};
    ze_physical_mem_handle_t physical;
    ze_ipc_mem_handle_t handle;
    void *p = on_card(&gpu, 1, 40 * MIB), *open;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 40 * MIB)));
    EXPECT(on_vram(0) == 40 * MIB);
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 40 * MIB)));
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &open));
    OK(zeMemCloseIpcHandle(gpu.context, open));
    OK(zeMemFree(gpu.context, p));
}

/* What was imported counts as what it is, whatever size the caller names: 40 of 64 MiB each. */
static void imported_by_descriptor(void) {
    int fd;
    void *p = exported_block(&gpu, 0, 40 * MIB, &fd), *q, *r = &gpu;

    OK(import_block(&gpu, 1, 1, fd, &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(1, 40 * MIB, &r));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, import_block(&gpu, 1, 1, fd, &r));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 1); /* what was opened is closed again */
    OK(zeMemFree(gpu.context, q));
    OK(ask(1, 64 * MIB, &q));
    OK(zeMemFree(gpu.context, q));
    OK(zeMemFree(gpu.context, p));
}

/* The driver has no host and shared memory left (the suite injects it): what is kept goes, and it is asked again. */
static void room_for_other_kinds(void) {
    void *p;

    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 8 * MIB)));
    OK(zeMemFree(gpu.context, on_card(&gpu, 1, 8 * MIB)));
    OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, 8 * MIB, 0, gpu.card[1], &p));
    EXPECT(on_vram(0) == 8 * MIB && figure(&gpu, "calls.zeMemFree") == 1);
    OK(zeMemFree(gpu.context, p));
    OK(zeMemAllocHost(gpu.context, &host_desc, 8 * MIB, 0, &p));
    EXPECT(on_vram(0) == 0);
    OK(zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocShared(gpu.context, &device_desc, &host_desc, 8 * MIB, 0, gpu.card[1], &p));
}

static void expect_room(unsigned frees) {
    EXPECT(figure(&gpu, "calls.zeMemFree") == frees);
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 16 * MIB)));
}

/* Memory may be short when it is made resident, mapped or imported (the suite injects it): what is kept goes then. */
static void room_for_what_comes_later(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 8 * MIB};
    ze_physical_mem_handle_t physical;
    ze_ipc_mem_handle_t handle;
    int fd;
    void *p = exported_block(&gpu, 0, 8 * MIB, &fd), *q;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zeVirtualMemReserve(gpu.context, NULL, 8 * MIB, &q));
    expect_room(0);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, 8 * MIB));
    expect_room(1);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 8 * MIB));
    expect_room(2);
    OK(zeVirtualMemMap(gpu.context, q, 8 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    expect_room(3);
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &q));
    expect_room(4);
    OK(import_block(&gpu, 0, 8 * MIB, fd, &q));
    expect_room(5);
}

static void keep_on_host(void) {
    void *p;

    OK(zeMemAllocHost(gpu.context, &host_desc, 8 * MIB, 0, &p));
    OK(zeMemFree(gpu.context, p));
}

/* Each is refused once for want of host memory, of which some is kept; host memory when some is kept on cards. */
static void room_on_the_host(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 8 * MIB};
    ze_physical_mem_handle_t physical;
    void *p;

    keep_on_host();
    OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, 8 * MIB, 0, gpu.card[1], &p));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 1);
    keep_on_host();
    OK(ask(0, 8 * MIB, &p));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 2);
    keep_on_host();
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 3);
    OK(zeMemFree(gpu.context, p));
    OK(zeMemAllocHost(gpu.context, &host_desc, 16 * MIB, 0, &p));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 4);
}

/* What the driver did not give is not counted (the suite injects it); a child begins with nothing. */
static void not_counted(void) {
    void *p = NULL;
    int status;
    pid_t pid;

    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(0, 40 * MIB, &p));
    OK(ask(0, 40 * MIB, &p));
    pid = fork();
    if (pid == 0)
        _exit(ask(0, 40 * MIB, &p) != ZE_RESULT_SUCCESS);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(0, 40 * MIB, &p));
}

static void freed_nothing(void) {
    EXPECT(zeMemFree(gpu.context, NULL) != ZE_RESULT_SUCCESS);
    EXPECT(free_with(&gpu, NULL, 1) != ZE_RESULT_SUCCESS);
}

/* --- sub-devices: with tiles:2 and limit:64MiB --------------------------------------------------------- */
static void parts(void) {
    ze_device_handle_t tile[2];
    uint32_t two = 2;
    void *p, *q, *r;

    OK(zeDeviceGetSubDevices(gpu.card[0], &two, tile));
    EXPECT(two == 2);
    OK(zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, tile[0], &p));
    OK(zeMemFree(gpu.context, p));
    OK(zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, tile[1], &q));
    OK(zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, gpu.card[0], &r));
    EXPECT(q != p && r != p);
    OK(zeMemFree(gpu.context, q));
    OK(zeMemFree(gpu.context, r));
    OK(zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, tile[0], &r));
    EXPECT(r == p);
    OK(zeMemFree(gpu.context, r));
    OK(zeMemAllocDevice(gpu.context, &device_desc, 40 * MIB, 0, tile[0], &p));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zeMemAllocDevice(gpu.context, &device_desc, 40 * MIB, 0, tile[1], &q));
    /* The owner's own tile is no peer of it; and none of the three stands for another. */
    OK(zeContextMakeMemoryResident(gpu.context, tile[1], p, 40 * MIB));
    OK(zeContextMakeMemoryResident(gpu.context, tile[0], p, 40 * MIB));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, 40 * MIB));
    EXPECT(figure(&gpu, "calls.zeContextMakeMemoryResident") == 3);
    OK(zeMemFree(gpu.context, p));
}

/* Another ordinal, other flags, relaxed limits: each is a block of its own. */
static void keys(void) {
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                       .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc[4] = {device_desc, device_desc, device_desc, device_desc};
    void *p[4], *again;

    desc[1].flags = ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED;
    desc[2].pNext = &relaxed;
    desc[3].ordinal = 1;
    for (int i = 0; i < 4; i++) {
        OK(zeMemAllocDevice(gpu.context, &desc[i], 8 * MIB, 0, gpu.card[0], &p[i]));
        OK(zeMemFree(gpu.context, p[i]));
        for (int j = 0; j < i; j++)
            EXPECT(p[i] != p[j]);
    }
    for (int i = 3; i >= 0; i--) {
        OK(zeMemAllocDevice(gpu.context, &desc[i], 8 * MIB, 0, gpu.card[0], &again));
        EXPECT(again == p[i]);
        OK(zeMemFree(gpu.context, again));
    }
}

/* --- what passes by -------------------------------------------------------------------------------------- */
static void passed(void) {
    struct usable unknown = {0x7fff0001, NULL, 0};
    ze_device_mem_alloc_desc_t desc = device_desc;
    void *p[5];
    int fd;

    desc.pNext = &unknown;
    OK(zeMemAllocDevice(gpu.context, &desc, 8 * MIB, 0, gpu.card[0], &p[0]));
    p[1] = exported_block(&gpu, 0, 8 * MIB, &fd);
    OK(import_block(&gpu, 0, 8 * MIB, fd, &p[2]));
    OK(zeMemAllocHost(gpu.context, &host_desc, 8 * MIB, 0, &p[3]));
    OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, 8 * MIB, 0, gpu.card[0], &p[4]));
    for (int i = 0; i < 5; i++)
        OK(zeMemFree(gpu.context, p[i]));
    EXPECT(figure(&gpu, "calls.zeMemFree") == 5);
}

/* --- a free that the driver refuses (the suite injects it) --------------------------------------------------- */
static void *refused_once(size_t size, bool exported, uint32_t policy) {
    void *p = on_card(&gpu, 0, size), *base = NULL;
    ze_ipc_mem_handle_t handle;
    size_t length = 0;

    if (exported)
        OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    GIVES(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, policy ? free_with(&gpu, p, policy) : zeMemFree(gpu.context, p));
    OK(zeMemGetAddressRange(gpu.context, (char *)p + 5, &base, &length));
    EXPECT(base == p && length == size);
    return p;
}

static void refused_and_held(void) {
    refused_once(8 * MIB, true, 0);
    refused_once(8 * MIB, false, 1);
}

static void refused_and_freed(void) {
    void *p = refused_once(8 * MIB, true, 0), *q = refused_once(8 * MIB, false, 1);

    OK(zeMemFree(gpu.context, p));
    OK(zeMemFree(gpu.context, q));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
}

/* One query for free memory, which trims the cache once. */
static void trim_once(unsigned card) {
    struct usable usable = USABLE;
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &usable};

    OK(zeDeviceGetProperties(gpu.card[card], &device));
}

/* It may be in use still: it is not handed out again, and the next trim tries once more. */
static void refused_by_a_trim(void) {
    void *p = on_card(&gpu, 0, 8 * MIB), *q;

    OK(zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p)); /* in the cache */
    trim_once(0);
    q = on_card(&gpu, 0, 8 * MIB);
    EXPECT(q != p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p)); /* still ours to give back */
    EXPECT(on_vram(0) == 16 * MIB);
    OK(zeMemFree(gpu.context, q));
    trim_once(0);
    EXPECT(on_vram(0) == 0);
}

static const struct part all[] = {PART(told),
                                  PART(fits),
                                  PART(plain_questions),
                                  PART(every_kind),
                                  PART(makes_room),
                                  PART(imported_by_descriptor),
                                  PART(room_for_other_kinds),
                                  PART(room_on_the_host),
                                  PART(room_for_what_comes_later),
                                  PART(not_counted),
                                  PART(freed_nothing),
                                  PART(parts),
                                  PART(keys),
                                  PART(passed),
                                  PART(refused_and_held),
                                  PART(refused_and_freed),
                                  PART(refused_by_a_trim),
                                  {NULL, NULL}};

int main(int argc, char **argv) {
    if (!getenv("ZES_ENABLE_SYSMAN"))
        start_sysman();
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
