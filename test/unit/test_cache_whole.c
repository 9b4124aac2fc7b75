/* The cache of whole blocks: what is interchangeable, what stays, what leaves and when. */
#include "cache_whole.h"

#include <time.h>

static void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

START_TEST(a_freed_block_is_handed_out_again) {
    void *p = get(100000);

    ck_assert(put(p));
    ck_assert_ptr_null(zr_map_base(p));
    ck_assert_ptr_eq(get(100000), p);
    ck_assert_uint_eq(zr_map_base(p)->size, 100000);
    ck_assert_int_eq(driver.allocs, 1);
    ck_assert_int_eq(driver.frees, 0);
}
END_TEST

START_TEST(sizes_of_one_class_are_interchangeable) {
    void *p = get(100000);

    ck_assert(put(p));
    ck_assert_ptr_eq(get(98400), p);
    ck_assert_uint_eq(zr_map_base(p)->size, 98400);
    ck_assert_uint_eq(zr_map_base(p)->held, zr_cache_round(100000));
    ck_assert_ptr_ne(get(200000), p);
}
END_TEST

START_TEST(a_block_serves_its_own_key_only) {
    struct zr_key other[8];
    void *p = get(65536);

    put(p);
    for (unsigned i = 0; i < 8; i++)
        other[i] = key;
    other[0].context = (void *)0x1008;
    other[1].device = (void *)0x2008;
    other[2].residents = 2;
    other[3].flags = 1;
    other[4].ordinal = 1;
    other[5].extra = 1;
    other[6].kind = 1;
    other[7].align = 17;
    for (unsigned i = 0; i < 8; i++)
        ck_assert_msg(zr_cache_get(&other[i], 65536, 65536) == NULL, "key %u", i);
    other[0] = key;
    other[0].account = 2;
    ck_assert_ptr_null(zr_cache_get(&other[0], 65536, 65536));
    ck_assert_ptr_nonnull(zr_cache_get(&key, 65536, 65536));
}
END_TEST

START_TEST(the_block_freed_last_comes_first) {
    void *p[3] = {get(65536), get(65536), get(65536)};

    for (int i = 0; i < 3; i++)
        put(p[i]);
    for (int i = 2; i >= 0; i--)
        ck_assert_ptr_eq(get(65536), p[i]);
}
END_TEST

START_TEST(a_block_starts_anew_when_it_is_handed_out) {
    void *p = get(65536);
    struct zr_block *b = zr_map_base(p);

    zr_block_mark(b, ZR_BLOCK_CACHEABLE | ZR_BLOCK_SYCL | ZR_BLOCK_WITH_CONTEXT | ZR_BLOCK_SKIPPED << 3);
    b->requested = 5;
    put(p);
    ck_assert_ptr_eq(get(65536), p);
    ck_assert_uint_eq(zr_block_flags(b), ZR_BLOCK_CACHEABLE);
    ck_assert_uint_eq(b->requested, 0);
}
END_TEST

START_TEST(nothing_is_cached_without_a_limit) {
    void *p = get(65536);

    zr_cache_set_limit(1, 0);
    ck_assert(!put(p));
    ck_assert_int_eq(driver.frees, 1);
}
END_TEST

START_TEST(the_oldest_blocks_leave_beyond_the_limit) {
    void *p[8];

    zr_cache_set_limit(1, 4 * MIB);
    for (int i = 0; i < 8; i++)
        p[i] = get(MIB);
    for (int i = 0; i < 8; i++) {
        ck_assert(put(p[i]));
        ck_assert_uint_le(zr_cache_bytes(1), 4 * MIB);
    }
    ck_assert_int_eq(driver.frees, 4);
    ck_assert_uint_eq(zr_cache_bytes(1), 4 * MIB);
    for (int i = 7; i >= 4; i--)
        ck_assert_ptr_eq(get(MIB), p[i]);
    ck_assert_uint_eq(zr_cache_bytes(1), 0);
}
END_TEST

START_TEST(a_block_larger_than_the_limit_is_not_cached_and_pushes_nothing_out) {
    void *large = get(8 * MIB), *p = get(MIB);

    zr_cache_set_limit(1, 4 * MIB);
    ck_assert(put(p));
    ck_assert(!put(large));
    ck_assert_uint_eq(zr_cache_bytes(1), MIB);
}
END_TEST

