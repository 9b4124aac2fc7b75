/* The pool: where allocations lie, what a free says, and when segments go back. */
#include "cache_whole.h"

#include <stdio.h>
#include <time.h>

static struct zr_pool *pool;

static void begin(void) {
    driver_start();
    pool = zr_pool_new(&segments, 1);
    ck_assert_ptr_nonnull(pool);
}

static void end(void) {
    zr_pool_delete(pool);
    ck_assert_uint_eq(driver.held, 0);
    ck_assert_int_eq(driver.allocs, driver.frees);
}

static char *take_aligned(size_t size, size_t alignment) {
    void *p = NULL;
    bool grew;

    ck_assert_int_eq(zr_pool_malloc(pool, size, alignment, &p, &grew), 0);
    ck_assert_ptr_nonnull(p);
    return p;
}

static char *take(size_t size) {
    return take_aligned(size, 0);
}

static enum zr_freed give(void *p) {
    size_t size;

    return zr_pool_free(pool, p, &size);
}

static struct zr_pool_counts counts(void) {
    struct zr_pool_counts c;

    zr_pool_counts(pool, &c);
    return c;
}

/* KiB. */
static size_t resident(void) {
    FILE *statm = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    ck_assert_ptr_nonnull(statm);
    ck_assert_int_eq(fscanf(statm, "%*u %zu", &pages), 1);
    fclose(statm);
    return pages * 4;
}

/* 4096 grains of 8 bytes each, and not the next power of two. */
START_TEST(the_table_of_a_small_segment_has_an_entry_per_grain) {
    enum { SEGMENTS = 128, ROOM = 48 };
    size_t before;

    take(MIB);
    before = resident();
    for (int i = 0; i < 2 * SEGMENTS; i++)
        take(MIB);
    ck_assert_uint_le(resident() - before, SEGMENTS * ROOM);
}
END_TEST

START_TEST(segments_have_pytorchs_sizes) {
    void *p;
    bool grew;

    ck_assert_int_eq(zr_pool_malloc(pool, 1, 0, &p, &grew), 0);
    ck_assert(grew);
    ck_assert_uint_eq(driver.held, 2 * MIB);
    ck_assert_int_eq(zr_pool_malloc(pool, MIB, 0, &p, &grew), 0);
    ck_assert(!grew);
    take(MIB + 1);
    ck_assert_uint_eq(driver.held, 22 * MIB);
    take(10 * MIB - 1);
    ck_assert_uint_eq(driver.held, 22 * MIB);
    take(10 * MIB);
    ck_assert_uint_eq(driver.held, 32 * MIB);
    take(12 * MIB + 1);
    ck_assert_uint_eq(driver.held, 46 * MIB);
    ck_assert_uint_eq(counts().held, 46 * MIB);
    ck_assert_uint_eq(counts().backing_allocs, 4);
}
END_TEST

START_TEST(the_smallest_chunk_that_fits_is_taken_and_of_equal_ones_the_lowest) {
    char *p[6];

    for (int i = 0; i < 6; i++)
        p[i] = take(i == 3 ? 4096 : 8192);
    ck_assert_int_eq(give(p[4]), ZR_FREED);
    ck_assert_int_eq(give(p[1]), ZR_FREED);
    ck_assert_ptr_eq(take(8000), p[1]);
    ck_assert_int_eq(give(p[3]), ZR_FREED); /* between two of which one is free: merges with p[4] */
    ck_assert_ptr_eq(take(12000), p[3]);
}
END_TEST

START_TEST(freed_neighbours_merge_and_serve_something_larger) {
    char *p[4];

    for (int i = 0; i < 4; i++)
        p[i] = take(MIB / 2);
    give(p[0]);
    give(p[2]);
    give(p[1]);
    ck_assert_ptr_eq(take(MIB), p[0]);
    ck_assert_int_eq(driver.allocs, 1);
}
END_TEST

START_TEST(the_rest_of_a_large_chunk_is_split_off_beyond_1_mib_only) {
    char *p = take(18 * MIB), *q;

    give(p);
    q = take(17 * MIB);
    ck_assert_ptr_eq(q, p);
    ck_assert_uint_eq(zr_pool_usable(pool, q), 18 * MIB);
    give(q);
    ck_assert_uint_eq(zr_pool_usable(pool, take(17 * MIB - 512)), 17 * MIB - 512);
}
END_TEST

