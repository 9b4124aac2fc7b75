/*
 * Buffers. A buffer is charged to its card when it is created; the memfd behind it is made when
 * somebody first looks at the bytes (mmap, export, a command), so creating and closing one is a few
 * hundred nanoseconds and no system call.
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OFFSET_SHIFT 40 /* the handle, in the offset that mmap is called with */
#define BARRIER_OFFSET XS_PAGE
/* The executor's own views live here, away from what the driver reserves. */
#define ZONE_START 0x400000000000ull
#define ZONE_END 0x500000000000ull

static _Atomic uint64_t zone_next = ZONE_START;

struct xs_bo *xs_bo_new(struct xs_client *client, int fd, uint64_t size) {
    struct xs_bo *bo = calloc(1, sizeof(*bo));
    if (!bo)
        return NULL;
    atomic_init(&bo->refs, 1);
    bo->fd = fd;
    bo->mirror_fd = -1;
    bo->size = size;
    bo->client = client;
    pthread_mutex_init(&bo->lock, NULL);
    return bo;
}

static int give_handle(struct xs_client *client, struct xs_bo *bo) {
    pthread_mutex_lock(&client->lock);
    bo->handle = xs_table_add(&client->buffers, bo);
    pthread_mutex_unlock(&client->lock);
    return bo->handle ? 0 : -ENOMEM;
}

int xs_gem_create(struct xs_client *client, struct xe_gem_create *create) {
    const uint32_t known = XE_GEM_DEFER_BACKING | XE_GEM_SCANOUT | XE_GEM_NEEDS_VISIBLE_VRAM | XE_GEM_NO_COMPRESSION;
    bool vram = create->placement & 1u << 1;
    uint64_t page = vram ? XS_VRAM_PAGE : XS_PAGE;
    if (!create->size || create->size % page || create->flags & ~known || !create->placement ||
        create->placement & ~3u || create->cpu_caching < 1 || create->cpu_caching > 2)
        return -EINVAL;
    bool spilled = false;
    if (vram && !xs_vram_take(client->card, create->size)) {
        spilled = xs_config.spill;
        if (!spilled && !(create->placement & 1u)) {
            xs_count(XS_C_gem_create_nospace, 1);
            return -ENOSPC;
        }
        vram = false;
    }
    struct xs_bo *bo = xs_bo_new(client, -1, create->size);
    if (!bo) {
        if (vram)
            xs_vram_give(client->card, create->size);
        return -ENOMEM;
    }
    bo->flags = create->flags;
    bo->owner = (uint8_t)client->card;
    bo->vram = vram;
    bo->kind = vram ? XS_VRAM : spilled ? XS_GTT : XS_SYSTEM;
    bo->on_host = !vram;
    if (bo->on_host)
        xs_host_pages((int64_t)bo->size);
    bo->spilled = spilled;
    if (spilled) {
        xs_count(XS_C_gem_create_spilled, 1);
        xs_gtt_take(client->card, bo->size);
    }
    xs_fdinfo_add(&client->info, bo->kind, (int64_t)bo->size);
    int error = give_handle(client, bo);
    if (error) {
        xs_bo_unref(bo);
        return error;
    }
    create->handle = bo->handle;
    xs_count(XS_C_gem_create, 1);
    xs_count(XS_C_gem_create_bytes, create->size);
    if (vram) {
        xs_count(XS_C_gem_create_vram, 1);
        xs_count(XS_C_gem_create_vram_bytes, create->size);
    }
    if (create->flags & XE_GEM_DEFER_BACKING)
        xs_count(XS_C_gem_create_deferred, 1);
    return 0;
}

struct xs_bo *xs_bo_get(struct xs_client *client, uint32_t handle) {
    pthread_mutex_lock(&client->lock);
    struct xs_bo *bo = xs_table_get(&client->buffers, handle);
    if (bo)
        xs_bo_ref(bo);
    pthread_mutex_unlock(&client->lock);
    return bo;
}

int xs_gem_close(struct xs_client *client, uint32_t handle) {
    pthread_mutex_lock(&client->lock);
    struct xs_bo *bo = xs_table_take(&client->buffers, handle);
    if (bo)
        bo->handle = 0;
    pthread_mutex_unlock(&client->lock);
    if (!bo)
        return -EINVAL;
    xs_count(XS_C_gem_close, 1);
    xs_bo_unref(bo);
    return 0;
}

