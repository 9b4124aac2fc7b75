/*
 * A Level Zero loader of four functions without a C library, for a process on an old one. Blocks are
 * places in an array; nothing reads or writes them.
 */
#include <stddef.h>
#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC uint32_t zeInit(uint32_t flags);
PUBLIC uint32_t zeMemAllocDevice(void *context, const void *desc, size_t size, size_t alignment,
                                 void *device, void **p);
PUBLIC uint32_t zeMemFree(void *context, void *p);
PUBLIC uint32_t zeMemGetAllocProperties(void *context, const void *p, void *properties, void **device);

static char blocks[16][4096];
static unsigned used;

uint32_t zeInit(uint32_t flags)
{
    (void)flags;
    return 0;
}

uint32_t zeMemAllocDevice(void *context, const void *desc, size_t size, size_t alignment, void *device,
                          void **p)
{
    (void)context, (void)desc, (void)size, (void)alignment, (void)device;
    *p = blocks[used++ % 16];
    return 0;
}

uint32_t zeMemFree(void *context, void *p)
{
    (void)context, (void)p;
    return 0;
}

uint32_t zeMemGetAllocProperties(void *context, const void *p, void *properties, void **device)
{
    (void)context, (void)p, (void)properties, (void)device;
    return 0;
}
