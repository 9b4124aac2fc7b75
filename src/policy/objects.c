/*
 * Objects that take memory and are known by a handle: physical memory, images, modules, lists and
 * the like; and what is mapped into reserved ranges, known by its address. They are in a table of
 * their own: a handle is no address, and what lies there is not what it stands for.
 *
 * A hash table with chains, under one lock. An object leaves it before its end goes down:
 * afterwards another thread may be given the same handle at once.
 */
#include "policy/policy.h"

#include <string.h>

enum { FIRST_BUCKETS = 512, AT_ONCE = 32 };

static struct zr_lock objects_lock;
static struct zr_object **bucket; /* under the lock, and so is all below */
static size_t buckets, count;
static struct zr_object *spare_objects;

/* Handles and mapped addresses are keys of two kinds. */
static bool is_mapping(const struct zr_object *o) {
    return o->kind == ZR_KIND_MAPPED;
}

static struct zr_object **object_bucket(const void *handle) {
    return &bucket[(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (buckets - 1)];
}

/* --- the table; the caller holds the lock ----------------------------------------------------- */

/* Twice as many buckets. Without memory the chains grow instead. */
static void objects_grow(void) {
    struct zr_object **old = bucket;
    size_t had = buckets, wanted = had ? 2 * had : FIRST_BUCKETS;
    struct zr_object **new = zr_pages(wanted * sizeof *new);

    if (!new)
        return;
    bucket = new;
    buckets = wanted;
    for (size_t i = 0; i < had; i++)
        for (struct zr_object *o = old[i], *next; o; o = next) {
            struct zr_object **at = object_bucket(o->handle);

            next = o->next;
            o->next = *at;
            *at = o;
        }
    if (old)
        zr_pages_back(old, had * sizeof *old);
}

static struct zr_object *new_object(void) {
    struct zr_object *o = spare_objects;

    if (unlikely(!o)) {
        o = zr_piece(AT_ONCE * sizeof *o);
        for (unsigned i = 1; o && i < AT_ONCE; i++) {
            o[i].next = spare_objects;
            spare_objects = &o[i];
        }
        return o;
    }
    spare_objects = o->next;
    return o;
}

static struct zr_object **object_place(const void *handle, bool mapping) {
    struct zr_object **at = object_bucket(handle);

    while (*at && ((*at)->handle != handle || is_mapping(*at) != mapping))
        at = &(*at)->next;
    return at;
}

static struct zr_object *remove_at(struct zr_object **at) {
    struct zr_object *o = *at;

    *at = o->next;
    o->next = NULL;
    count--;
    return o;
}

/* Returns what was there under the same handle: its end was not seen. */
static struct zr_object *insert(struct zr_object *o) {
    struct zr_object **at, *old;

    at = object_place(o->handle, is_mapping(o));
    old = *at ? remove_at(at) : NULL;
    at = object_bucket(o->handle);
    o->next = *at;
    *at = o;
    count++;
    return old;
}

/* --- books ------------------------------------------------------------------------------------ */

static void object_record(enum zeroute_record_type type, const struct zr_object *o) {
    bool reserved = type == ZEROUTE_EVENT_RESERVE || type == ZEROUTE_EVENT_RELEASE;

    if (unlikely(zr_recording()) && o->kind <= ZR_KIND_IMPORTED && !is_mapping(o) &&
        o->kind != ZR_KIND_VIRTUAL && !(reserved && zr_reserved_is_allocated()))
        zr_record(type, o->kind, o->account, o->handle, o->bytes,
                  (uintptr_t)o->context & UINT64_MAX >> 16, 0, 0);
}

/* Physical memory is reserved from the driver; images are what the kernel counts besides. */
static void object_book_reserved(const struct zr_object *o, int64_t bytes) {
    if (o->kind == ZR_KIND_HOST)
        zr_book_reserved(ZR_RESERVED_HOST, bytes);
    else if (o->kind < ZR_KINDS_ON_DEVICE)
        zr_book_reserved(o->account, bytes);
    else if (o->kind == ZR_KIND_IMAGE)
        __atomic_fetch_add(zr_card(o->account, ZR_C_IMAGE), (uint64_t)bytes, __ATOMIC_RELAXED);
}

/* Out of the books; its descriptor is spare. */
static void object_end(struct zr_object *o) {
    zr_unbook(o->kind, o->account, o->bytes);
    object_book_reserved(o, -(int64_t)o->bytes);
    zr_charge_undo(&o->charge);
    zr_lock(&objects_lock);
    o->next = spare_objects;
    spare_objects = o;
    zr_unlock(&objects_lock);
}

/* --- the interface ---------------------------------------------------------------------------- */

/* From here on a change of `limit` finds it; its charge follows the changes before. */
static struct zr_object *object_insert(struct zr_object *o) {
    struct zr_object *old;

