/* What the segment says of itself: every field, its name, where it lies and how it is read. */
#include "stats/stats.h"

#include <stdio.h>
#include <string.h>

#define SHARD(member) offsetof(struct zr_shard, member)
#define GLOBAL(member) offsetof(struct zr_globals, member)
#define CELL(member) offsetof(struct zr_cell, member)
#define DEVICE_CELLS (sizeof(struct zr_cell) * ZR_KINDS_ON_DEVICE)

/* Cut where it does not fit. */
static void describe(struct zeroute_segment_field *f, const char *prefix, const char *name, const char *unit,
                     const char *help, const char *more) {
    snprintf(f->name, sizeof f->name, "%s%s", prefix, name);
    snprintf(f->unit, sizeof f->unit, "%s", unit);
    snprintf(f->help, sizeof f->help, "%s%s", help, more);
    zr_segment_describe(f);
}

static void describe_plain(const char *name, uint16_t type, uint16_t place, size_t offset, const char *unit,
                           const char *help) {
    struct zeroute_segment_field f = {.type = type, .place = place, .offset = (uint32_t)offset};

    if (type == ZEROUTE_TEXT)
        f.stride = sizeof zr_segment.globals->texts[0];
    describe(&f, "", name, unit, help, "");
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

enum { NO_ACCOUNT = ZR_STATS_ACCOUNTS };

/* Series of cells in the shards: name.{current,peak,allocated,freed}. */
struct memory {
    const char *prefix, *name, *unit, *help;
    size_t cell, stride, count; /* the first cell, and how many follow how far apart */
    unsigned account;           /* NO_ACCOUNT: it has no peak, and is the difference of its counters */
    bool blocks;                /* it counts blocks, not bytes */
};

_Static_assert(ZR_BATCH_BYTES == 32 << 20 && ZR_BATCH_BLOCKS == 64, "as the help texts of peaks say");

static void describe_current(const struct memory *m, struct zeroute_segment_field f, size_t minus) {
    size_t level = SHARD(level) + m->account * sizeof(struct zr_levels);
    size_t total = GLOBAL(total) + m->account * sizeof(struct zr_total);
    char name[64];

    f.type = ZEROUTE_GAUGE;
    f.minus = (uint32_t)minus;
    if (m->account != NO_ACCOUNT) {
        level += m->blocks ? offsetof(struct zr_levels, blocks) : 0;
        total += m->blocks ? offsetof(struct zr_total, blocks) : 0;
        f.minus = 0;
        f.count = 1;
        f.offset = (uint32_t)(level + offsetof(struct zr_level, level));
        f.total = (uint32_t)total;
    }
    snprintf(name, sizeof name, "%s.current", m->name);
    describe(&f, m->prefix, name, m->unit, m->help, ", now");
    if (m->account == NO_ACCOUNT)
        return;
    f.type = ZEROUTE_PEAK;
    f.place = ZEROUTE_GLOBAL;
    f.offset = f.total + (uint32_t)(offsetof(struct zr_total, peak_bytes) - offsetof(struct zr_total, bytes));
    f.high = (uint32_t)(level + offsetof(struct zr_level, high));
    snprintf(name, sizeof name, "%s.peak", m->name);
    describe(&f, m->prefix, name, m->unit, m->help,
             m->blocks ? ", peak: exact with one thread, else within 64 per thread"
                       : ", peak: exact with one thread, else within 32 MiB per thread");
}

static void describe_memory(const struct memory *m) {
    size_t plus = m->cell + (m->blocks ? CELL(allocations) : CELL(allocated));
    size_t minus = m->cell + (m->blocks ? CELL(frees) : CELL(freed));
    struct zeroute_segment_field f = {
        .type = ZEROUTE_COUNTER, .stride = (uint32_t)m->stride, .count = (uint32_t)m->count, .offset = (uint32_t)plus};
    char name[64];

    describe_current(m, f, minus);
    snprintf(name, sizeof name, "%s.allocated", m->name);
    describe(&f, m->prefix, name, m->unit, m->help, ", allocated in total");
    f.offset = (uint32_t)minus;
    snprintf(name, sizeof name, "%s.freed", m->name);
    describe(&f, m->prefix, name, m->unit, m->help, ", freed in total");
}

/* What is reserved for a memory: that memory by another name where nothing is cached. */
static void describe_held(struct memory *m, const char *name, size_t at) {
    static const struct {
        const char *name, *help;
        uint16_t type;
        size_t offset, minus;
    } part[] = {
        {"current", "now", ZEROUTE_GAUGE, offsetof(struct zr_reserved, allocated), offsetof(struct zr_reserved, freed)},
        {"peak", "peak", ZEROUTE_PEAK, offsetof(struct zr_reserved, peak), 0},
        {"allocated", "allocated in total", ZEROUTE_COUNTER, offsetof(struct zr_reserved, allocated), 0},
        {"freed", "freed in total", ZEROUTE_COUNTER, offsetof(struct zr_reserved, freed), 0},
    };
    char full[64];
    m->name = name;
    m->help = "memory reserved from the driver";
    if (zr_reserved_is_allocated()) {
        describe_memory(m);
        return;
    }
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        struct zeroute_segment_field f = {.type = part[i].type, .place = ZEROUTE_GLOBAL};

        f.offset = (uint32_t)(at + part[i].offset);
        f.minus = part[i].minus ? (uint32_t)(at + part[i].minus) : 0;
        snprintf(full, sizeof full, "%s.%s", name, part[i].name);
        describe(&f, m->prefix, full, "bytes", "memory reserved from the driver, ", part[i].help);
    }
}

