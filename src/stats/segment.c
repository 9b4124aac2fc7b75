/* The segment's file: created at the first device operation, described field by field, abandoned in a child of fork. */
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define PAGES(n) (((n) + PAGE - 1) / PAGE * PAGE)
#define FIELDS_MAX 1536u /* a multiple of the 128 that are reserved at once */
#define CONTROL_AT PAGE
#define GLOBALS_AT (CONTROL_AT + PAGE)
#define FINGERPRINT_AT (GLOBALS_AT + PAGES(sizeof(struct zr_globals)))
#define FIELDS_AT (FINGERPRINT_AT + ZR_FINGERPRINT_SIZE)
#define SHARDS_AT (FIELDS_AT + PAGES(FIELDS_MAX * sizeof(struct zeroute_segment_field)))
#define FILE_SIZE (SHARDS_AT + ZR_SHARDS * sizeof(struct zr_shard))

_Static_assert(sizeof(struct zeroute_segment_header) <= PAGE, "the header is one page");
_Static_assert(sizeof(struct zeroute_segment_control) <= PAGE, "and so are requests");
_Static_assert(sizeof(struct zr_shard) % 4096 == 0, "shards are reserved page by page");

struct zr_segment zr_segment = {.fd = -1};
static struct zr_lock describe_lock;
static uint32_t fields_reserved; /* how many of the table have pages behind them */

#define COPY(to, text) snprintf(to, sizeof(to), "%s", text)

/* Field 22 of /proc/self/stat, counted from the end of the name, which may contain anything. */
uint64_t zr_process_start(void) {
    char text[1024];
    zr_read_file("/proc/self/stat", text, sizeof text);
    char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? zr_number(p + 1) : 0;
}

static uint64_t pid_namespace(void) {
    char link[64];
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    link[n < 0 ? 0 : n] = '\0';
    char *p = strchr(link, '[');
    return p ? zr_number(p + 1) : 0;
}

void zr_command_line(const char *path, char *out, size_t size) {
    size_t n = zr_read_file(path, out, size);
    for (size_t i = 0; i + 1 < n; i++)
        if (out[i] == '\0' || out[i] == '\n' || out[i] == '\t')
            out[i] = ' ';
}

/* What launchers tell their ranks: the first variables found name the job and this process's rank in it. */
static void job(struct zeroute_segment_header *h) {
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
        {"mpi", NULL, NULL, "PMI_RANK"}, /* no name of the job: its ranks share their session, on this machine */
    };
    char session[32];

    snprintf(session, sizeof session, "session %d", (int)getsid(0));
    for (size_t i = 0; i < sizeof known / sizeof *known && !*h->job_id; i++) {
        const char *name = known[i].job ? secure_getenv(known[i].job) : session;
        const char *step = known[i].step ? secure_getenv(known[i].step) : NULL;
        const char *rank = secure_getenv(known[i].rank);

        if (!name || !rank)
            continue;
        snprintf(h->job_id, sizeof h->job_id, "%s:%s%s%s", known[i].kind, name, step ? "." : "", step ? step : "");
        COPY(h->rank, rank);
    }
}