START_TEST(every_alignment_up_to_64_kib_is_met) {
    static const size_t sizes[] = {1, 512, 5000, MIB - 512, MIB, MIB + 1, 9 * MIB, 20 * MIB};

    driver.offset = 512; /* segments begin beside a page */
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *p = take_aligned(sizes[i], alignment);

            ck_assert_uint_eq((uintptr_t)p % (alignment > 512 ? alignment : 512), 0);
            ck_assert_uint_ge(zr_pool_usable(pool, p), sizes[i]);
            if (i % 2)
                ck_assert_int_eq(give(p), ZR_FREED);
        }
}
END_TEST

START_TEST(a_segment_that_begins_on_no_grain_is_given_back) {
    uint64_t frees = driver.frees;
    bool grew;
    void *p;

    driver.offset = 100;
    ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p, &grew), ZR_NO_MEMORY);
    ck_assert_ptr_null(p);
    ck_assert_uint_eq(driver.frees, frees + 1);
}
END_TEST

static struct zr_block *alloc_more(void *arg, size_t size, int *code) {
    static const struct zr_key none;

    (void)arg;
    return driver_alloc(&none, size, size + 4 * MIB, code);
}

START_TEST(a_block_may_hold_more_than_was_requested_of_the_backing) {
    static const struct zr_pool_backing backing = {NULL, alloc_more, segment_free};
    char *p[8];

    zr_pool_delete(pool);
    pool = zr_pool_new(&backing, 1);
    for (int i = 0; i < 8; i++)
        p[i] = take(MIB);
    ck_assert_int_eq(driver.allocs, 4);
    ck_assert_uint_eq(counts().held, driver.held);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(give(p[i]), ZR_FREED);
}
END_TEST

START_TEST(a_free_says_what_was_requested) {
    void *p = take(1000);
    size_t size;

    ck_assert_uint_eq(counts().live, 1);
    ck_assert_uint_eq(counts().live_bytes, 1000);
    ck_assert_int_eq(zr_pool_free(pool, p, &size), ZR_FREED);
    ck_assert_uint_eq(size, 1000);
    ck_assert_uint_eq(counts().live, 0);
    ck_assert_uint_eq(counts().live_bytes, 0);
}
END_TEST

START_TEST(a_second_free_is_told) {
    static const size_t sizes[] = {100, MIB, 3 * MIB, 20 * MIB};

    for (size_t i = 0; i < 4; i++) {
        char *p = take(sizes[i]), *q = take(sizes[i]);

        ck_assert_int_eq(give(q), ZR_FREED);
        ck_assert_int_eq(give(p), ZR_FREED);
        ck_assert_int_eq(give(p), ZR_FREED_TWICE);
        ck_assert_int_eq(give(q), ZR_FREED_TWICE);
        ck_assert_uint_eq(zr_pool_usable(pool, p), 0);
    }
}
END_TEST

START_TEST(an_inner_address_is_not_freed) {
    static const size_t sizes[] = {100, 5000, MIB, 3 * MIB, 20 * MIB};

    for (size_t i = 0; i < 5; i++) {
        char *p = take(sizes[i]);

        ck_assert_int_eq(give(p + 1), ZR_FREED_INTERIOR);
        ck_assert_int_eq(give(p + sizes[i] - 1), ZR_FREED_INTERIOR);
        ck_assert_int_eq(give(p + sizes[i] / 2), ZR_FREED_INTERIOR);
        ck_assert_uint_eq(zr_pool_usable(pool, p + 1), 0);
        ck_assert_int_eq(give(p), ZR_FREED);
    }
}
END_TEST

