/*
 * The libc names that the driver reaches a card by. Everything that is not about a card goes
 * straight to the kernel, so these work before any constructor has run and cost others a table
 * look-up.
 */
#include "standin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#define DESCRIPTORS (1 << 20)
#define CLIENTS 255
#define DRM_MAJOR 226

static _Atomic uint8_t client_by_fd[DESCRIPTORS]; /* index + 1; only touched pages cost */
static struct xs_client *_Atomic clients[CLIENTS];
static pthread_once_t started = PTHREAD_ONCE_INIT;

static void drop_client(struct xs_client *client) {
    for (uint32_t id = 1; id <= client->queues.used; id++) {
        struct xs_queue *queue = xs_table_take(&client->queues, id);
        if (queue)
            xs_queue_drop(queue);
    }
    for (uint32_t id = 1; id <= client->vms.used; id++) {
        struct xs_vm *vm = xs_table_take(&client->vms, id);
        if (vm)
            xs_vm_unref(vm);
    }
    for (uint32_t id = 1; id <= client->buffers.used; id++) {
        struct xs_bo *bo = xs_table_take(&client->buffers, id);
        if (bo)
            xs_bo_unref(bo);
    }
    for (uint32_t id = 1; id <= client->syncobjs.used; id++) {
        struct xs_syncobj *syncobj = xs_table_take(&client->syncobjs, id);
        if (syncobj)
            xs_syncobj_drop(syncobj);
    }
    xs_fdinfo_close(&client->info);
    xs_table_free(&client->queues);
    xs_table_free(&client->vms);
    xs_table_free(&client->buffers);
    xs_table_free(&client->syncobjs);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

struct xs_client *xs_client_of(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS)
        return NULL;
    unsigned index = atomic_load_explicit(&client_by_fd[fd], memory_order_acquire);
    if (xs_likely(!index))
        return NULL;
    struct xs_client *client = atomic_load(&clients[index - 1]);
    if (client)
        atomic_fetch_add(&client->refs, 1);
    return client;
}

void xs_client_put(struct xs_client *client) {
    if (atomic_fetch_sub(&client->refs, 1) != 1)
        return;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct xs_client *expected = client;
        atomic_compare_exchange_strong(&clients[i], &expected, NULL);
    }
    drop_client(client);
}

static void forget_fd(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !client_by_fd[fd])
        return;
    unsigned index = atomic_exchange(&client_by_fd[fd], 0);
    struct xs_client *client = index ? atomic_load(&clients[index - 1]) : NULL;
    if (client)
        xs_client_put(client);
}

static void follow_fd(int from, int to) {
    struct xs_client *client = to >= 0 && to < DESCRIPTORS ? xs_client_of(from) : NULL;
    if (client) /* the borrowed reference becomes the new descriptor's own */
        client_by_fd[to] = client_by_fd[from];
}

/*
 * A forked child keeps the mappings but not the cards: the threads that carry commands out are the
 * parent's. What it inherited is forgotten, not given back.
 */
static void forked(void) {
    for (unsigned i = 0; i < CLIENTS; i++) {
        static struct xs_client *forgotten;
        struct xs_client *client = atomic_exchange(&clients[i], NULL);
        if (!client)
            continue;
        client->next_forgotten = forgotten;
        forgotten = client;
        for (uint32_t id = 1; id <= client->buffers.used; id++) {
            struct xs_bo *bo = xs_table_get(&client->buffers, id);
            if (bo && bo->fd >= 0)
                syscall(SYS_close, bo->fd);
        }
        for (int fd = 0; fd < DESCRIPTORS; fd++) {
            if (client_by_fd[fd] == i + 1)
                client_by_fd[fd] = 0;
        }
    }
    xs_blit_forked();
    xs_machine_forked();
}

static void start(void) {
    struct rlimit limit;
    xs_config_load();
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    pthread_atfork(NULL, NULL, forked);
}

__attribute__((destructor)) static void leave(void) {
    xs_machine_leave();
}

static int fail(int error) {
    errno = error;
    return -1;
}