START_TEST(a_lower_limit_takes_effect_at_once) {
    void *p[4];

    for (int i = 0; i < 4; i++)
        p[i] = get(MIB);
    for (int i = 0; i < 4; i++)
        put(p[i]);
    zr_cache_set_limit(1, 2 * MIB);
    ck_assert_uint_eq(zr_cache_bytes(1), 2 * MIB);
    ck_assert_int_eq(driver.frees, 2);
}
END_TEST

START_TEST(a_limit_counts_one_account_only) {
    struct zr_key other = key;
    struct zr_block *b;

    other.account = 2;
    zr_cache_set_limit(1, 2 * MIB);
    zr_cache_set_limit(2, 2 * MIB);
    b = get_key(&other, 2 * MIB);
    put((void *)b->base);
    put(get(2 * MIB));
    ck_assert_int_eq(driver.frees, 0);
    ck_assert_uint_eq(zr_cache_bytes(2), 2 * MIB);
}
END_TEST

START_TEST(idle_blocks_leave_and_fresh_ones_stay) {
    void *p = get(65536), *q = get(131072);

    zr_cache_setup(driver_free, 600);
    put(p);
    sleep_ms(800);
    put(q);
    ck_assert_ptr_null(zr_cache_get(&key, 64, 64)); /* a miss looks at the clock, too */
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_uint_eq(zr_cache_bytes(1), 131072);
    sleep_ms(800);
    ck_assert(put(get(65536)));
    ck_assert_int_eq(driver.frees, 2);
}
END_TEST

START_TEST(a_sweep_releases_a_bounded_number_of_blocks) {
    enum { MANY = 3000 };
    static void *p[MANY];

    zr_cache_setup(driver_free, 100);
    for (int i = 0; i < MANY; i++)
        p[i] = get(65536);
    for (int i = 0; i < MANY; i++)
        put(p[i]);
    sleep_ms(200);
    int before = driver.frees; /* of puts that came late on a busy machine */
    ck_assert_ptr_null(zr_cache_get(&key, 64, 64));
    ck_assert_int_gt(driver.frees, before);
    ck_assert_int_le(driver.frees - before, 1024);
}
END_TEST

