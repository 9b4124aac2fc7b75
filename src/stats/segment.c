/*
 * The segment's file: made at the first device operation, described field by field, let go of in a
 * child.
 */
#include "zeroute.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PAGE ((size_t)4096)
#define PAGES(n) (((n) + PAGE - 1) / PAGE * PAGE)
#define FIELDS_MAX 1536u /* a multiple of the 128 that are reserved at once */
#define GLOBALS_AT PAGE
#define FINGERPRINT_AT (GLOBALS_AT + PAGES(sizeof(struct zr_globals)))
#define FIELDS_AT (FINGERPRINT_AT + ZR_FINGERPRINT_SIZE)
#define SHARDS_AT (FIELDS_AT + PAGES(FIELDS_MAX * sizeof(struct zeroute_segment_field)))
#define FILE_SIZE (SHARDS_AT + ZR_SHARDS * sizeof(struct zr_shard))

_Static_assert(sizeof(struct zeroute_segment_header) <= PAGE, "the header is one page");
_Static_assert(sizeof(struct zr_shard) % 4096 == 0, "shards are reserved page by page");

struct zr_segment zr_segment = {.fd = -1};
static struct zr_lock describe_lock;
static uint32_t devices_described;
static uint32_t fields_reserved; /* how many of the table have pages behind them */

static size_t slurp(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    size_t length = n < 0 ? 0 : (size_t)n;
    out[length] = '\0';
    return length;
}

static uint64_t number(const char *s)
{
    uint64_t n = 0;
    while (*s >= '0' && *s <= '9')
        n = n * 10 + (uint64_t)(*s++ - '0');
    return n;
}

static void copy(char *out, size_t size, const char *text)
{
    size_t n = text ? strnlen(text, size - 1) : 0;
    memcpy(out, text ? text : "", n);
    out[n] = '\0';
}

/* Field 22 of /proc/self/stat, counted from behind the name, which may hold anything. */
static uint64_t start_time(void)
{
    char text[1024];
    slurp("/proc/self/stat", text, sizeof text);
    char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? number(p + 1) : 0;
}

static uint64_t pid_namespace(void)
{
    char link[64];
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    link[n < 0 ? 0 : n] = '\0';
    char *p = strchr(link, '[');
    return p ? number(p + 1) : 0;
}

static void command_line(char *out, size_t size)
{
    size_t n = slurp("/proc/self/cmdline", out, size);
    for (size_t i = 0; i + 1 < n; i++)
        if (out[i] == '\0' || out[i] == '\n' || out[i] == '\t')
            out[i] = ' ';
}

/*
 * What launchers tell their ranks: the first variables found name the job and this process's place
 * in it.
 */
