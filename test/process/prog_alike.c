/*
 * Two cards that say the same of themselves (alike:on): they are two cards all the same. Usage: alike PART; the parts
 * of two hooks need the path of the driver's library in DRIVER, and a second driver, so that the loader has handles of
 * its own.
 */
#include "sim.h"

#include <dlfcn.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>

enum { FIRST = 1, SECOND = 2 }; /* bits of residency() */

static struct gpu gpu; /* as the loader tells of it */

static void begin(void) {
    ze_device_properties_t p[2];

    gpu = first_gpu();
    EXPECT(gpu.cards == 2 && gpu.card[0] != gpu.card[1]);
    for (int i = 0; i < 2; i++) {
        p[i] = (ze_device_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        OK(zeDeviceGetProperties(gpu.card[i], &p[i]));
    }
    EXPECT(memcmp(&p[0].uuid, &p[1].uuid, sizeof p[0].uuid) == 0);
}

static void make(unsigned card, void *p) {
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], p, MIB));
}

static void peer(void) {
    void *p[2];

    begin();
    for (unsigned card = 0; card < 2; card++) {
        p[card] = on_card(&gpu, card, MIB);
        make(card, p[card]);
        make(1 - card, p[card]);
    }
    EXPECT(residency(&gpu, p[0]) == FIRST && residency(&gpu, p[1]) == SECOND);
}

/* A card's handle may come from a list of one. */
static void one_by_one(void) {
    ze_driver_handle_t driver;
    ze_device_handle_t card;
    uint32_t one = 1;

    OK(zeInit(0));
    OK(zeDriverGet(&one, &driver));
    OK(zeDeviceGet(driver, &one, &card));
    peer();
}

static uint64_t sysman_free(zes_device_handle_t device, uint64_t *size) {
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    zes_mem_handle_t module;
    uint32_t one = 1;

    OK(zesDeviceEnumMemoryModules(device, &one, &module));
    OK(zesMemoryGetState(module, &state));
    *size = state.size;
    return state.free;
}

/* A limit of 64 MiB. */
static void limited(void) {
    uint64_t size;
    void *p[2], *more;

    begin();
    p[0] = on_card(&gpu, 0, 48 * MIB);
    p[1] = on_card(&gpu, 1, 32 * MIB);
    EXPECT(usable_memory(gpu.card[0]) == 16 * MIB && usable_memory(gpu.card[1]) == 32 * MIB);
    EXPECT(sysman_free((zes_device_handle_t)gpu.card[0], &size) == 16 * MIB && size == 64 * MIB);
    EXPECT(sysman_free((zes_device_handle_t)gpu.card[1], &size) == 32 * MIB && size == 64 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 32 * MIB, 0, gpu.card[0], &more));
    more = on_card(&gpu, 1, 32 * MIB);
    OK(zeMemFree(gpu.context, more));
    OK(zeMemFree(gpu.context, p[0]));
    OK(zeMemFree(gpu.context, p[1]));
}

/* What is kept for a card goes back when that card is asked how much it has left, and the other's stays. */
static void trimmed(void) {
    uint64_t whole;

    begin();
    whole = usable_memory(gpu.card[1]);
    for (unsigned card = 0; card < 2; card++)
        OK(zeMemFree(gpu.context, on_card(&gpu, card, 8 * MIB)));
    EXPECT(figure(&gpu, "vram.0") == 8 * MIB && figure(&gpu, "vram.1") == 8 * MIB);
    EXPECT(usable_memory(gpu.card[1]) == whole);
    EXPECT(figure(&gpu, "vram.0") == 8 * MIB && figure(&gpu, "vram.1") == 0);
}

static void *find(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found) {
        printf("the loader has no %s\n", name);
        exit(77);
    }
    return found;
}