START_TEST(what_is_not_of_this_pool_is_unknown) {
    struct zr_pool *other = zr_pool_new(&segments, 1);
    void *theirs = NULL;
    bool grew;

    ck_assert_int_eq(zr_pool_malloc(other, 512, 0, &theirs, &grew), 0);
    ck_assert_int_eq(give(theirs), ZR_FREED_UNKNOWN);
    ck_assert_uint_eq(zr_pool_usable(pool, theirs), 0);
    ck_assert_int_eq(give(NULL), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(give(&grew), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(give(take(512) + 4096), ZR_FREED_UNKNOWN); /* free and never handed out */
    zr_pool_delete(other);
}
END_TEST

static void export(void *p) {
    zr_block_mark(zr_map_find(p), ZR_BLOCK_EXPORTED);
}

START_TEST(what_is_freed_in_an_exported_segment_is_not_reused) {
    char *p = take(4096), *q = take(4096), *r;

    export(p);
    ck_assert_int_eq(give(p), ZR_FREED);
    ck_assert_int_eq(give(p), ZR_FREED_TWICE);
    r = take(4096);
    ck_assert_ptr_ne(r, p);
    ck_assert_int_eq(driver.allocs, 2);
    ck_assert_int_eq(driver.frees, 0);
    ck_assert_int_eq(give(q), ZR_FREED);
    ck_assert_int_eq(driver.frees, 1); /* its last allocation has gone */
    ck_assert_int_eq(give(q), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(give(r), ZR_FREED);
    ck_assert_uint_eq(counts().whole_free, 2 * MIB);
}
END_TEST

START_TEST(an_exported_segment_goes_back_with_its_last_allocation) {
    char *p = take(4096);

    export(p);
    ck_assert_int_eq(give(p), ZR_FREED);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_uint_eq(counts().held, 0);
}
END_TEST

START_TEST(what_was_free_before_the_export_is_not_reused_either) {
    char *p = take(4096), *q = take(4096);

    give(p);
    export(q);
    ck_assert_ptr_ne(take(4096), p);
    ck_assert_int_eq(driver.allocs, 2);
    give(q);
    ck_assert_int_eq(driver.frees, 1);
}
END_TEST

START_TEST(an_entirely_free_segment_that_is_exported_goes_back) {
    char *p = take(4096);

    give(p);
    export((char *)zr_map_find(p)->base);
    p = take(4096);
    ck_assert_int_eq(driver.allocs, 2);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_uint_eq(counts().whole_free, 0);
    ck_assert_int_eq(give(p), ZR_FREED);
}
END_TEST

START_TEST(a_refused_segment_is_tried_in_the_size_that_is_needed) {
    driver.room = 10 * MIB;
    take(3 * MIB);
    ck_assert_uint_eq(driver.held, 4 * MIB);
}
END_TEST

START_TEST(the_backings_code_goes_up_unchanged) {
    void *p = &p;
    bool grew = false;

    driver.room = MIB;
    ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p, &grew), FULL);
    ck_assert(grew);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(zr_pool_malloc(pool, (size_t)1 << 50, 0, &p, &grew), FULL);
    ck_assert_int_eq(zr_pool_malloc(pool, SIZE_MAX, 0, &p, &grew), FULL);
    ck_assert_uint_eq(counts().held, 0);
    driver.room = UINT64_MAX;
    take(512);
}
END_TEST

START_TEST(trim_gives_entirely_free_segments_back) {
    char *p[4], *q = take(512);
    uint32_t returned = zr_cache_withdrawals();

    for (int i = 0; i < 4; i++)
        p[i] = take(20 * MIB);
    for (int i = 0; i < 4; i++)
        give(p[i]);
    ck_assert_uint_eq(counts().whole_free, 80 * MIB);
    ck_assert_uint_eq(zr_cache_withdrawals(), returned);
    ck_assert_uint_eq(zr_pool_trim(pool, 50 * MIB), 40 * MIB);
    ck_assert_uint_ne(zr_cache_withdrawals(), returned);
    ck_assert_uint_eq(zr_pool_trim(pool, 0), 40 * MIB);
    ck_assert_uint_eq(zr_pool_trim(pool, 0), 0);
    ck_assert_uint_eq(driver.held, 2 * MIB);
    ck_assert_int_eq(give(p[0]), ZR_FREED_UNKNOWN);
    give(q);
}
END_TEST

START_TEST(no_more_is_kept_than_allowed) {
    char *p[4];

    zr_pool_set_limits(pool, 40 * MIB, UINT32_MAX);
    for (int i = 0; i < 4; i++)
        p[i] = take(20 * MIB);
    for (int i = 0; i < 4; i++)
        give(p[i]);
    ck_assert_uint_eq(counts().whole_free, 40 * MIB);
    ck_assert_uint_eq(driver.held, 40 * MIB);
    zr_pool_set_limits(pool, 0, UINT32_MAX);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(idle_segments_go_back) {
    struct timespec t = {0, 150000000};
    char *p = take(20 * MIB), *q = take(512);

    zr_pool_set_limits(pool, UINT64_MAX, 50);
    give(p);
    ck_assert_int_eq(driver.frees, 0);
    nanosleep(&t, NULL);
    for (int i = 0; i < 200; i++)
        give(take(512));
    ck_assert_int_eq(driver.frees, 1);
    give(q);
}
END_TEST

START_TEST(the_pools_of_an_account_are_trimmed_and_no_others) {
    struct zr_pool *other = zr_pool_new(&segments, 2);
    size_t size;
    bool grew;
    void *p;

    give(take(512));
    ck_assert_int_eq(zr_pool_malloc(other, 20 * MIB, 0, &p, &grew), 0);
    ck_assert_int_eq(zr_pool_free(other, p, &size), ZR_FREED);
    ck_assert_uint_eq(zr_pools_trim(3), 0);
    ck_assert_uint_eq(zr_pools_trim(2), 20 * MIB);
    ck_assert_uint_eq(zr_pools_trim(ZR_ACCOUNTS), 2 * MIB);
    zr_pool_delete(other);
}
END_TEST

START_TEST(a_pool_that_is_deleted_gives_back_what_lives_in_it) {
    for (int i = 0; i < 10; i++) {
        take(512);
        take(3 * MIB);
        give(take(MIB));
    }
}
END_TEST

/* --- a backing that uses the pool itself: no lock is held ------------------------------------------------------- */

static int depth;

static struct zr_block *alloc_and_call_back(void *arg, size_t size, int *code) {
    if (depth++ == 0) {
        give(take(512));
        zr_pools_trim(ZR_ACCOUNTS);
        ck_assert_uint_eq(zr_pool_usable(pool, &depth), 0);
    }
    return segment_alloc(arg, size, code);
}

static void free_and_call_back(void *arg, struct zr_block *b) {
    segment_free(arg, b);
    if (depth++ < 10)
        take(512);
}

START_TEST(the_backing_runs_without_a_lock) {
    static const struct zr_pool_backing backing = {NULL, alloc_and_call_back, free_and_call_back};
    char *p;

    zr_pool_delete(pool);
    pool = zr_pool_new(&backing, 1);
    p = take(512);
    give(p);
    zr_pool_trim(pool, 0);
    depth = 100;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache pool");
    TCase *c = tcase_create("pool");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, segments_have_pytorchs_sizes);
    tcase_add_test(c, the_smallest_chunk_that_fits_is_taken_and_of_equal_ones_the_lowest);
    tcase_add_test(c, freed_neighbours_merge_and_serve_something_larger);
    tcase_add_test(c, the_rest_of_a_large_chunk_is_split_off_beyond_1_mib_only);
    tcase_add_test(c, every_alignment_up_to_64_kib_is_met);
    tcase_add_test(c, a_segment_that_begins_on_no_grain_is_given_back);
    tcase_add_test(c, a_block_may_hold_more_than_was_requested_of_the_backing);
    tcase_add_test(c, a_free_says_what_was_requested);
    tcase_add_test(c, a_second_free_is_told);
    tcase_add_test(c, an_inner_address_is_not_freed);
    tcase_add_test(c, what_is_not_of_this_pool_is_unknown);
    tcase_add_test(c, what_is_freed_in_an_exported_segment_is_not_reused);
    tcase_add_test(c, an_exported_segment_goes_back_with_its_last_allocation);
    tcase_add_test(c, what_was_free_before_the_export_is_not_reused_either);
    tcase_add_test(c, an_entirely_free_segment_that_is_exported_goes_back);
    tcase_add_test(c, a_refused_segment_is_tried_in_the_size_that_is_needed);
    tcase_add_test(c, the_backings_code_goes_up_unchanged);
    tcase_add_test(c, trim_gives_entirely_free_segments_back);
    tcase_add_test(c, the_table_of_a_small_segment_has_an_entry_per_grain);
    tcase_add_test(c, no_more_is_kept_than_allowed);
    tcase_add_test(c, idle_segments_go_back);
    tcase_add_test(c, the_pools_of_an_account_are_trimmed_and_no_others);
    tcase_add_test(c, a_pool_that_is_deleted_gives_back_what_lives_in_it);
    tcase_add_test(c, the_backing_runs_without_a_lock);
    return run_suite(suite);
}
