/*
 * The registry: every block that passed a hook, by its address, and what it is booked as.
 *
 * A block enters after the driver gave it out, and leaves before the driver takes it back, so an address is
 * never in the books twice.
 */
#include "policy/policy.h"

/*
 * What the process holds of a block. A block of the cache that has lost its context comes here with more
 * behind it than was asked for; a handle has no size.
 */
static uint64_t asked_for(const struct zr_block *b)
{
    return b->flags & ZR_BLOCK_HANDLE ? b->held : b->size;
}

void zr_registry_book_slow(const struct zr_block *b)
{
    if (b->flags & ZR_BLOCK_FOREIGN)
        return;
    if (!(b->flags & ZR_BLOCK_POOLED))
        zr_book(b->kind, b->device, asked_for(b));
    if (b->kind < ZR_KINDS_ON_DEVICE && !zr_reserved_is_allocated())
        zr_book_reserved(b->device, (int64_t)b->held);
}

void zr_registry_unbook_slow(const struct zr_block *b)
{
    if (b->flags & ZR_BLOCK_FOREIGN)
        return;
    if (b->kind == ZR_KIND_DEVICE || b->kind == ZR_KIND_PHYSICAL || b->kind == ZR_KIND_IMPORTED)
        zr_limit_drop(b->device, b->held);
    if (!(b->flags & ZR_BLOCK_POOLED))
        zr_unbook(b->kind, b->device, asked_for(b));
    if (b->kind == ZR_KIND_VIRTUAL && b->peers)
        zr_unbook(ZR_KIND_MAPPED, 0, b->peers);
    if (b->kind < ZR_KINDS_ON_DEVICE && !zr_reserved_is_allocated())
        zr_book_reserved(b->device, -(int64_t)b->held);
}

/*
 * There is a block under this address although the driver has just given it out: another thread has it parked, or
 * it is booked and went back to the driver on a way that we did not see.
 */
bool zr_registry_insert_slow(struct zr_block *b)
{
    const void *base = (const void *)b->base;
    uint64_t word;
    struct zr_block *stale = zr_map_look(base, &word);

    if (stale && zr_word_state(word) == ZR_BLOCK_PARKED && zr_block_shift(stale, word, ZR_BLOCK_NONE))
        zr_block_recycle(stale);
    else
        zr_registry_gone(zr_registry_take(base));
    if (zr_map_insert(b))
        return true;
    zr_block_recycle(b);
    return false;
}

/* One that is not as it was taken has been freed by its claimant at the same time (lean.h), who goes on with it. */
void zr_registry_back(struct zr_block *b)
{
    if (b && zr_word_state(zr_block_word(b)) == ZR_BLOCK_NONE && !zr_map_insert(b))
        zr_registry_gone(b);
}

void zr_registry_exported(const void *ptr)
{
    struct zr_block *b = zr_map_find(ptr);

    zr_count(ZR_F_IPC_EXPORTS, 1);
    if (!b)
        return;
    if (!(__atomic_fetch_or(&b->flags, ZR_BLOCK_EXPORTED, __ATOMIC_RELAXED) & ZR_BLOCK_EXPORTED))
        zr_count(ZR_F_IPC_EXPORT_BYTES, b->size);
}

void zr_registry_not_kept(const void *ptr)
{
    struct zr_block *b = zr_map_find(ptr);

    if (b)
        zr_block_mark(b, ZR_BLOCK_ODD);
}

void zr_registry_physical(bool on_device, unsigned device, ze_context_handle_t context,
                          const void *handle, size_t size)
{
    zr_registry_add(on_device ? ZR_KIND_PHYSICAL : ZR_KIND_HOST, device, context, handle, size,
                    ZR_BLOCK_HANDLE);
}

/* A reserved range has no peers: the field holds how much is mapped into it. */
void zr_registry_mapped(const void *ptr, size_t size)
{
    struct zr_block *b = zr_map_find(ptr);

    if (!b || b->kind != ZR_KIND_VIRTUAL)
        return;
    __atomic_fetch_add(&b->peers, size, __ATOMIC_RELAXED);
    zr_book(ZR_KIND_MAPPED, 0, size);
}

void zr_registry_unmapped(const void *ptr, size_t size)
{
    struct zr_block *b = zr_map_find(ptr);
    uint64_t mapped;

    if (!b || b->kind != ZR_KIND_VIRTUAL)
        return;
    mapped = __atomic_load_n(&b->peers, __ATOMIC_RELAXED);
    do {
        if (size > mapped)
            size = mapped;
    } while (!__atomic_compare_exchange_n(&b->peers, &mapped, mapped - size, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (size)
        zr_unbook(ZR_KIND_MAPPED, 0, size);
}

bool zr_chain_has(const void *desc, uint32_t stype)
{
    const struct zr_ze_base *link = desc;

    while (link && (link = link->next))
        if (link->stype == stype)
            return true;
    return false;
}

void zr_chain_kind(const void *desc, enum zr_kind *kind, uint32_t *flags)
{
    if (zr_chain_has(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD))
        *kind = ZR_KIND_IMPORTED;
    if (zr_chain_has(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC))
        *flags |= ZR_BLOCK_EXPORTED;
}
