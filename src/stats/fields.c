/* The segment's description of itself: every field, its name, where it lies and how it is read. */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>

#define SHARD(member) offsetof(struct zr_shard, member)
#define GLOBAL(member) offsetof(struct zr_globals, member)

static void field_describe(const char *prefix, const char *name, uint16_t type, uint16_t place,
                           size_t offset, const char *unit, const char *help) {
    struct zeroute_segment_field f = {.type = type, .place = place, .offset = (uint32_t)offset};

    if (type == ZEROUTE_TEXT)
        f.stride = sizeof zr_segment.globals->texts[0];
    zr_segment_describe(&f, prefix, name, unit, help, "");
}

/* --- memory ----------------------------------------------------------------------------------- */

enum { NO_ACCOUNT = ZR_STATS_ACCOUNTS };

/* Series of cells in the shards: name.{current,peak,allocated,freed}. */
struct memory {
    const char *prefix, *name, *unit, *help;
    size_t cell, stride, count; /* the first cell, and how many follow how far apart */
    unsigned account;           /* NO_ACCOUNT: it has no peak */
    bool blocks;                /* it counts blocks, not bytes */
};

_Static_assert(ZR_BATCH_BYTES == 32 << 20 && ZR_BATCH_BLOCKS == 64,
               "as the help texts of peaks say");

static void describe_memory(const struct memory *m) {
    size_t plus = m->cell + (m->blocks ? offsetof(struct zr_cell, allocations)
                                       : offsetof(struct zr_cell, allocated));
    size_t minus =
        m->cell + (m->blocks ? offsetof(struct zr_cell, frees) : offsetof(struct zr_cell, freed));
    size_t total = GLOBAL(total) + m->account * sizeof(struct zr_total);
    struct zeroute_segment_field f = {.stride = (uint32_t)m->stride, .count = (uint32_t)m->count};
    struct zeroute_segment_field peak = {.type = ZEROUTE_PEAK, .place = ZEROUTE_GLOBAL, .count = 1};
    char name[64];

    f.type = ZEROUTE_GAUGE;
    f.offset = (uint32_t)plus;
    f.minus = (uint32_t)minus;
    snprintf(name, sizeof name, "%s.current", m->name);
    zr_segment_describe(&f, m->prefix, name, m->unit, m->help, ", now");
    peak.offset = (uint32_t)(total + offsetof(struct zr_total, peak));
    peak.total = (uint32_t)total;
    peak.high = (uint32_t)(SHARD(level) + m->account * sizeof(struct zr_level) +
                           offsetof(struct zr_level, high));
    snprintf(name, sizeof name, "%s.peak", m->name);
    if (m->account != NO_ACCOUNT)
        zr_segment_describe(&peak, m->prefix, name, m->unit, m->help,
                            m->blocks
                                ? ", peak: exact with one thread, else within 64 per thread"
                                : ", peak: exact with one thread, else within 32 MiB per thread");
    f.type = ZEROUTE_COUNTER;
    f.minus = 0;
    snprintf(name, sizeof name, "%s.allocated", m->name);
    zr_segment_describe(&f, m->prefix, name, m->unit, m->help, ", allocated in total");
    f.offset = (uint32_t)minus;
    snprintf(name, sizeof name, "%s.freed", m->name);
    zr_segment_describe(&f, m->prefix, name, m->unit, m->help, ", freed in total");
}

/* What is reserved for a memory: an alias of that memory where nothing is cached. */
static void describe_reserved(struct memory m, const char *name, unsigned first, size_t count,
                              unsigned account) {
    m.name = name;
    m.help = "memory reserved from the driver";
    if (!zr_reserved_is_allocated()) {
        m.cell = SHARD(reserved) + first * sizeof(struct zr_cell);
        m.stride = sizeof(struct zr_cell);
        m.count = count;
        m.account = account;
    }
    describe_memory(&m);
}

/* Bytes and blocks of some devices, and what is reserved from the driver for them. */
static void describe_devices(const char *prefix, unsigned first, size_t count, unsigned account,
                             unsigned reserved, const char *bytes_help, const char *blocks_help) {
    struct memory m = {.prefix = prefix,
                       .name = "allocated_bytes.all",
                       .unit = "bytes",
                       .help = bytes_help,
                       .cell =
                           SHARD(on_device) + first * sizeof(struct zr_cell[ZR_KINDS_ON_DEVICE]),
                       .stride = sizeof(struct zr_cell),
                       .count = count * ZR_KINDS_ON_DEVICE,
                       .account = account};

    describe_memory(&m);
    describe_reserved(m, "reserved_bytes.all", first, count, reserved);
    m.name = "allocation.all";
    m.unit = "";
    m.help = blocks_help;
    m.blocks = true;
    m.account = account == ZR_ACCOUNT_ALL ? (unsigned)ZR_ACCOUNT_BLOCKS : NO_ACCOUNT;
    describe_memory(&m);
}

