/*
 * The file of a record: chunks that are mapped, each written by one thread alone.
 *
 * A thread appends to its chunk and then stores how much is used: no lock, and what was stored is
 * in the file even if the process is killed. Pages are allocated before they are mapped, so that a
 * full disk is an error and no SIGBUS. The file is open only while a chunk is mapped: a program may
 * close descriptors that it does not know.
 */
#include "record/record.h"
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, HEADER = 4096, MOST_TEXT = 4096, MARK_MOST = 255, MOST_NAMES = 16 };

enum { NOT_BEGUN, RUNNING, STOPPED };
static uint32_t record_state;                /* atomic */
static struct zeroute_record_header *header; /* mapped for as long as the process lives */
static char path[PATH_MAX];
static size_t path_given;          /* where the part begins that the setting gave */
static uint64_t end_of_file;       /* atomic */
static uint32_t thread_count;      /* atomic */
static uint64_t cards_recorded;    /* atomic: bit n: card n was recorded */
static struct zr_lock record_lock; /* of begin() */

uint64_t zr_record_time(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- appending -------------------------------------------------------------------------------- */

static bool next_chunk(void);

static void record_lose(void) {
    struct zeroute_record_header *h = __atomic_load_n(&header, __ATOMIC_ACQUIRE);

    if (h)
        __atomic_fetch_add(&h->lost_events, 1, __ATOMIC_RELAXED);
}

void zr_record_lost_stack(void) {
    __atomic_fetch_add(&header->lost_stacks, 1, __ATOMIC_RELAXED);
}

void *zr_record_put(enum zeroute_record_type type, uint32_t id, const struct zr_part *part,
                    unsigned parts) {
    struct zeroute_record_chunk *c = zr_thread.record.chunk;
    struct zeroute_record_head *head;
    size_t size = 0;
    char *to;

    for (unsigned i = 0; i < parts; i++)
        size += part[i].size;
    size = (size + 7) & ~(size_t)7;
    if (unlikely(!c || CHUNK - c->used < size)) {
        if (!next_chunk())
            return NULL;
        c = zr_thread.record.chunk;
    }
    head = (void *)((char *)c + c->used);
    to = (char *)head;
    for (unsigned i = 0; i < parts; to += part[i++].size)
        memcpy(to, part[i].at, part[i].size);
    *head = (struct zeroute_record_head){
        .type = (uint16_t)type, .words = (uint16_t)(size / 8), .id = id};
    __atomic_store_n(&c->used, c->used + size, __ATOMIC_RELEASE);
    return head;
}

static bool record_begin(void);

static bool is_running(void) {
    uint32_t now = __atomic_load_n(&record_state, __ATOMIC_ACQUIRE);

    return likely(now == RUNNING) || (now == NOT_BEGUN && record_begin());
}

static uint32_t between(uint64_t start, uint64_t end) {
    return end - start < UINT32_MAX ? (uint32_t)(end - start) : UINT32_MAX;
}

/* If a signal handler interrupts this, its event is lost. */
static void record_event(struct zr_op *op, struct zeroute_record_event *e, const char *text,
                         size_t length) {
    const struct zr_part parts[] = {{e, sizeof *e}, {text, length}};
    struct zeroute_record_event *to = NULL;
    int saved = errno;

    if (zr_thread.record.busy) {
        record_lose();
        return;
    }
    zr_thread.record.busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    if (likely(is_running())) {
        e->time = zr_record_time();
        if (e->head.type != ZEROUTE_EVENT_RESERVE && op && op->began) {
            e->duration = between(op->began, e->time);
            op->began = 0;
        }
        to = zr_record_put((enum zeroute_record_type)e->head.type,
                           zr_config.stacks == ZR_STACKS_OFF ? 0 : zr_stack(), parts, 2);
    }
    if (unlikely(!to))
        record_lose();
    else if (op && e->head.type == ZEROUTE_EVENT_FREE)
        op->freed = to;
    atomic_signal_fence(memory_order_seq_cst);
    zr_thread.record.busy = false;
    errno = saved;
}

void zr_record_event(enum zeroute_record_type type, enum zr_kind kind, unsigned card,
                     const void *address, uint64_t size, uint64_t aux, unsigned flags,
                     uint32_t code) {
    struct zr_op *op = zr_op_innermost();
    bool on_card = card < 64 && (kind < ZR_KINDS_ON_DEVICE || kind == ZR_KIND_IMPORTED);
    struct zeroute_record_event e = {.head.type = (uint16_t)type,
                                     .address = (uintptr_t)address,
                                     .size = size,
                                     .aux = aux,
                                     .code = code,
                                     .entry = op ? op->entry : 0,
                                     .via = op ? op->via : 0,
                                     .kind = (uint8_t)kind,
                                     .card =
                                         on_card ? (uint8_t)card : (uint8_t)ZEROUTE_RECORD_NO_CARD};

    if (type == ZEROUTE_EVENT_FAIL)
        e.refuser = (uint8_t)flags;
    else
        e.flags = (uint8_t)flags;
    record_event(op, &e, "", 0);
}

bool zr_record_begin(struct zr_op *op, unsigned card) {
    op->began = zr_record_time();
    return card < 64 && !(__atomic_load_n(&cards_recorded, __ATOMIC_RELAXED) >> card & 1);
}

enum zeroute_record_refuser zr_record_refuser(uint32_t code) {
    for (unsigned i = 0; i < zr_config.inject.count; i++)
        if (zr_config.inject.rule[i].code == code)
            return ZEROUTE_REFUSED_BY_INJECT;
    return ZEROUTE_REFUSED_BY_DRIVER;
}

void zr_record_freed(struct zr_op *op) {
    struct zeroute_record_event *e = op->freed;

    if (e)
        __atomic_store_n(&e->duration, between(e->time, zr_record_time()), __ATOMIC_RELAXED);
    op->freed = NULL;
}

void zr_record_text(enum zeroute_record_text_id id, const char *text, size_t size) {
    struct zeroute_record_text t = {
        .size = size < ZEROUTE_RECORD_TEXT_MOST ? (uint32_t)size : ZEROUTE_RECORD_TEXT_MOST};

    zr_record_put(ZEROUTE_RECORD_TEXT, id, (const struct zr_part[]){{&t, sizeof t}, {text, t.size}},
                  2);
}

void zr_record_card(unsigned card, uint64_t memory) {
    struct zeroute_record_card c = {.memory = memory};
    uint64_t bit = UINT64_C(1) << card;
    int saved = errno;

    if (zr_thread.record.busy || !is_running() ||
        __atomic_fetch_or(&cards_recorded, bit, __ATOMIC_RELAXED) & bit)
        return;
    zr_thread.record.busy = true;
    zr_record_put(ZEROUTE_RECORD_CARD, card, &(struct zr_part){&c, sizeof c}, 1);
    zr_thread.record.busy = false;
    errno = saved;
}

__attribute__((visibility("default"))) void zeroute_mark(const char *text) {
    struct zeroute_record_event e = {.head.type = ZEROUTE_EVENT_MARK,
                                     .card = ZEROUTE_RECORD_NO_CARD};
    char copy[MARK_MOST + 1] = "";

    if (!text || zr_exiting())
        return;
    zr_fork_check();
    zr_config_load();
    if (!zr_recording())
        return;
    memcpy(copy, text, strnlen(text, MARK_MOST));
    record_event(NULL, &e, copy, strlen(copy) + 1);
}

/* --- chunks ----------------------------------------------------------------------------------- */

static bool record_stop(const char *why) {
    if (__atomic_exchange_n(&record_state, STOPPED, __ATOMIC_ACQ_REL) != STOPPED)
        zr_warn("record: %s: %s; nothing more is recorded", path, why);
    return false;
}

/* Pages of the file, or NULL with errno. Beyond RLIMIT_FSIZE the kernel would send a signal. */
static void *map_part(const struct zr_descriptor *file, uint64_t offset, size_t size) {
    struct rlimit most;
    void *p;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && offset + size > most.rlim_cur) {
        errno = EFBIG;
        return NULL;
    }
    if (!zr_descriptor_is_ours(file))
        return NULL;
    do
        errno = posix_fallocate(file->fd, (off_t)offset, (off_t)size);
    while (errno == EINTR);
    if (errno)
        return NULL;
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd,
             (off_t)offset);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_DONTFORK); /* a child must not write to it */
    return p;
}

