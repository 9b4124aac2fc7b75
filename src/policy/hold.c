/*
 * ipc:hold: a block that the program has freed while another process of this user has its IPC
 * handle open. What that process does with it afterwards may stop the card for both, so the block
 * is not given to the driver: it waits here, CACHED as the program sees it, until nobody has it
 * open any more, or until ipc_hold_limit is reached. We have no thread: calls of the program look.
 */
#include "policy/policy.h"

#include <string.h>

enum { BUCKETS = 256, EXPORTS_AT_ONCE = 64 };
/* Of the time that passes, looks take one part in so many: the kernel walks all locks for each. */
enum { LOOK_PART = 32 };

/* A handle of a block; one whose generation is another is of a block that is gone. */
struct export {
    struct export *next; /* in its bucket, or spare */
    struct zr_block *block;
    uint32_t life;
    struct zr_handle_id id;
};

static struct {
    struct zr_lock lock;
    struct export *bucket[BUCKETS], *spare;
    struct zr_block *first, *last; /* held, the oldest first, by `below` */
    uint64_t bytes[ZR_ACCOUNTS];
    unsigned blocks;        /* atomic: read without the lock */
    uint32_t looked, pause; /* atomic: when, and for how long not again, in milliseconds */
} holds;

bool zr_hold_any(void) {
    return __atomic_load_n(&holds.blocks, __ATOMIC_RELAXED) != 0;
}

/* --- exports; the caller holds the lock ------------------------------------------------------- */

static uint32_t generation_of(const struct zr_block *b) {
    return (uint32_t)(zr_block_word(b) >> 32);
}

static struct export **exports_of(const struct zr_block *b) {
    return &holds.bucket[((uintptr_t)b / sizeof *b) % BUCKETS];
}

/* Unlinks an export, and says that its block is gone unless check:ipc goes on watching it. */
static void drop_export(struct export **link) {
    struct export *e = *link;

    *link = e->next;
    if (zr_config.check != ZR_CHECK_IPC && zr_config.check != ZR_CHECK_ALL)
        zr_share_forget(&e->id);
    e->next = holds.spare;
    holds.spare = e;
}

/* Drops those of a block, or of earlier blocks with this descriptor alone. */
static void drop_exports(const struct zr_block *b, bool earlier) {
    struct export **link = exports_of(b);

    while (*link)
        if ((*link)->block == b && !(earlier && (*link)->life == generation_of(b)))
            drop_export(link);
        else
            link = &(*link)->next;
}

static bool is_noted(const struct zr_block *b, const struct zr_handle_id *id) {
    for (const struct export *e = *exports_of(b); e; e = e->next)
        if (e->block == b && e->id.file == id->file)
            return true;
    return false;
}

static struct export *new_export(void) {
    struct export *e = holds.spare;

    if (!e) {
        e = zr_piece(EXPORTS_AT_ONCE * sizeof *e);
        for (unsigned i = 0; e && i < EXPORTS_AT_ONCE; i++) {
            e[i].next = holds.spare;
            holds.spare = &e[i];
        }
        e = holds.spare;
    }
    if (e)
        holds.spare = e->next;
    return e;
}

/* The process that has the block open, as zr_share_open_in(). */
static int open_in(const struct zr_block *b) {
    int pid = -1;

    for (const struct export *e = *exports_of(b); e && pid < 0; e = e->next)
        if (e->block == b && e->life == generation_of(b))
            pid = zr_share_open_in(&e->id);
    return pid;
}

void zr_hold_exported(struct zr_block *b, const struct zr_handle_id *id) {
    struct export *e;

    if (zr_config.ipc != ZR_IPC_HOLD)
        return;
    zr_lock(&holds.lock);
    drop_exports(b, true);
    e = is_noted(b, id) ? NULL : new_export();
    if (e) {
        struct export **bucket = exports_of(b);

        *e = (struct export){.next = *bucket, .block = b, .life = generation_of(b), .id = *id};
        *bucket = e;
    }
    zr_unlock(&holds.lock);
}

/* --- blocks that are held --------------------------------------------------------------------- */

/* The caller holds the lock. `link` leads to the block, behind `before`. */
static void take_out(struct zr_block **link, struct zr_block *before, struct zr_block **list) {
    struct zr_block *b = *link;

    *link = b->below;
    if (holds.last == b)
        holds.last = before;
    holds.bytes[b->key.account] -= b->held;
    __atomic_store_n(zr_card(b->key.account, ZR_C_HELD), holds.bytes[b->key.account],
                     __ATOMIC_RELAXED);
    __atomic_store_n(&holds.blocks, holds.blocks - 1, __ATOMIC_RELAXED);
    drop_exports(b, false);
    zr_leaving(1);
    b->below = *list;
    *list = b;
}

