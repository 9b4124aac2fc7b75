/*
 * Arguments of kernels that are pointers into blocks. The driver looks the allocation up when an
 * argument is set, and keeps a pointer to it: after a pause that is another one, so the argument is
 * set once more.
 */
#include "pause/inside.h"

#include <string.h>

enum { BUCKETS = 1 << 10, ARGUMENTS_MOST = 1 << 18 };

struct argument {
    struct argument *next;
    const void *kernel; /* NULL: free for reuse */
    uintptr_t value;
    uint32_t index;
    zr_function below;
};

static struct zr_lock arguments_lock;
static struct argument *buckets[BUCKETS];
static struct argument *spare;
static unsigned count;

static struct argument **arguments_of(const void *kernel) {
    return &buckets[((uintptr_t)kernel >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}
_Static_assert(BUCKETS == 1 << (64 - 54), "the bits of the hash");

/* The caller holds the lock. */
static struct argument *argument_new(const void *kernel, uint32_t index) {
    struct argument **bucket = arguments_of(kernel), *a = spare;

    if (a) {
        spare = a->next;
    } else if (count < ARGUMENTS_MOST) {
        a = zr_piece(sizeof *a);
        count++;
    }
    if (!a)
        return NULL;
    *a = (struct argument){.next = *bucket, .kernel = kernel, .index = index};
    *bucket = a;
    return a;
}

/* An argument that is no pointer into a block is noted with 0, where a pointer was before. */
void zr_pause_argument(const void *kernel, uint32_t index, const void *value, zr_function below) {
    bool ours = zr_pause_range(value, NULL, NULL);
    struct argument *a;

    zr_lock(&arguments_lock);
    a = *arguments_of(kernel);
    while (a && (a->kernel != kernel || a->index != index))
        a = a->next;
    if (!a && ours)
        a = argument_new(kernel, index);
    if (a) {
        a->value = ours ? (uintptr_t)value : 0;
        a->below = below;
    }
    zr_unlock(&arguments_lock);
    if (!a && ours)
        zr_pause_never("there was no memory for the books of kernels");
}

void zr_pause_kernel_gone(const void *kernel) {
    struct argument **at = arguments_of(kernel), *a;

    zr_lock(&arguments_lock);
    while ((a = *at)) {
        if (a->kernel != kernel) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = spare;
        spare = a;
    }
    zr_unlock(&arguments_lock);
}

/*
 * The gate is closed, so no argument is set meanwhile. A kernel that is destroyed at this moment is
 * the one thing that may happen, and destroying waits at the gate, too.
 */
void zr_kernels_set_again(void) {
    typedef ze_result_t (*set_argument)(const void *, uint32_t, size_t, const void *);

    for (unsigned i = 0; i < BUCKETS; i++)
        for (const struct argument *a = buckets[i]; a; a = a->next)
            if (a->value && zr_pause_range((const void *)a->value, NULL, NULL))
                (void)((set_argument)a->below)(a->kernel, a->index, sizeof a->value, &a->value);
}

void zr_kernels_fork_child(void) {
    memset(buckets, 0, sizeof buckets);
    spare = NULL;
    count = 0;
}
