/* IPC handles and file descriptors: one process's buffer, mapped by another. */
#include "simgpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int sim_open_fd_of(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

ze_result_t sim_import_fd(struct sim_context *context, struct sim_device *device, int fd,
                          size_t size, void **out)
{
    (void)context;
    (void)device;
    (void)fd;
    (void)size;
    (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
