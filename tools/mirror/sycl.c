/*
 * The route of programs that allocate through SYCL, as PyTorch does: aligned_alloc_device(512, n)
 * in the platform's default context, which holds all cards. The runtime is found at run time and
 * called by its C++ names from C; they have been the same from 2024.2 (soname 7) to 2026.2 (soname
 * 9). An exception ends the worker, and that is reported.
 */
#include "mirror/mirror.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;

/* The library's own objects: a std::shared_ptr, or in the newest a bare pointer for devices. */
struct object {
    void *pointer, *control;
};
struct vector {
    char *begin, *end, *room;
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
    char (*get_backend)(const struct object *platform);
    void (*get_default_context)(struct object *out, const struct object *platform);
    void *(*aligned_alloc_device)(size_t alignment, size_t size, const void *device, const struct object *context,
                                  const struct code_location *where);
} sycl;

static const struct {
    void *to;
    const char *symbol;
} names[] = {
    {&sycl.get_platforms, "_ZN4sycl3_V18platform13get_platformsEv"},
    {&sycl.get_devices, "_ZNK4sycl3_V18platform11get_devicesENS0_4info11device_typeE"},
    {&sycl.get_backend, "_ZNK4sycl3_V18platform11get_backendEv"},
    {&sycl.get_default_context, "_ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv"},
    {&sycl.aligned_alloc_device,
     "_ZN4sycl3_V120aligned_alloc_deviceEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_"
     "locationE"},
};

static const struct runtime {
    const char *soname;
    unsigned gpu; /* info::device_type::gpu */
    unsigned device_size;
} runtimes[] = {{"libsycl.so.9", 3, 8}, {"libsycl.so.8", 3, 16}, {"libsycl.so.7", 4, 16}};

static const struct runtime *runtime;
static struct vector devices;
static struct object context;

static bool resolve(char *why, size_t size) {
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes && !library; i++) {
        library = dlopen(runtimes[i].soname, RTLD_NOW | RTLD_LOCAL);
        runtime = &runtimes[i];
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

bool zr_mirror_lacks_v2(const char *maps) {
    return (strstr(maps, "libur_adapter_level_zero.so") || strstr(maps, "libpi_level_zero.so")) &&
           !strstr(maps, "libur_adapter_level_zero_v2.so");
}

/* A runtime without adapter v2 takes v1 when v2 is requested, silently: the row would carry the wrong name. */
static bool lacks_v2(void) {
    const char *requested = getenv("SYCL_UR_USE_LEVEL_ZERO_V2");
    char *maps = requested && !strcmp(requested, "1") ? zr_read_whole("/proc/self/maps", NULL) : NULL;
    bool lacks = maps && zr_mirror_lacks_v2(maps);

    free(maps);
    return lacks;
}

static void *allocate(const struct zr_mirror_plan *plan, unsigned card, uint64_t bytes, char *why, size_t size) {
    static const struct code_location where = {"", "", 0, 0};
    void *block = sycl.aligned_alloc_device(512, bytes, devices.begin + card * runtime->device_size, &context, &where);

    (void)plan;
    if (!block)
        snprintf(why, size, "sycl::aligned_alloc_device returned null");
    return block;
}

bool zr_sycl_open(struct zr_sycl *out, char *why, size_t size) {
    struct vector platforms = {0};

    if (!resolve(why, size))
        return false;
    sycl.get_platforms(&platforms);
    for (char *at = platforms.begin; at < platforms.end && devices.begin == devices.end; at += sizeof(struct object)) {
        const struct object *platform = (const struct object *)(void *)at;

        if (sycl.get_backend(platform) != LEVEL_ZERO)
            continue;
        sycl.get_devices(&devices, platform, runtime->gpu);
        sycl.get_default_context(&context, platform);
    }
    *out = (struct zr_sycl){.library = library, .context = &context};
    out->cards = (unsigned)((size_t)(devices.end - devices.begin) / runtime->device_size);
    out->cards = out->cards < ZR_CARDS_MAX ? out->cards : ZR_CARDS_MAX;
    for (unsigned i = 0; i < out->cards; i++)
        out->device[i] = devices.begin + i * runtime->device_size;
    return true;
}

bool zr_mirror_open_sycl(const struct zr_mirror_plan *plan, struct zr_mirror_route *route, char *why, size_t size) {
    struct zr_sycl found;

    if (plan->share != ZR_SHARE_PEER) {
        snprintf(why, size, "SYCL shares with every peer by itself: --share %s is for --route native",
                 zr_share_names[plan->share]);
        return false;
    }
    if (!zr_sycl_open(&found, why, size))
        return false;
    if (lacks_v2()) {
        snprintf(why, size, "this SYCL runtime has no adapter v2");
        return false;
    }
    if (found.cards < plan->cards) {
        snprintf(why, size, "SYCL shows %u cards of Level Zero, not %u", found.cards, plan->cards);
        return false;
    }
    route->cards = plan->cards;
    route->vram = ZR_ABSENT;
    snprintf(route->device, sizeof route->device, "through SYCL");
    route->allocate = allocate;
    return true;
}
