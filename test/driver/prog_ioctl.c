/*
 * The stand-in without a driver above it: each promise in raw calls and hand-written batches. Run
 * with the stand-in preloaded, XE_STANDIN="cards:3,vram:1GiB", ZEROUTE_ROOT an empty folder.
 */
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

static void expect_at(int line, const char *what, long long got, long long want)
{
    if (got == want)
        return;
    printf("%s: line %d: %s is %lld, not %lld\n", promise, line, what, got, want);
    broken = 1;
}
#define EXPECT(got, want) expect_at(__LINE__, #got, (long long)(got), (long long)(want))

static int call(int fd, unsigned number, void *arg, size_t size)
{
    return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'd', number, size), arg) ? -errno : 0;
}
#define CALL(fd, number, arg) call(fd, number, arg, sizeof(*(arg)))

static int card(unsigned n)
{
    char path[64];
    snprintf(path, sizeof(path), "/dev/dri/renderD%u", 128 + n);
    return open(path, O_RDWR | O_CLOEXEC);
}

static uint32_t create(int fd, uint64_t size, uint32_t placement, uint32_t flags)
{
    struct xe_gem_create c = {
        .size = size, .placement = placement, .flags = flags, .cpu_caching = 1};
    return CALL(fd, XE_NR_GEM_CREATE, &c) ? 0 : c.handle;
}

static int destroy(int fd, uint32_t handle)
{
    struct xe_drm_gem_close c = {.handle = handle};
    return CALL(fd, XE_NR_GEM_CLOSE, &c);
}

static int export_of(int fd, uint32_t handle)
{
    struct xe_drm_prime p = {.handle = handle, .flags = XE_PRIME_CLOEXEC | XE_PRIME_RDWR};
    return CALL(fd, XE_NR_PRIME_HANDLE_TO_FD, &p) ? -1 : p.fd;
}

static uint32_t import_of(int fd, int prime)
{
    struct xe_drm_prime p = {.fd = prime};
    return CALL(fd, XE_NR_PRIME_FD_TO_HANDLE, &p) ? 0 : p.handle;
}

static void *map(int fd, uint32_t handle, size_t size)
{
    struct xe_gem_mmap_offset o = {.handle = handle};
    if (CALL(fd, XE_NR_GEM_MMAP_OFFSET, &o))
        return MAP_FAILED;
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)o.offset);
}

static uint64_t used(int fd)
{
    struct {
        struct xe_query_head head;
        struct xe_mem_region regions[2];
    } out = {0};
    struct xe_device_query q = {.query = XE_QUERY_MEM_REGIONS, .data = (uintptr_t)&out};
    EXPECT(CALL(fd, XE_NR_DEVICE_QUERY, &q), 0);
    EXPECT(q.size, sizeof(out));
    EXPECT(CALL(fd, XE_NR_DEVICE_QUERY, &q), 0);
    return out.regions[1].used;
}

