/*
 * Sync objects: a number in a page of a memfd, so that a descriptor of one can travel. A plain
 * object is a timeline whose point 1 is "signalled".
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct xs_syncobj {
    int fd;
    _Atomic uint64_t *point;
};

static struct xs_syncobj *from_fd(int fd) {
    struct xs_syncobj *s = calloc(1, sizeof(*s));
    void *page = mmap(NULL, XS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!s || page == MAP_FAILED) {
        free(s);
        close(fd);
        return NULL;
    }
    s->fd = fd;
    s->point = page;
    return s;
}

void xs_syncobj_drop(struct xs_syncobj *s) {
    munmap(s->point, XS_PAGE);
    close(s->fd);
    free(s);
}

/* The object may go away while a queue looks at it: everything happens under the client's lock. */
static struct xs_syncobj *get(struct xs_client *client, uint32_t handle) {
    return xs_table_get(&client->syncobjs, handle);
}

int xs_syncobj_signal(struct xs_client *client, uint32_t handle, uint64_t point) {
    pthread_mutex_lock(&client->lock);
    struct xs_syncobj *s = get(client, handle);
    if (s)
        atomic_store(s->point, point);
    pthread_mutex_unlock(&client->lock);
    xs_event_bump(XS_ANY_ADDRESS);
    return s ? 0 : -ENOENT;
}

bool xs_syncobj_done(struct xs_client *client, uint32_t handle, uint64_t point) {
    pthread_mutex_lock(&client->lock);
    struct xs_syncobj *s = get(client, handle);
    bool done = !s || atomic_load(s->point) >= point;
    pthread_mutex_unlock(&client->lock);
    return done;
}

static int add(struct xs_client *client, int fd, uint32_t *handle) {
    struct xs_syncobj *s = fd < 0 ? NULL : from_fd(fd);
    if (!s)
        return -ENOMEM;
    pthread_mutex_lock(&client->lock);
    *handle = xs_table_add(&client->syncobjs, s);
    pthread_mutex_unlock(&client->lock);
    return 0;
}

static int create(struct xs_client *client, struct xe_drm_syncobj_create *arg) {
    int fd = memfd_create("xe-standin:syncobj", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, XS_PAGE)) {
        close(fd);
        fd = -1;
    }
    int error = add(client, fd, &arg->handle);
    if (!error && arg->flags & XE_SYNCOBJ_CREATE_SIGNALED)
        xs_syncobj_signal(client, arg->handle, 1);
    return error;
}

static int destroy(struct xs_client *client, uint32_t handle) {
    pthread_mutex_lock(&client->lock);
    struct xs_syncobj *s = xs_table_take(&client->syncobjs, handle);
    pthread_mutex_unlock(&client->lock);
    if (!s)
        return -EINVAL;
    xs_syncobj_drop(s);
    return 0;
}

static int to_fd(struct xs_client *client, struct xe_drm_syncobj_handle *arg) {
    pthread_mutex_lock(&client->lock);
    struct xs_syncobj *s = get(client, arg->handle);
    arg->fd = s ? fcntl(s->fd, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&client->lock);
    return !s ? -EINVAL : arg->fd < 0 ? -EMFILE : 0;
}

/* timeout is absolute, on CLOCK_MONOTONIC. */
static int wait_all(struct xs_client *client, const uint32_t *handles, const uint64_t *points, uint32_t count,
                    int64_t timeout, bool all, uint32_t *first) {
    for (;;) {
        uint32_t seen = xs_event_seen(XS_ANY_ADDRESS), done = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (xs_syncobj_done(client, handles[i], points ? points[i] : 1) && !done++)
                *first = i;
        }
        if (done == count || (!all && done))
            return 0;
        int64_t left = timeout - (int64_t)xs_now();
        if (left <= 0)
            return -ETIME;
        xs_event_wait(XS_ANY_ADDRESS, seen, left < 1000000 ? (uint64_t)left : 1000000);
    }
}

static int set_all(struct xs_client *client, uint64_t handles, uint64_t points, uint32_t count, uint64_t value) {
    const uint32_t *list = (void *)(uintptr_t)handles;
    const uint64_t *at = (void *)(uintptr_t)points;
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++)
        error = xs_syncobj_signal(client, list[i], at ? at[i] : value);
    return error;
}

static int query(struct xs_client *client, struct xe_drm_syncobj_timeline_array *arg) {
    const uint32_t *handles = (void *)(uintptr_t)arg->handles;
    uint64_t *points = (void *)(uintptr_t)arg->points;
    int error = 0;
    pthread_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < arg->count_handles && !error; i++) {
        struct xs_syncobj *s = get(client, handles[i]);
        if (s)
            points[i] = atomic_load(s->point);
        else
            error = -ENOENT;
    }
    pthread_mutex_unlock(&client->lock);
    return error;
}

int xs_syncobj_ioctl(struct xs_client *client, unsigned number, void *arg) {
    xs_count(XS_C_syncobj, 1);
    switch (number) {
    case XE_NR_SYNCOBJ_CREATE:
        return create(client, arg);
    case XE_NR_SYNCOBJ_DESTROY:
        return destroy(client, ((struct xe_drm_syncobj_destroy *)arg)->handle);
    case XE_NR_SYNCOBJ_HANDLE_TO_FD:
        return to_fd(client, arg);
    case XE_NR_SYNCOBJ_FD_TO_HANDLE: {
        struct xe_drm_syncobj_handle *handle = arg;
        return add(client, fcntl(handle->fd, F_DUPFD_CLOEXEC, 0), &handle->handle);
    }
    case XE_NR_SYNCOBJ_WAIT: {
        struct xe_drm_syncobj_wait *wait = arg;
        return wait_all(client, (void *)(uintptr_t)wait->handles, NULL, wait->count_handles, wait->timeout_nsec,
                        wait->flags & XE_SYNCOBJ_WAIT_ALL, &wait->first_signaled);
    }
    case XE_NR_SYNCOBJ_TIMELINE_WAIT: {
        struct xe_drm_syncobj_timeline_wait *wait = arg;
        return wait_all(client, (void *)(uintptr_t)wait->handles, (void *)(uintptr_t)wait->points, wait->count_handles,
                        wait->timeout_nsec, wait->flags & XE_SYNCOBJ_WAIT_ALL, &wait->first_signaled);
    }
    case XE_NR_SYNCOBJ_RESET:
    case XE_NR_SYNCOBJ_SIGNAL: {
        struct xe_drm_syncobj_array *array = arg;
        return set_all(client, array->handles, 0, array->count_handles, number == XE_NR_SYNCOBJ_SIGNAL);
    }
    case XE_NR_SYNCOBJ_TIMELINE_SIGNAL: {
        struct xe_drm_syncobj_timeline_array *array = arg;
        return set_all(client, array->handles, array->points, array->count_handles, 0);
    }
    case XE_NR_SYNCOBJ_QUERY:
        return query(client, arg);
    default:
        return -EINVAL;
    }
}