    zr_lock(&objects_lock);
    zr_limit_follow(&o->charge, o->kind, o->account, o->bytes);
    old = insert(o);
    zr_unlock(&objects_lock);
    return old;
}

/* It is booked before it can be found, because a wrong destroy may take it at once. */
bool zr_object_add(struct zr_op *op, enum zr_kind kind, unsigned number, const void *context,
                   const void *handle, uint64_t bytes) {
    struct zr_object *o, *old;

    zr_lock(&objects_lock);
    if (unlikely(count >= buckets))
        objects_grow();
    o = buckets ? new_object() : NULL;
    zr_unlock(&objects_lock);
    if (unlikely(!o))
        return false;
    *o = (struct zr_object){.handle = handle,
                            .context = context,
                            .bytes = bytes,
                            .library = op->library,
                            .charge = op->charge,
                            .account = number == ZR_UNKNOWN_DEVICE ? 0 : (uint16_t)number,
                            .kind = (uint8_t)kind};
    op->charge.ledgers = 0; /* it is the object's now */
    zr_book(kind, o->account, bytes);
    object_book_reserved(o, (int64_t)bytes);
    object_record(ZEROUTE_EVENT_RESERVE, o);
    object_record(ZEROUTE_EVENT_ALLOC, o);
    old = object_insert(o);
    if (unlikely(old))
        object_end(old);
    return true;
}

struct zr_object *zr_object_take(const void *handle) {
    struct zr_object **at, *o = NULL;

    zr_lock(&objects_lock);
    if (buckets) {
        at = object_place(handle, false);
        o = *at ? remove_at(at) : NULL;
    }
    zr_unlock(&objects_lock);
    if (o) {
        object_record(ZEROUTE_EVENT_FREE, o);
        object_record(ZEROUTE_EVENT_RELEASE, o);
    }
    return o;
}

/* What lies in the range as a whole: the driver leaves alone what is covered in part. */
struct zr_object *zr_object_take_mapped(const void *start, size_t size) {
    struct zr_object *list = NULL;

    zr_lock(&objects_lock);
    for (size_t i = 0; i < buckets; i++)
        for (struct zr_object **at = &bucket[i]; *at;) {
            struct zr_object *o = *at;
            uintptr_t offset = (uintptr_t)o->handle - (uintptr_t)start;

            if (!is_mapping(o) || offset >= size || o->bytes > size - offset) {
                at = &o->next;
                continue;
            }
            remove_at(at);
            o->next = list;
            list = o;
        }
    zr_unlock(&objects_lock);
    return list;
}

static void put_back(struct zr_object *o) {
    struct zr_object *old;

    object_record(ZEROUTE_EVENT_BACK, o);
    object_record(ZEROUTE_EVENT_RESERVE, o);
    old = object_insert(o);
    if (unlikely(old))
        object_end(old);
}

ze_result_t zr_object_answered(struct zr_object *list, ze_result_t result) {
    while (list) {
        struct zr_object *o = list;

        list = o->next;
        if (result == ZE_RESULT_SUCCESS)
            object_end(o);
        else
            put_back(o);
    }
    return result;
}

bool zr_object_exported(const void *handle, enum zr_kind *kind, unsigned *number, uint64_t *bytes,
                        bool *first) {
    struct zr_object *o = NULL;

    zr_lock(&objects_lock);
    if (buckets)
        o = *object_place(handle, false);
    if (o) {
        *kind = o->kind;
        *number = o->account;
        *bytes = o->bytes;
        *first = !o->exported;
        o->exported = true;
    }
    zr_unlock(&objects_lock);
    return o != NULL;
}

void zr_object_each(void (*see)(struct zr_object *o, void *arg), void *arg) {
    zr_lock(&objects_lock);
    for (size_t i = 0; i < buckets; i++)
        for (struct zr_object *o = bucket[i]; o; o = o->next)
            see(o, arg);
    zr_unlock(&objects_lock);
}

/* The parent's table may be half changed, and its objects are not the child's. */
void zr_object_fork_child(void) {
    bucket = NULL;
    buckets = 0;
    count = 0;
    spare_objects = NULL;
}
