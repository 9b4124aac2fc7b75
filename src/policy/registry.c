/*
 * The registry: every block that passed a hook, by its address, and what it is booked as.
 *
 * A block enters after the driver gave it out, and leaves before the driver takes it back, so an address is never in
 * the map twice.
 */
#include "policy/policy.h"
#include "record/record.h"

/* --- books -------------------------------------------------------------------------------------------------------- */

static bool is_booked(const struct zr_block *b) {
    return !(zr_block_flags(b) & (ZR_BLOCK_FOREIGN | ZR_BLOCK_POOLED));
}

/* A handle has no size that could be looked up by address. */
static size_t size_of(const struct zr_block *b) {
    return zr_block_flags(b) & ZR_BLOCK_HANDLE ? b->held : b->size;
}

void zr_registry_book(const struct zr_block *b) {
    if (likely(is_booked(b)))
        zr_book(b->key.kind, b->key.account, size_of(b));
}

void zr_registry_unbook(const struct zr_block *b) {
    if (likely(is_booked(b)))
        zr_unbook(b->key.kind, b->key.account, size_of(b));
}

static void book_reserved(const struct zr_block *b, int64_t sign) {
    if (!zr_reserved_is_allocated() && b->key.kind < ZR_KINDS_ON_DEVICE && !(zr_block_flags(b) & ZR_BLOCK_FOREIGN))
        zr_book_reserved(b->key.account, sign * (int64_t)b->held);
}

void zr_registry_piece(unsigned number, const void *ptr, size_t size) {
    zr_book(ZR_KIND_DEVICE, number, size);
    if (unlikely(zr_recording()))
        zr_record_alloc(ptr, size, number);
}

void zr_registry_piece_leaves(unsigned number, const void *ptr) {
    if (unlikely(zr_recording()))
        zr_record_free(ptr, number);
}

/* --- in and out --------------------------------------------------------------------------------------------------- */

/* A block that is in the map although the driver has just given out its address went back on a way that we did not see.
 */
static ZR_COLD bool insert_again(struct zr_block *b) {
    zr_registry_gone(zr_map_take((const void *)b->base));
    if (zr_map_insert(b))
        return true;
    zr_block_recycle(b);
    return false;
}

static void hand_out(const struct zr_block *b) {
    zr_registry_book(b);
    if (unlikely(zr_recording()) && is_booked(b) && (b->key.kind == ZR_KIND_DEVICE || b->key.kind == ZR_KIND_PHYSICAL))
        zr_record_alloc((const void *)b->base, size_of(b), b->key.account);
}

struct zr_block *zr_registry_add(const struct zr_call *call, const struct zr_key *key, const void *base, size_t size,
                                 size_t held, uint32_t flags) {
    struct zr_block *b = zr_block_new();

    if (unlikely(!b))
        return NULL;
    /* A handle is no range of memory: it is found by itself alone. */
    zr_block_place(b, (uintptr_t)base, flags & ZR_BLOCK_HANDLE ? 1 : size, held);
    zr_block_set_key(b, key);
    b->caller = call->caller;
    __atomic_store_n(&b->flags, flags | call->hook << ZR_BLOCK_HOOK, __ATOMIC_RELAXED);
    if (unlikely(!zr_map_insert(b)) && !insert_again(b))
        return NULL;
    book_reserved(b, 1);
    hand_out(b);
    return b;
}

void zr_registry_reused(const struct zr_call *call, struct zr_block *b) {
    b->caller = call->caller;
    hand_out(b);
}

void zr_registry_note(const struct zr_call *call, enum zr_kind kind, unsigned number, ze_context_handle_t context,
                      const void *base, size_t size, uint32_t flags) {
    struct zr_key key = {
        .context = context, .kind = (uint8_t)kind, .account = number == ZR_UNKNOWN_DEVICE ? 0 : (uint16_t)number};

    zr_registry_add(call, &key, base, size, size, flags);
}

