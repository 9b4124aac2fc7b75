/*
 * Bytes as programs: each input is a sequence of operations on one of the two allocators. What must hold is checked by
 * overlap and by what the frees say; the sanitizers see the rest.
 */
#include "fuzz.h"

#include "cache/cache.h"

#include <string.h>

enum { SLOTS = 64 };

static uintptr_t next = 0x600000000000;
static uint64_t out;

/* A block in the map, LIVE; NULL beyond 4 GiB. */
static struct zr_block *driver_alloc(const struct zr_key *key, size_t size, size_t held) {
    struct zr_block *b;

    if (out + held > (uint64_t)1 << 32)
        return NULL;
    b = zr_block_new();
    must(b != NULL);
    zr_block_place(b, next, size, held);
    zr_block_set_key(b, key);
    must(zr_map_insert(b));
    out += held;
    next += (held + 0xffff) & ~(size_t)0xffff;
    return b;
}

static enum zr_released driver_free(struct zr_block *b) {
    must(zr_word_state(zr_block_word(b)) >= ZR_BLOCK_LEAVING);
    out -= b->held;
    return ZR_RELEASED;
}

static struct zr_block *segment_alloc(void *arg, size_t size, int *code) {
    static const struct zr_key key;

    (void)arg;
    *code = 1;
    return driver_alloc(&key, size, size);
}

static void segment_free(void *arg, struct zr_block *b) {
    (void)arg;
    must(zr_map_take((void *)b->base) == b);
    driver_free(b);
    zr_block_recycle(b);
}

static void play_pool(const uint8_t *data, size_t size) {
    static const struct zr_pool_backing backing = {NULL, segment_alloc, segment_free};
    struct zr_pool *pool = zr_pool_new(&backing, 0);
    struct {
        char *p;
        size_t size;
    } slot[SLOTS] = {0};
    size_t freed;

    must(pool != NULL);
    for (; size >= 4; data += 4, size -= 4) {
        size_t want = 1 + ((size_t)data[2] << data[1] % 22), align = data[3] & 1 ? (size_t)1 << data[3] % 17 : 0;
        unsigned n = data[0] % SLOTS;
        void *p = NULL;
        bool grew;

        if (slot[n].p) {
            must(zr_pool_usable(pool, slot[n].p) == slot[n].size);
            if (data[1] == 254)
                zr_block_mark(zr_map_find(slot[n].p), ZR_BLOCK_EXPORTED);
            must(zr_pool_free(pool, slot[n].p + 1, &freed) == ZR_FREED_INTERIOR);
            must(zr_pool_free(pool, slot[n].p, &freed) == ZR_FREED);
            must(zr_pool_free(pool, slot[n].p, &freed) != ZR_FREED);
            slot[n].p = NULL;
        } else if (data[1] == 255) {
            zr_pool_trim(pool, (uint64_t)data[2] << 20);
        } else if (zr_pool_malloc(pool, want, align, &p, &grew) == 0) {
            slot[n].p = p;
            slot[n].size = zr_pool_usable(pool, p);
            must(slot[n].size >= want && (!align || (uintptr_t)p % align == 0));
            for (unsigned i = 0; i < SLOTS; i++)
                must(i == n || !slot[i].p || slot[n].p + slot[n].size <= slot[i].p ||
                     slot[i].p + slot[i].size <= slot[n].p);
        }
    }
    zr_pool_delete(pool);
    must(out == 0);
}

static void whole_put(char *p, bool keep) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_look(p, &word);

    must(!zr_map_base(p + 1));
    must(b && zr_word_state(word) == ZR_BLOCK_LIVE && zr_block_shift(b, word, ZR_BLOCK_CACHED));
    must(!zr_map_take(p));
    if (keep && zr_cache_takes(b->key.account, b->held)) {
        zr_cache_put(b);
        return;
    }
    zr_cache_give_back(b, driver_free);
}

static void play_whole(const uint8_t *data, size_t size) {
    char *slot[SLOTS] = {0};

    zr_cache_setup(driver_free, UINT32_MAX);
    for (unsigned i = 0; i < 4; i++)
        zr_cache_set_limit(i, (uint64_t)1 << (20 + 4 * i));
    for (; size >= 4; data += 4, size -= 4) {
        struct zr_key key = {.context = (void *)(uintptr_t)(16 + data[3] % 4 * 16), .account = data[3] / 64};
        unsigned n = data[0] % SLOTS;

        if (slot[n]) {
            whole_put(slot[n], data[1] & 1);
            slot[n] = NULL;
        } else if (data[1] >= 250) {
            zr_cache_trim(data[2] % (ZR_ACCOUNTS + 1), data[1] & 1 ? key.context : NULL);
        } else {
            size_t want = ((size_t)data[2] + 2) << data[1] % 22, held = zr_cache_round(want);
            struct zr_block *b = zr_cache_get(&key, held, want);

            if (!b)
                b = driver_alloc(&key, want, held);
            slot[n] = b ? (char *)b->base : NULL;
            for (unsigned i = 0; i < SLOTS; i++)
                must(i == n || !slot[i] || slot[i] != slot[n]);
        }
    }
    for (unsigned i = 0; i < SLOTS; i++)
        if (slot[i])
            whole_put(slot[i], true);
    for (unsigned i = 0; i < 4; i++)
        must(zr_cache_bytes(i) <= (uint64_t)1 << (20 + 4 * i));
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    must(out == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    if (data[0] % 2)
        play_whole(data + 1, size - 1);
    else
        play_pool(data + 1, size - 1);
    return 0;
}
