/*
 * Address spaces: which buffer, or which memory of the process, a GPU address means. The bindings
 * are a treap of disjoint ranges, so thousands of them cost a bind or a look-up about the same as
 * ten.
 */
#include "standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct binding {
    uint64_t start, end;
    uint64_t offset;  /* into the buffer, or the user pointer */
    struct xs_bo *bo; /* NULL: user pointer, or nothing (a null binding) */
    bool user;
    uint32_t priority;
    struct binding *left, *right;
};

struct xs_vm {
    _Atomic int refs;
    pthread_rwlock_t lock;
    struct binding *root;
    uint32_t seed;
    uint32_t flags;
};

/* --- the treap -------------------------------------------------------------------------------- */

static void split(struct binding *node, uint64_t start, struct binding **low, struct binding **high) {
    if (!node) {
        *low = *high = NULL;
    } else if (node->start < start) {
        *low = node;
        split(node->right, start, &node->right, high);
    } else {
        *high = node;
        split(node->left, start, low, &node->left);
    }
}

static struct binding *merge(struct binding *low, struct binding *high) {
    if (!low || !high)
        return low ? low : high;
    if (low->priority > high->priority) {
        low->right = merge(low->right, high);
        return low;
    }
    high->left = merge(low, high->left);
    return high;
}

static void insert(struct xs_vm *vm, struct binding *node) {
    struct binding *low, *high;
    vm->seed = vm->seed * 1664525u + 1013904223u;
    node->priority = vm->seed;
    node->left = node->right = NULL;
    split(vm->root, node->start, &low, &high);
    vm->root = merge(merge(low, node), high);
}

