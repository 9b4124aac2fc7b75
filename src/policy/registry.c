/*
 * The registry: every block that passed a hook, by its address, and what it is booked as.
 *
 * A block enters after the driver gave it out, and leaves before the driver takes it back, so an
 * address is never in the map twice.
 */
#include "check/check.h"
#include "policy/policy.h"

/* --- books ------------------------------------------------------------------------------------ */

static bool is_booked(const struct zr_block *b) {
    return !(zr_block_flags(b) & (ZR_BLOCK_FOREIGN | ZR_BLOCK_POOLED));
}

/* Host USM in exact powers of two, as PyTorch rounds it up, is booked in its own account as well.
 */
static ZR_COLD void book_other(const struct zr_block *b,
                               void (*book)(enum zr_kind, unsigned, uint64_t)) {
    if (!is_booked(b))
        return;
    book(b->key.kind, b->key.account, b->size);
    if (b->key.kind == ZR_KIND_HOST && b->size > 1 << 20 && !(b->size & (b->size - 1)))
        book(ZR_KIND_ROUNDED, 0, b->size);
}

static inline void book_one(const struct zr_block *b,
                            void (*book)(enum zr_kind, unsigned, uint64_t)) {
    if (likely(is_booked(b) && b->key.kind != ZR_KIND_HOST))
        book(b->key.kind, b->key.account, b->size);
    else
        book_other(b, book);
}

void zr_registry_book(const struct zr_block *b) {
    book_one(b, zr_book);
}

void zr_registry_unbook(const struct zr_block *b) {
    book_one(b, zr_unbook);
}

static bool is_reserved(const struct zr_block *b) {
    return !zr_reserved_is_allocated() && b->key.kind <= ZR_KIND_HOST &&
           !(zr_block_flags(b) & ZR_BLOCK_FOREIGN);
}

/* reserved_bytes, and the rest of what the kernel counts for a device. */
static void block_book_reserved(const struct zr_block *b, int64_t sign) {
    if (is_reserved(b))
        zr_book_reserved(b->key.kind == ZR_KIND_HOST ? ZR_RESERVED_HOST : b->key.account,
                         sign * (int64_t)b->held);
    else if (unlikely(b->key.kind == ZR_KIND_IMPORTED))
        __atomic_fetch_add(zr_card(b->key.account, ZR_C_IMPORTED),
                           (uint64_t)(sign * (int64_t)b->held), __ATOMIC_RELAXED);
}

void zr_registry_piece(unsigned number, const void *ptr, size_t size, bool hit) {
    zr_book(ZR_KIND_DEVICE, number, size);
    zr_record(ZEROUTE_EVENT_ALLOC, ZR_KIND_DEVICE, number, ptr, size, 0,
              ZEROUTE_FLAG_PIECE | (hit ? ZEROUTE_FLAG_HIT : 0), 0);
}

void zr_registry_piece_freed(unsigned number, const void *ptr) {
    zr_record(ZEROUTE_EVENT_FREE, ZR_KIND_DEVICE, number, ptr, 0, 0, ZEROUTE_FLAG_PIECE, 0);
}

/* The context, and above it a hash of all else that must match for blocks to be reused for each
 * other. */
static uint64_t reuse_key(const struct zr_block *b) {
    uint64_t rest = (uintptr_t)b->key.device + b->key.flags +
                    31u * (b->key.ordinal + 31u * (b->key.extra + 31u * b->key.align));

    return ((uintptr_t)b->key.context & UINT64_MAX >> 16) |
           rest * UINT64_C(0x9e3779b97f4a7c15) >> 48 << 48;
}

ZR_COLD void zr_registry_event(enum zeroute_record_type type, const struct zr_block *b,
                               unsigned flags) {
    bool reserved = type == ZEROUTE_EVENT_RESERVE || type == ZEROUTE_EVENT_RELEASE;

    if (b->key.kind <= ZR_KIND_IMPORTED && (reserved ? is_reserved(b) : is_booked(b)))
        zr_record(type, b->key.kind, b->key.account, (const void *)b->base,
                  reserved ? b->held : b->size, reuse_key(b), flags, 0);
}

/* --- in and out ------------------------------------------------------------------------------- */

bool zr_registry_lacks;

/* A cached block at an address that the driver has just handed out is no longer ours. */
static ZR_COLD void drop_cached(const void *base) {
    uint64_t word;
    struct zr_block *b = zr_map_look(base, &word);

    if (!b || zr_word_state(word) != ZR_BLOCK_CACHED || !zr_cache_drop(b))
        return;
    zr_registry_released(b);
    zr_block_recycle(b);
}

