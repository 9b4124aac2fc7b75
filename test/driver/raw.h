/*
 * What the programs share that use the stand-in without a driver: raw calls, figures of the
 * /proc-style files, a card with an address space and a queue. Run them with the stand-in
 * preloaded, XE_STANDIN="cards:3,vram:1GiB", ZEROUTE_ROOT an empty folder.
 */
#ifndef RAW_H
#define RAW_H

#include "xe_uapi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define VRAM 2u
#define SYSTEM 1u

static int broken;
static const char *promise;

/* A promise that is broken is counted, and the next one is tried. */
static inline void equal_at(int line, const char *what, long long got, long long want) {
    if (got == want)
        return;
    printf("%s: line %d: %s is %lld, not %lld\n", promise, line, what, got, want);
    broken = 1;
}
#define EQUAL(got, want) equal_at(__LINE__, #got, (long long)(got), (long long)(want))

static inline int call(int fd, unsigned number, void *arg, size_t size) {
    return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'd', number, size), arg) ? -errno : 0;
}
#define CALL(fd, number, arg) call(fd, number, arg, sizeof(*(arg)))

static inline int card(unsigned n) {
    char path[64];
    snprintf(path, sizeof(path), "/dev/dri/renderD%u", 128 + n);
    return open(path, O_RDWR | O_CLOEXEC);
}

static inline uint32_t create(int fd, uint64_t size, uint32_t placement, uint32_t flags) {
    struct xe_gem_create c = {.size = size, .placement = placement, .flags = flags, .cpu_caching = 1};
    return CALL(fd, XE_NR_GEM_CREATE, &c) ? 0 : c.handle;
}

static inline int destroy(int fd, uint32_t handle) {
    struct xe_drm_gem_close c = {.handle = handle};
    return CALL(fd, XE_NR_GEM_CLOSE, &c);
}

static inline int export_of(int fd, uint32_t handle) {
    struct xe_drm_prime p = {.handle = handle, .flags = XE_PRIME_CLOEXEC | XE_PRIME_RDWR};
    return CALL(fd, XE_NR_PRIME_HANDLE_TO_FD, &p) ? -1 : p.fd;
}

static inline uint32_t import_of(int fd, int prime) {
    struct xe_drm_prime p = {.fd = prime};
    return CALL(fd, XE_NR_PRIME_FD_TO_HANDLE, &p) ? 0 : p.handle;
}

static inline void *map(int fd, uint32_t handle, size_t size) {
    struct xe_gem_mmap_offset o = {.handle = handle};
    if (CALL(fd, XE_NR_GEM_MMAP_OFFSET, &o))
        return MAP_FAILED;
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)o.offset);
}

static inline uint64_t used(int fd) {
    struct {
        struct xe_query_head head;
        struct xe_mem_region regions[2];
    } out = {0};
    struct xe_device_query q = {.query = XE_QUERY_MEM_REGIONS, .data = (uintptr_t)&out};
    EQUAL(CALL(fd, XE_NR_DEVICE_QUERY, &q), 0);
    EQUAL(q.size, sizeof(out));
    EQUAL(CALL(fd, XE_NR_DEVICE_QUERY, &q), 0);
    return out.regions[1].used;
}

/* A number of KiB from a file below ZEROUTE_ROOT, in bytes. */
static inline uint64_t kib_of(const char *file, const char *key) {
    char path[512], line[256];
    uint64_t value = UINT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/%s", getenv("ZEROUTE_ROOT"), file);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (!strncmp(line, key, strlen(key)))
            value = strtoull(line + strlen(key), NULL, 10) << 10;
    }
    if (f)
        fclose(f);
    return value;
}

static inline uint64_t fdinfo(int fd, const char *key) {
    char file[64];
    snprintf(file, sizeof(file), "%d/fdinfo/%d", (int)getpid(), fd);
    return kib_of(file, key);
}

/* --- a card with an address space and a queue ------------------------------------------------- */

struct gpu {
    int fd;
    uint32_t vm, queue, batch;
    uint32_t *commands;
    uint64_t fence, value;
};
#define BATCH_AT 0x100000000ull