/* -1: not a path of ours; XS_CARDS: one that does not exist. */
static int card_of_path(const char *path) {
    if (!path || strncmp(path, "/dev/dri/", 9))
        return -1;
    pthread_once(&started, start);
    unsigned number;
    int end = 0;
    if (sscanf(path + 9, "renderD%u%n", &number, &end) == 1 && !path[9 + end] && number >= XS_FIRST_RENDER &&
        number < XS_FIRST_RENDER + xs_config.cards)
        return (int)(number - XS_FIRST_RENDER);
    return XS_CARDS;
}

static int open_card(unsigned card, int flags) {
    if (card >= xs_config.cards)
        return fail(ENOENT);
    xs_machine_open();
    struct xs_client *client = calloc(1, sizeof(*client));
    if (!client)
        return fail(ENOMEM);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | (flags & O_CLOEXEC));
    if (fd < 0 || fd >= DESCRIPTORS) {
        free(client);
        return fail(EMFILE);
    }
    client->card = card;
    client->losses = xs_losses(card);
    client->id = xs_machine_client_id();
    atomic_init(&client->refs, 1);
    pthread_mutex_init(&client->lock, NULL);
    xs_fdinfo_open(&client->info, fd, card, client->id);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct xs_client *expected = NULL;
        if (atomic_compare_exchange_strong(&clients[i], &expected, client)) {
            client_by_fd[fd] = (uint8_t)(i + 1);
            return fd;
        }
    }
    syscall(SYS_close, fd);
    drop_client(client);
    return fail(EMFILE);
}

static int open_at(int dir, const char *path, int flags, mode_t mode) {
    int card = card_of_path(path);
    if (xs_unlikely(card >= 0))
        return open_card((unsigned)card, flags);
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static mode_t mode_of(int flags, va_list args) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

#define WITH_MODE(call)                                                                                                \
    va_list args;                                                                                                      \
    va_start(args, flags);                                                                                             \
    mode_t mode = mode_of(flags, args);                                                                                \
    va_end(args);                                                                                                      \
    return call

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);

XS_PUBLIC int open(const char *path, int flags, ...) {
    WITH_MODE(open_at(AT_FDCWD, path, flags, mode));
}

XS_PUBLIC int open64(const char *path, int flags, ...) {
    WITH_MODE(open_at(AT_FDCWD, path, flags, mode));
}

XS_PUBLIC int openat(int dir, const char *path, int flags, ...) {
    WITH_MODE(open_at(dir, path, flags, mode));
}

XS_PUBLIC int openat64(int dir, const char *path, int flags, ...) {
    WITH_MODE(open_at(dir, path, flags, mode));
}

XS_PUBLIC int __open_2(const char *path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}

XS_PUBLIC int __open64_2(const char *path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}

XS_PUBLIC int close(int fd) {
    forget_fd(fd);
    return (int)syscall(SYS_close, fd);
}

XS_PUBLIC int dup(int fd) {
    int copy = (int)syscall(SYS_dup, fd);
    follow_fd(fd, copy);
    return copy;
}

XS_PUBLIC int dup2(int fd, int to) {
    if (fd != to)
        forget_fd(to);
    int copy = (int)syscall(SYS_dup2, fd, to);
    if (fd != to)
        follow_fd(fd, copy);
    return copy;
}

XS_PUBLIC int dup3(int fd, int to, int flags) {
    forget_fd(to);
    int copy = (int)syscall(SYS_dup3, fd, to, flags);
    follow_fd(fd, copy);
    return copy;
}

static int control(int fd, int command, void *arg) {
    int result = (int)syscall(SYS_fcntl, fd, command, arg);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        follow_fd(fd, result);
    return result;
}

#define ONE_POINTER(last)                                                                                              \
    va_list args;                                                                                                      \
    va_start(args, last);                                                                                              \
    void *arg = va_arg(args, void *);                                                                                  \
    va_end(args)

XS_PUBLIC int fcntl(int fd, int command, ...) {
    ONE_POINTER(command);
    return control(fd, command, arg);
}

int fcntl64(int fd, int command, ...);
XS_PUBLIC int fcntl64(int fd, int command, ...) {
    ONE_POINTER(command);
    return control(fd, command, arg);
}

