/*
 * Calls a driver as a loader does that dispatches by handles: its tables by name, drivers from its own pfnGet, and from
 * then on each function from the tables behind the context. Needs no loader.
 *
 *   handles DRIVER              three blocks allocated and freed so, on two contexts and the default one
 *   handles DRIVER tables       by the tables of the library alone
 *   handles DRIVER threads      four threads do it while the tables are found
 *   handles DRIVER late         a call that was on its way when the tables were found arrives afterwards
 */
#include "way.h"

#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEM = 15, CALLS = 3, SIZE = 1 << 20 };
struct core {
    uint32_t version;
    uint8_t valid;
    void *tables[48];
};
struct functions {
    ze_global_dditable_t global;
    struct {
        ze_driver_dditable_t known;
        void *more[32];
    } driver;
    struct {
        ze_device_dditable_t known;
        void *more[32];
    } device;
    struct {
        ze_context_dditable_t known;
        void *more[32];
    } context;
    struct {
        ze_mem_dditable_t known;
        void *more[32];
    } mem;
};

static void get(void *library, const char *name, int hidden, void *table) {
    ze_result_t (*getter)(ze_api_version_t, void *);

    void *(*find)(void *, const char *) = dlsym;

    if (hidden) /* libc's own */
        *(void **)&find = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "dlsym", "GLIBC_2.2.5");
    *(void **)&getter = find ? find(library, name) : NULL;
    if (!getter) {
        puts(dlerror());
        exit(1);
    }
    WAY_CHECK(getter(ZE_MAKE_VERSION(1, 14), table));
}

static void get_all(void *library, int hidden, struct functions *f) {
    get(library, "zeGetGlobalProcAddrTable", hidden, &f->global);
    get(library, "zeGetDriverProcAddrTable", hidden, &f->driver);
    get(library, "zeGetDeviceProcAddrTable", hidden, &f->device);
    get(library, "zeGetContextProcAddrTable", hidden, &f->context);
    get(library, "zeGetMemProcAddrTable", hidden, &f->mem);
}

/* r--, rw- and so on: how the memory of a table is protected. */
static const char *protection(const void *p) {
    static char found[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t low, high;
    char line[4096], kind[8];

    strcpy(found, "none");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &low, &high, kind) == 3 && low <= (uintptr_t)p && (uintptr_t)p < high)
            snprintf(found, sizeof found, "%.3s", kind);
    if (maps)
        fclose(maps);
    return found;
}

static const ze_mem_dditable_t *table_of(ze_context_handle_t context) {
    return (*(struct core **)context)->tables[MEM];
}

static void use(const ze_mem_dditable_t *mem, ze_context_handle_t context, ze_device_handle_t device) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *block[CALLS];

    for (int i = 0; i < CALLS; i++)
        WAY_CHECK(mem->pfnAllocDevice(context, &desc, SIZE, 0, device, &block[i]));
    for (int i = 0; i < CALLS; i++)
        WAY_CHECK(mem->pfnFree(context, block[i]));
}

static ze_context_handle_t shared_context;
static ze_device_handle_t shared_device;
static atomic_int rounds, stop;

static void *work(void *arg) {
    while (!atomic_load(&stop)) {
        use(table_of(shared_context), shared_context, shared_device);
        atomic_fetch_add(&rounds, 1);
    }
    return arg;
}

static void await_rounds(int more) {
    int then = atomic_load(&rounds) + more;

    while (atomic_load(&rounds) < then)
        sched_yield();
}

/* The context is made past us, so that the tables are found while it is in use. */
static void share_context(void *library, struct functions *hidden) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_driver_handle_t driver;
    uint32_t one = 1;

    get_all(library, 1, hidden);
    WAY_CHECK(hidden->driver.known.pfnGet(&one, &driver));
    WAY_CHECK(hidden->context.known.pfnCreate(driver, &desc, &shared_context));
    WAY_CHECK(hidden->device.known.pfnGet(driver, &one, &shared_device));
}

static void *wait_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* The driver gives that call an address which a block had that has come and gone since then: its free is right. */
static int late(void *library, struct functions *f, ze_driver_handle_t driver) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    struct functions hidden = {0};
    ze_mem_dditable_t before;
    void *seen, *unseen;
    uint32_t one = 1;
    pthread_t other;

    /* It stands for one that has the call. */
    WAY_CHECK(pthread_create(&other, NULL, wait_for_ever, NULL));
    share_context(library, &hidden);
    before = *table_of(shared_context);
    WAY_CHECK(f->driver.known.pfnGet(&one, &driver));
    WAY_CHECK(table_of(shared_context)->pfnAllocDevice(shared_context, &desc, SIZE, 0, shared_device, &seen));
    WAY_CHECK(table_of(shared_context)->pfnFree(shared_context, seen));
    WAY_CHECK(before.pfnAllocDevice(shared_context, &desc, SIZE, 0, shared_device, &unseen));
    WAY_CHECK(table_of(shared_context)->pfnFree(shared_context, unseen));
    WAY_CHECK(hidden.context.known.pfnDestroy(shared_context));
    puts(seen == unseen ? "same address" : "another address");
    return 0;
}

static int threads(void *library, struct functions *f, ze_driver_handle_t driver) {
    struct functions hidden = {0};
    uint32_t one = 1;
    pthread_t thread[4];

    share_context(library, &hidden);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, work, NULL);
    await_rounds(50);
    WAY_CHECK(f->driver.known.pfnGet(&one, &driver));
    await_rounds(200);
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    use(table_of(shared_context), shared_context, shared_device);
    WAY_CHECK(hidden.context.known.pfnDestroy(shared_context));
    printf("%d rounds\n", atomic_load(&rounds));
    return 0;
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    const char *how = argc > 2 ? argv[2] : "";
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    struct functions f = {0};
    ze_driver_handle_t driver = NULL;
    ze_device_handle_t device;
    uint32_t one = 1;

    if (!library)
        return puts(dlerror()), 1;
    get_all(library, 0, &f);
    WAY_CHECK(f.global.pfnInit(0));
    if (strcmp(how, "late") == 0)
        return late(library, &f, driver);
    if (strcmp(how, "threads") == 0)
        return threads(library, &f, driver);
    WAY_CHECK(f.driver.known.pfnGet(&one, &driver));
    WAY_CHECK(f.device.known.pfnGet(driver, &one, &device));
    for (int i = 0; i < 3; i++) {
        ze_context_handle_t context;
        ze_context_handle_t (*get_default)(ze_driver_handle_t);

        *(void **)&get_default = ((void **)&f.driver)[8];
        if (i < 2)
            WAY_CHECK(f.context.known.pfnCreate(driver, &desc, &context));
        else
            context = get_default(driver);
        use(strcmp(how, "tables") == 0 ? &f.mem.known : table_of(context), context, device);
        if (strcmp(how, "tables") != 0)
            printf("%s\n", protection(table_of(context)));
        if (i < 2)
            WAY_CHECK(f.context.known.pfnDestroy(context));
    }
    return 0;
}