static inline int bind_at(const struct gpu *g, uint32_t handle, uint64_t address, uint64_t size, uint32_t op) {
    uint64_t fence = 0;
    struct xe_sync sync = {
        .type = XE_SYNC_USER_FENCE, .flags = XE_SYNC_FLAG_SIGNAL, .addr = (uintptr_t)&fence, .timeline_value = 77};
    struct xe_vm_bind b = {.vm_id = g->vm,
                           .num_binds = 1,
                           .num_syncs = 1,
                           .syncs = (uintptr_t)&sync,
                           .bind = {.obj = handle, .addr = address, .range = size, .op = op}};
    int error = CALL(g->fd, XE_NR_VM_BIND, &b);
    if (!error)
        EQUAL(fence, 77);
    return error;
}

static inline uint32_t queue_on(int fd, uint32_t vm, uint16_t engine) {
    struct xe_engine_instance instance = {.engine_class = engine};
    struct xe_exec_queue_create q = {.width = 1, .num_placements = 1, .vm_id = vm, .instances = (uintptr_t)&instance};
    EQUAL(CALL(fd, XE_NR_EXEC_QUEUE_CREATE, &q), 0);
    return q.exec_queue_id;
}

static inline struct gpu gpu_with(int fd, uint16_t engine, uint32_t flags) {
    struct gpu g = {.fd = fd};
    struct xe_vm_create vm = {.flags = flags};
    EQUAL(CALL(fd, XE_NR_VM_CREATE, &vm), 0);
    g.vm = vm.vm_id;
    g.queue = queue_on(fd, g.vm, engine);
    g.batch = create(fd, 65536, SYSTEM, 0);
    g.commands = map(fd, g.batch, 65536);
    EQUAL(bind_at(&g, g.batch, BATCH_AT, 65536, XE_BIND_MAP), 0);
    return g;
}

static inline struct gpu gpu_on(int fd, uint16_t engine) {
    return gpu_with(fd, engine, XE_VM_LR_MODE);
}

static inline int submit(struct gpu *g) {
    g->value++;
    struct xe_sync sync = {.type = XE_SYNC_USER_FENCE,
                           .flags = XE_SYNC_FLAG_SIGNAL,
                           .addr = BATCH_AT + 65528, /* the last word of the batch's buffer */
                           .timeline_value = g->value};
    struct xe_exec e = {.exec_queue_id = g->queue,
                        .num_syncs = 1,
                        .syncs = (uintptr_t)&sync,
                        .address = BATCH_AT,
                        .num_batch_buffer = 1};
    return CALL(g->fd, XE_NR_EXEC, &e);
}

static inline int finish(struct gpu *g, int64_t ns) {
    struct xe_wait_user_fence w = {.addr = (uintptr_t)&g->commands[65528 / 4],
                                   .op = XE_WAIT_GTE,
                                   .value = g->value,
                                   .mask = UINT64_MAX,
                                   .timeout = ns};
    return CALL(g->fd, XE_NR_WAIT_USER_FENCE, &w);
}

static inline void run(struct gpu *g, const uint32_t *commands, size_t size) {
    memcpy(g->commands, commands, size);
    g->commands[size / 4] = 0x05000000; /* MI_BATCH_BUFFER_END */
    EQUAL(submit(g), 0);
    EQUAL(finish(g, 10000000000), 0);
}
#define RUN(g, ...) run(g, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}))
#define LOW(address) (uint32_t)(address)
#define HIGH(address) (uint32_t)((uint64_t)(address) >> 32)
#define DATA (BATCH_AT + 0x8000) /* scratch words, in the same buffer */
#define WORD(g, n) (g)->commands[0x8000 / 4 + (n)]

static inline void gone(struct gpu *g) {
    struct xe_exec_queue_destroy q = {.exec_queue_id = g->queue};
    struct xe_vm_destroy vm = {.vm_id = g->vm};
    EQUAL(CALL(g->fd, XE_NR_EXEC_QUEUE_DESTROY, &q), 0);
    EQUAL(CALL(g->fd, XE_NR_VM_DESTROY, &vm), 0);
    munmap(g->commands, 65536);
    EQUAL(destroy(g->fd, g->batch), 0);
}

#define KEEP(name)                                                                                                     \
    broken = 0;                                                                                                        \
    promise = #name;                                                                                                   \
    name();                                                                                                            \
    kept += !broken;                                                                                                   \
    failed += broken;

/* PROMISES(P) is the program's list of functions. */
#define KEEP_PROMISES                                                                                                  \
    int main(void) {                                                                                                   \
        int kept = 0, failed = 0;                                                                                      \
        setvbuf(stdout, NULL, _IONBF, 0);                                                                              \
        PROMISES(KEEP)                                                                                                 \
        printf("%d passed, %d failed\n", kept, failed);                                                                \
        return failed != 0;                                                                                            \
    }

#endif