START_TEST(trim_takes_what_it_is_told) {
    struct zr_key other = key;
    struct zr_block *b;

    other.context = (void *)0x5000;
    other.account = 2;
    zr_cache_set_limit(2, UINT64_MAX);
    put(get(MIB));
    b = get_key(&other, 2 * MIB);
    put((void *)b->base);
    ck_assert_uint_eq(zr_cache_trim(3, NULL), 0);
    ck_assert_uint_eq(zr_cache_trim(1, other.context), 0);
    ck_assert_uint_eq(zr_cache_trim(ZR_ACCOUNTS, other.context), 2 * MIB);
    ck_assert_ptr_eq(driver.last_context, other.context);
    ck_assert_uint_eq(zr_cache_trim(1, NULL), MIB);
    ck_assert_uint_eq(zr_cache_trim(ZR_ACCOUNTS, NULL), 0);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(what_has_gone_back_is_told) {
    uint32_t before = zr_cache_withdrawals();
    void *p = get(MIB);

    put(p);
    ck_assert_uint_eq(zr_cache_withdrawals(), before);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    ck_assert_uint_ne(zr_cache_withdrawals(), before);
    zr_cache_await(5000);
}
END_TEST

static int nested;

/* The driver calls back while it takes a block: no lock may be held, and the address may be in use again. */
static enum zr_released release_and_call_back(struct zr_block *b) {
    uintptr_t base = b->base;

    driver_free(b);
    if (nested++ < 3) {
        struct zr_block *again = zr_block_new();

        zr_block_place(again, base, 65536, 65536);
        again->key = key;
        driver.held += 65536;
        ck_assert(zr_map_insert(again));
        ck_assert(put((void *)base));
        ck_assert_ptr_nonnull(get(65536));
        zr_cache_trim(ZR_ACCOUNTS, NULL);
    }
    return ZR_RELEASED;
}

START_TEST(release_runs_without_a_lock_and_the_address_is_free_by_then) {
    void *p = get(65536);

    zr_cache_setup(release_and_call_back, UINT32_MAX);
    put(p);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    ck_assert_int_ge(nested, 1);
    ck_assert_ptr_eq((void *)zr_map_base(p)->base, p);
}
END_TEST

START_TEST(sizes_are_rounded_by_their_class) {
    static const struct {
        size_t size, held;
    } known[] = {{1, 64},
                 {64, 64},
                 {65, 128},
                 {512, 512},
                 {513, 576},
                 {1024, 1024},
                 {1025, 1152},
                 {65537, 73728},
                 {MIB, MIB},
                 {MIB + 1, MIB + 65536},
                 {64 * MIB, 64 * MIB},
                 {64 * MIB + 1, 65 * MIB},
                 {256 * MIB + 1, 260 * MIB}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ck_assert_uint_eq(zr_cache_round(known[i].size), known[i].held);
    for (size_t size = 2 * MIB; size <= 256 * MIB; size += 2 * MIB)
        ck_assert_uint_eq(zr_cache_round(size), size);
    for (size_t size = 1; size < (size_t)1 << 40; size += 1 + size / 3) {
        size_t held = zr_cache_round(size);

        ck_assert_uint_ge(held, size);
        ck_assert_uint_eq(zr_cache_round(held), held);
        if (size > 512)
            ck_assert_uint_le(held - size, size / (size > 64 * MIB ? 64 : size > MIB ? 16 : 8));
    }
    ck_assert_uint_eq(zr_cache_round(SIZE_MAX), SIZE_MAX);
}
END_TEST

START_TEST(many_keys_and_sizes_are_all_found_again) {
    enum { KEYS = 64, SIZES = 40 };
    static void *p[KEYS][SIZES];
    struct zr_key k = key;

    for (int pass = 0; pass < 3; pass++) {
        for (uintptr_t i = 0; i < KEYS; i++)
            for (size_t j = 0; j < SIZES; j++) {
                k.context = (void *)(0x1000 + i % 8 * 16);
                k.residents = i / 8;
                p[i][j] = (void *)get_key(&k, 65536 * (j + 1))->base;
            }
        for (int i = 0; i < KEYS; i++)
            for (int j = 0; j < SIZES; j++)
                put(p[i][j]);
    }
    ck_assert_int_le(driver.allocs, KEYS * SIZES);
    ck_assert_uint_eq(zr_cache_bytes(1), driver.held);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

static void stop(void) {
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        ck_assert_uint_le(zr_cache_bytes(i), driver.held);
}

int main(void) {
    Suite *suite = suite_create("cache whole");
    TCase *c = tcase_create("whole");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, start, stop);
    tcase_add_test(c, a_freed_block_is_handed_out_again);
    tcase_add_test(c, sizes_of_one_class_are_interchangeable);
    tcase_add_test(c, a_block_serves_its_own_key_only);
    tcase_add_test(c, the_block_freed_last_comes_first);
    tcase_add_test(c, a_block_starts_anew_when_it_is_handed_out);
    tcase_add_test(c, nothing_is_cached_without_a_limit);
    tcase_add_test(c, the_oldest_blocks_leave_beyond_the_limit);
    tcase_add_test(c, a_block_larger_than_the_limit_is_not_cached_and_pushes_nothing_out);
    tcase_add_test(c, a_lower_limit_takes_effect_at_once);
    tcase_add_test(c, a_limit_counts_one_account_only);
    tcase_add_test(c, idle_blocks_leave_and_fresh_ones_stay);
    tcase_add_test(c, a_sweep_releases_a_bounded_number_of_blocks);
    tcase_add_test(c, trim_takes_what_it_is_told);
    tcase_add_test(c, what_has_gone_back_is_told);
    tcase_add_test(c, release_runs_without_a_lock_and_the_address_is_free_by_then);
    tcase_add_test(c, sizes_are_rounded_by_their_class);
    tcase_add_test(c, many_keys_and_sizes_are_all_found_again);
    return run_suite(suite);
}