/* The map has a block at an address that the driver has just handed out: its free was not seen. */
static ZR_COLD bool insert_again(struct zr_block *b) {
    static struct zr_charge nothing;

    drop_cached((const void *)b->base);
    zr_registry_gone(zr_map_take((const void *)b->base));
    if (zr_map_insert(b))
        return true;
    zr_registry_record(ZEROUTE_EVENT_FREE, b, 0);
    zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    zr_registry_unbook(b);
    block_book_reserved(b, -1);
    __atomic_store(&b->charge, &nothing, __ATOMIC_RELAXED); /* it is the operation's still */
    zr_block_recycle(b);
    return false;
}

static void hand_out(const struct zr_block *b, unsigned flags) {
    zr_registry_book(b);
    zr_registry_record(ZEROUTE_EVENT_ALLOC, b,
                       flags | (zr_block_flags(b) & ZR_BLOCK_CACHEABLE ? ZEROUTE_FLAG_CACHED : 0));
}

struct zr_block *zr_registry_add(struct zr_op *op, const struct zr_key *key, const void *base,
                                 size_t size, size_t held, uint32_t flags) {
    struct zr_block *b = zr_block_new();

    if (unlikely(!b)) {
        __atomic_store_n(&zr_registry_lacks, true, __ATOMIC_RELAXED);
        return NULL;
    }
    zr_block_place(b, (uintptr_t)base, size, held);
    zr_block_set_key(b, key);
    __atomic_store_n(&b->caller, op->caller, __ATOMIC_RELAXED);
    __atomic_store_n(&b->flags, flags | op->hook << ZR_BLOCK_HOOK, __ATOMIC_RELAXED);
    zr_charge_pass(&op->charge, &b->charge);
    /* Booked before it can be found: a stale pointer's free may take it at once, and unbooks it. */
    block_book_reserved(b, 1);
    zr_registry_record(ZEROUTE_EVENT_RESERVE, b, 0);
    hand_out(b, 0);
    if (unlikely(!zr_map_insert(b)) && !insert_again(b))
        return NULL;
    op->charge.ledgers = 0; /* it is the block's now */
    zr_limit_registered(b);
    if (unlikely(__atomic_load_n(&zr_suspects, __ATOMIC_RELAXED)))
        zr_suspect_registered(base);
    return b;
}

void zr_registry_reused(const struct zr_op *op, struct zr_block *b) {
    __atomic_store_n(&b->caller, op->caller, __ATOMIC_RELAXED);
    hand_out(b, ZEROUTE_FLAG_HIT);
}

struct zr_block *zr_registry_note(struct zr_op *op, enum zr_kind kind, unsigned number,
                                  ze_context_handle_t context, const void *base, size_t size,
                                  uint32_t flags) {
    struct zr_key key = {.context = context,
                         .kind = (uint8_t)kind,
                         .account = number == ZR_UNKNOWN_DEVICE ? 0 : (uint16_t)number};

    return zr_registry_add(op, &key, base, size, size, flags);
}

struct zr_block *zr_registry_take(const void *ptr) {
    struct zr_block *b = zr_map_take(ptr);

    if (b) {
        zr_registry_record(ZEROUTE_EVENT_FREE, b, 0);
        zr_registry_record(ZEROUTE_EVENT_RELEASE, b, 0);
    }
    return b;
}

/*
 * Tables were hooked while calls may have been on their way past us. What the driver gives such a
 * call may have been a block of ours that has come and gone since: its free is right, and must not
 * be taken for a second one. So for a while the map forgets what has gone.
 */
enum { ON_THE_WAY_MS = 1000 };
static uint32_t hooked_late; /* atomic: when, in milliseconds; 0: not, or long ago */

void zr_registry_hooked_late(void) {
    uint32_t now = zr_now_ms();

    __atomic_store_n(&hooked_late, now ? now : 1, __ATOMIC_RELAXED);
}

static ZR_COLD void forget_for_a_while(const struct zr_block *b) {
    if (zr_now_ms() - __atomic_load_n(&hooked_late, __ATOMIC_RELAXED) < ON_THE_WAY_MS)
        zr_map_forget(b);
    else
        __atomic_store_n(&hooked_late, 0, __ATOMIC_RELAXED);
}

/* First out of the map: whoever charges blocks meanwhile looks again whether this one is still
 * there. */
void zr_registry_released(struct zr_block *b) {
    zr_block_gone(b);
    if (unlikely(__atomic_load_n(&hooked_late, __ATOMIC_RELAXED)))
        forget_for_a_while(b);
    atomic_thread_fence(memory_order_seq_cst);
    block_book_reserved(b, -1);
    zr_charge_undo(&b->charge);
}

void zr_registry_gone(struct zr_block *b) {
    if (unlikely(!b))
        return;
    if (zr_checking())
        zr_check_forget(b);
    zr_registry_unbook(b);
    zr_registry_released(b);
    zr_block_recycle(b);
}

