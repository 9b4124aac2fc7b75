/*
 * Bytes as programs: each input is a sequence of operations on both allocators, and a trace for the reader.
 * What must hold is checked by overlap and by what the frees say; the sanitizers see the rest.
 *
 *   make fuzz            builds build/fuzz/cache with clang's fuzzer and runs it for FUZZ_SECONDS (60)
 *   build/fuzz/cache F   runs one input again
 */
#include "cache/pool.h"
#include "replay/replay.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uintptr_t next = 0x600000000000;
static uint64_t out;

static int segment_alloc(void *arg, size_t size, void **p)
{
    (void)arg;
    if (out + size > (uint64_t)1 << 32)
        return 1;
    out += size;
    *p = (void *)next;
    next += (size + 0xffff) & ~(size_t)0xffff;
    return 0;
}

static int segment_free(void *arg, void *p, size_t size)
{
    (void)arg, (void)p;
    out -= size;
    return 0;
}

static int block_alloc(void *arg, const struct zr_key *key, size_t size, void **p)
{
    (void)key;
    return segment_alloc(arg, size, p);
}

static int block_free(void *arg, const struct zr_block *b)
{
    return segment_free(arg, NULL, b->held);
}

static bool is_full(int code)
{
    return code == 1;
}

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void play_pool(const uint8_t *data, size_t size)
{
    static const struct zr_pool_backing backing = {NULL, segment_alloc, segment_free};
    struct zr_pool *pool = zr_pool_new(&backing);
    struct {
        char *p;
        size_t size;
    } slot[SLOTS] = {0};

    must(pool != NULL);
    for (; size >= 4; data += 4, size -= 4) {
        unsigned n = data[0] % SLOTS;
        void *p = NULL;

        if (slot[n].p) {
            must(zr_pool_usable(pool, slot[n].p) == slot[n].size);
            must(zr_pool_free(pool, slot[n].p + 1) != ZR_FREED);
            must(zr_pool_free(pool, slot[n].p) == ZR_FREED);
            must(zr_pool_free(pool, slot[n].p) != ZR_FREED);
            slot[n].p = NULL;
        } else if (data[1] == 255) {
            zr_pool_trim(pool, (uint64_t)data[2] << 20);
        } else if (zr_pool_malloc(pool, (size_t)data[2] << data[1] % 22, data[3] & 1 ? (size_t)1 << data[3] % 24 : 0,
                                  &p) == 0) {
            slot[n].p = p;
            slot[n].size = zr_pool_usable(pool, p);
            for (unsigned i = 0; i < SLOTS; i++)
                must(i == n || !slot[i].p || slot[n].p + slot[n].size <= slot[i].p ||
                     slot[i].p + slot[i].size <= slot[n].p);
        }
    }
    zr_pool_delete(pool);
    must(out == 0);
}

static void play_whole(const uint8_t *data, size_t size)
{
    static const struct zr_backing backing = {NULL, block_alloc, block_free, is_full};
    struct zr_cache *cache = zr_cache_new(&backing);
    struct zr_freed_block was;
    char *slot[SLOTS] = {0};

    must(cache != NULL);
    for (; size >= 4; data += 4, size -= 4) {
        struct zr_key key = {.context = (void *)(uintptr_t)(16 + data[3] % 4 * 16), .account = data[3] / 64};
        unsigned n = data[0] % SLOTS;
        struct zr_block *b;
        int code = 0;

        if (slot[n]) {
            must(zr_cache_free(cache, slot[n] + 1, true, &was) > ZR_FREED_BY_DRIVER);
            must(zr_cache_free(cache, slot[n], data[1] & 1, &was) <= ZR_FREED_BY_DRIVER);
            must(zr_cache_free(cache, slot[n], true, &was) > ZR_FREED_BY_DRIVER);
            slot[n] = NULL;
        } else if (data[1] >= 250) {
            zr_cache_trim(cache, data[2] % (ZR_ACCOUNTS + 1), data[1] & 1 ? key.context : NULL, 0);
        } else if ((b = zr_cache_alloc(cache, &key, ((size_t)data[2] + 2) << data[1] % 22, &code))) {
            slot[n] = (char *)b->base;
            for (unsigned i = 0; i < SLOTS; i++)
                must(i == n || slot[i] != slot[n]);
        }
    }
    for (unsigned i = 0; i < SLOTS; i++)
        must(!slot[i] || zr_cache_free(cache, slot[i], true, &was) <= ZR_FREED_BY_DRIVER);
    zr_cache_delete(cache);
    must(out == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zr_trace trace;
    char why[160];
    FILE *in;

    if (size < 2)
        return 0;
    switch (data[0] % 3) {
    case 0:
        play_pool(data + 1, size - 1);
        break;
    case 1:
        play_whole(data + 1, size - 1);
        break;
    default:
        in = fmemopen((void *)(uintptr_t)(data + 1), size - 1, "r");
        if (in) {
            zr_trace_read(&trace, in, why, sizeof why);
            zr_trace_free(&trace);
            fclose(in);
        }
    }
    return 0;
}
