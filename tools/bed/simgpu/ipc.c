/* IPC handles and file descriptors: one process's buffer, mapped by another. */
#include "simgpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The descriptor first, as programs expect that send it over a socket and put their own in its place. */
struct handle {
    uint64_t fd;
    uint64_t offset; /* of the block in the buffer */
    int32_t pid;
    uint32_t card;
    uint64_t inode; /* of the buffer: a descriptor that was closed and used again is not it */
    uint64_t size;  /* of the block */
};
_Static_assert(sizeof(struct handle) <= ZE_MAX_IPC_HANDLE_SIZE, "the handle's size is given");

int sim_open_fd_of(int pid, int fd) {
    char path[64];
    if (pid == getpid())
        return fcntl(fd, F_DUPFD_CLOEXEC, 3);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static uint64_t inode_of(int fd, size_t *size) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return 0;
    *size = (size_t)status.st_size;
    return status.st_ino;
}

ze_result_t sim_zeMemGetIpcHandle(ze_context_handle_t context, const void *p, ze_ipc_mem_handle_t *out) {
    struct sim_block block;
    size_t ignored;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    bool found = sim_find(p, &block) && block.backing->fd >= 0;
    if (found) {
        struct sim_backing *backing = block.backing;
        struct handle handle = {.fd = (uint64_t)backing->fd,
                                .offset = block.offset,
                                .pid = getpid(),
                                .card = backing->device ? backing->device->card : 0,
                                .inode = inode_of(backing->fd, &ignored),
                                .size = block.size};
        sim_export(backing, -1);
        memset(out, 0, sizeof(*out));
        memcpy(out, &handle, sizeof(handle));
    }
    pthread_mutex_unlock(&sim.memory);
    return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeMemGetIpcHandleWithProperties(ze_context_handle_t context, const void *p, void *extensions,
                                                ze_ipc_mem_handle_t *out) {
    (void)extensions;
    return sim_zeMemGetIpcHandle(context, p, out);
}

/* The descriptor belongs to the buffer, so there is nothing to give back; extra puts succeed. */
ze_result_t sim_zeMemPutIpcHandle(ze_context_handle_t context, ze_ipc_mem_handle_t handle) {
    (void)handle;
    return context ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

/* Takes the descriptor over. */
static ze_result_t map_import(struct sim_context *context, struct sim_device *device, int fd, unsigned owner,
                              size_t offset, size_t size, void **out) {
    struct sim_backing *backing;
    size_t whole = 0;
    inode_of(fd, &whole);
    if (offset > whole || size > whole - offset) {
        close(fd);
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&sim.memory);
    ze_result_t result = sim_backing_new(SIM_IMPORTED, context, device, whole, 0, fd, &backing);
    if (result == ZE_RESULT_SUCCESS) {
        backing->first = backing->base + offset;
        backing->asked = size;
        backing->exported = true;
        if (owner == device->card) {
            backing->shares_card = true;
            sim_machine_import(device->card, true, (int64_t)backing->size);
        } else {
            backing->importers = 1u << device->card;
            sim_machine_import(device->card, false, (int64_t)backing->size);
        }
        *out = (void *)backing->first;
    } else {
        close(fd);
    }
    pthread_mutex_unlock(&sim.memory);
    return result;
}

ze_result_t sim_import_fd(struct sim_context *context, struct sim_device *device, int fd, void **out) {
    size_t whole = 0;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    inode_of(copy, &whole);
    return map_import(context, device, copy, device->card, 0, whole, out);
}

/* A descriptor of our own with the right file behind it was sent to us; else take the sender's. */
static int open_handle(const struct handle *handle) {
    size_t ignored;
    int fd = -1;
    if (inode_of((int)handle->fd, &ignored) == handle->inode)
        fd = fcntl((int)handle->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        fd = sim_open_fd_of(handle->pid, (int)handle->fd);
    if (fd >= 0 && inode_of(fd, &ignored) != handle->inode) {
        close(fd);
        fd = -1;
    }
    return fd;
}

ze_result_t sim_zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t opaque,
                                   ze_ipc_memory_flags_t flags, void **out) {
    struct handle handle;
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (flags > 3)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    memcpy(&handle, &opaque, sizeof(handle));
    int fd = handle.inode ? open_handle(&handle) : -1;
    if (fd < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return map_import(sim_context(context), sim_device(device), fd, handle.card, handle.offset, handle.size, out);
}

/* As Intel's driver: by the way of zeMemFree, which takes what was not imported too, by any pointer into it. */
ze_result_t sim_zeMemCloseIpcHandle(ze_context_handle_t context, const void *p) {
    struct sim_block block;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    bool found = sim_find(p, &block) && block.backing->kind != SIM_PHYSICAL &&
                 (block.backing->kind != SIM_IMPORTED || block.base == (uintptr_t)p);
    if (found)
        sim_release(&block);
    pthread_mutex_unlock(&sim.memory);
    return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t context, ze_ipc_mem_handle_t opaque,
                                                       uint64_t *fd) {
    struct handle handle;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!fd)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    memcpy(&handle, &opaque, sizeof(handle));
    *fd = handle.fd;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t context, uint64_t fd,
                                                       ze_ipc_mem_handle_t *out) {
    size_t size = 0;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    struct handle handle = {.fd = fd, .pid = getpid()};
    handle.inode = inode_of((int)fd, &size);
    handle.size = size;
    if (!handle.inode)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    memset(out, 0, sizeof(*out));
    memcpy(out, &handle, sizeof(handle));
    return ZE_RESULT_SUCCESS;
}