static struct binding *find(const struct xs_vm *vm, uint64_t address) {
    struct binding *node = vm->root, *best = NULL;
    while (node) {
        if (node->start <= address) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best && best->end > address ? best : NULL;
}

static struct binding *new_binding(uint64_t start, uint64_t end) {
    struct binding *node = calloc(1, sizeof(*node));
    if (node) {
        node->start = start;
        node->end = end;
    }
    return node;
}

static void part(struct xs_vm *vm, const struct binding *whole, uint64_t start, uint64_t end) {
    struct binding *node = start < end ? new_binding(start, end) : NULL;
    if (!node)
        return;
    node->bo = whole->bo;
    node->user = whole->user;
    node->offset = whole->offset + (start - whole->start);
    if (node->bo)
        xs_bo_ref(node->bo);
    insert(vm, node);
}

/* Frees a tree of taken-out bindings; what stands over the ends of the range goes back in. */
static void discard(struct xs_vm *vm, struct binding *node, uint64_t start, uint64_t end) {
    if (!node)
        return;
    discard(vm, node->left, start, end);
    discard(vm, node->right, start, end);
    part(vm, node, node->start, start < node->end ? start : node->end);
    part(vm, node, end > node->start ? end : node->start, node->end);
    if (node->bo)
        xs_bo_unref(node->bo);
    free(node);
}

/* Write lock held. */
static void clear(struct xs_vm *vm, uint64_t start, uint64_t end) {
    struct binding *first = find(vm, start);
    uint64_t from = first ? first->start : start;
    struct binding *low, *middle, *high;
    split(vm->root, from, &low, &middle);
    split(middle, end, &middle, &high);
    vm->root = merge(low, high);
    discard(vm, middle, start, end);
}

/* Write lock held. */
static void clear_buffer(struct xs_vm *vm, const struct xs_bo *bo) {
    for (;;) {
        struct binding *stack[64], *node = vm->root;
        int depth = 0;
        while (node && node->bo != bo) {
            if (node->right && depth < 64)
                stack[depth++] = node->right;
            node = node->left ? node->left : depth ? stack[--depth] : NULL;
        }
        if (!node)
            return;
        clear(vm, node->start, node->end);
    }
}

/* --- the calls -------------------------------------------------------------------------------- */

int xs_vm_create(struct xs_client *client, struct xe_vm_create *create) {
    if (create->flags & XE_VM_FAULT_MODE && !xs_config.faults)
        return -EINVAL;
    struct xs_vm *vm = calloc(1, sizeof(*vm));
    if (!vm)
        return -ENOMEM;
    atomic_init(&vm->refs, 1);
    pthread_rwlock_init(&vm->lock, NULL);
    vm->seed = 1;
    vm->flags = create->flags;
    pthread_mutex_lock(&client->lock);
    create->vm_id = xs_table_add(&client->vms, vm);
    pthread_mutex_unlock(&client->lock);
    xs_count(XS_C_vm_create, 1);
    return 0;
}

int xs_vm_destroy(struct xs_client *client, uint32_t id) {
    pthread_mutex_lock(&client->lock);
    struct xs_vm *vm = xs_table_take(&client->vms, id);
    pthread_mutex_unlock(&client->lock);
    if (!vm)
        return -ENOENT;
    xs_vm_unref(vm);
    xs_count(XS_C_vm_destroy, 1);
    return 0;
}

void xs_vm_ref(struct xs_vm *vm) {
    atomic_fetch_add(&vm->refs, 1);
}

void xs_vm_unref(struct xs_vm *vm) {
    if (atomic_fetch_sub(&vm->refs, 1) != 1)
        return;
    clear(vm, 0, UINT64_MAX);
    pthread_rwlock_destroy(&vm->lock);
    free(vm);
}

struct xs_vm *xs_vm_get(struct xs_client *client, uint32_t id) {
    pthread_mutex_lock(&client->lock);
    struct xs_vm *vm = xs_table_get(&client->vms, id);
    if (vm)
        xs_vm_ref(vm);
    pthread_mutex_unlock(&client->lock);
    return vm;
}

static int map_range(struct xs_client *client, struct xs_vm *vm, const struct xe_bind_op *op) {
    struct binding *node = new_binding(op->addr, op->addr + op->range);
    if (!node)
        return -ENOMEM;
    node->offset = op->obj_offset;
    if (op->op == XE_BIND_MAP_USERPTR) {
        node->user = true;
    } else if (!(op->flags & XE_BIND_FLAG_NULL)) {
        node->bo = xs_bo_get(client, op->obj);
        if (!node->bo || op->obj_offset + op->range > node->bo->size) {
            int error = node->bo ? -EINVAL : -ENOENT;
            if (node->bo)
                xs_bo_unref(node->bo);
            free(node);
            return error;
        }
    }
    pthread_rwlock_wrlock(&vm->lock);
    clear(vm, node->start, node->end);
    insert(vm, node);
    pthread_rwlock_unlock(&vm->lock);
    xs_count(op->op == XE_BIND_MAP ? XS_C_vm_bind_map : XS_C_vm_bind_userptr, 1);
    xs_count(XS_C_vm_bind_map_bytes, op->range);
    return 0;
}

static int apply(struct xs_client *client, struct xs_vm *vm, const struct xe_bind_op *op) {
    if (xs_unlikely(xs_config.log))
        xs_say("card %u bind op %u: 0x%llx + 0x%llx, buffer %u at 0x%llx", client->card, op->op,
               (unsigned long long)op->addr, (unsigned long long)op->range, op->obj,
               (unsigned long long)op->obj_offset);
    if (op->op != XE_BIND_UNMAP_ALL && (!op->range || op->addr % XS_PAGE || op->range % XS_PAGE ||
                                        op->addr + op->range < op->addr || op->addr + op->range > XS_ADDRESS_MASK + 1))
        return -EINVAL;
    switch (op->op) {
    case XE_BIND_MAP:
    case XE_BIND_MAP_USERPTR:
        return map_range(client, vm, op);
    case XE_BIND_UNMAP:
        pthread_rwlock_wrlock(&vm->lock);
        clear(vm, op->addr, op->addr + op->range);
        pthread_rwlock_unlock(&vm->lock);
        xs_count(XS_C_vm_bind_unmap, 1);
        return 0;
    case XE_BIND_UNMAP_ALL: {
        struct xs_bo *bo = xs_bo_get(client, op->obj);
        if (!bo)
            return -ENOENT;
        pthread_rwlock_wrlock(&vm->lock);
        clear_buffer(vm, bo);
        pthread_rwlock_unlock(&vm->lock);
        xs_bo_unref(bo);
        xs_count(XS_C_vm_bind_unmap, 1);
        return 0;
    }
    case XE_BIND_PREFETCH:
        return 0;
    default:
        return -EINVAL;
    }
}

int xs_vm_bind(struct xs_client *client, struct xe_vm_bind *bind) {
    struct xs_vm *vm = xs_vm_get(client, bind->vm_id);
    if (!vm)
        return -ENOENT;
    const struct xe_bind_op *ops = bind->num_binds == 1 ? &bind->bind : (void *)(uintptr_t)bind->vector_of_binds;
    int error = 0;
    for (uint32_t i = 0; i < bind->num_binds && !error; i++)
        error = apply(client, vm, &ops[i]);
    xs_vm_unref(vm);
    return error ? error : xs_signal_syncs(client, bind->syncs, bind->num_syncs);
}

/* --- the executor's view ---------------------------------------------------------------------- */

static _Thread_local bool faulted;

void xs_vm_fault(uint64_t address, const char *what) {
    faulted = true;
    xs_count(XS_C_gpu_faults, 1);
    if (xs_config.log)
        xs_say("%s at 0x%llx", what, (unsigned long long)address);
}

/* With a scratch page reads are zeros and writes are lost, and that is all. */
bool xs_vm_faulted(const struct xs_vm *vm) {
    bool was = faulted;
    faulted = false;
    return was && !(vm->flags & XE_VM_SCRATCH_PAGE);
}

bool xs_vm_pin(struct xs_vm *vm, uint64_t address, struct xs_span *span) {
    address &= XS_ADDRESS_MASK;
    *span = (struct xs_span){0};
    pthread_rwlock_rdlock(&vm->lock);
    const struct binding *b = find(vm, address);
    if (b && (b->bo || b->user)) {
        span->length = b->end - address;
        span->bo = b->bo;
        span->user = b->user;
        uint64_t offset = b->offset + (address - b->start);
        if (b->bo)
            xs_bo_ref(b->bo);
        span->at = (uint8_t *)(uintptr_t)offset;
    }
    pthread_rwlock_unlock(&vm->lock);
    if (span->bo) {
        uint8_t *map = xs_bo_map(span->bo);
        if (!map) {
            xs_vm_unpin(span);
            return false;
        }
        span->at = map + (uintptr_t)span->at;
    }
    return span->at != NULL;
}

void xs_vm_unpin(struct xs_span *span) {
    if (span->bo)
        xs_bo_unref(span->bo);
    *span = (struct xs_span){0};
}

/* Words that both sides poll are moved whole. */
static void move(uint8_t *to, const uint8_t *from, size_t length) {
    if (length == 8 && !((uintptr_t)to % 8) && !((uintptr_t)from % 8))
        __atomic_store_n((uint64_t *)(void *)to,
                         __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    else if (length == 4 && !((uintptr_t)to % 4) && !((uintptr_t)from % 4))
        __atomic_store_n((uint32_t *)(void *)to,
                         __atomic_load_n((const uint32_t *)(const void *)from, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    else
        memcpy(to, from, length);
}

static bool transfer(struct xs_vm *vm, uint64_t address, uint8_t *mine, size_t length, bool write) {
    while (length) {
        struct xs_span span;
        if (!xs_vm_pin(vm, address, &span)) {
            xs_vm_fault(address, "nothing bound");
            if (!write)
                memset(mine, 0, length);
            return false;
        }
        size_t now = length < span.length ? length : (size_t)span.length;
        if (write)
            move(span.at, mine, now);
        else
            move(mine, span.at, now);
        xs_vm_unpin(&span);
        address += now;
        mine += now;
        length -= now;
    }
    return true;
}

bool xs_vm_read(struct xs_vm *vm, uint64_t address, void *out, size_t length) {
    return transfer(vm, address, out, length, false);
}

bool xs_vm_write(struct xs_vm *vm, uint64_t address, const void *in, size_t length) {
    uint64_t word;
    uint8_t *from = (uint8_t *)(uintptr_t)in;
    if (length == 8 || length == 4) {
        memcpy(&word, in, length);
        from = (uint8_t *)&word;
    }
    bool fine = transfer(vm, address, from, length, true);
    xs_event_bump(address & XS_ADDRESS_MASK);
    return fine;
}