/* After zesInit Sysman has devices of its own: from loader 1.9 on. */
static void sysman_apart(bool second_first) {
    ze_result_t (*init)(uint32_t);
    ze_result_t (*drivers)(uint32_t *, zes_driver_handle_t *);
    ze_result_t (*devices)(zes_driver_handle_t, uint32_t *, zes_device_handle_t *);
    zes_driver_handle_t driver;
    zes_device_handle_t device[2];
    uint32_t one = 1, two = 2;
    uint64_t size;

    *(void **)&init = find("zesInit");
    *(void **)&drivers = find("zesDriverGet");
    *(void **)&devices = find("zesDeviceGet");
    OK(init(0));
    OK(drivers(&one, &driver));
    OK(devices(driver, &two, device));
    begin();
    EXPECT(two == 2 && (void *)device[1] != (void *)gpu.card[1]);
    on_card(&gpu, 0, 48 * MIB);
    on_card(&gpu, 1, 32 * MIB);
    if (second_first)
        EXPECT(sysman_free(device[1], &size) <= 32 * MIB);
    EXPECT(sysman_free(device[0], &size) <= 16 * MIB);
    EXPECT(sysman_free(device[1], &size) <= 32 * MIB);
    OK(zeMemFree(gpu.context, on_card(&gpu, 1, 32 * MIB)));
    EXPECT(figure(&gpu, "vram.1") == 64 * MIB);
    sysman_free(device[1], &size);
    EXPECT(figure(&gpu, "vram.1") == 32 * MIB);
}

static void sysman(void) {
    sysman_apart(false);
}

static void sysman_second_first(void) {
    sysman_apart(true);
}

/* --- two hooks: the loader's functions, and the driver's own by its tables ---------------------------------------- */
static struct {
    ze_device_dditable_t device;
    ze_context_dditable_t context;
    ze_mem_dditable_t mem;
    ze_driver_dditable_t driver;
    ze_context_handle_t in;
    ze_device_handle_t card[2];
} below;

static void get_table(void *library, const char *name, void *table) {
    ze_result_t (*get)(ze_api_version_t, void *);

    *(void **)&get = dlsym(library, name);
    EXPECT(get);
    OK(get(ZE_API_VERSION_1_3, table));
}

static void list_below(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    void *library = dlopen(getenv("DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    ze_driver_handle_t driver;
    uint32_t one = 1, two = 2;

    EXPECT(library);
    get_table(library, "zeGetDeviceProcAddrTable", &below.device);
    get_table(library, "zeGetContextProcAddrTable", &below.context);
    get_table(library, "zeGetMemProcAddrTable", &below.mem);
    get_table(library, "zeGetDriverProcAddrTable", &below.driver);
    OK(below.driver.pfnGet(&one, &driver));
    OK(below.device.pfnGet(driver, &two, below.card));
    EXPECT(two == 2);
    OK(below.context.pfnCreate(driver, &desc, &below.in));
}

static void *below_on_card(unsigned card, size_t size) {
    void *p = NULL;

    OK(below.mem.pfnAllocDevice(below.in, &device_desc, size, 0, below.card[card], &p));
    return p;
}

static void make_below(unsigned card, void *p) {
    OK(below.context.pfnMakeMemoryResident(below.in, below.card[card], p, MIB));
}

static void two_hooks(void) {
    for (unsigned card = 0; card < 2; card++) {
        void *p = on_card(&gpu, card, MIB), *q = below_on_card(card, MIB);

        EXPECT(below.card[card] != gpu.card[card]);
        make_below(card, p);
        make_below(1 - card, p);
        make(card, q);
        make(1 - card, q);
        EXPECT(residency(&gpu, p) == (card ? SECOND : FIRST));
        EXPECT(residency(&gpu, q) == (card ? SECOND : FIRST));
    }
}

static void linked_then_table(void) {
    begin();
    list_below();
    two_hooks();
}

/* The loader has called it. */
static void table_then_linked(void) {
    OK(zeInit(0));
    list_below();
    begin();
    two_hooks();
}

/* A limit of 64 MiB. */
static void limited_at_two_hooks(void) {
    void *more;

    begin();
    list_below();
    on_card(&gpu, 0, 48 * MIB);
    below_on_card(1, 48 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          below.mem.pfnAllocDevice(below.in, &device_desc, 32 * MIB, 0, below.card[0], &more));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 32 * MIB, 0, gpu.card[1], &more));
    on_card(&gpu, 1, 16 * MIB);
    below_on_card(0, 16 * MIB);
}

static const struct part all[] = {PART(peer),
                                  PART(one_by_one),
                                  PART(limited),
                                  PART(trimmed),
                                  PART(sysman),
                                  PART(sysman_second_first),
                                  PART(linked_then_table),
                                  PART(table_then_linked),
                                  PART(limited_at_two_hooks),
                                  {NULL, NULL}};

int main(int argc, char **argv) {
    return run_part(all, argc, argv);
}