/* Bytes and blocks of some devices, and what is reserved from the driver for them. */
static void describe_devices(const char *prefix, unsigned account, size_t cell, size_t cells, size_t reserved,
                             const char *bytes_help, const char *blocks_help) {
    struct memory m = {prefix, "allocated_bytes.all", "bytes", bytes_help, cell, sizeof(struct zr_cell), cells, account,
                       false};

    describe_memory(&m);
    describe_held(&m, "reserved_bytes.all", reserved);
    m.name = "allocation.all";
    m.unit = "";
    m.help = blocks_help;
    m.blocks = true;
    m.account = account == ZR_ACCOUNT_ALL ? account : NO_ACCOUNT; /* blocks have one peak, over all devices */
    describe_memory(&m);
}

void zr_fields_describe_device(unsigned n) {
    uint32_t bit = (uint32_t)1 << n;
    char prefix[16];

    if (__atomic_fetch_or(&zr_segment.devices, bit, __ATOMIC_RELAXED) & bit)
        return;
    snprintf(prefix, sizeof prefix, "device.%u.", n);
    describe_devices(prefix, ZR_ACCOUNT_DEVICE + n, SHARD(on_device) + n * DEVICE_CELLS, ZR_KINDS_ON_DEVICE,
                     GLOBAL(reserved) + n * sizeof(struct zr_reserved), "memory of this device held by the process",
                     "blocks on this device");
#define ZR_CARD(id, name, help)                                                                                        \
    describe(&(struct zeroute_segment_field){.type = ZEROUTE_GAUGE,                                                    \
                                             .place = ZEROUTE_GLOBAL,                                                  \
                                             .offset = (uint32_t)GLOBAL(cards[n][ZR_C_##id])},                         \
             prefix, name, "bytes", help, "");
#include "stats/fields.def"
}

static void describe_kinds(void) {
    static const char *const names[] = {"allocated_bytes.device", "allocated_bytes.shared", "allocated_bytes.physical"};
    static const char *const help[] = {"device USM held by the process", "shared USM held by the process",
                                       "physical memory objects held by the process"};
    static const struct {
        const char *name, *unit, *help;
        enum zr_kind kind;
    } elsewhere[] = {
#define ZR_ACCOUNT(id, name, help) {name, "bytes", help, ZR_KIND_##id},
#define ZR_NUMBER(id, name, help) {name, "", help, ZR_KIND_##id},
#include "stats/fields.def"
    };
    _Static_assert(sizeof names / sizeof *names == ZR_KINDS_ON_DEVICE, "a name for each kind");

    for (size_t k = 0; k < ZR_KINDS_ON_DEVICE; k++)
        describe_memory(&(struct memory){"", names[k], "bytes", help[k], SHARD(on_device) + k * sizeof(struct zr_cell),
                                         DEVICE_CELLS, ZR_DEVICES, NO_ACCOUNT, false});
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        size_t n = elsewhere[i].kind - ZR_KINDS_ON_DEVICE;

        struct memory m = {"",
                           elsewhere[i].name,
                           elsewhere[i].unit,
                           elsewhere[i].help,
                           SHARD(elsewhere) + n * sizeof(struct zr_cell),
                           sizeof(struct zr_cell),
                           1,
                           (unsigned)(ZR_ACCOUNT_KIND + n),
                           !*elsewhere[i].unit};

        if (m.blocks)
            m.account = NO_ACCOUNT;
        describe_memory(&m);
        if (elsewhere[i].kind == ZR_KIND_HOST && !m.blocks)
            describe_held(&m, "reserved_bytes.host", GLOBAL(reserved[ZR_RESERVED_HOST]));
    }
    describe(&(struct zeroute_segment_field){.type = ZEROUTE_GAUGE,
                                             .offset = (uint32_t)(SHARD(fields) + ZR_F_IPC_IMPORTS * sizeof(uint64_t)),
                                             .minus = (uint32_t)(SHARD(fields) + ZR_F_IPC_CLOSES * sizeof(uint64_t))},
             "", "ipc.open", "", "IPC handles of other processes that are open now", "");
}

/* --- entry points, and the plain ones ----------------------------------------------------------------------------- */

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
        describe_plain(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS,
                       SHARD(calls) + ((size_t)via * ZR_ENTRIES + e) * sizeof(uint64_t), "", help[via]);
    }
    snprintf(name, sizeof name, "failures.%s", zr_entry_name[e]);
    describe_plain(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(failures) + e * sizeof(uint64_t), "",
                   "calls that failed");
    snprintf(name, sizeof name, "latency.%s", zr_entry_name[e]);
    describe_plain(name, ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS,
                   SHARD(latency) + e * sizeof(struct zeroute_segment_histogram), "ns",
                   "time below zeroute; of calls quicker than 2 us about one in 128 is timed and stands for all");
}

