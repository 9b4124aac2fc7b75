/*
 * The route of programs that allocate through SYCL, as PyTorch does: aligned_alloc_device(512, n) in the platform's
 * default context, which holds all cards. The runtime is found at run time and called by its C++ names from C; they
 * have been the same from 2024.2 (soname 7) to 2026.2 (soname 9). What throws ends the worker, and that is told.
 */
#include "mirror.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The library's own objects: two pointers, that of a std::shared_ptr. */
struct object {
    void *pointer, *control;
};
struct vector {
    struct object *begin, *end, *room;
};
struct code_location {
    const char *file, *function;
    unsigned long line, column;
};

enum { LEVEL_ZERO = 2 };

/* Objects are returned through a pointer that comes first, before `this`. */
static struct {
    void (*get_platforms)(struct vector *out);
    void (*get_devices)(struct vector *out, const struct object *platform, unsigned type);
    int (*get_backend)(const struct object *platform);
    void (*get_default_context)(struct object *out, const struct object *platform);
    void *(*aligned_alloc_device)(size_t alignment, size_t size, const struct object *device,
                                  const struct object *context, const struct code_location *where);
} sycl;

static const struct {
    void *to;
    const char *symbol;
} names[] = {
    {&sycl.get_platforms, "_ZN4sycl3_V18platform13get_platformsEv"},
    {&sycl.get_devices, "_ZNK4sycl3_V18platform11get_devicesENS0_4info11device_typeE"},
    {&sycl.get_backend, "_ZNK4sycl3_V18platform11get_backendEv"},
    {&sycl.get_default_context, "_ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv"},
    {&sycl.aligned_alloc_device, "_ZN4sycl3_V120aligned_alloc_deviceEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_"
                                 "locationE"},
};

static struct vector devices;
static struct object context;

static bool resolve(unsigned *gpu, char *why, size_t size)
{
    static const struct {
        const char *soname;
        unsigned gpu; /* info::device_type::gpu */
    } runtimes[] = {{"libsycl.so.9", 3}, {"libsycl.so.8", 3}, {"libsycl.so.7", 4}};
    void *library = NULL;

    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes && !library; i++) {
        library = dlopen(runtimes[i].soname, RTLD_NOW | RTLD_LOCAL);
        *gpu = runtimes[i].gpu;
    }
    if (!library) {
        snprintf(why, size, "no SYCL runtime on the library path (libsycl.so.7, 8 or 9)");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(library, names[i].symbol);

        if (!symbol) {
            snprintf(why, size, "the SYCL runtime lacks %s", names[i].symbol);
            return false;
        }
        memcpy(names[i].to, &symbol, sizeof symbol);
    }
    return true;
}

static void *allocate(const struct zr_mirror_plan *plan, unsigned card, uint64_t bytes, char *why, size_t size)
{
    static const struct code_location where = {"", "", 0, 0};
    void *block = sycl.aligned_alloc_device(512, bytes, devices.begin + card, &context, &where);

    (void)plan;
    if (!block)
        snprintf(why, size, "sycl::aligned_alloc_device returned null");
    return block;
}

bool zr_mirror_open_sycl(const struct zr_mirror_plan *plan, struct zr_mirror_route *route, char *why, size_t size)
{
    struct vector platforms = {0};
    unsigned gpu;

    if (plan->share != ZR_SHARE_PEER) {
        snprintf(why, size, "SYCL shares with every peer by itself: --share %s is for --route native",
                 zr_share_names[plan->share]);
        return false;
    }
    if (!resolve(&gpu, why, size))
        return false;
    sycl.get_platforms(&platforms);
    for (struct object *p = platforms.begin; p < platforms.end && devices.begin == devices.end; p++) {
        if (sycl.get_backend(p) != LEVEL_ZERO)
            continue;
        sycl.get_devices(&devices, p, gpu);
        sycl.get_default_context(&context, p);
    }
    if (devices.end - devices.begin < (long)plan->cards) {
        snprintf(why, size, "SYCL shows %ld cards of Level Zero, not %u", (long)(devices.end - devices.begin), plan->cards);
        return false;
    }
    route->cards = plan->cards;
    route->vram = ZR_ABSENT;
    snprintf(route->device, sizeof route->device, "through SYCL");
    route->allocate = allocate;
    return true;
}
