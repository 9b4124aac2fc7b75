/*
 * What stands before a pool: blocks that were freed a moment ago, by size, and the sizes of those
 * that are out. A program that asks for what it has just given back is answered here.
 *
 * Direct-mapped by address and small on purpose: a block that finds its place taken goes to the
 * pool itself. For the pool a block that lies here is still out, so everything here goes back
 * before the pool is trimmed.
 */
#include "pool.h"

#include "cache/pages.h"

#include <sched.h>

enum { SLOTS = 512, BINS = 64, TURNS_PER_CLOCK = 256, NONE = 0 };

enum state { EMPTY, OUT, KEPT };

struct slot {
    void *ptr;
    size_t size, asked; /* as taken from the pool; as the program asked */
    uint16_t next;      /* of the same bin, by number from 1 */
    uint8_t state;
};

struct zr_front {
    uint32_t busy; /* held for a few instructions: let go of by a plain store, which a waiting lock
                      could not be */
    uint32_t turns;
    uint64_t kept, limit; /* bytes */
    uint64_t out_bytes, out_blocks; /* as asked, of what is out and remembered here */
    uint64_t idle_ns, last_drain;
    uint16_t bin[BINS];
    struct slot slot[SLOTS];
};

static inline void enter(struct zr_front *f)
{
    for (unsigned spin = 0; unlikely(__atomic_exchange_n(&f->busy, 1, __ATOMIC_ACQUIRE)); spin++) {
        if (spin % 64 == 63)
            sched_yield();
        else
            __builtin_ia32_pause();
    }
}

static inline void leave(struct zr_front *f)
{
    __atomic_store_n(&f->busy, 0, __ATOMIC_RELEASE);
}

/* With the lock held. */
static inline void goes_out(struct zr_front *f, size_t asked)
{
    f->out_bytes += asked;
    f->out_blocks++;
}

static inline void comes_back(struct zr_front *f, size_t asked)
{
    f->out_bytes -= asked;
    f->out_blocks--;
}

static inline unsigned slot_of(const void *ptr)
{
    return (unsigned)((uintptr_t)ptr * UINT64_C(0x9e3779b97f4a7c15) >> 55);
}

static inline unsigned bin_of(size_t size)
{
    return (unsigned)(size * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

void *zr_front_take(struct zr_front *f, size_t size, size_t asked)
{
    uint16_t *first = &f->bin[bin_of(size)];
    void *ptr = NULL;
    struct slot *s;

    if (__atomic_load_n(first, __ATOMIC_RELAXED) == NONE)
        return NULL;
    enter(f);
    if (likely(*first != NONE)) {
        s = &f->slot[*first - 1];
        if (likely(s->size == size)) {
            __atomic_store_n(first, s->next, __ATOMIC_RELAXED);
            s->asked = asked;
            __atomic_store_n(&s->state, OUT, __ATOMIC_RELAXED);
            f->kept -= size;
            goes_out(f, asked);
            ptr = s->ptr;
        }
    }
    leave(f);
    return ptr;
}

bool zr_front_note(struct zr_front *f, void *ptr, size_t size, size_t asked)
{
    struct slot *s = &f->slot[slot_of(ptr)];
    bool noted = false;

    enter(f);
    if (s->state == EMPTY) {
        s->size = size;
        s->asked = asked;
        __atomic_store_n(&s->ptr, ptr, __ATOMIC_RELAXED);
        __atomic_store_n(&s->state, OUT, __ATOMIC_RELEASE);
        goes_out(f, asked);
        noted = true;
    }
    leave(f);
    return noted;
}

enum zr_front_answer zr_front_give(struct zr_front *f, void *ptr, size_t *asked)
{
    struct slot *s = &f->slot[slot_of(ptr)];
    enum zr_front_answer answer = ZR_FRONT_UNKNOWN;

    if (__atomic_load_n(&s->ptr, __ATOMIC_RELAXED) != ptr)
        return answer;
    enter(f);
    if (unlikely(s->ptr != ptr || s->state == EMPTY)) {
        /* somebody else's by now */
    } else if (unlikely(s->state == KEPT)) {
        answer = ZR_FRONT_TWICE;
    } else {
        uint16_t *first = &f->bin[bin_of(s->size)];

        *asked = s->asked;
        comes_back(f, s->asked);
        if (likely(f->kept + s->size <= f->limit)) {
            s->next = *first;
            __atomic_store_n(&s->state, KEPT, __ATOMIC_RELAXED);
            __atomic_store_n(first, (uint16_t)(s - f->slot + 1), __ATOMIC_RELAXED);
            f->kept += s->size;
            answer =
                unlikely(++f->turns % TURNS_PER_CLOCK == 0) ? ZR_FRONT_KEPT_LONG : ZR_FRONT_KEPT;
        } else {
            __atomic_store_n(&s->ptr, NULL, __ATOMIC_RELAXED);
            __atomic_store_n(&s->state, EMPTY, __ATOMIC_RELAXED);
            answer = ZR_FRONT_PASSED;
        }
    }
    leave(f);
    return answer;
}

size_t zr_front_size(struct zr_front *f, const void *ptr)
{
    struct slot *s = &f->slot[slot_of(ptr)];

    return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == OUT &&
                   __atomic_load_n(&s->ptr, __ATOMIC_RELAXED) == ptr
               ? s->size
               : 0;
}

/* One block at a time: the pool's lock is not taken under ours. */
static void *pop(struct zr_front *f)
{
    void *ptr = NULL;

    enter(f);
    for (unsigned i = 0; i < BINS && !ptr; i++)
        if (f->bin[i] != NONE) {
            struct slot *s = &f->slot[f->bin[i] - 1];

            ptr = s->ptr;
            __atomic_store_n(&f->bin[i], s->next, __ATOMIC_RELAXED);
            f->kept -= s->size;
            __atomic_store_n(&s->ptr, NULL, __ATOMIC_RELAXED);
            __atomic_store_n(&s->state, EMPTY, __ATOMIC_RELAXED);
        }
    leave(f);
    return ptr;
}

bool zr_front_drain(struct zr_front *f, struct zr_pool *pool)
{
    bool any = false;

    for (void *ptr; (ptr = pop(f)); any = true)
        zr_pool_free(pool, ptr);
    return any;
}

void zr_front_pass_time(struct zr_front *f, struct zr_pool *pool)
{
    struct timespec t;
    uint64_t now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    if (now - __atomic_load_n(&f->last_drain, __ATOMIC_RELAXED) < f->idle_ns / 2)
        return;
    __atomic_store_n(&f->last_drain, now, __ATOMIC_RELAXED);
    zr_front_drain(f, pool);
}

struct zr_front *zr_front_new(uint64_t limit, uint64_t idle_ns)
{
    struct zr_front *f = zr_pages((sizeof *f + 4095) & ~(size_t)4095);

    if (f) {
        f->limit = limit;
        f->idle_ns = idle_ns;
    }
    return f;
}

uint64_t zr_front_out(struct zr_front *f, uint64_t *bytes)
{
    uint64_t blocks;

    enter(f);
    *bytes = f->out_bytes;
    blocks = f->out_blocks;
    leave(f);
    return blocks;
}

void zr_front_fork_child(struct zr_front *f)
{
    f->busy = 0;
}

void zr_front_delete(struct zr_front *f)
{
    zr_pages_back(f, (sizeof *f + 4095) & ~(size_t)4095);
}