/* Another file may have been put there. */
static bool is_our_file(int fd) {
    struct zeroute_record_header h;

    return pread(fd, &h, sizeof h, 0) == sizeof h && h.pid == header->pid &&
           h.start_time == header->start_time;
}

static void describe_thread(uint32_t number) {
    struct zeroute_record_thread t = {.tid = (uint32_t)syscall(SYS_gettid)};

    prctl(PR_GET_NAME, t.name);
    zr_record_put(ZEROUTE_RECORD_THREAD, number, &(struct zr_part){&t, sizeof t}, 1);
}

/*
 * About 20 us, once in a thousand events. Where there is no descriptor now, there may be one later.
 */
static ZR_COLD bool next_chunk(void) {
    struct zr_descriptor file = zr_descriptor_keep(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    bool gone = file.fd < 0 || !is_our_file(file.fd);
    bool is_new = !zr_thread.record.number;
    struct zeroute_record_chunk *c = NULL;
    int error;

    if (file.fd < 0 && (errno == EMFILE || errno == ENFILE))
        return false;
    if (!gone)
        c = map_part(&file, __atomic_fetch_add(&end_of_file, CHUNK, __ATOMIC_RELAXED), CHUNK);
    error = errno;
    zr_descriptor_close(&file);
    if (!c)
        return record_stop(gone ? "it is gone, or cannot be opened any more" : strerror(error));
    zr_thread_attend();
    zr_record_thread_end();
    if (is_new)
        zr_thread.record.number = __atomic_add_fetch(&thread_count, 1, __ATOMIC_RELAXED);
    *c = (struct zeroute_record_chunk){.thread = zr_thread.record.number,
                                       .used = sizeof *c,
                                       .sequence = zr_thread.record.chunks++};
    __atomic_store_n(&c->magic, ZEROUTE_CHUNK_MAGIC, __ATOMIC_RELEASE);
    zr_thread.record.chunk = c;
    if (is_new)
        describe_thread(zr_thread.record.number);
    return true;
}

void zr_record_thread_end(void) {
    int saved = errno;

    if (zr_thread.record.chunk)
        munmap(zr_thread.record.chunk, CHUNK);
    zr_thread.record.chunk = NULL;
    for (struct zr_op *op = zr_op_innermost(); op; op = op->above)
        op->freed = NULL; /* it lay there */
    errno = saved;
}

/* --- the beginning ---------------------------------------------------------------------------- */

/*
 * The file of the setting, %p replaced by the process id, made absolute: the process may change its
 * directory.
 */
static bool name_file(void) {
    const char *from = zr_config.record;
    size_t n = 0;

    if (*from != '/' && getcwd(path, sizeof path)) {
        n = strlen(path);
        path[n++] = '/';
        path_given = n;
    }
    for (; *from && n < sizeof path - 32; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            n += (size_t)snprintf(path + n, 24, "%d", (int)getpid());
            from++;
        } else {
            path[n++] = *from;
        }
    }
    path[n] = '\0';
    return !*from;
}