void zr_fields_describe_device(unsigned n) {
    uint32_t bit = (uint32_t)1 << n;
    char prefix[16];
    int saved = errno;

    if (__atomic_fetch_or(&zr_segment.devices, bit, __ATOMIC_RELAXED) & bit)
        return;
    snprintf(prefix, sizeof prefix, "device.%u.", n);
    describe_devices(prefix, n, 1, ZR_ACCOUNT_DEVICE + n, ZR_ACCOUNT_RESERVED_ON + n,
                     "memory of this device held by the process", "blocks on this device");
#define ZR_CARD(id, name, help)                                                                    \
    field_describe(prefix, name, ZEROUTE_GAUGE, ZEROUTE_GLOBAL, GLOBAL(cards[n][ZR_C_##id]),       \
                   "bytes", help);
#include "stats/fields.def"
    errno = saved;
}

/* A kind of memory; without a unit, how many there are of it. */
static void describe_kind(enum zr_kind kind, const char *name, const char *unit, const char *help,
                          bool has_peak) {
    bool on_device = kind < ZR_KINDS_ON_DEVICE;
    unsigned n = on_device ? kind : kind - ZR_KINDS_ON_DEVICE;
    struct memory m = {.prefix = "",
                       .name = name,
                       .unit = unit,
                       .help = help,
                       .cell = (on_device ? SHARD(on_device) : SHARD(elsewhere)) +
                               n * sizeof(struct zr_cell),
                       .stride = sizeof(struct zr_cell[ZR_KINDS_ON_DEVICE]),
                       .count = on_device ? ZR_DEVICES : 1,
                       .account = has_peak ? ZR_ACCOUNT_KIND + n : NO_ACCOUNT,
                       .blocks = !*unit};

    describe_memory(&m);
    if (kind == ZR_KIND_HOST && !m.blocks)
        describe_reserved(m, "reserved_bytes.host", ZR_RESERVED_HOST, 1,
                          ZR_ACCOUNT_RESERVED_ON + ZR_RESERVED_HOST);
}

/* --- entry points, and the plain ones --------------------------------------------------------- */

static void describe_entry(unsigned e, unsigned first_via, unsigned last_via) {
    static const char *const help[] = {"calls through the PLT",
                                       "calls through a pointer from dlsym",
                                       "calls through a function table of the driver",
                                       "calls through the function table in a handle",
                                       "calls of the SYCL function",
                                       "calls of the SYCL runtime to its pool"};
    char name[80];
    _Static_assert(sizeof help / sizeof *help == ZR_VIAS, "one for each via");

    for (unsigned via = first_via; via <= last_via; via++) {
        snprintf(name, sizeof name, "calls.%s.%s", zr_entry_name[e], zr_via_name[via]);
        field_describe("", name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(calls[via][e]), "",
                       help[via]);
    }
    snprintf(name, sizeof name, "failures.%s", zr_entry_name[e]);
    field_describe("", name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(failures[e]), "",
                   "calls that failed");
    snprintf(name, sizeof name, "latency.%s", zr_entry_name[e]);
    field_describe(
        "", name, ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS, SHARD(latency[e]), "ns",
        "time below zeroute; of calls quicker than 2 us about one in 128 is timed and stands "
        "for all");
}

static void describe_sizes(void) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char name[40];

    for (unsigned n = 0; n < ZR_SIZES; n++) {
        snprintf(name, sizeof name, "allocation.size.%u%s", 1u << n % 10, unit[n / 10]);
        field_describe("", name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(sizes[n]), "",
                       "device allocations of this size and more, up to twice as much");
    }
}

static void describe_entries(void) {
    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++)
        describe_entry(e, ZR_VIA_PLT, ZR_VIA_HANDLE);
#define ZR_ABOVE(name, via) describe_entry(ZR_E_##name, ZR_VIA_##via, ZR_VIA_##via);
#include "base/entries_above.def"
}

void zr_fields_describe(void) {
    struct zeroute_segment_field ipc_open = {.type = ZEROUTE_GAUGE,
                                             .offset = SHARD(fields[ZR_F_IPC_IMPORTS]),
                                             .minus = SHARD(fields[ZR_F_IPC_CLOSES])};

    describe_devices("", 0, ZR_DEVICES, ZR_ACCOUNT_ALL, ZR_ACCOUNT_RESERVED,
                     "device, shared and physical memory held by the process",
                     "blocks held by the process");
    zr_segment_describe(&ipc_open, "", "ipc.open", "",
                        "IPC handles of other processes that are open now", "");
#define ZR_COUNTER(id, name, unit, help)                                                           \
    field_describe("", name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(fields[ZR_F_##id]), unit, help);
#define ZR_GAUGE(id, name, unit, help)                                                             \
    field_describe("", name, ZEROUTE_GAUGE, ZEROUTE_GLOBAL, GLOBAL(gauges[ZR_G_##id]), unit, help);
#define ZR_ACCOUNT(id, name, help) describe_kind(ZR_KIND_##id, name, "bytes", help, true);
#define ZR_NUMBER(id, name, unit, help) describe_kind(ZR_KIND_##id, name, unit, help, false);
#define ZR_TEXT(id, name, help)                                                                    \
    field_describe("", name, ZEROUTE_TEXT, ZEROUTE_GLOBAL, GLOBAL(texts[ZR_T_##id]), "", help);
#include "stats/fields.def"
    describe_sizes();
    describe_entries();
}
