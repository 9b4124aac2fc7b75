/* The stand-in's cards, buffers and processes, in raw calls. */
#include "raw.h"

static void as_many_cards_as_set(void) {
    int fds[3];
    for (unsigned i = 0; i < 3; i++) {
        fds[i] = card(i);
        EQUAL(fds[i] >= 0, 1);
    }
    EQUAL(card(3), -1);
    EQUAL(errno, ENOENT);
    for (unsigned i = 0; i < 3; i++)
        EQUAL(close(fds[i]), 0);
    EQUAL(CALL(fds[0], XE_NR_DEVICE_QUERY, &(struct xe_device_query){0}), -EBADF);
}

static void a_duplicate_is_the_same_card(void) {
    int fd = card(0), copy = dup(fd), third = fcntl(copy, F_DUPFD_CLOEXEC, 100);
    uint32_t handle = create(fd, MIB, VRAM, 0);
    EQUAL(close(fd), 0);
    EQUAL(used(third), MIB);
    EQUAL(destroy(copy, handle), 0);
    EQUAL(used(third), 0);
    struct stat st;
    EQUAL(fstat(third, &st), 0);
    EQUAL(st.st_rdev, 226 << 8 | 128);
    close(copy);
    close(third);
}

static void full_vram_is_enospc_and_comes_back(void) {
    int fd = card(0);
    uint32_t big = create(fd, 1000 * MIB, VRAM, 0);
    struct xe_gem_create more = {.size = 100 * MIB, .placement = VRAM, .cpu_caching = 2};
    EQUAL(big > 0, 1);
    EQUAL(CALL(fd, XE_NR_GEM_CREATE, &more), -ENOSPC);
    EQUAL(create(card(1), 1000 * MIB, VRAM, 0) > 0, 1); /* the other card has its own */
    more.placement = VRAM | SYSTEM;                     /* or it goes to the host */
    EQUAL(CALL(fd, XE_NR_GEM_CREATE, &more), 0);
    EQUAL(used(fd), 1000 * MIB);
    EQUAL(destroy(fd, big), 0);
    EQUAL(used(fd), 0);
    more.size = 4096;
    more.placement = VRAM;
    EQUAL(CALL(fd, XE_NR_GEM_CREATE, &more), -EINVAL); /* 64 KiB pages */
    close(fd);
}

static void a_bound_buffer_outlives_its_handle(void) {
    int fd = card(2);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    uint32_t handle = create(fd, MIB, VRAM, 0);
    EQUAL(bind_at(&g, handle, 1 << 30, MIB, XE_BIND_MAP), 0);
    EQUAL(destroy(fd, handle), 0);
    EQUAL(used(fd), MIB);
    EQUAL(bind_at(&g, 0, 1 << 30, MIB, XE_BIND_UNMAP), 0);
    EQUAL(used(fd), 0);
    gone(&g);
    close(fd);
}

static void an_exported_deferred_buffer_is_mirrored_once(void) {
    int fds[3] = {card(0), card(1), card(2)};
    uint64_t before = kib_of("meminfo", "GPUActive:"), free_before = kib_of("meminfo", "MemAvailable:");
    uint32_t handle = create(fds[0], 64 * MIB, VRAM, XE_GEM_DEFER_BACKING);
    EQUAL(kib_of("meminfo", "GPUActive:"), before);
    int prime = export_of(fds[0], handle), again = export_of(fds[0], handle);
    EQUAL(kib_of("meminfo", "GPUActive:"), before + 64 * MIB);
    EQUAL(kib_of("meminfo", "MemAvailable:"), free_before - 64 * MIB);
    uint32_t one = import_of(fds[1], prime), two = import_of(fds[2], again);
    EQUAL(import_of(fds[1], again), one);
    EQUAL(import_of(fds[0], prime), handle);
    EQUAL(fdinfo(fds[0], "drm-total-vram0:"), 64 * MIB);
    EQUAL(fdinfo(fds[0], "drm-total-gtt:"), 0);
    EQUAL(fdinfo(fds[1], "drm-total-gtt:"), 64 * MIB);
    EQUAL(fdinfo(fds[2], "drm-total-gtt:"), 64 * MIB);
    EQUAL(kib_of("meminfo", "GPUActive:"), before + 64 * MIB);
    char *here = map(fds[0], handle, MIB), *there = map(fds[2], two, MIB);
    strcpy(here + 5000, "the same bytes");
    EQUAL(strcmp(there + 5000, "the same bytes"), 0);
    EQUAL(destroy(fds[0], handle), 0); /* the importers keep it alive */
    EQUAL(used(fds[0]), 64 * MIB);
    EQUAL(destroy(fds[1], one), 0);
    EQUAL(destroy(fds[2], two), 0);
    EQUAL(kib_of("meminfo", "GPUActive:"), before);
    EQUAL(used(fds[0]), 0);
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
    close(prime);
    close(again);
    munmap(here, MIB);
    munmap(there, MIB);
}

static void without_deferred_backing_nothing_is_mirrored(void) {
    int fd = card(0), other = card(1);
    uint64_t before = kib_of("meminfo", "GPUActive:");
    uint32_t handle = create(fd, MIB, VRAM, 0);
    int prime = export_of(fd, handle);
    EQUAL(import_of(other, prime) > 0, 1);
    EQUAL(kib_of("meminfo", "GPUActive:"), before);
    EQUAL(fdinfo(other, "drm-total-gtt:"), MIB);
    close(prime);
    close(fd);
    close(other);
}

