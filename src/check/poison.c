/*
 * Work on memory for check, by the worker alone: fill, look, wait for rest. Host memory is written
 * and read by the processor. Device memory, and shared memory, which drivers migrate when the
 * processor touches it, goes through an engine (driver/engine.c) per context and device.
 */
#include "check/check.h"

#include <string.h>

enum {
    ENGINES = 32,
    BUFFER = 1 << 20,
    PATTERN = 0xff /* NaN in fp32, fp16 and bf16, -1 in integers */
};

/* In the table under zr_check_lock: without a context, the place is free. Only the worker adds and
 * uses them. */
static struct zr_engine engines[ENGINES];

/* NULL if the driver refuses, there are too many, or the process ends. */
static struct zr_engine *engine_of(const struct zr_checked *c) {
    struct zr_engine *e = NULL, *empty = NULL;

    zr_lock(&zr_check_lock);
    for (unsigned i = 0; i < ENGINES && !e; i++)
        if (engines[i].context == c->context && engines[i].device == c->device &&
            engines[i].hook == c->hook)
            e = &engines[i];
        else if (!engines[i].context)
            empty = &engines[i];
    if (!e && empty)
        *empty = (struct zr_engine){.context = c->context, .device = c->device, .hook = c->hook};
    zr_unlock(&zr_check_lock);
    if (!e && empty) {
        e = empty;
        zr_engine_make(e, BUFFER);
    }
    return e && e->list && !zr_worker_halts() ? e : NULL;
}

bool zr_check_owns(const void *ptr) {
    bool owns = false;

    zr_lock(&zr_check_lock);
    for (unsigned i = 0; i < ENGINES && !owns; i++)
        owns = engines[i].context && (uintptr_t)ptr - (uintptr_t)engines[i].buffer < BUFFER;
    zr_unlock(&zr_check_lock);
    return owns;
}

void zr_poison_drop(const void *context, bool held_up) {
    ZR_OWN_OP(own, 0); /* hooks further down pass on what we call */

    for (unsigned i = 0; i < ENGINES; i++) {
        struct zr_engine e = {.context = NULL};

        zr_lock(&zr_check_lock);
        if (!context || (const void *)engines[i].context == context) {
            e = engines[i];
            engines[i].context = NULL;
        }
        zr_unlock(&zr_check_lock);
        if (!e.context || held_up)
            continue;
        zr_engine_drop(&e);
    }
}

bool zr_poison_fill(const struct zr_checked *c, size_t from, size_t to) {
    static const unsigned char pattern = PATTERN;
    struct zr_engine *e = c->device ? engine_of(c) : NULL;
    void *at = e && from == to ? e->buffer : (void *)(c->base + from);
    size_t size = e && from == to ? 1 : to - from;

    if (!c->device)
        memset(at, PATTERN, size);
    return !c->device ||
           (e && e->fill(e->list, at, &pattern, 1, size, NULL, 0, NULL) == ZE_RESULT_SUCCESS);
}

/*
 * Copies a part of a block into the engine's buffer. False as well if its context has gone
 * meanwhile, and the buffer.
 */
static bool fetch_part(struct zr_engine *e, const struct zr_checked *c, size_t from, size_t bytes) {
    if (zr_worker_halts())
        return false;
    if (e->copy(e->list, e->buffer, (void *)(c->base + from), bytes, NULL, 0, NULL) !=
        ZE_RESULT_SUCCESS)
        return false;
    return __atomic_load_n(&c->block, __ATOMIC_RELAXED) != NULL;
}

bool zr_poison_look(const struct zr_checked *c, size_t from, size_t to, size_t *first,
                    size_t *last) {
    struct zr_engine *e = c->device ? engine_of(c) : NULL;
    const unsigned char *bytes = e ? e->buffer : (const unsigned char *)c->base + from;

    *first = 1;
    *last = 0;
    if (c->device && !e)
        return false;
    for (size_t n; from < to; from += n) {
        n = e && to - from > BUFFER ? BUFFER : to - from;
        if (e && !fetch_part(e, c, from, n))
            return false;
        if (bytes[0] == PATTERN && memcmp(bytes, bytes + 1, n - 1) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (bytes[i] != PATTERN) {
                *first = *first > *last ? from + i : *first;
                *last = from + i;
            }
    }
    return true;
}