static void fill_header(struct zeroute_record_header *h) {
    static const uint32_t stacks[] = {[ZR_STACKS_OFF] = ZEROUTE_STACKS_OFF,
                                      [ZR_STACKS_NATIVE] = ZEROUTE_STACKS_NATIVE,
                                      [ZR_STACKS_PYTHON] = ZEROUTE_STACKS_PYTHON};
    const char *run = secure_getenv("ZEROUTE_RUN");
    struct timespec real;

    clock_gettime(CLOCK_REALTIME, &real);
    *h = (struct zeroute_record_header){
        .magic = ZEROUTE_RECORD_MAGIC,
        .major = ZEROUTE_RECORD_MAJOR,
        .minor = ZEROUTE_RECORD_MINOR,
        .header_size = HEADER,
        .chunk_size = CHUNK,
        .pid = (uint32_t)getpid(),
        .process_start = zr_process_start(),
        .start_time = zr_record_time(),
        .start_real = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec,
        .flags = zr_reserved_is_allocated() ? ZEROUTE_RECORD_RESERVED_SAME : 0,
        .stacks = stacks[zr_config.stacks]};
    snprintf(h->version, sizeof h->version, "%s", ZEROUTE_VERSION);
    snprintf(h->run_id, sizeof h->run_id, "%s", run ? run : "");
}

/* Overwrites nothing: if the file exists, .PID is appended to the name, then .PID.2 and so on. */
static struct zr_descriptor record_open(void) {
    size_t n = strlen(path);
    int fd = -1;