static void what_is_no_buffer_is_refused(void) {
    int fd = card(0), null = open("/dev/null", O_RDWR);
    struct xe_drm_prime p = {.fd = null};
    EQUAL(CALL(fd, XE_NR_PRIME_FD_TO_HANDLE, &p), -EINVAL);
    EQUAL(destroy(fd, 12345), -EINVAL);
    EQUAL(CALL(fd, 0x5f, &p), -EINVAL);
    close(null);
    close(fd);
}

static void send_fd(int socket, int fd) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    EQUAL(sendmsg(socket, &m, 0), 1);
}

static int receive_fd(int socket) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    int fd = -1;
    if (recvmsg(socket, &m, 0) == 1)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return fd;
}

static int status_of(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void a_buffer_travels_between_processes(void) {
    int pair[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (!pid) {
        int fd = card(1), prime = receive_fd(pair[1]);
        uint32_t handle = import_of(fd, prime);
        char *bytes = map(fd, handle, 2 * MIB), go;
        EQUAL(strcmp(bytes, "from the parent"), 0);
        strcpy(bytes, "from the child");
        EQUAL(fdinfo(fd, "drm-total-gtt:"), 2 * MIB);
        EQUAL(write(pair[1], "x", 1), 1);
        EQUAL(read(pair[1], &go, 1), 1);
        exit(broken); /* the importer goes without a word */
    }
    int fd = card(0);
    uint64_t before = kib_of("meminfo", "GPUActive:");
    uint32_t handle = create(fd, 2 * MIB, VRAM, XE_GEM_DEFER_BACKING);
    char *bytes = map(fd, handle, 2 * MIB), done;
    strcpy(bytes, "from the parent");
    int prime = export_of(fd, handle);
    send_fd(pair[0], prime);
    EQUAL(read(pair[0], &done, 1), 1);
    EQUAL(strcmp(bytes, "from the child"), 0);
    EQUAL(destroy(fd, handle), 0);
    EQUAL(used(fd), 2 * MIB); /* the child holds it */
    EQUAL(kib_of("meminfo", "GPUActive:"), before + 2 * MIB);
    EQUAL(write(pair[0], "x", 1), 1);
    EQUAL(status_of(pid), 0);
    EQUAL(used(fd), 0);
    EQUAL(kib_of("meminfo", "GPUActive:"), before);
    munmap(bytes, 2 * MIB);
    close(prime);
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

static void a_killed_process_gives_its_memory_back(void) {
    int ready[2];
    char byte;
    EQUAL(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        EQUAL(create(card(0), 900 * MIB, VRAM, 0) > 0, 1);
        EQUAL(write(ready[1], "x", 1), 1);
        pause();
    }
    int fd = card(0);
    EQUAL(read(ready[0], &byte, 1), 1);
    EQUAL(used(fd), 900 * MIB);
    kill(pid, SIGKILL);
    EQUAL(status_of(pid), SIGKILL);
    EQUAL(create(fd, 900 * MIB, VRAM, 0) > 0, 1); /* finds it full, looks who is dead */
    EQUAL(used(fd), 900 * MIB);
    close(fd);
}

static void a_forked_child_starts_with_nothing(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    uint32_t handle = create(fd, 10 * MIB, VRAM, 0);
    RUN(&g, 0x10000002, LOW(DATA), HIGH(DATA), 1);
    pid_t pid = fork();
    if (!pid) {
        EQUAL(destroy(fd, handle) < 0, 1);
        int own = card(0);
        EQUAL(used(own), 10 * MIB);
        uint32_t mine = create(own, MIB, VRAM, 0);
        EQUAL(used(own), 11 * MIB);
        EQUAL(destroy(own, mine), 0);
        close(own);
        close(fd);
        exit(broken);
    }
    EQUAL(status_of(pid), 0);
    EQUAL(used(fd), 10 * MIB);
    EQUAL(fdinfo(fd, "drm-total-vram0:"), 10 * MIB);
    RUN(&g, 0x10000002, LOW(DATA), HIGH(DATA), 2);
    EQUAL(WORD(&g, 0), 2);
    gone(&g);
    close(fd);
}

static void leaving_removes_the_files(void) {
    char path[512];
    int fd = card(0);
    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%d", getenv("ZEROUTE_ROOT"), (int)getpid(), fd);
    EQUAL(access(path, F_OK), 0);
    close(fd);
    EQUAL(access(path, F_OK), -1);
}

#define PROMISES(P)                                                                                                    \
    P(as_many_cards_as_set)                                                                                            \
    P(a_duplicate_is_the_same_card)                                                                                    \
    P(full_vram_is_enospc_and_comes_back)                                                                              \
    P(a_bound_buffer_outlives_its_handle)                                                                              \
    P(an_exported_deferred_buffer_is_mirrored_once)                                                                    \
    P(without_deferred_backing_nothing_is_mirrored)                                                                    \
    P(what_is_no_buffer_is_refused)                                                                                    \
    P(a_buffer_travels_between_processes)                                                                              \
    P(a_killed_process_gives_its_memory_back)                                                                          \
    P(a_forked_child_starts_with_nothing)                                                                              \
    P(leaving_removes_the_files)

KEEP_PROMISES