void xs_bo_ref(struct xs_bo *bo) {
    atomic_fetch_add_explicit(&bo->refs, 1, memory_order_relaxed);
}

void xs_bo_unref(struct xs_bo *bo) {
    if (atomic_fetch_sub(&bo->refs, 1) != 1)
        return;
    if (bo->shared) {
        xs_prime_forget(bo);
        xs_share_release(bo->inode);
    } else if (bo->vram) {
        xs_vram_give(bo->owner, bo->size);
    }
    if (bo->spilled)
        xs_gtt_give(bo->owner, bo->size);
    if (bo->vram && bo->kind == XS_VRAM)
        xs_count(XS_C_gem_free_vram_bytes, bo->size);
    if (bo->on_host)
        xs_host_pages(-(int64_t)bo->size);
    xs_fdinfo_add(&bo->client->info, bo->kind, -(int64_t)bo->size);
    if (bo->map)
        munmap(bo->map, bo->size);
    if (bo->fd >= 0)
        close(bo->fd);
    if (bo->mirror_fd >= 0)
        close(bo->mirror_fd);
    pthread_mutex_destroy(&bo->lock);
    free(bo);
}

int xs_bo_fd(struct xs_bo *bo) {
    pthread_mutex_lock(&bo->lock);
    if (bo->fd < 0) {
        int fd = xs_memfd_new(bo->owner, bo->vram, bo->flags);
        if (fd >= 0 && ftruncate(fd, (off_t)bo->size)) {
            close(fd);
            fd = -1;
        }
        bo->fd = fd;
    }
    int fd = bo->fd;
    pthread_mutex_unlock(&bo->lock);
    return fd;
}

static void *map_in_zone(int fd, uint64_t size) {
    uint64_t step = (size + (2u << 20) - 1) & ~(uint64_t)((2u << 20) - 1);
    for (int attempt = 0; attempt < 64; attempt++) {
        uint64_t at = atomic_fetch_add(&zone_next, step);
        if (at + size > ZONE_END) {
            atomic_store(&zone_next, ZONE_START);
            continue;
        }
        void *hint = (void *)(uintptr_t)at;
        void *map = mmap(hint, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
        if (map != MAP_FAILED)
            return map;
    }
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

void *xs_bo_map(struct xs_bo *bo) {
    void *map = atomic_load_explicit(&bo->map, memory_order_acquire);
    if (xs_likely(map))
        return map;
    int fd = xs_bo_fd(bo);
    if (fd < 0)
        return NULL;
    pthread_mutex_lock(&bo->lock);
    map = bo->map;
    if (!map) {
        map = map_in_zone(fd, bo->size);
        atomic_store_explicit(&bo->map, map, memory_order_release);
    }
    pthread_mutex_unlock(&bo->lock);
    return map;
}

int xs_gem_mmap_offset(struct xs_client *client, struct xe_gem_mmap_offset *arg) {
    if (arg->flags & XE_MMAP_OFFSET_PCI_BARRIER) {
        arg->offset = BARRIER_OFFSET;
        return 0;
    }
    struct xs_bo *bo = xs_bo_get(client, arg->handle);
    if (!bo)
        return -ENOENT;
    arg->offset = (uint64_t)arg->handle << OFFSET_SHIFT;
    xs_count(XS_C_gem_mmap_offset, 1);
    xs_bo_unref(bo);
    return 0;
}

static void *raw_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

void *xs_gem_mmap(struct xs_client *client, void *addr, size_t length, int prot, int flags, off_t offset) {
    if (offset == BARRIER_OFFSET)
        return raw_mmap(addr, length, prot, (flags & ~MAP_SHARED) | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t inside = (uint64_t)offset & ((1ull << OFFSET_SHIFT) - 1);
    struct xs_bo *bo = xs_bo_get(client, (uint32_t)((uint64_t)offset >> OFFSET_SHIFT));
    if (!bo || inside + length > ((bo->size + XS_PAGE - 1) & ~(uint64_t)(XS_PAGE - 1))) {
        if (bo)
            xs_bo_unref(bo);
        errno = EINVAL;
        return MAP_FAILED;
    }
    int fd = xs_bo_fd(bo);
    void *result = fd < 0 ? MAP_FAILED : raw_mmap(addr, length, prot, flags, fd, (off_t)inside);
    xs_bo_unref(bo);
    return result;
}