    for (int i = 0; i < MOST_NAMES && fd < 0 && (i == 0 || errno == EEXIST); i++) {
        if (i == 1)
            snprintf(path + n, sizeof path - n, ".%d", (int)getpid());
        else if (i)
            snprintf(path + n, sizeof path - n, ".%d.%d", (int)getpid(), i);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd >= 0 && path[n] && !secure_getenv("ZEROUTE_RUN"))
        zr_warn("record: %.*s exists: this process is recorded in %s", (int)n, path, path);
    return zr_descriptor_keep(fd);
}

const char *zr_record_path(void) {
    return path + path_given;
}

/* A device, a FIFO, a link: a record beside it would litter a folder like /dev. */
static bool is_no_place(void) {
    struct statx s;

    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &s) == 0 && !S_ISREG(s.stx_mode);
}

static bool make_file(void) {
    struct zr_descriptor file;
    const char *why = NULL;

    if (!name_file())
        return record_stop("the name is too long");
    if (is_no_place())
        return record_stop("it exists and is no regular file");
    file = record_open();
    if (file.fd < 0)
        return record_stop(strerror(errno));
    header = map_part(&file, 0, HEADER);
    if (header) {
        fill_header(header);
    } else {
        why = strerror(errno);
        unlink(path);
    }
    zr_descriptor_close(&file);
    end_of_file = HEADER;
    return !why || record_stop(why);
}

static void record_names(enum zeroute_record_text_id id, const char *const *names, size_t count) {
    char text[MOST_TEXT] = "";
    size_t used = 0;

    for (size_t i = 0; i < count && used < sizeof text - 128; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", names[i]) + 1;
    zr_record_text(id, text, used);
}

static void record_process(void) {
    static const char *const launchers[] = {
        "RANK",         "LOCAL_RANK",      "WORLD_SIZE",
        "PMI_RANK",     "MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID", "SLURM_JOB_ID",    "SLURM_STEP_ID",
        "MASTER_ADDR",  "MASTER_PORT",     "TORCHELASTIC_RUN_ID"};
    char text[MOST_TEXT] = "";
    size_t used = zr_read_file("/proc/self/cmdline", text, sizeof text);

    zr_record_text(ZEROUTE_TEXT_COMMAND, text, used);
    used = 0;
    zr_settings_print(&zr_config, text, sizeof text);
    zr_record_text(ZEROUTE_TEXT_SETTINGS, text, strlen(text));
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *value = secure_getenv(launchers[i]);

        if (value && strlen(value) < 256)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s=%s", launchers[i], value) + 1;
    }
    zr_record_text(ZEROUTE_TEXT_VARIABLES, text, used);
    record_names(ZEROUTE_TEXT_ENTRIES, zr_entry_name, ZR_ENTRIES);
    record_names(ZEROUTE_TEXT_VIAS, zr_via_name, ZR_VIAS);
    if (getcwd(text, sizeof text))
        zr_record_text(ZEROUTE_TEXT_DIRECTORY, text, strlen(text));
}

/* Once per process, at its first event. Other threads wait. */
static ZR_COLD bool record_begin(void) {
    uint32_t expected = NOT_BEGUN;
    bool made = false;

    zr_fork_arm();
    zr_thread_attend(); /* before the lock: libc takes one of the dynamic linker's */
    zr_lock(&record_lock);
    if (__atomic_load_n(&record_state, __ATOMIC_ACQUIRE) == NOT_BEGUN)
        made = make_file();
    if (made) {
        record_process();
        __atomic_compare_exchange_n(&record_state, &expected, RUNNING, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
    zr_unlock(&record_lock);
    return __atomic_load_n(&record_state, __ATOMIC_ACQUIRE) == RUNNING;
}

/* --- the end ---------------------------------------------------------------------------------- */

void zr_record_process_end(void) {
    if (__atomic_load_n(&record_state, __ATOMIC_ACQUIRE) != NOT_BEGUN && header)
        __atomic_store_n(&header->end_time, zr_record_time(), __ATOMIC_RELAXED);
}

/* The child gets a file of its own. The parent's mappings are not inherited. */
void zr_record_fork_child(void) {
    record_state = NOT_BEGUN;
    header = NULL;
    thread_count = 0;
    cards_recorded = 0;
    memset(&zr_thread.record, 0, sizeof zr_thread.record);
    zr_stack_fork_child();
    zr_python_fork_child();
}