/* A number of KiB from a file below ZEROUTE_ROOT, in bytes. */
static uint64_t kib_of(const char *file, const char *key)
{
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

static uint64_t fdinfo(int fd, const char *key)
{
    char file[64];
    snprintf(file, sizeof(file), "%d/fdinfo/%d", (int)getpid(), fd);
    return kib_of(file, key);
}

/* --- a card with an address space and a queue
 * -------------------------------------------------------- */

struct gpu {
    int fd;
    uint32_t vm, queue, batch;
    uint32_t *commands;
    uint64_t fence, value;
};
#define BATCH_AT 0x100000000ull

static int bind_at(const struct gpu *g, uint32_t handle, uint64_t address, uint64_t size,
                   uint32_t op)
{
    uint64_t fence = 0;
    struct xe_sync sync = {.type = XE_SYNC_USER_FENCE,
                           .flags = XE_SYNC_FLAG_SIGNAL,
                           .addr = (uintptr_t)&fence,
                           .timeline_value = 77};
    struct xe_vm_bind b = {.vm_id = g->vm,
                           .num_binds = 1,
                           .num_syncs = 1,
                           .syncs = (uintptr_t)&sync,
                           .bind = {.obj = handle, .addr = address, .range = size, .op = op}};
    int error = CALL(g->fd, XE_NR_VM_BIND, &b);
    if (!error)
        EXPECT(fence, 77);
    return error;
}

static struct gpu gpu_on(int fd, uint16_t engine)
{
    struct gpu g = {.fd = fd};
    struct xe_vm_create vm = {.flags = XE_VM_LR_MODE};
    EXPECT(CALL(fd, XE_NR_VM_CREATE, &vm), 0);
    g.vm = vm.vm_id;
    struct xe_engine_instance instance = {.engine_class = engine};
    struct xe_exec_queue_create q = {
        .width = 1, .num_placements = 1, .vm_id = vm.vm_id, .instances = (uintptr_t)&instance};
    EXPECT(CALL(fd, XE_NR_EXEC_QUEUE_CREATE, &q), 0);
    g.queue = q.exec_queue_id;
    g.batch = create(fd, 65536, SYSTEM, 0);
    g.commands = map(fd, g.batch, 65536);
    EXPECT(bind_at(&g, g.batch, BATCH_AT, 65536, XE_BIND_MAP), 0);
    return g;
}

static int submit(struct gpu *g)
{
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

static int finish(struct gpu *g, int64_t ns)
{
    struct xe_wait_user_fence w = {.addr = (uintptr_t)&g->commands[65528 / 4],
                                   .op = XE_WAIT_GTE,
                                   .value = g->value,
                                   .mask = UINT64_MAX,
                                   .timeout = ns};
    return CALL(g->fd, XE_NR_WAIT_USER_FENCE, &w);
}

static void run(struct gpu *g, const uint32_t *commands, size_t size)
{
    memcpy(g->commands, commands, size);
    g->commands[size / 4] = 0x05000000; /* MI_BATCH_BUFFER_END */
    EXPECT(submit(g), 0);
    EXPECT(finish(g, 10000000000), 0);
}
#define RUN(g, ...) run(g, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}))
#define LOW(address) (uint32_t)(address)
#define HIGH(address) (uint32_t)((uint64_t)(address) >> 32)
#define DATA (BATCH_AT + 0x8000) /* scratch words, in the same buffer */
#define WORD(g, n) (g)->commands[0x8000 / 4 + (n)]

static void gone(struct gpu *g)
{
    struct xe_exec_queue_destroy q = {.exec_queue_id = g->queue};
    struct xe_vm_destroy vm = {.vm_id = g->vm};
    EXPECT(CALL(g->fd, XE_NR_EXEC_QUEUE_DESTROY, &q), 0);
    EXPECT(CALL(g->fd, XE_NR_VM_DESTROY, &vm), 0);
    munmap(g->commands, 65536);
    EXPECT(destroy(g->fd, g->batch), 0);
}

/* --- the promises
 * ------------------------------------------------------------------------------------- */

static void as_many_cards_as_set(void)
{
    int fds[3];
    for (unsigned i = 0; i < 3; i++) {
        fds[i] = card(i);
        EXPECT(fds[i] >= 0, 1);
    }
    EXPECT(card(3), -1);
    EXPECT(errno, ENOENT);
    for (unsigned i = 0; i < 3; i++)
        EXPECT(close(fds[i]), 0);
    EXPECT(CALL(fds[0], XE_NR_DEVICE_QUERY, &(struct xe_device_query){0}), -EBADF);
}

static void a_duplicate_is_the_same_card(void)
{
    int fd = card(0), copy = dup(fd), third = fcntl(copy, F_DUPFD_CLOEXEC, 100);
    uint32_t handle = create(fd, MIB, VRAM, 0);
    EXPECT(close(fd), 0);
    EXPECT(used(third), MIB);
    EXPECT(destroy(copy, handle), 0);
    EXPECT(used(third), 0);
    struct stat st;
    EXPECT(fstat(third, &st), 0);
    EXPECT(st.st_rdev, 226 << 8 | 128);
    close(copy);
    close(third);
}

static void full_vram_is_enospc_and_comes_back(void)
{
    int fd = card(0);
    uint32_t big = create(fd, 1000 * MIB, VRAM, 0);
    struct xe_gem_create more = {.size = 100 * MIB, .placement = VRAM, .cpu_caching = 2};
    EXPECT(big > 0, 1);
    EXPECT(CALL(fd, XE_NR_GEM_CREATE, &more), -ENOSPC);
    EXPECT(create(card(1), 1000 * MIB, VRAM, 0) > 0, 1); /* the other card has its own */
    more.placement = VRAM | SYSTEM;                      /* or it goes to the host */
    EXPECT(CALL(fd, XE_NR_GEM_CREATE, &more), 0);
    EXPECT(used(fd), 1000 * MIB);
    EXPECT(destroy(fd, big), 0);
    EXPECT(used(fd), 0);
    more.size = 4096;
    more.placement = VRAM;
    EXPECT(CALL(fd, XE_NR_GEM_CREATE, &more), -EINVAL); /* 64 KiB pages */
    close(fd);
}

static void a_bound_buffer_outlives_its_handle(void)
{
    int fd = card(2);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    uint32_t handle = create(fd, MIB, VRAM, 0);
    EXPECT(bind_at(&g, handle, 1 << 30, MIB, XE_BIND_MAP), 0);
    EXPECT(destroy(fd, handle), 0);
    EXPECT(used(fd), MIB);
    EXPECT(bind_at(&g, 0, 1 << 30, MIB, XE_BIND_UNMAP), 0);
    EXPECT(used(fd), 0);
    gone(&g);
    close(fd);
}

static void an_exported_deferred_buffer_is_mirrored_once(void)
{
    int fds[3] = {card(0), card(1), card(2)};
    uint64_t before = kib_of("meminfo", "GPUActive:"),
             free_before = kib_of("meminfo", "MemAvailable:");
    uint32_t handle = create(fds[0], 64 * MIB, VRAM, XE_GEM_DEFER_BACKING);
    EXPECT(kib_of("meminfo", "GPUActive:"), before);
    int prime = export_of(fds[0], handle), again = export_of(fds[0], handle);
    EXPECT(kib_of("meminfo", "GPUActive:"), before + 64 * MIB);
    EXPECT(kib_of("meminfo", "MemAvailable:"), free_before - 64 * MIB);
    uint32_t one = import_of(fds[1], prime), two = import_of(fds[2], again);
    EXPECT(import_of(fds[1], again), one);
    EXPECT(import_of(fds[0], prime), handle);
    EXPECT(fdinfo(fds[0], "drm-total-vram0:"), 64 * MIB);
    EXPECT(fdinfo(fds[0], "drm-total-gtt:"), 0);
    EXPECT(fdinfo(fds[1], "drm-total-gtt:"), 64 * MIB);
    EXPECT(fdinfo(fds[2], "drm-total-gtt:"), 64 * MIB);
    EXPECT(kib_of("meminfo", "GPUActive:"), before + 64 * MIB);
    char *here = map(fds[0], handle, MIB), *there = map(fds[2], two, MIB);
    strcpy(here + 5000, "the same bytes");
    EXPECT(strcmp(there + 5000, "the same bytes"), 0);
    EXPECT(destroy(fds[0], handle), 0); /* the importers keep it alive */
    EXPECT(used(fds[0]), 64 * MIB);
    EXPECT(destroy(fds[1], one), 0);
    EXPECT(destroy(fds[2], two), 0);
    EXPECT(kib_of("meminfo", "GPUActive:"), before);
    EXPECT(used(fds[0]), 0);
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
    close(prime);
    close(again);
    munmap(here, MIB);
    munmap(there, MIB);
}

static void without_deferred_backing_nothing_is_mirrored(void)
{
    int fd = card(0), other = card(1);
    uint64_t before = kib_of("meminfo", "GPUActive:");
    uint32_t handle = create(fd, MIB, VRAM, 0);
    int prime = export_of(fd, handle);
    EXPECT(import_of(other, prime) > 0, 1);
    EXPECT(kib_of("meminfo", "GPUActive:"), before);
    EXPECT(fdinfo(other, "drm-total-gtt:"), MIB);
    close(prime);
    close(fd);
    close(other);
}

static void what_is_no_buffer_is_refused(void)
{
    int fd = card(0), null = open("/dev/null", O_RDWR);
    struct xe_drm_prime p = {.fd = null};
    EXPECT(CALL(fd, XE_NR_PRIME_FD_TO_HANDLE, &p), -EINVAL);
    EXPECT(destroy(fd, 12345), -EINVAL);
    EXPECT(CALL(fd, 0x5f, &p), -EINVAL);
    close(null);
    close(fd);
}

static void send_fd(int socket, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    EXPECT(sendmsg(socket, &m, 0), 1);
}

static int receive_fd(int socket)
{
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    int fd = -1;
    if (recvmsg(socket, &m, 0) == 1)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return fd;
}

static int status_of(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void a_buffer_travels_between_processes(void)
{
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (!pid) {
        int fd = card(1), prime = receive_fd(pair[1]);
        uint32_t handle = import_of(fd, prime);
        char *bytes = map(fd, handle, 2 * MIB), go;
        EXPECT(strcmp(bytes, "from the parent"), 0);
        strcpy(bytes, "from the child");
        EXPECT(fdinfo(fd, "drm-total-gtt:"), 2 * MIB);
        EXPECT(write(pair[1], "x", 1), 1);
        EXPECT(read(pair[1], &go, 1), 1);
        exit(broken); /* the importer goes without a word */
    }
    int fd = card(0);
    uint64_t before = kib_of("meminfo", "GPUActive:");
    uint32_t handle = create(fd, 2 * MIB, VRAM, XE_GEM_DEFER_BACKING);
    char *bytes = map(fd, handle, 2 * MIB), done;
    strcpy(bytes, "from the parent");
    int prime = export_of(fd, handle);
    send_fd(pair[0], prime);
    EXPECT(read(pair[0], &done, 1), 1);
    EXPECT(strcmp(bytes, "from the child"), 0);
    EXPECT(destroy(fd, handle), 0);
    EXPECT(used(fd), 2 * MIB); /* the child holds it */
    EXPECT(kib_of("meminfo", "GPUActive:"), before + 2 * MIB);
    EXPECT(write(pair[0], "x", 1), 1);
    EXPECT(status_of(pid), 0);
    EXPECT(used(fd), 0);
    EXPECT(kib_of("meminfo", "GPUActive:"), before);
    munmap(bytes, 2 * MIB);
    close(prime);
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

static void a_killed_process_gives_its_memory_back(void)
{
    int ready[2];
    char byte;
    EXPECT(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        EXPECT(create(card(0), 900 * MIB, VRAM, 0) > 0, 1);
        EXPECT(write(ready[1], "x", 1), 1);
        pause();
    }
    int fd = card(0);
    EXPECT(read(ready[0], &byte, 1), 1);
    EXPECT(used(fd), 900 * MIB);
    kill(pid, SIGKILL);
    EXPECT(status_of(pid), SIGKILL);
    EXPECT(create(fd, 900 * MIB, VRAM, 0) > 0, 1); /* finds it full, looks who is dead */
    EXPECT(used(fd), 900 * MIB);
    close(fd);
}

static void a_forked_child_starts_with_nothing(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    uint32_t handle = create(fd, 10 * MIB, VRAM, 0);
    RUN(&g, 0x10000002, LOW(DATA), HIGH(DATA), 1);
    pid_t pid = fork();
    if (!pid) {
        EXPECT(destroy(fd, handle) < 0, 1);
        int own = card(0);
        EXPECT(used(own), 10 * MIB);
        uint32_t mine = create(own, MIB, VRAM, 0);
        EXPECT(used(own), 11 * MIB);
        EXPECT(destroy(own, mine), 0);
        close(own);
        close(fd);
        exit(broken);
    }
    EXPECT(status_of(pid), 0);
    EXPECT(used(fd), 10 * MIB);
    EXPECT(fdinfo(fd, "drm-total-vram0:"), 10 * MIB);
    RUN(&g, 0x10000002, LOW(DATA), HIGH(DATA), 2);
    EXPECT(WORD(&g, 0), 2);
    gone(&g);
    close(fd);
}

static void commands_write_copy_and_fill(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint64_t a = 1ull << 40, b = 2ull << 40;
    uint32_t first = create(fd, 2 * MIB, VRAM, 0), second = create(fd, 2 * MIB, VRAM, 0);
    char *from = map(fd, first, 2 * MIB), *to = map(fd, second, 2 * MIB);
    EXPECT(bind_at(&g, first, a, 2 * MIB, XE_BIND_MAP), 0);
    EXPECT(bind_at(&g, second, b, 2 * MIB, XE_BIND_MAP), 0);
    for (unsigned i = 0; i < 2 * MIB; i++)
        from[i] = (char)(i * 7 + i / 1000);
    /* MEM_COPY of a million bytes, MEM_SET of 100 behind them, MI_STORE_DATA_IMM of a quadword */
    RUN(&g, 0x56800008, 999999, 0, 0, 0, LOW(a + 3), HIGH(a + 3), LOW(b + 1), HIGH(b + 1), 0, /* */
        0x56c00005, 99, 0, 0, LOW(b + 1000001), HIGH(b), 0x5a000000,                          /* */
        0x10200003, LOW(DATA), HIGH(DATA), 0x11111111, 0x22222222);
    EXPECT(memcmp(to + 1, from + 3, 1000000), 0);
    EXPECT(to[0], 0);
    EXPECT(to[1000001], 0x5a);
    EXPECT(to[1000100], 0x5a);
    EXPECT(to[1000101], 0);
    EXPECT(WORD(&g, 0), 0x11111111);
    EXPECT(WORD(&g, 1), 0x22222222);
    munmap(from, 2 * MIB);
    munmap(to, 2 * MIB);
    destroy(fd, first);
    destroy(fd, second);
    gone(&g);
    close(fd);
}

static void registers_count_and_jump(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COMPUTE);
    WORD(&g, 0) = 40;
    /*
     * GPR0 = memory, GPR1 = 2, GPR2 = GPR0 + GPR1, stored; then GPR3 = (GPR0 - GPR0 is zero), which
     * goes to the predicate: the store behind is skipped, the one after it is not.
     */
    RUN(&g, 0x14800002, 0x1a600, LOW(DATA), HIGH(DATA), 0x11000003, 0x1a604, 0, 0x1a608, 2,
        0x11000001, 0x1a60c, 0, 0x0d000003, 0x08008000, 0x08008401, 0x10000000, 0x18000831, /* */
        0x12000002, 0x1a610, LOW(DATA + 4), HIGH(DATA), 0x0d000003, 0x08008000, 0x08008400,
        0x10100000, 0x18000c32, 0x15000001, 0x1a618, 0x1a3bc, 0x00800002, 0x10000002, LOW(DATA + 8),
        HIGH(DATA), 1, 0x00800000, 0x10000002, LOW(DATA + 12), HIGH(DATA), 1);
    EXPECT(WORD(&g, 1), 42);
    EXPECT(WORD(&g, 2), 0);
    EXPECT(WORD(&g, 3), 1);
    gone(&g);
    close(fd);
}

static void a_semaphore_waits_for_the_program(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint32_t batch[] = {0x0e000003 | 1 << 15 | 1 << 12,
                              5,
                              LOW(DATA),
                              HIGH(DATA),
                              0, /* polls until word 0 >= 5 */
                              0x10000002,
                              LOW(DATA + 4),
                              HIGH(DATA),
                              9,
                              0x05000000};
    memcpy(g.commands, batch, sizeof(batch));
    EXPECT(submit(&g), 0);
    EXPECT(finish(&g, 20000000), -ETIME);
    EXPECT(WORD(&g, 1), 0);
    __atomic_store_n(&WORD(&g, 0), 5, __ATOMIC_RELEASE);
    EXPECT(finish(&g, 10000000000), 0);
    EXPECT(WORD(&g, 1), 9);
    gone(&g);
    close(fd);
}

static void a_waiting_queue_can_be_destroyed(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    g.commands[0] = 0x0e000003 | 1 << 15 | 4 << 12;
    g.commands[1] = 1;
    g.commands[2] = LOW(DATA);
    g.commands[3] = HIGH(DATA);
    EXPECT(submit(&g), 0);
    gone(&g);
    close(fd);
}

static void a_batch_may_call_another(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COMPUTE);
    g.commands[0x4000 / 4] = 0x10000002;
    g.commands[0x4004 / 4] = LOW(DATA);
    g.commands[0x4008 / 4] = HIGH(DATA);
    g.commands[0x400c / 4] = 3;
    g.commands[0x4010 / 4] = 0x05000000;
    RUN(&g, 0x18c00001, LOW(BATCH_AT + 0x4000), HIGH(BATCH_AT),     /* second level: comes back */
        0x17840709, LOW(DATA), HIGH(DATA), 4, 0, 0, 0, 0, 0, 0, 0); /* MI_ATOMIC: add 4 */
    EXPECT(WORD(&g, 0), 7);
    gone(&g);
    close(fd);
}

static void program_memory_can_be_bound(void)
{
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint64_t at = 3ull << 40;
    uint8_t *mine = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct xe_vm_bind b = {
        .vm_id = g.vm,
        .num_binds = 1,
        .bind = {
            .obj_offset = (uintptr_t)mine, .addr = at, .range = 8192, .op = XE_BIND_MAP_USERPTR}};
    EXPECT(CALL(fd, XE_NR_VM_BIND, &b), 0);
    RUN(&g, 0x56c00005, 8191, 0, 0, LOW(at), HIGH(at), 0xee000000);
    EXPECT(mine[0], 0xee);
    EXPECT(mine[8191], 0xee);
    munmap(mine, 8192); /* gone: the card's write is lost, the process lives */
    RUN(&g, 0x56c00005, 8191, 0, 0, LOW(at), HIGH(at), 0xee000000);
    gone(&g);
    close(fd);
}

static void leaving_removes_the_files(void)
{
    char path[512];
    int fd = card(0);
    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%d", getenv("ZEROUTE_ROOT"), (int)getpid(), fd);
    EXPECT(access(path, F_OK), 0);
    close(fd);
    EXPECT(access(path, F_OK), -1);
}

#define PROMISES(P)                                                                                \
    P(as_many_cards_as_set)                                                                        \
    P(a_duplicate_is_the_same_card)                                                                \
    P(full_vram_is_enospc_and_comes_back)                                                          \
    P(a_bound_buffer_outlives_its_handle)                                                          \
    P(an_exported_deferred_buffer_is_mirrored_once)                                                \
    P(without_deferred_backing_nothing_is_mirrored)                                                \
    P(what_is_no_buffer_is_refused)                                                                \
    P(a_buffer_travels_between_processes)                                                          \
    P(a_killed_process_gives_its_memory_back)                                                      \
    P(a_forked_child_starts_with_nothing)                                                          \
    P(commands_write_copy_and_fill)                                                                \
    P(registers_count_and_jump)                                                                    \
    P(a_semaphore_waits_for_the_program)                                                           \
    P(a_waiting_queue_can_be_destroyed)                                                            \
    P(a_batch_may_call_another)                                                                    \
    P(program_memory_can_be_bound)                                                                 \
    P(leaving_removes_the_files)

int main(void)
{
    int kept = 0, failed = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
#define KEEP(name)                                                                                 \
    broken = 0;                                                                                    \
    promise = #name;                                                                               \
    name();                                                                                        \
    kept += !broken;                                                                               \
    failed += broken;
    PROMISES(KEEP)
    printf("%d passed, %d failed\n", kept, failed);
    return failed != 0;
}
