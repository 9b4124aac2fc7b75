/*
 * What a card says of itself: a B580 as Intel's driver 26.27 accepts it.
 */
#include "standin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t xs_now(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t cycles_at(uint64_t ns) {
    _Static_assert(XS_CLOCK_HZ == 1000000000ull * 12 / 625, "12 cycles in 625 ns");
    return ns * 12 / 625 & ((1ull << XS_CLOCK_BITS) - 1);
}

uint64_t xs_clock_cycles(void) {
    return cycles_at(clock_ns(CLOCK_MONOTONIC_RAW));
}

/* As the kernel does: size 0 asks for the size, any other size must be the right one. */
static int answer(struct xe_device_query *query, const void *data, size_t size) {
    if (!query->size) {
        query->size = (uint32_t)size;
        return 0;
    }
    if (query->size != size)
        return -EINVAL;
    memcpy((void *)(uintptr_t)query->data, data, size);
    return 0;
}

static int engines(struct xe_device_query *query) {
    struct {
        struct xe_query_head head;
        struct xe_engine items[3];
    } out = {.head.count = 3};
    out.items[0].instance.engine_class = XE_ENGINE_RENDER;
    out.items[1].instance.engine_class = XE_ENGINE_COPY;
    out.items[2].instance.engine_class = XE_ENGINE_COMPUTE;
    return answer(query, &out, sizeof(out));
}

static int regions(struct xs_client *client, struct xe_device_query *query) {
    struct {
        struct xe_query_head head;
        struct xe_mem_region items[2];
    } out = {.head.count = 2};
    struct sysinfo system = {0};
    sysinfo(&system);
    out.items[0] = (struct xe_mem_region){
        .mem_class = XE_REGION_SYSTEM,
        .instance = 0,
        .min_page_size = XS_PAGE,
        .total_size = (uint64_t)system.totalram * system.mem_unit,
        .used = xs_gpu_active(),
    };
    uint64_t used = xs_config.says_used == 0   ? xs_vram_used(client->card)
                    : xs_config.says_used == 1 ? 0
                                               : xs_config.vram;
    out.items[1] = (struct xe_mem_region){
        .mem_class = XE_REGION_VRAM,
        .instance = 1,
        .min_page_size = XS_VRAM_PAGE,
        .total_size = xs_config.vram,
        .used = used,
        .cpu_visible_size = xs_config.vram,
        .cpu_visible_used = used,
    };
    return answer(query, &out, sizeof(out));
}

static int config(struct xe_device_query *query) {
    struct {
        struct xe_query_head head;
        uint64_t info[XE_CONFIG_PARAMS];
    } out = {.head.count = XE_CONFIG_PARAMS};
    out.info[XE_CONFIG_REV_AND_DEVICE_ID] = xs_config.device_id;
    out.info[XE_CONFIG_FLAGS] = XE_CONFIG_FLAG_HAS_VRAM;
    out.info[XE_CONFIG_MIN_ALIGNMENT] = XS_VRAM_PAGE;
    out.info[XE_CONFIG_VA_BITS] = 48;
    out.info[XE_CONFIG_MAX_EXEC_QUEUE_PRIORITY] = 1;
    return answer(query, &out, sizeof(out));
}

static int gts(struct xe_device_query *query) {
    struct {
        struct xe_query_head head;
        struct xe_gt items[1];
    } out = {.head.count = 1};
    out.items[0] = (struct xe_gt){
        .reference_clock = XS_CLOCK_HZ,
        .near_mem_regions = 2,
        .far_mem_regions = 1,
        .ip_ver_major = 20,
        .ip_ver_minor = 1,
        .ip_ver_rev = 4,
    };
    return answer(query, &out, sizeof(out));
}

static int topology(struct xe_device_query *query) {
    static const struct {
        uint16_t type;
        unsigned bits;
    } masks[] = {
        {XE_TOPO_DSS_GEOMETRY, 20}, {XE_TOPO_DSS_COMPUTE, 20}, {XE_TOPO_L3_BANK, 16}, {XE_TOPO_SIMD16_EU_PER_DSS, 8}};
    struct {
        struct xe_topology_mask head;
        uint64_t mask;
    } out[4];
    for (unsigned i = 0; i < 4; i++) {
        out[i].head = (struct xe_topology_mask){.type = masks[i].type, .num_bytes = 8};
        out[i].mask = (1ull << masks[i].bits) - 1;
    }
    return answer(query, out, sizeof(out));
}

static int engine_cycles(struct xe_device_query *query) {
    struct xe_engine_cycles out = {0};
    if (query->size == sizeof(out))
        memcpy(&out, (void *)(uintptr_t)query->data, sizeof(out));
    uint64_t before = clock_ns(out.clockid);
    out.engine_cycles = xs_clock_cycles();
    out.cpu_timestamp = before;
    out.cpu_delta = clock_ns(out.clockid) - before;
    out.width = XS_CLOCK_BITS;
    return answer(query, &out, sizeof(out));
}

static int firmware(struct xe_device_query *query) {
    struct xe_uc_fw_version out = {0};
    if (query->size == sizeof(out))
        memcpy(&out, (void *)(uintptr_t)query->data, sizeof(out));
    if (out.uc_type)
        return -ENODEV;
    out.major_ver = 70;
    out.minor_ver = 44;
    out.patch_ver = 1;
    return answer(query, &out, sizeof(out));
}

int xs_device_query(struct xs_client *client, struct xe_device_query *query) {
    xs_count(XS_C_device_query, 1);
    switch (query->query) {
    case XE_QUERY_ENGINES:
        return engines(query);
    case XE_QUERY_MEM_REGIONS:
        return regions(client, query);
    case XE_QUERY_CONFIG:
        return config(query);
    case XE_QUERY_GT_LIST:
        return gts(query);
    case XE_QUERY_HWCONFIG:
        query->size = 0;
        return 0;
    case XE_QUERY_GT_TOPOLOGY:
        return topology(query);
    case XE_QUERY_ENGINE_CYCLES:
        return engine_cycles(query);
    case XE_QUERY_UC_FW_VERSION:
        return firmware(query);
    default:
        return -EINVAL;
    }
}

static void put(char *out, uint64_t *length, const char *text) {
    if (out && *length)
        strncpy(out, text, *length);
    *length = strlen(text);
}

int xs_version(struct xs_client *client, struct xe_drm_version *version) {
    (void)client;
    version->major = 1;
    version->minor = 1;
    version->patch = 0;
    put(version->name, &version->name_len, "xe");
    put(version->date, &version->date_len, "20201103");
    put(version->desc, &version->desc_len, "Intel Xe2 Graphics (stand-in)");
    return 0;
}
