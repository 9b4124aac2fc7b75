/*
 * dma-buf export and import. The descriptor handed out is a duplicate of the buffer's memfd; the
 * memfd's name says what the importing side must know, so it may arrive by any way: a socket,
 * pidfd_getfd, a fork, from a process of another machine.
 *
 * The host mirror: a buffer in VRAM with deferred backing that is exported costs
 * its size in host pages, once, for as long as it lives; every import on another card counts as GTT
 * there.
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "xe-standin:card"

int xs_memfd_new(unsigned card, bool vram, uint32_t flags) {
    char name[64];
    snprintf(name, sizeof(name), NAME "%u:%s:%x", card, vram ? "vram" : "system", flags);
    return memfd_create(name, MFD_CLOEXEC);
}

struct origin {
    unsigned card;
    bool vram;
    uint32_t flags;
    uint64_t inode, size;
};

static bool recognise(int fd, struct origin *out) {
    char path[64], link[128], kind[8];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, link, sizeof(link) - 1);
    if (length < 0 || fstat(fd, &st))
        return false;
    link[length] = 0;
    if (sscanf(link, "/memfd:" NAME "%u:%7[a-z]:%x", &out->card, kind, &out->flags) != 3 || out->card >= XS_CARDS)
        return false;
    out->vram = kind[0] == 'v';
    out->inode = st.st_ino;
    out->size = (uint64_t)st.st_size;
    return true;
}

static bool mirrored(bool vram, uint32_t flags) {
    return xs_config.mirror && vram && flags & XE_GEM_DEFER_BACKING;
}

/* Really takes the host pages (touch:on), where the exporting process holds them. */
static void touch_mirror(struct xs_bo *bo) {
    bo->mirror_fd = memfd_create("xe-standin:mirror", MFD_CLOEXEC);
    if (bo->mirror_fd >= 0 && posix_fallocate(bo->mirror_fd, 0, (off_t)bo->size))
        xs_say("touch: no %llu bytes of memory", (unsigned long long)bo->size);
}

/* Client's lock held. */
static void enlist(struct xs_bo *bo) {
    bo->shared = true;
    bo->next_shared = bo->client->shared;
    bo->client->shared = bo;
}

static int share(struct xs_client *client, struct xs_bo *bo, int fd) {
    struct stat st;
    if (fstat(fd, &st))
        return -EINVAL;
    pthread_mutex_lock(&client->lock);
    bool first = !bo->shared;
    if (first) {
        bo->inode = st.st_ino;
        enlist(bo);
    }
    pthread_mutex_unlock(&client->lock);
    if (first) {
        bool mirror = mirrored(bo->vram, bo->flags);
        xs_share_export(bo->inode, bo->owner, bo->size, bo->vram, mirror);
        if (mirror && xs_config.touch)
            touch_mirror(bo);
    }
    return 0;
}

int xs_prime_export(struct xs_client *client, struct xe_drm_prime *arg) {
    struct xs_bo *bo = xs_bo_get(client, arg->handle);
    if (!bo)
        return -ENOENT;
    int fd = xs_bo_fd(bo);
    int error = fd < 0 ? -ENOMEM : share(client, bo, fd);
    if (!error) {
        arg->fd = fcntl(fd, arg->flags & XE_PRIME_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
        if (arg->fd < 0)
            error = -EMFILE;
    }
    if (!error) {
        xs_count(XS_C_prime_export, 1);
        xs_count(XS_C_prime_export_bytes, bo->size);
    }
    xs_bo_unref(bo);
    return error;
}

static bool ref_if_alive(struct xs_bo *bo) {
    uint32_t refs = atomic_load(&bo->refs);
    while (refs && !atomic_compare_exchange_weak(&bo->refs, &refs, refs + 1))
        ;
    return refs;
}

/* Client's lock held. The same buffer on the same card keeps its handle. */
static struct xs_bo *already_here(struct xs_client *client, uint64_t inode) {
    for (struct xs_bo *bo = client->shared; bo; bo = bo->next_shared) {
        if (bo->inode != inode)
            continue;
        if (bo->handle)
            return bo;
        if (ref_if_alive(bo)) { /* its handle was closed, but it is still bound somewhere */
            bo->handle = xs_table_add(&client->buffers, bo);
            return bo;
        }
    }
    return NULL;
}

int xs_prime_import(struct xs_client *client, struct xe_drm_prime *arg) {
    struct origin origin;
    if (!recognise(arg->fd, &origin))
        return -EINVAL;
    pthread_mutex_lock(&client->lock);
    struct xs_bo *bo = already_here(client, origin.inode);
    if (bo) {
        arg->handle = bo->handle;
    } else {
        int fd = fcntl(arg->fd, F_DUPFD_CLOEXEC, 0);
        bo = fd < 0 ? NULL : xs_bo_new(client, fd, origin.size);
        if (!bo) {
            pthread_mutex_unlock(&client->lock);
            if (fd >= 0)
                close(fd);
            return fd < 0 ? -EMFILE : -ENOMEM;
        }
        bo->flags = origin.flags;
        bo->owner = (uint8_t)origin.card;
        bo->vram = origin.vram;
        bo->inode = origin.inode;
        bool at_home = origin.card == client->card;
        bo->kind = !at_home ? XS_GTT : origin.vram ? XS_VRAM : XS_SYSTEM;
        enlist(bo);
        bo->handle = xs_table_add(&client->buffers, bo);
        arg->handle = bo->handle;
        xs_share_import(bo->inode, bo->owner, bo->size, bo->vram, mirrored(bo->vram, bo->flags));
        xs_fdinfo_add(&client->info, bo->kind, (int64_t)bo->size);
    }
    pthread_mutex_unlock(&client->lock);
    xs_count(XS_C_prime_import, 1);
    xs_count(XS_C_prime_import_bytes, origin.size);
    return 0;
}

void xs_prime_forget(struct xs_bo *bo) {
    struct xs_client *client = bo->client;
    pthread_mutex_lock(&client->lock);
    struct xs_bo **link = &client->shared;
    while (*link && *link != bo)
        link = &(*link)->next_shared;
    if (*link)
        *link = bo->next_shared;
    pthread_mutex_unlock(&client->lock);
}
