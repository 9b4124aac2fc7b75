/*
 * The segment's file: created at the first device operation, described field by field, abandoned in
 * a child of fork.
 */
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

struct zr_segment zr_segment = {.file.fd = -1};
static struct zr_lock describe_lock;
static uint32_t fields_reserved; /* how many of the table have pages behind them */

#define COPY(to, text) snprintf(to, sizeof(to), "%s", text)

/* Field 22 of /proc/self/stat, counted from the end of the name, which may contain anything. */
uint64_t zr_process_start(void) {
    char text[1024];
    const char *p;

    zr_read_file("/proc/self/stat", text, sizeof text);
    p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? zr_number(p + 1) : 0;
}

static uint64_t pid_namespace(void) {
    char link[64];
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    const char *p;

    link[n < 0 ? 0 : n] = '\0';
    p = strchr(link, '[');
    return p ? zr_number(p + 1) : 0;
}

void zr_command_line(const char *path, char *out, size_t size) {
    size_t n = zr_read_file(path, out, size);

    for (size_t i = 0; i + 1 < n; i++)
        if (out[i] == '\0' || out[i] == '\n' || out[i] == '\t')
            out[i] = ' ';
}

/*
 * What launchers tell their ranks: the first variables found name the job and this process's rank
 * in it.
 */
static void header_name_job(struct zeroute_segment_header *h) {
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
        /* No name of the job is known: its ranks share their session, on this machine. */
        {"mpi", NULL, NULL, "PMI_RANK"},
    };
    char session[32];

    snprintf(session, sizeof session, "session %d", (int)getsid(0));
    for (size_t i = 0; i < sizeof known / sizeof *known && !*h->job_id; i++) {
        const char *name = known[i].job ? secure_getenv(known[i].job) : session;
        const char *step = known[i].step ? secure_getenv(known[i].step) : NULL;
        const char *rank = secure_getenv(known[i].rank);

        if (!name || !rank)
            continue;
        if (step)
            snprintf(h->job_id, sizeof h->job_id, "%s:%s.%s", known[i].kind, name, step);
        else
            snprintf(h->job_id, sizeof h->job_id, "%s:%s", known[i].kind, name);
        COPY(h->rank, rank);
    }
}

static void header_identify(struct zeroute_segment_header *h, uint64_t nonce) {
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
    header_name_job(h);
}

bool zr_segment_reserve(const void *start, size_t size) {
    size_t at = (size_t)((const char *)start - (const char *)zr_segment.header);
    size_t from = at / PAGE * PAGE, to = PAGES(at + size);
    int failed;

    if (!zr_descriptor_is_ours(&zr_segment.file))
        return false;
    do
        failed = fallocate(zr_segment.file.fd, 0, (off_t)from, (off_t)(to - from));
    while (failed && errno == EINTR);
    return !failed;
}

/* What is being made: the directory, the name in it, and the whole path for messages. */
struct segment_file {
    int directory;
    struct zr_descriptor file;
    uint64_t nonce;
    char name[40], path[128];
};

static bool segment_fails(struct segment_file *f, const char *what, void *map) {
    int e = errno;

    if (map != MAP_FAILED)
        munmap(map, FILE_SIZE);
    if (f->file.fd >= 0)
        unlinkat(f->directory, f->name, 0);
    zr_descriptor_close(&f->file);
    if (f->directory >= 0)
        close(f->directory);
    zr_segment = (struct zr_segment){.file = ZR_NO_DESCRIPTOR};
    fields_reserved = 0;
    zr_warn("no statistics of this process: cannot %s %s: %s", what, f->path,
            e == ENOSPC
                ? "the file system is full ('zeroute gc' removes what finished processes left)"
                : strerror(e));
    return false;
}

static uint64_t make_nonce(void) {
    uint64_t nonce;

    if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != sizeof nonce)
        nonce = zr_now() * 0x9e3779b97f4a7c15u;
    return nonce;
}

/*
 * Puts a file that holds the pid under the name of the segment. Returns false where the file system
 * cannot.
 */
static bool link_unnamed(const struct segment_file *f) {
    struct zeroute_segment_header h = {.pid = (uint32_t)getpid(), .pid_namespace = pid_namespace()};
    int fd = openat(f->directory, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    char unnamed[32];
    bool linked;

    if (fd < 0)
        return false;
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", fd);
    linked = !fchmod(fd, 0600) && write(fd, &h, sizeof h) == sizeof h &&
             !linkat(AT_FDCWD, unnamed, f->directory, f->name, AT_SYMLINK_FOLLOW);
    close(fd);
    return linked;
}

/*
 * Creates a file with a new name, so it is nobody else's. It is named once it holds the pid, so
 * that what a killed process leaves behind is recognised as dead, and opened by its name: what is
 * mapped is to bear it. Writing beyond the limit for files would raise SIGXFSZ.
 */
static bool create_file(struct segment_file *f) {
    struct rlimit limit;
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    size_t length;

    f->nonce = make_nonce();
    f->directory = zr_directory(f->path, sizeof f->path);
    if (f->directory < 0)
        return false;
    snprintf(f->name, sizeof f->name, ZEROUTE_SEGMENT_NAME, getpid(), (unsigned long long)f->nonce);
    length = strlen(f->path);
    snprintf(f->path + length, sizeof f->path - length, "/%s", f->name);
    errno = EFBIG;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < FILE_SIZE)
        return false;
    if (!link_unnamed(f))
        flags |= O_CREAT | O_EXCL;
    f->file = zr_descriptor_keep(openat(f->directory, f->name, flags, 0600));
    return f->file.fd >= 0;
}