static void describe_sizes(void) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char name[40];

    for (unsigned n = 0; n < ZR_SIZES; n++) {
        snprintf(name, sizeof name, "allocation.size.%u%s", 1u << n % 10, unit[n / 10]);
        describe_plain(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(sizes) + n * sizeof(uint64_t), "",
                       "device allocations of this size and more, up to twice as much");
    }
}

static void describe_entries(void) {
    static const unsigned char above[] = {
#define ZR_ABOVE(name, via) ZR_VIA_##via,
#include "base/entries_above.def"
#undef ZR_ABOVE
    };

    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++)
        describe_entry(e, ZR_VIA_PLT, ZR_VIA_HANDLE);
    for (unsigned e = ZR_ENTRIES_ZE; e < ZR_ENTRIES; e++)
        describe_entry(e, above[e - ZR_ENTRIES_ZE], above[e - ZR_ENTRIES_ZE]);
}

void zr_fields_describe(void) {
    describe_devices("", ZR_ACCOUNT_ALL, SHARD(on_device), (size_t)ZR_DEVICES * ZR_KINDS_ON_DEVICE,
                     GLOBAL(reserved_all), "device, shared and physical memory held by the process",
                     "blocks held by the process");
    describe_kinds();
#define ZR_COUNTER(id, name, unit, help)                                                                               \
    describe_plain(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(fields) + ZR_F_##id * sizeof(uint64_t), unit, help);
#define ZR_GAUGE(id, name, unit, help)                                                                                 \
    describe_plain(name, ZEROUTE_GAUGE, ZEROUTE_GLOBAL, GLOBAL(gauges) + ZR_G_##id * sizeof(uint64_t), unit, help);
#define ZR_TEXT(id, name, help)                                                                                        \
    describe_plain(name, ZEROUTE_TEXT, ZEROUTE_GLOBAL,                                                                 \
                   GLOBAL(texts) + ZR_T_##id * sizeof zr_segment.globals->texts[0], "", help);
#include "stats/fields.def"
    describe_sizes();
    describe_entries();
}