void zr_registry_gone(struct zr_block *b) {
    if (unlikely(!b))
        return;
    zr_registry_unbook(b);
    book_reserved(b, -1);
    if (b->key.kind == ZR_KIND_VIRTUAL && b->requested)
        zr_unbook(ZR_KIND_MAPPED, 0, b->requested);
    if ((b->key.kind == ZR_KIND_DEVICE || b->key.kind == ZR_KIND_PHYSICAL || b->key.kind == ZR_KIND_IMPORTED) &&
        !(zr_block_flags(b) & ZR_BLOCK_FOREIGN))
        zr_limit_drop(b->key.account, b->held);
    zr_block_recycle(b);
}

void zr_registry_back(struct zr_block *b) {
    if (b && !zr_map_insert(b))
        zr_registry_gone(b);
}

/* --- what happens to blocks --------------------------------------------------------------------------------------- */

void zr_registry_exported(const void *ptr) {
    struct zr_block *b = zr_map_find(ptr);

    zr_count(ZR_F_IPC_EXPORTS, 1);
    if (b && !(__atomic_fetch_or(&b->flags, ZR_BLOCK_EXPORTED, __ATOMIC_RELAXED) & ZR_BLOCK_EXPORTED))
        zr_count(ZR_F_IPC_EXPORT_BYTES, b->size);
}

void zr_registry_pin(const void *ptr) {
    struct zr_block *b = zr_map_find(ptr);

    if (b)
        zr_block_mark(b, ZR_BLOCK_PINNED);
}

/* Residency is not requested for a reserved range: the field holds how much is mapped into it. */
void zr_registry_mapped(const void *ptr, size_t size) {
    struct zr_block *b = zr_map_find(ptr);

    if (!b || b->key.kind != ZR_KIND_VIRTUAL)
        return;
    __atomic_fetch_add(&b->requested, size, __ATOMIC_RELAXED);
    zr_book(ZR_KIND_MAPPED, 0, size);
}

void zr_registry_unmapped(const void *ptr, size_t size) {
    struct zr_block *b = zr_map_find(ptr);
    uint64_t mapped;

    if (!b || b->key.kind != ZR_KIND_VIRTUAL)
        return;
    mapped = __atomic_load_n(&b->requested, __ATOMIC_RELAXED);
    do {
        if (size > mapped)
            size = mapped;
    } while (
        !__atomic_compare_exchange_n(&b->requested, &mapped, mapped - size, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (size)
        zr_unbook(ZR_KIND_MAPPED, 0, size);
}

/* --- what a program may know -------------------------------------------------------------------------------------- */

/* An address that no driver has ever handed out: what it says of this one, it says of any unknown one. */
static const char nowhere[64];

/* Cached blocks, and what was reserved beyond the size that was requested, are no allocation. */
const void *zr_registry_visible(const void *ptr) {
    uint64_t word;
    struct zr_block *b = zr_config.cache ? zr_map_around(ptr, &word) : NULL;

    if (!b || (zr_word_state(word) == ZR_BLOCK_LIVE &&
               (uintptr_t)ptr - b->base < __atomic_load_n(&b->size, __ATOMIC_RELAXED)))
        return ptr;
    return zr_block_flags(b) & ZR_BLOCK_HANDLE ? ptr : nowhere;
}

/* Intel's driver frees whatever holds the pointer, by zeMemFree's own way. */
const void *zr_registry_closable(const void *ptr) {
    struct zr_block *b = zr_map_find(ptr);

    return b && zr_block_flags(b) & ZR_BLOCK_CACHEABLE ? nowhere : zr_registry_visible(ptr);
}

bool zr_registry_range(const void *ptr, void **base, size_t *size) {
    struct zr_block *b = zr_map_find(ptr);

    if (!b || b->held == b->size || zr_block_flags(b) & ZR_BLOCK_HANDLE)
        return false;
    if (base)
        *base = (void *)b->base;
    if (size)
        *size = b->size;
    return true;
}

bool zr_chain_has(const void *desc, uint32_t stype) {
    const struct zr_ze_base *link = desc;

    while (link && (link = link->next))
        if (link->stype == stype)
            return true;
    return false;
}