ze_result_t zr_registry_answered(struct zr_block *b, ze_result_t result) {
    if (unlikely(result != ZE_RESULT_SUCCESS) && b) {
        zr_registry_record(ZEROUTE_EVENT_BACK, b, 0);
        zr_registry_record(ZEROUTE_EVENT_RESERVE, b, 0);
        if (zr_map_insert(b))
            return result;
    }
    zr_registry_gone(b);
    return result;
}

/* --- what happens to blocks ------------------------------------------------------------------- */

/* Physical memory is exported by its handle, or by an address in a reserved range. */
void zr_registry_exported(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    struct zr_block *b = zr_map_find(ptr);
    enum zr_kind kind = ZR_KIND_DEVICE;
    unsigned number = ZR_UNKNOWN_DEVICE;
    uint64_t size = 0;
    bool first = false;

    if (b) {
        kind = b->key.kind;
        number = b->key.account;
        size = kind == ZR_KIND_VIRTUAL ? 0 : b->size;
        zr_block_mark(b, ZR_BLOCK_EXPORTED);
        first = !__atomic_exchange_n(&b->counted, true, __ATOMIC_RELAXED);
    } else {
        zr_object_exported(ptr, &kind, &number, &size, &first);
    }
    zr_count(ZR_F_IPC_EXPORTS, 1);
    zr_record(ZEROUTE_EVENT_EXPORT, kind, number, ptr, size, 0, 0, 0);
    if (first)
        zr_count(ZR_F_IPC_EXPORT_BYTES, size);
    if (zr_sharing() && b && handle) {
        struct zr_handle_id id = zr_share_exported(handle);

        zr_hold_exported(b, &id);
        if (zr_checking())
            zr_check_exported((const void *)b->base, &id);
    }
}

/*
 * The mark comes before the call: a free of the block meanwhile must not put it into the cache. If
 * it has done so already, the block is not allocated any more.
 */
const void *zr_registry_mark(const void *ptr, uint32_t flags) {
    struct zr_block *b;

    ptr = zr_registry_visible(ptr);
    b = zr_map_find(ptr);
    if (!b)
        return ptr;
    __atomic_fetch_or(&b->flags, flags, __ATOMIC_SEQ_CST);
    return zr_registry_visible(ptr);
}

void zr_registry_mapped(struct zr_op *op, const void *ptr, size_t size, const void *physical) {
    zr_record(ZEROUTE_EVENT_MAP, ZR_KIND_MAPPED, 0, ptr, size, (uintptr_t)physical, 0, 0);
    zr_object_add(op, ZR_KIND_MAPPED, 0, NULL, ptr, size);
}

ze_result_t zr_registry_unmapped(struct zr_object *mappings, const void *ptr, size_t size,
                                 ze_result_t result) {
    if (result == ZE_RESULT_SUCCESS) {
        zr_record(ZEROUTE_EVENT_UNMAP, ZR_KIND_MAPPED, 0, ptr, size, 0, 0, 0);
        zr_remap_unmapped(mappings);
    }
    return zr_object_answered(mappings, result);
}

/* --- what a program may know ------------------------------------------------------------------ */

/* An address that no driver hands out: asked about it, the driver answers as for any unknown
 * pointer. */
static const char nowhere[64];

/*
 * What is cached or on its way to the driver, and what is reserved beyond the requested size, does
 * not count as allocated: the state of the block decides, whatever the settings say by now.
 */
const void *zr_registry_visible(const void *ptr) {
    uint64_t word;
    struct zr_block *b = zr_map_around(ptr, &word);

    if (zr_checking() && !b && zr_check_owns(ptr))
        return nowhere;
    if (!b ||
        zr_word_state(word) == ZR_BLOCK_FREEING) /* the driver knows best what is there by now */
        return ptr;
    if (zr_word_state(word) == ZR_BLOCK_LIVE &&
        (uintptr_t)ptr - b->base < __atomic_load_n(&b->size, __ATOMIC_RELAXED))
        return ptr;
    return nowhere;
}

/* Closing goes through zeMemFree in Intel's driver, which would free any block that holds the
 * pointer. */
const void *zr_registry_closable(const void *ptr) {
    struct zr_block *b = zr_map_find(ptr);

    return b && zr_block_flags(b) & ZR_BLOCK_CACHEABLE ? nowhere : zr_registry_visible(ptr);
}

bool zr_registry_range(const void *ptr, void **base, size_t *size) {
    struct zr_block *b = zr_map_find(ptr);

    if (!b || b->held == b->size)
        return false;
    if (base)
        *base = (void *)b->base;
    if (size)
        *size = b->size;
    return true;
}

void *zr_chained(const void *desc, uint32_t stype) {
    const struct zr_ze_base *link = desc ? ((const struct zr_ze_base *)desc)->next : NULL;

    while (link && link->stype != stype)
        link = link->next;
    return (void *)(uintptr_t)link;
}