static void identify(struct zeroute_segment_header *h, uint64_t nonce) {
    const char *run = secure_getenv("ZEROUTE_RUN");
    h->uid = (uint32_t)geteuid();
    h->pid_namespace = pid_namespace();
    h->pid = (uint32_t)getpid();
    h->start_time = zr_process_start();
    h->nonce = nonce;
    h->created_ns = zr_clock(CLOCK_REALTIME);
    zr_read_file("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof h->boot_id);
    h->boot_id[strcspn(h->boot_id, "\n")] = '\0';
    COPY(h->version, ZEROUTE_VERSION);
    COPY(h->run_id, run ? run : "");
    zr_command_line("/proc/self/cmdline", h->command, sizeof h->command);
    job(h);
}

bool zr_segment_reserve(const void *start, size_t size) {
    size_t from = (size_t)((const char *)start - (const char *)zr_segment.header) / PAGE * PAGE;
    size_t to = PAGES((size_t)((const char *)start - (const char *)zr_segment.header) + size);
    int e;
    while ((e = fallocate(zr_segment.fd, 0, (off_t)from, (off_t)(to - from))) && errno == EINTR)
        ;
    return e == 0;
}

/* Moves a descriptor away from the low numbers that programs expect to get or dup over. */
static int move_high(int fd) {
    struct rlimit limit = {.rlim_cur = 256};
    getrlimit(RLIMIT_NOFILE, &limit);
    int floor = limit.rlim_cur > 900 ? 800 : (int)(limit.rlim_cur / 2);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, floor);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static bool fail(const char *what, const char *path, int fd, void *map) {
    int e = errno;
    if (map != MAP_FAILED)
        munmap(map, FILE_SIZE);
    if (fd >= 0) {
        unlink(path);
        close(fd);
    }
    zr_segment = (struct zr_segment){.fd = -1};
    fields_reserved = 0;
    zr_warn("no statistics of this process: cannot %s %s: %s", what, path,
            e == ENOSPC ? "the file system is full ('zeroute gc' removes what finished processes left)" : strerror(e));
    return false;
}

/*
 * Creates a file with a new name, so it is nobody else's; -1 on failure. It is named once it holds the pid, so that
 * what a killed process leaves behind is recognised as dead. Writing beyond the limit for files would raise SIGXFSZ.
 */
static int create_file(char *path, size_t size, uint64_t *nonce) {
    struct zeroute_segment_header h = {.pid = (uint32_t)getpid(), .pid_namespace = pid_namespace()};
    struct rlimit limit;
    char unnamed[32];
    if (getrandom(nonce, sizeof *nonce, GRND_NONBLOCK) != sizeof *nonce)
        *nonce = zr_now() * 0x9e3779b97f4a7c15u;
    snprintf(path, size, ZEROUTE_SEGMENT_DIR "/" ZEROUTE_SEGMENT_PREFIX "%d.%016llx", getpid(),
             (unsigned long long)*nonce);
    errno = EFBIG;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < FILE_SIZE)
        return -1;
    int fd = open(ZEROUTE_SEGMENT_DIR, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", fd);
    bool named = fd >= 0 && !fchmod(fd, 0600) && write(fd, &h, sizeof h) == sizeof h &&
                 !linkat(AT_FDCWD, unnamed, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    if (fd >= 0)
        close(fd); /* what is mapped by it would not bear its name */
    return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (named ? 0 : O_CREAT | O_EXCL), 0600);
}

static void describe_layout(struct zeroute_segment_header *h) {
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
    h->shard_folds = offsetof(struct zr_shard, folds);
    h->shard_activity = offsetof(struct zr_shard, activity);
    h->buckets = ZEROUTE_BUCKETS;
    h->claims = offsetof(struct zr_globals, claims);
    h->fingerprint_offset = FINGERPRINT_AT;
    h->fingerprint_size = ZR_FINGERPRINT_SIZE;
    h->control_offset = CONTROL_AT;
    h->control_size = sizeof(struct zeroute_segment_control);
    h->clock_hz = 1000000000;
    h->clock_ticks = zr_now();
}

bool zr_segment_create(void) {
    char path[96], *map;
    uint64_t nonce = 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    struct statx x;
    int fd = create_file(path, sizeof path, &nonce);

    if (fd < 0)
        return fail("create", path, -1, MAP_FAILED);
    fd = move_high(fd);
    if (fchmod(fd, 0600) || ftruncate(fd, (off_t)FILE_SIZE) || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &x))
        return fail("prepare", path, fd, MAP_FAILED);
    (void)fcntl(fd, F_SETLK, &lock); /* tells readers that the writer lives */
    map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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
    if (!zr_segment_reserve(map, FINGERPRINT_AT) || !zr_segment_reserve(zr_segment.shards, sizeof(struct zr_shard)))
        return fail("get memory for", path, fd, map);
    identify(zr_segment.header, nonce);
    describe_layout(zr_segment.header);
    memset(zr_segment.globals->gauges, 0xff, sizeof zr_segment.globals->gauges); /* ZEROUTE_ABSENT */
    memset(zr_segment.globals->cards, 0xff, sizeof zr_segment.globals->cards);
    for (int n = 0; n < ZR_DEVICES; n++)
        zr_segment.globals->cards[n][ZR_C_IMAGE] = zr_segment.globals->cards[n][ZR_C_IMPORTED] = 0;
    zr_fields_describe();
    if (zr_segment.header->field_count == 0)
        return fail("get memory for", path, fd, map);
    zr_control_open((void *)(map + CONTROL_AT));
    __atomic_store_n(&zr_segment.header->magic, ZEROUTE_SEGMENT_MAGIC, __ATOMIC_RELEASE);
    return true;
}

void zr_segment_abandon(void) {
    struct statx x;
    int fd = zr_segment.fd;
    zr_control_open(NULL);
    if (zr_segment.header)
        munmap(zr_segment.header, FILE_SIZE);
    if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_INO, &x) == 0 && x.stx_ino == zr_segment.inode &&
        ((uint64_t)x.stx_dev_major << 32 | x.stx_dev_minor) == zr_segment.device)
        close(fd);
    zr_segment = (struct zr_segment){.fd = -1};
    fields_reserved = 0;
}

/* --- the table of fields, and texts ------------------------------------------------------------------------------- */

bool zr_segment_describe(struct zeroute_segment_field *f, const char *prefix, const char *name, const char *unit,
                         const char *help, const char *more) {
    struct zeroute_segment_header *h = zr_segment.header;
    snprintf(f->name, sizeof f->name, "%s%s", prefix, name);
    snprintf(f->help, sizeof f->help, "%s%s", help, more);
    COPY(f->unit, unit);
    f->count = f->count ? f->count : 1;
    zr_lock(&describe_lock);
    uint32_t n = h->field_count;
    struct zeroute_segment_field *at = (struct zeroute_segment_field *)(void *)((char *)h + FIELDS_AT) + n;
    bool fits = n < fields_reserved;
    if (!fits && n < FIELDS_MAX && zr_segment_reserve(at, 128 * sizeof *at)) {
        fields_reserved = n + 128;
        fits = true;
    }
    if (fits) {
        *at = *f;
        __atomic_store_n(&h->field_count, n + 1, __ATOMIC_RELEASE);
    }
    zr_unlock(&describe_lock);
    return fits;
}

void zr_segment_write_text(struct zeroute_segment_text *t, size_t size, const char *text, size_t length) {
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