XS_PUBLIC int ioctl(int fd, unsigned long request, ...) {
    ONE_POINTER(request);
    struct xs_client *client = xs_client_of(fd);
    if (!client)
        return (int)syscall(SYS_ioctl, fd, request, arg);
    int result = xs_ioctl(client, request, arg);
    xs_client_put(client);
    return result < 0 ? fail(-result) : result;
}

static void *map(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
    struct xs_client *client = flags & MAP_ANONYMOUS ? NULL : xs_client_of(fd);
    if (!client)
        return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
    void *result = xs_gem_mmap(client, addr, length, prot, flags, offset);
    xs_client_put(client);
    return result;
}

XS_PUBLIC void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return map(addr, length, prot, flags, fd, offset);
}

XS_PUBLIC void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return map(addr, length, prot, flags, fd, offset);
}

/* The driver then shares memory by taking descriptors out of the other process, without a socket. */
XS_PUBLIC int prctl(int option, ...) {
    va_list args;
    unsigned long a[4];
    va_start(args, option);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(args, unsigned long);
    va_end(args);
    int result = (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
    return option == PR_SET_PTRACER ? 0 : result;
}

/* Which kernel it is: as /proc/sys/kernel/osrelease of $ZEROUTE_ROOT. */
XS_PUBLIC int uname(struct utsname *out) {
    pthread_once(&started, start);
    int result = (int)syscall(SYS_uname, out);
    if (!result)
        snprintf(out->release, sizeof(out->release), "%u.%u.0-standin", xs_config.kernel[0], xs_config.kernel[1]);
    return result;
}

/* --- where the card sits on the bus: fstat of the descriptor, then a link of sysfs ------------ */

static int describe(int fd, struct stat *out) {
    int result = (int)syscall(SYS_fstat, fd, out);
    struct xs_client *client = result ? NULL : xs_client_of(fd);
    if (client) {
        out->st_mode = S_IFCHR | 0660;
        out->st_rdev = makedev(DRM_MAJOR, XS_FIRST_RENDER + client->card);
        xs_client_put(client);
    }
    return result;
}

int __fxstat(int version, int fd, struct stat *out);
int __fxstat64(int version, int fd, struct stat64 *out);

XS_PUBLIC int fstat(int fd, struct stat *out) {
    return describe(fd, out);
}

XS_PUBLIC int fstat64(int fd, struct stat64 *out) {
    return describe(fd, (struct stat *)out);
}

XS_PUBLIC int __fxstat(int version, int fd, struct stat *out) {
    (void)version;
    return describe(fd, out);
}

XS_PUBLIC int __fxstat64(int version, int fd, struct stat64 *out) {
    (void)version;
    return describe(fd, (struct stat *)out);
}

static int card_of_sysfs(const char *path) {
    unsigned minor_number;
    int end = 0;
    if (!path || strncmp(path, "/sys/dev/char/226:", 18))
        return -1;
    if (sscanf(path + 18, "%u%n", &minor_number, &end) != 1 || path[18 + end] || minor_number < XS_FIRST_RENDER ||
        minor_number >= XS_FIRST_RENDER + xs_config.cards)
        return -1;
    return (int)(minor_number - XS_FIRST_RENDER);
}

XS_PUBLIC int access(const char *path, int mode) {
    if (xs_unlikely(card_of_sysfs(path) >= 0))
        return 0;
    return (int)syscall(SYS_access, path, mode);
}

XS_PUBLIC ssize_t readlink(const char *path, char *out, size_t size) {
    int card = card_of_sysfs(path);
    if (xs_likely(card < 0))
        return syscall(SYS_readlink, path, out, size);
    char pci[16], link[128];
    xs_pci_address((unsigned)card, pci);
    size_t length = (size_t)snprintf(link, sizeof(link),
                                     "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/"
                                     "0000:02:%02x.0/%s/drm/renderD%d",
                                     1 + card, pci, XS_FIRST_RENDER + card);
    if (length > size)
        length = size;
    memcpy(out, link, length);
    return (ssize_t)length;
}

/* A real card of this machine is not listed: the driver then tries renderD128 and up. */
XS_PUBLIC DIR *opendir(const char *path) {
    if (!strncmp(path, "/dev/dri", 8)) {
        errno = ENOENT;
        return NULL;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}
