/* Which call it is: by number alone, as layouts grew over kernel versions only at the end. */
#include "standin.h"

#include <errno.h>
#include <stdio.h>

static int get_cap(struct xe_drm_get_cap *cap) {
    enum { DUMB_BUFFER = 1, PRIME = 5, SYNCOBJ = 0x13, SYNCOBJ_TIMELINE = 0x14 };
    switch (cap->capability) {
    case PRIME:
        cap->value = 3; /* import and export */
        return 0;
    case SYNCOBJ:
    case SYNCOBJ_TIMELINE:
        cap->value = 1;
        return 0;
    default:
        cap->value = 0;
        return 0;
    }
}

static int dispatch(struct xs_client *client, unsigned number, void *arg) {
    switch (number) {
    case XE_NR_VERSION:
        return xs_version(client, arg);
    case XE_NR_GET_CAP:
        return get_cap(arg);
    case XE_NR_GEM_CLOSE:
        return xs_gem_close(client, ((struct xe_drm_gem_close *)arg)->handle);
    case XE_NR_PRIME_HANDLE_TO_FD:
        return xs_prime_export(client, arg);
    case XE_NR_PRIME_FD_TO_HANDLE:
        return xs_prime_import(client, arg);
    case XE_NR_DEVICE_QUERY:
        return xs_device_query(client, arg);
    case XE_NR_GEM_CREATE:
        return xs_gem_create(client, arg);
    case XE_NR_GEM_MMAP_OFFSET:
        return xs_gem_mmap_offset(client, arg);
    case XE_NR_VM_CREATE:
        return xs_vm_create(client, arg);
    case XE_NR_VM_DESTROY:
        return xs_vm_destroy(client, ((struct xe_vm_destroy *)arg)->vm_id);
    case XE_NR_VM_BIND:
        return xs_vm_bind(client, arg);
    case XE_NR_EXEC_QUEUE_CREATE:
        return xs_queue_create(client, arg);
    case XE_NR_EXEC_QUEUE_DESTROY:
        return xs_queue_destroy(client, ((struct xe_exec_queue_destroy *)arg)->exec_queue_id);
    case XE_NR_EXEC_QUEUE_GET_PROPERTY:
        return xs_queue_property(client, arg);
    case XE_NR_EXEC:
        return xs_queue_exec(client, arg);
    case XE_NR_WAIT_USER_FENCE:
        return xs_wait_user_fence(client, arg);
    case XE_NR_MADVISE:
        return 0;
    case XE_NR_OBSERVATION:
        return -EOPNOTSUPP;
    default:
        if (number >= XE_NR_SYNCOBJ_CREATE && number <= XE_NR_SYNCOBJ_TIMELINE_SIGNAL)
            return xs_syncobj_ioctl(client, number, arg);
        xs_count(XS_C_unknown_ioctls, 1);
        return -EINVAL;
    }
}

/* log:on: the call, and for buffers which one it was about. */
static void tell(const struct xs_client *client, unsigned number, const void *arg, int result) {
    char more[64] = "";
    switch (number) {
    case XE_NR_GEM_CLOSE:
        snprintf(more, sizeof(more), ", buffer %u", ((const struct xe_drm_gem_close *)arg)->handle);
        break;
    case XE_NR_GEM_CREATE: {
        const struct xe_gem_create *create = arg;
        snprintf(more, sizeof(more), ", buffer %u of 0x%llx bytes", create->handle, (unsigned long long)create->size);
        break;
    }
    case XE_NR_PRIME_HANDLE_TO_FD:
    case XE_NR_PRIME_FD_TO_HANDLE: {
        const struct xe_drm_prime *prime = arg;
        snprintf(more, sizeof(more), ", buffer %u, descriptor %d", prime->handle, prime->fd);
        break;
    }
    default:
        break;
    }
    xs_say("card %u ioctl 0x%02x -> %d%s", client->card, number, result, more);
}

int xs_ioctl(struct xs_client *client, unsigned long request, void *arg) {
    if (_IOC_TYPE(request) != 'd')
        return -ENOTTY;
    xs_count(XS_C_ioctls, 1);
    int result = dispatch(client, (unsigned)_IOC_NR(request), arg);
    if (xs_unlikely(xs_config.log))
        tell(client, (unsigned)_IOC_NR(request), arg, result);
    return result;
}