static void job(struct zeroute_segment_header *h)
{
    static const struct {
        const char *kind, *job, *step, *rank;
    } known[] = {
        {"torchrun", "TORCHELASTIC_RUN_ID", "MASTER_PORT", "RANK"},
        {"pmix", "PMIX_NAMESPACE", NULL, "PMIX_RANK"},
        {"openmpi", "OMPI_MCA_ess_base_jobid", NULL, "OMPI_COMM_WORLD_RANK"},
        {"pmi", "PMI_JOBID", NULL, "PMI_RANK"},
        {"pmi", "PMI_PORT", NULL, "PMI_RANK"},
        {"slurm", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"},
        {"master", "MASTER_ADDR", "MASTER_PORT", "RANK"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *name = secure_getenv(known[i].job), *rank = secure_getenv(known[i].rank);
        const char *step = known[i].step ? secure_getenv(known[i].step) : NULL;
        if (!name || !rank)
            continue;
        snprintf(h->job_id, sizeof h->job_id, "%s:%s%s%s", known[i].kind, name, step ? "." : "",
                 step ? step : "");
        copy(h->rank, sizeof h->rank, rank);
        return;
    }
    /* A launcher that names its ranks and not the job: they share its session, on this machine. */
    const char *rank = secure_getenv("PMI_RANK");
    if (rank) {
        snprintf(h->job_id, sizeof h->job_id, "mpi:session %d", (int)getsid(0));
        copy(h->rank, sizeof h->rank, rank);
    }
}

static void identify(struct zeroute_segment_header *h, uint64_t nonce)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    h->pid = (uint32_t)getpid();
    h->uid = (uint32_t)geteuid();
    h->pid_namespace = pid_namespace();
    h->start_time = start_time();
    h->nonce = nonce;
    h->created_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    slurp("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof h->boot_id);
    h->boot_id[strcspn(h->boot_id, "\n")] = '\0';
    copy(h->version, sizeof h->version, ZEROUTE_VERSION);
    copy(h->run_id, sizeof h->run_id, secure_getenv("ZEROUTE_RUN"));
    command_line(h->command, sizeof h->command);
    job(h);
}

bool zr_segment_reserve(const void *start, size_t size)
{
    size_t from = (size_t)((const char *)start - (const char *)zr_segment.header) / PAGE * PAGE;
    size_t to = PAGES((size_t)((const char *)start - (const char *)zr_segment.header) + size);
    int e = 0;
    do {
        e = fallocate(zr_segment.fd, 0, (off_t)from, (off_t)(to - from)) ? errno : 0;
    } while (e == EINTR);
    return e == 0;
}

/* Away from the low numbers that programs expect to get, or dup over. */
static int move_high(int fd)
{
    struct rlimit limit = {.rlim_cur = 256};
    getrlimit(RLIMIT_NOFILE, &limit);
    int floor = limit.rlim_cur > 900 ? 800 : (int)(limit.rlim_cur / 2);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, floor);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void describe_all(void);

static bool fail(const char *what, const char *path, int fd, void *map)
{
    int e = errno;
    if (map != MAP_FAILED)
        munmap(map, FILE_SIZE);
    if (fd >= 0) {
        unlink(path);
        close(fd);
    }
    zr_segment = (struct zr_segment){.fd = -1};
    fields_reserved = 0;
    zr_say("no statistics of this process: cannot %s %s: %s", what, path,
           e == ENOSPC ? "the file system is full ('zeroute gc' removes what finished processes left)"
                       : strerror(e));
    return false;
}

bool zr_segment_create(uint64_t clock_hz, uint64_t clock_ticks)
{
    char path[96];
    uint64_t nonce = 0;
    int fd = -1;
    for (int attempt = 0; fd < 0 && attempt < 8; attempt++) {
        if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != sizeof nonce)
            nonce = __rdtsc() * 0x9e3779b97f4a7c15u;
        snprintf(path, sizeof path, ZEROUTE_SEGMENT_DIR "/" ZEROUTE_SEGMENT_PREFIX "%d.%016llx",
                 getpid(), (unsigned long long)nonce);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return fail("create", path, -1, MAP_FAILED);
    /* Beyond its limit for files a process is killed, not told. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < FILE_SIZE) {
        errno = EFBIG;
        return fail("prepare", path, fd, MAP_FAILED);
    }
    fd = move_high(fd);
    struct statx x;
    if (fchmod(fd, 0600) || ftruncate(fd, (off_t)FILE_SIZE) ||
        statx(fd, "", AT_EMPTY_PATH, STATX_INO, &x))
        return fail("prepare", path, fd, MAP_FAILED);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET,
                         .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    (void)fcntl(fd, F_SETLK, &lock);
    char *map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return fail("map", path, fd, MAP_FAILED);
    zr_segment = (struct zr_segment){
        .header = (void *)map,
        .globals = (void *)(map + GLOBALS_AT),
        .fingerprint = (void *)(map + FINGERPRINT_AT),
        .shards = map + SHARDS_AT,
        .fd = fd,
        .device = (uint64_t)x.stx_dev_major << 32 | x.stx_dev_minor,
        .inode = x.stx_ino,
    };
    if (!zr_segment_reserve(map, FINGERPRINT_AT) ||
        !zr_segment_reserve(zr_segment.shards, offsetof(struct zr_shard, latency)))
        return fail("get memory for", path, fd, map);

    struct zeroute_segment_header *h = zr_segment.header;
    identify(h, nonce);
    h->layout = ZEROUTE_SEGMENT_LAYOUT;
    h->header_size = sizeof *h;
    h->file_size = FILE_SIZE;
    h->globals_offset = GLOBALS_AT;
    h->globals_size = sizeof(struct zr_globals);
    h->fields_offset = FIELDS_AT;
    h->field_size = sizeof(struct zeroute_segment_field);
    h->shards_offset = SHARDS_AT;
    h->shard_size = sizeof(struct zr_shard);
    h->shard_count = 1;
    h->shard_generation = offsetof(struct zr_shard, generation);
    h->shard_group = offsetof(struct zr_shard, fields);
    h->shard_tallies = offsetof(struct zr_shard, on);
    h->tallies_size = offsetof(struct zr_shard, into) - offsetof(struct zr_shard, on);
    h->shard_into = offsetof(struct zr_shard, into);
    h->into_count = ZR_TALLIES;
    h->shard_activity = offsetof(struct zr_shard, activity);
    h->buckets = ZEROUTE_BUCKETS;
    h->fingerprint_offset = FINGERPRINT_AT;
    h->fingerprint_size = ZR_FINGERPRINT_SIZE;
    h->clock_hz = clock_hz;
    h->clock_ticks = clock_ticks;
    for (int g = 0; g < ZR_GAUGES; g++)
        zr_segment.globals->gauges[g] = ZEROUTE_ABSENT;
    describe_all();
    if (h->field_count == 0)
        return fail("get memory for", path, fd, map);
    __atomic_store_n(&h->magic, ZEROUTE_SEGMENT_MAGIC, __ATOMIC_RELEASE);
    return true;
}

void zr_segment_abandon(void)
{
    struct statx x;
    int fd = zr_segment.fd;
    if (zr_segment.header)
        munmap(zr_segment.header, FILE_SIZE);
    if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_INO, &x) == 0 &&
        x.stx_ino == zr_segment.inode &&
        ((uint64_t)x.stx_dev_major << 32 | x.stx_dev_minor) == zr_segment.device)
        close(fd);
    zr_segment = (struct zr_segment){.fd = -1};
    describe_lock = (struct zr_lock){0};
    devices_described = 0;
    fields_reserved = 0;
}

/* --- the table of fields ---------------------------------------------------------------------- */

bool zr_segment_describe(const struct zeroute_segment_field *f)
{
    struct zeroute_segment_header *h = zr_segment.header;
    zr_lock(&describe_lock);
    uint32_t n = h->field_count;
    struct zeroute_segment_field *at =
        (struct zeroute_segment_field *)(void *)((char *)h + FIELDS_AT) + n;
    bool fits = n < fields_reserved;
    if (!fits && n < FIELDS_MAX && zr_segment_reserve(at, 128 * sizeof *at)) {
        fields_reserved = n + 128;
        fits = true;
    }
    if (fits) {
        *at = *f;
        if (!at->count)
            at->count = 1;
        __atomic_store_n(&h->field_count, n + 1, __ATOMIC_RELEASE);
    }
    zr_unlock(&describe_lock);
    return fits;
}

static void describe(const char *name, uint16_t type, uint16_t place, size_t offset,
                     const char *unit, const char *help)
{
    struct zeroute_segment_field f = {.type = type, .place = place, .offset = (uint32_t)offset};
    if (type == ZEROUTE_TEXT)
        f.stride = sizeof zr_segment.globals->texts[0];
    copy(f.name, sizeof f.name, name);
    copy(f.unit, sizeof f.unit, unit);
    copy(f.help, sizeof f.help, help);
    zr_segment_describe(&f);
}

/*
 * A series of cells in the shards, as name.{current,peak,allocated,freed}; peak_at 0: it has no
 * peak.
 */
struct account {
    const char *prefix, *name, *unit, *help;
    size_t plus, minus, stride, count, peak_at;
};

static void describe_account(const struct account *a)
{
    static const struct {
        const char *name, *help;
        uint16_t type;
    } part[] = {
        {"current", "now", ZEROUTE_GAUGE},
        {"peak", "at its highest", ZEROUTE_PEAK},
        {"allocated", "taken, ever", ZEROUTE_COUNTER},
        {"freed", "given back, ever", ZEROUTE_COUNTER},
    };
    for (size_t i = 0; i < 4; i++) {
        struct zeroute_segment_field f = {.type = part[i].type,
                                          .stride = (uint32_t)a->stride,
                                          .count = (uint32_t)a->count,
                                          .offset = (uint32_t)(i == 3 ? a->minus : a->plus)};
        if (i < 2)
            f.minus = (uint32_t)a->minus;
        if (i == 1) {
            if (!a->peak_at)
                continue;
            f.present = f.offset;
            f.place = ZEROUTE_GLOBAL;
            f.offset = (uint32_t)a->peak_at;
        }
        snprintf(f.name, sizeof f.name, "%s%s.%s", a->prefix, a->name, part[i].name);
        snprintf(f.help, sizeof f.help, "%s, %s", a->help, part[i].help);
        copy(f.unit, sizeof f.unit, a->unit);
        zr_segment_describe(&f);
    }
}

static void describe_reserved(const char *prefix, size_t at)
{
    static const struct {
        const char *name, *help;
        uint16_t type;
        size_t offset, minus;
    } part[] = {
        {"current", "held from the driver, now", ZEROUTE_GAUGE, 0, 8},
        {"peak", "held from the driver, at its highest", ZEROUTE_PEAK, 24, 0},
        {"allocated", "taken from the driver, ever", ZEROUTE_COUNTER, 0, 0},
        {"freed", "given back to the driver, ever", ZEROUTE_COUNTER, 8, 0},
    };
    for (size_t i = 0; i < 4; i++) {
        struct zeroute_segment_field f = {.type = part[i].type,
                                          .place = ZEROUTE_GLOBAL,
                                          .offset = (uint32_t)(at + part[i].offset)};
        if (part[i].minus)
            f.minus = (uint32_t)(at + part[i].minus);
        snprintf(f.name, sizeof f.name, "%sreserved_bytes.all.%s", prefix, part[i].name);
        copy(f.help, sizeof f.help, part[i].help);
        copy(f.unit, sizeof f.unit, "bytes");
        zr_segment_describe(&f);
    }
}

#define SHARD(member) offsetof(struct zr_shard, member)
#define GLOBAL(member) offsetof(struct zr_globals, member)
#define CELL(member) offsetof(struct zr_cell, member)
#define DEVICE_CELLS (sizeof(struct zr_cell) * ZR_KINDS_ON_DEVICE)

void zr_segment_describe_device(unsigned n)
{
    uint32_t bit = 1u << n;
    if (likely(__atomic_load_n(&devices_described, __ATOMIC_RELAXED) & bit) ||
        __atomic_fetch_or(&devices_described, bit, __ATOMIC_RELAXED) & bit)
        return;
    char prefix[16];
    snprintf(prefix, sizeof prefix, "device.%u.", n);
    size_t at = SHARD(on_device) + n * DEVICE_CELLS;
    describe_account(&(struct account){prefix, "allocated_bytes.all", "bytes",
                                       "memory of this device held by the process",
                                       at + CELL(allocated), at + CELL(freed),
                                       sizeof(struct zr_cell), ZR_KINDS_ON_DEVICE,
                                       GLOBAL(peak_device) + n * sizeof(uint64_t)});
    describe_account(&(struct account){prefix, "allocation.all", "", "blocks on this device",
                                       at + CELL(allocations), at + CELL(frees),
                                       sizeof(struct zr_cell), ZR_KINDS_ON_DEVICE, 0});
    if (zr_reserved_is_allocated())
        describe_account(&(struct account){prefix, "reserved_bytes.all", "bytes",
                                           "held from the driver", at + CELL(allocated),
                                           at + CELL(freed), sizeof(struct zr_cell),
                                           ZR_KINDS_ON_DEVICE,
                                           GLOBAL(peak_device) + n * sizeof(uint64_t)});
    else
        describe_reserved(prefix,
                          GLOBAL(reserved) + n * sizeof(((struct zr_globals *)0)->reserved[0]));
}

static void describe_memory(void)
{
    static const char *const kind[] = {"allocated_bytes.device", "allocated_bytes.shared",
                                       "allocated_bytes.physical"};
    static const char *const help[] = {"device USM held by the process",
                                       "shared USM held by the process",
                                       "physical memory objects held by the process"};
    _Static_assert(sizeof kind / sizeof *kind == ZR_KINDS_ON_DEVICE, "one name for each kind");
    size_t at = SHARD(on_device), cells = (size_t)ZR_DEVICES * ZR_KINDS_ON_DEVICE;
    describe_account(&(struct account){"", "allocated_bytes.all", "bytes",
                                       "device, shared and physical memory held by the process",
                                       at + CELL(allocated), at + CELL(freed),
                                       sizeof(struct zr_cell), cells, GLOBAL(peak_bytes)});
    describe_account(&(struct account){"", "allocation.all", "", "blocks held by the process",
                                       at + CELL(allocations), at + CELL(frees),
                                       sizeof(struct zr_cell), cells, GLOBAL(peak_blocks)});
    if (zr_reserved_is_allocated())
        describe_account(&(struct account){"", "reserved_bytes.all", "bytes", "held from the driver",
                                           at + CELL(allocated), at + CELL(freed),
                                           sizeof(struct zr_cell), cells, GLOBAL(peak_bytes)});
    else
        describe_reserved("", GLOBAL(reserved_all));
    for (size_t k = 0; k < ZR_KINDS_ON_DEVICE; k++)
        describe_account(&(struct account){
            "", kind[k], "bytes", help[k], at + k * sizeof(struct zr_cell) + CELL(allocated),
            at + k * sizeof(struct zr_cell) + CELL(freed), DEVICE_CELLS, ZR_DEVICES, 0});
    size_t elsewhere = SHARD(elsewhere);
#define ZR_COUNTER(id, name, unit, help)
#define ZR_GAUGE(id, name, unit, help)
#define ZR_TEXT(id, name, help)
#define ZR_ACCOUNT(id, name, unit, help)                                                           \
    elsewhere = SHARD(elsewhere) + (ZR_KIND_##id - ZR_KINDS_ON_DEVICE) * sizeof(struct zr_cell);   \
    describe_account(&(struct account){"", name, unit, help, elsewhere + CELL(allocated),          \
                                       elsewhere + CELL(freed), 8, 1, 0});
#include "stats/fields.def"
#undef ZR_COUNTER
#undef ZR_GAUGE
#undef ZR_TEXT
#undef ZR_ACCOUNT
}

static void describe_entries(void)
{
    static const char *const way_name[] = {"plt", "dlsym", "table", "sycl", "pool"};
    static const char *const way_help[] = {
        "calls through the PLT", "calls through a pointer from dlsym",
        "calls through a function table", "calls of the SYCL function", "calls of the SYCL runtime"};
    _Static_assert(sizeof way_name / sizeof *way_name == ZR_VIAS, "one name for each way");
    static const unsigned char above[] = {
#define ZR_ABOVE(name, way) ZR_VIA_##way,
#include "base/entries_above.def"
#undef ZR_ABOVE
    };
    char name[80];
    for (unsigned e = 0; e < ZR_ENTRIES; e++) {
        unsigned from = ZR_VIA_PLT, to = ZR_VIA_TABLE;
        if (e >= ZR_ENTRIES_ZE)
            from = to = above[e - ZR_ENTRIES_ZE];
        for (unsigned w = from; w <= to; w++) {
            snprintf(name, sizeof name, "calls.%s.%s", zr_entry_name(e), way_name[w]);
            describe(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS,
                     SHARD(calls) + w * sizeof(((struct zr_shard *)0)->calls[0]) + e * sizeof(uint64_t),
                     "", way_help[w]);
        }
        snprintf(name, sizeof name, "failures.%s", zr_entry_name(e));
        describe(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(failures) + e * sizeof(uint64_t), "",
                 "calls that failed");
        snprintf(name, sizeof name, "latency.%s", zr_entry_name(e));
        describe(name, ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS,
                 SHARD(latency) + e * sizeof(struct zeroute_segment_histogram), "ns",
                 "the time of the call below us; of quick calls about one in 128 stands for all");
    }
}

static void describe_all(void)
{
    describe_memory();
#define ZR_COUNTER(id, name, unit, help)                                                           \
    describe(name, ZEROUTE_COUNTER, ZEROUTE_SHARDS, SHARD(fields) + ZR_F_##id * sizeof(uint64_t),  \
             unit, help);
#define ZR_GAUGE(id, name, unit, help)                                                             \
    describe(name, ZEROUTE_GAUGE, ZEROUTE_GLOBAL, GLOBAL(gauges) + ZR_G_##id * sizeof(uint64_t),   \
             unit, help);
#define ZR_TEXT(id, name, help)                                                                    \
    describe(name, ZEROUTE_TEXT, ZEROUTE_GLOBAL, offsetof(struct zr_globals, texts[ZR_T_##id]),    \
             "", help);
#define ZR_ACCOUNT(id, name, unit, help)
#include "stats/fields.def"
#undef ZR_COUNTER
#undef ZR_GAUGE
#undef ZR_TEXT
#undef ZR_ACCOUNT
    describe_entries();
}

void zr_segment_write_text(struct zeroute_segment_text *t, size_t size, const char *text,
                           size_t length)
{
    if (length > size - sizeof *t - 1)
        length = size - sizeof *t - 1;
    uint64_t g = __atomic_load_n(&t->generation, __ATOMIC_RELAXED);
    __atomic_store_n(&t->generation, g + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    char *to = (char *)(t + 1);
    memcpy(to, text, length);
    to[length] = '\0';
    t->length = (uint32_t)length;
    __atomic_store_n(&t->generation, g + 2, __ATOMIC_RELEASE);
}