static void header_describe(struct zeroute_segment_header *h) {
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
    h->group = offsetof(struct zr_globals, group);
    h->fingerprint_offset = FINGERPRINT_AT;
    h->fingerprint_size = ZR_FINGERPRINT_SIZE;
    h->control_offset = CONTROL_AT;
    h->control_size = sizeof(struct zeroute_segment_control);
    h->clock_hz = 1000000000;
    h->clock_ticks = zr_now();
}

bool zr_segment_create(void) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    struct segment_file f = {.directory = -1, .file = ZR_NO_DESCRIPTOR};
    char *map;

    if (!create_file(&f))
        return segment_fails(&f, "create", MAP_FAILED);
    if (fchmod(f.file.fd, 0600) || ftruncate(f.file.fd, (off_t)FILE_SIZE))
        return segment_fails(&f, "prepare", MAP_FAILED);
    (void)fcntl(f.file.fd, F_SETLK, &lock); /* tells readers that the writer lives */
    map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f.file.fd, 0);
    if (map == MAP_FAILED)
        return segment_fails(&f, "map", MAP_FAILED);
    zr_segment = (struct zr_segment){
        .header = (void *)map,
        .globals = (void *)(map + GLOBALS_AT),
        .fingerprint = (void *)(map + FINGERPRINT_AT),
        .shards = map + SHARDS_AT,
        .file = f.file,
    };
    snprintf(zr_segment.path, sizeof zr_segment.path, "%s", f.path);
    if (!zr_segment_reserve(map, FINGERPRINT_AT) ||
        !zr_segment_reserve(zr_segment.shards, sizeof(struct zr_shard)))
        return segment_fails(&f, "get memory for", map);
    header_identify(zr_segment.header, f.nonce);
    header_describe(zr_segment.header);
    /* ZEROUTE_ABSENT. */
    memset(zr_segment.globals->gauges, 0xff, sizeof zr_segment.globals->gauges);
    memset(zr_segment.globals->cards, 0xff, sizeof zr_segment.globals->cards);
    for (int n = 0; n < ZR_DEVICES; n++) {
        zr_segment.globals->cards[n][ZR_C_IMAGE] = 0;
        zr_segment.globals->cards[n][ZR_C_IMPORTED] = 0;
    }
    zr_fields_describe();
    if (zr_segment.header->field_count == 0)
        return segment_fails(&f, "get memory for", map);
    close(f.directory);
    zr_control_open((void *)(map + CONTROL_AT));
    __atomic_store_n(&zr_segment.header->magic, ZEROUTE_SEGMENT_MAGIC, __ATOMIC_RELEASE);
    return true;
}

void zr_segment_abandon(void) {
    zr_control_open(NULL);
    if (zr_segment.header)
        munmap(zr_segment.header, FILE_SIZE);
    zr_descriptor_close(&zr_segment.file);
    zr_segment = (struct zr_segment){.file = ZR_NO_DESCRIPTOR};
    fields_reserved = 0;
}

/* --- the table of fields, and texts ----------------------------------------------------------- */

bool zr_segment_describe(struct zeroute_segment_field *f, const char *prefix, const char *name,
                         const char *unit, const char *help, const char *more) {
    struct zeroute_segment_header *h = zr_segment.header;
    struct zeroute_segment_field *at;
    uint32_t n;
    bool fits;

    snprintf(f->name, sizeof f->name, "%s%s", prefix, name);
    snprintf(f->help, sizeof f->help, "%s%s", help, more);
    COPY(f->unit, unit);
    if (!f->count)
        f->count = 1;

    zr_lock(&describe_lock);
    n = h->field_count;
    at = (struct zeroute_segment_field *)(void *)((char *)h + FIELDS_AT) + n;
    fits = n < fields_reserved;
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

void zr_segment_write_text(struct zeroute_segment_text *t, size_t size, const char *text,
                           size_t length) {
    uint64_t g = __atomic_load_n(&t->generation, __ATOMIC_RELAXED);
    char *to = (char *)(t + 1);

    if (length > size - sizeof *t - 1)
        length = size - sizeof *t - 1;
    __atomic_store_n(&t->generation, g + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    memcpy(to, text, length);
    to[length] = '\0';
    t->length = (uint32_t)length;
    __atomic_store_n(&t->generation, g + 2, __ATOMIC_RELEASE);
}