static uint64_t give_back(struct zr_block *list) {
    uint64_t bytes = 0;

    while (list) {
        struct zr_block *b = list;

        list = b->below;
        bytes += b->held;
        zr_cache_give_back(b, zr_policy_release);
        zr_returned(1);
    }
    return bytes;
}

static ZR_COLD void tell_given_up(const struct zr_block *b, int pid) {
    zr_count(ZR_F_IPC_GIVEN_UP, 1);
    zr_warn("a freed block of %zu bytes on card %u goes to the driver although process %d has it "
            "open: more than ipc_hold_limit is held; raise it, or let that process close its "
            "handles (ipc.given_up_frees counts these)",
            b->size, b->key.account, pid);
}

/* The caller holds the lock. The oldest of an account go until the limit is met. */
static void take_oldest(unsigned account, uint64_t limit, struct zr_block **list) {
    struct zr_block **link = &holds.first, *before = NULL;

    while (*link && holds.bytes[account] > limit) {
        if ((*link)->key.account == account) {
            tell_given_up(*link, open_in(*link));
            take_out(link, before, list);
        } else {
            before = *link;
            link = &before->below;
        }
    }
}

bool zr_hold_block(struct zr_block *b, const struct zr_free *f) {
    uint64_t limit;
    struct zr_block *list = NULL;
    int pid;

    if (!(zr_block_flags(b) & ZR_BLOCK_EXPORTED))
        return false;
    limit = zr_hold_share(b->key.account);
    zr_lock(&holds.lock);
    pid = open_in(b);
    if (pid < 0 || b->held > limit) {
        drop_exports(b, false);
        zr_unlock(&holds.lock);
        if (pid >= 0)
            tell_given_up(b, pid);
        return false;
    }
    zr_unlock(&holds.lock);
    /* It leaves the books first: another thread may give it back as soon as it can be found. */
    zr_registry_unbook(b);
    zr_count(ZR_F_IPC_HELD, 1);
    b->free_ext = f->ext;
    b->free_policy = f->desc ? f->desc->freePolicy : 0;
    b->below = NULL;
    b->segment = NULL;
    __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_DIRECT, __ATOMIC_RELAXED);
    zr_lock(&holds.lock);
    __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_CACHED, __ATOMIC_RELEASE);
    if (holds.first)
        holds.last->below = b;
    else
        holds.first = b;
    holds.last = b;
    holds.bytes[b->key.account] += b->held;
    __atomic_store_n(zr_card(b->key.account, ZR_C_HELD), holds.bytes[b->key.account],
                     __ATOMIC_RELAXED);
    __atomic_store_n(&holds.blocks, holds.blocks + 1, __ATOMIC_RELAXED);
    take_oldest(b->key.account, limit, &list);
    zr_unlock(&holds.lock);
    give_back(list);
    return true;
}

/* Whether calls look again. A look that takes long is followed by a long pause. */
static bool look_is_due(uint32_t ms) {
    return ms - __atomic_load_n(&holds.looked, __ATOMIC_RELAXED) >=
           __atomic_load_n(&holds.pause, __ATOMIC_RELAXED);
}

/* The caller holds the lock. */
static void look_at_held(struct zr_block **list) {
    struct zr_block **link = &holds.first, *before = NULL;
    uint64_t begun = zr_now();

    while (*link) {
        if (open_in(*link) < 0) {
            take_out(link, before, list);
        } else {
            before = *link;
            link = &before->below;
        }
    }
    __atomic_store_n(&holds.looked, zr_now_ms(), __ATOMIC_RELAXED);
    __atomic_store_n(&holds.pause, 1 + (uint32_t)((zr_now() - begun) * LOOK_PART / 1000000),
                     __ATOMIC_RELAXED);
}

ZR_COLD uint64_t zr_hold_look(bool now) {
    struct zr_block *list = NULL;

    if (!zr_hold_any() || (!now && !look_is_due(zr_now_ms())))
        return 0;
    if (now)
        zr_lock(&holds.lock);
    else if (!zr_lock_try(&holds.lock))
        return 0; /* another thread looks */
    look_at_held(&list);
    zr_unlock(&holds.lock);
    return give_back(list);
}

void zr_hold_drain(const void *context) {
    struct zr_block **link = &holds.first, *before = NULL, *list = NULL;

    zr_lock(&holds.lock);
    while (*link) {
        if ((*link)->key.context == context) {
            take_out(link, before, &list);
        } else {
            before = *link;
            link = &before->below;
        }
    }
    zr_unlock(&holds.lock);
    give_back(list);
}

/* The blocks are the parent's; the nodes of exports are left alone, which may be half changed. */
void zr_hold_fork_child(void) {
    memset(&holds, 0, sizeof holds);
}
