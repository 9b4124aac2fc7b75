/*
 * Notes what reaches Level Zero while a thread lets a runtime make one block. The same call may
 * pass a second hook of ours further down: the first one counts.
 */
#include "sycl/sycl.h"

#include <string.h>

static bool note_alloc(struct zr_watch *w, uint32_t hook, ze_context_handle_t context,
                       const ze_device_mem_alloc_desc_t *desc, size_t size,
                       ze_device_handle_t device) {
    if (w->allocated || size < w->size)
        return false;
    w->allocated = true;
    w->made = size;
    w->hook = hook;
    w->context = context;
    w->device = device;
    w->ordinal = desc ? desc->ordinal : 0;
    w->flags = desc ? desc->flags : 0;
    return true;
}

static void note_base(struct zr_watch *w, const void *ptr) {
    w->base = ptr;
}

static void note_resident(struct zr_watch *w, uint32_t hook, ze_device_handle_t device,
                          size_t size) {
    if (w->allocated && !w->freed && hook == w->hook && size >= w->size &&
        w->residents < ZR_WATCH_DEVICES)
        w->resident[w->residents++] = device;
}

/* Meanwhile the runtime may free something else, such as what it kept for later. */
static void note_free(struct zr_watch *w, const void *ptr, const ze_memory_free_ext_desc_t *desc,
                      bool ext) {
    if (!w->base || ptr != w->base || w->freed)
        return;
    w->freed = true;
    w->frees_ext = ext;
    w->free_policy = desc ? (uint32_t)desc->freePolicy : 0;
}

static void note_export(struct zr_watch *w, const ze_ipc_mem_handle_t *handle) {
    w->exported = true;
    w->handle = *handle;
}

static const struct zr_watcher notes = {note_alloc, note_base, note_resident, note_free,
                                        note_export};

void zr_watch_begin(struct zr_op *op, struct zr_practice *p, size_t size) {
    memset(p, 0, sizeof *p);
    p->seen.size = size;
    zr_op_begin_own(op, ZR_HOOK_PLT);
    op->watch = &p->seen;
    op->watcher = &notes;
}
