/* Whole blocks: each promise of cache.h, seen by one thread. */
#include "cache/hit.h"
#include "cache_whole.h"
#include "cache/classes.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

START_TEST(a_freed_block_is_reused_and_remembers_the_asked_size)
{
    void *p = get(3 * MIB);

    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_uint_eq(was.size, 3 * MIB);
    ck_assert_ptr_eq(get(3 * MIB - 5), p);
    ck_assert_uint_eq(zr_map_base(p)->size, 3 * MIB - 5);
    ck_assert_ptr_null(zr_map_find((char *)p + 3 * MIB - 5));
    ck_assert_int_eq(driver.allocs, 1);
    put(p);
}
END_TEST

START_TEST(waste_is_bounded)
{
    for (size_t size = 1; size < ZR_CLASS_LIMIT / 2; size += size / 251 + 1) {
        unsigned c = zr_class_of(size);
        size_t held = zr_class_size(c);

        ck_assert_uint_lt(c, ZR_CLASSES);
        ck_assert_uint_ge(held, size);
        ck_assert(c == 0 || zr_class_size(c - 1) < size);
        ck_assert_uint_le(held - size, size <= 512        ? 63
                                       : size <= MIB      ? size / 8
                                       : size <= 64 * MIB ? size / 16
                                                          : size / 64);
    }
    ck_assert_uint_eq(zr_class_size(zr_class_of(ZR_CLASS_LIMIT)), ZR_CLASS_LIMIT);
    for (size_t size = 2 * MIB; size <= 256 * MIB; size += 2 * MIB)
        ck_assert_uint_eq(zr_class_size(zr_class_of(size)), size);
}
END_TEST

/* The largest that is rounded up has 1 MiB: 62 MiB is the size of a class, which 61 MiB are in, too. */
START_TEST(who_must_not_get_more_than_he_asks_for_gets_no_larger_block_that_is_kept)
{
    void *p, *q;

    zr_cache_set_exact(cache, key.account, MIB);
    for (int i = 0; i < 3; i++) {
        p = get(62 * MIB);
        put(p);
        q = get(61 * MIB);
        ck_assert_ptr_ne(q, p);
        ck_assert_uint_eq(driver.last_size, 61 * MIB);
        put(q);
        ck_assert_ptr_eq(get(62 * MIB), p);
        put(p);
    }
    ck_assert_int_eq(driver.allocs, 4);
    ck_assert_int_eq(driver.frees, 3);
    get(MIB - 1);
    ck_assert_uint_eq(driver.last_size, MIB);
    zr_cache_drop_context(cache, key.context);
    ck_assert_int_eq(driver.frees, 4);
    ck_assert_uint_eq(zr_cache_kept(cache, key.account), 0);
}
END_TEST

START_TEST(blocks_of_another_key_are_not_reused)
{
    struct zr_key other[7];
    void *p = get(MIB);

    put(p);
    for (int i = 0; i < 7; i++)
        other[i] = key;
    other[0].context = (void *)0x1010;
    other[1].device = (void *)0x2010;
    other[2].ordinal = 1;
    other[3].flags = 1;
    other[4].peers = 2;
    other[5].align = 21;
    other[6].extra = 1;
    for (int i = 0; i < 7; i++)
        ck_assert_ptr_ne(get_key(&other[i], MIB), p);
    ck_assert_ptr_eq(get(MIB), p);
}
END_TEST

START_TEST(alignment_is_honoured_for_any_power_of_two)
{
    for (unsigned align = 1; align <= 30; align++) {
        struct zr_key k = key;
        void *p, *q;

        k.align = (uint8_t)align;
        p = get_key(&k, 100);
        ck_assert_uint_eq((uintptr_t)p & (((uintptr_t)1 << align) - 1), 0);
        put(p);
        q = get_key(&k, 100);
        ck_assert_uint_eq((uintptr_t)q & (((uintptr_t)1 << align) - 1), 0);
    }
}
END_TEST

START_TEST(misuse_is_told_apart_and_corrupts_nothing)
{
    void *p = get(MIB), *q = get(MIB);
    struct zr_block *foreign = zr_block_new();

    ck_assert_int_eq(put((char *)p + 64), ZR_FREED_INSIDE);
    ck_assert_int_eq(put((char *)p + MIB - 1), ZR_FREED_INSIDE);
    ck_assert_int_eq(put((void *)0x123456), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(NULL), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_int_eq(put(p), ZR_FREED_TWICE);
    ck_assert_int_eq(put((char *)p + 64), ZR_FREED_UNKNOWN);
    zr_block_place(foreign, 0x55550000, 100, 100);
    ck_assert(zr_map_insert(foreign));
    ck_assert_int_eq(put((void *)0x55550000), ZR_FREED_FOREIGN);
    ck_assert_ptr_eq(zr_map_take((void *)0x55550000), foreign);
    zr_block_recycle(foreign);
    ck_assert_ptr_eq(get(MIB), p);
    ck_assert_ptr_ne(get(MIB), p);
    put(p);
    ck_assert_int_eq(put(q), ZR_FREED);
}
END_TEST

START_TEST(a_block_that_may_be_in_use_goes_to_the_driver)
{
    void *p = get(MIB);

    ck_assert_int_eq(zr_cache_free(cache, p, false, &was), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(driver.last_context, key.context);
    ck_assert_int_eq(put(p), ZR_FREED_UNKNOWN);
}
END_TEST

START_TEST(a_block_that_the_driver_refuses_stays_alive)
{
    void *p = get(MIB), *inside = (char *)p + 5;

    driver.refuse_next = 1;
    ck_assert_int_eq(zr_cache_free(cache, p, false, &was), ZR_FREED_REFUSED);
    ck_assert_int_eq(was.code, INVALID);
    ck_assert_ptr_nonnull(zr_map_find(inside));
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_ptr_eq(get(MIB), p);
    zr_cache_set_limit(cache, key.account, 0); /* nothing can be kept: the driver is asked at once */
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    driver.refuse_next = 1;
    ck_assert_int_eq(put(p), ZR_FREED_REFUSED);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(put(p), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(a_block_with_an_ipc_handle_is_really_freed)
{
    void *p = get(MIB);

    zr_block_mark(zr_map_base(p), ZR_BLOCK_EXPORTED);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(driver.frees, 1);
    /* Also where there is room for it at hand. */
    put(get(MIB));
    p = get(MIB);
    zr_block_mark(zr_map_base(p), ZR_BLOCK_EXPORTED);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(driver.frees, 2);
}
END_TEST

START_TEST(a_block_that_became_resident_elsewhere_is_kept_under_those_peers)
{
    struct zr_key peers = key;
    void *p = get(MIB);

    zr_map_base(p)->peers = 6;
    zr_block_mark(zr_map_base(p), ZR_BLOCK_MOVED);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_ptr_ne(get(MIB), p);
    peers.peers = 6;
    ck_assert_ptr_eq(get_key(&peers, MIB), p);
    ck_assert_uint_eq(zr_map_base(p)->peers, 6);
    put(p);
    zr_cache_trim(cache, 1, NULL, 0);
    ck_assert_uint_eq(driver.last_peers, 6);
}
END_TEST

START_TEST(out_of_memory_gives_back_this_device_and_asks_once_more)
{
    struct zr_key other = key;
    void *p = get(8 * MIB), *q;
    int code = 0;

    other.account = 2;
    other.device = (void *)0x2020;
    q = get_key(&other, 8 * MIB);
    put(p);
    put(q);
    driver.room = 20 * MIB;
    ck_assert_ptr_nonnull(get(12 * MIB));
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(get_key(&other, 8 * MIB), q);
    driver.allocs = 0;
    ck_assert_ptr_null(zr_cache_alloc(cache, &key, 12 * MIB, &code));
    ck_assert_int_eq(code, FULL);
    ck_assert_int_eq(driver.allocs, 2);
}
END_TEST

START_TEST(the_second_try_asks_for_the_very_size)
{
    size_t size = 33 * MIB + 1;
    void *p;

    driver.room = size;
    p = get(size);
    ck_assert_uint_eq(driver.last_size, size);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(other_codes_of_the_driver_go_up_unchanged)
{
    int code = 0;

    driver.fail_next = 1;
    driver.fail_code = INVALID;
    ck_assert_ptr_null(zr_cache_alloc(cache, &key, MIB, &code));
    ck_assert_int_eq(code, INVALID);
    ck_assert_int_eq(driver.allocs, 1);
}
END_TEST

START_TEST(sizes_without_a_class_reach_the_driver_as_they_are)
{
    int code = 0;
    struct zr_block *b = zr_cache_alloc(cache, &key, 0, &code);

    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(driver.last_size, 0);
    ck_assert_int_eq(put((void *)b->base), ZR_FREED_BY_DRIVER);
    b = zr_cache_alloc(cache, &key, ZR_CLASS_LIMIT + 1, &code);
    ck_assert_uint_eq(driver.last_size, ZR_CLASS_LIMIT + 1);
    ck_assert_int_eq(put((void *)b->base), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(no_more_is_kept_than_the_limit_allows)
{
    void *p[64];

    zr_cache_set_limit(cache, 1, 16 * MIB);
    for (int i = 0; i < 64; i++)
        p[i] = get((size_t)(1 + i % 4) * MIB);
    for (int i = 0; i < 64; i++) {
        put(p[i]);
        ck_assert_uint_le(zr_cache_kept(cache, 1), 16 * MIB);
    }
    ck_assert_uint_ge(zr_cache_kept(cache, 1), 8 * MIB);
    ck_assert_uint_eq(driver.held, zr_cache_kept(cache, 1));
    ck_assert_int_eq(put(get(17 * MIB)), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(a_limit_of_nothing_keeps_nothing)
{
    zr_cache_set_limit(cache, 1, 0);
    ck_assert_int_eq(put(get(MIB)), ZR_FREED_BY_DRIVER);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

static void wait_ms(long ms)
{
    struct timespec from, now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &from);
    do {
        usleep(2000);
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

START_TEST(what_lies_unused_is_given_back_on_a_later_call)
{
    void *p = get(MIB), *q = get(2 * MIB);

    zr_cache_set_idle(cache, 40);
    put(p);
    put(q);
    wait_ms(100);
    ck_assert_ptr_ne(get(4096), p);
    ck_assert_int_eq(driver.frees, 2);
    ck_assert_uint_eq(zr_cache_kept(cache, 1), 0);
}
END_TEST

/* So many that a call would wait for all of them: one gives back some, and others the rest. */
enum { A_PORTION = 1024 };

START_TEST(what_lies_unused_is_given_back_in_portions)
{
    enum { MANY = 5 * A_PORTION };
    static void *p[MANY];

    for (int i = 0; i < MANY; i++)
        p[i] = get(4096);
    for (int i = 0; i < MANY; i++)
        put(p[i]);
    zr_cache_set_idle(cache, 40);
    wait_ms(100);
    while (driver.frees < MANY) {
        int before = driver.frees;
        void *q = get(MIB);

        ck_assert_int_le(driver.frees - before, A_PORTION);
        before = driver.frees;
        ck_assert_int_eq(put(q), ZR_FREED);
        ck_assert_int_le(driver.frees - before, A_PORTION);
    }
}
END_TEST

START_TEST(room_is_made_in_portions_but_as_much_as_is_needed)
{
    enum { MANY = 70 * A_PORTION };
    static void *p[MANY];

    zr_cache_set_limit(cache, 1, 256 * MIB);
    for (int i = 0; i < MANY; i++)
        p[i] = get(4096);
    for (int i = 0; i < MANY; i++) {
        int before = driver.frees;

        ck_assert_int_eq(put(p[i]), ZR_FREED);
        ck_assert_int_le(driver.frees - before, A_PORTION);
    }
    ck_assert_int_gt(driver.frees, 0);
    ck_assert_int_eq(put(get(64 * MIB)), ZR_FREED);
    ck_assert_uint_le(zr_cache_kept(cache, 1), 256 * MIB);
}
END_TEST

START_TEST(a_destroyed_context_leaves_nothing_behind)
{
    struct zr_key other = key;
    void *p = get(MIB), *live = get(MIB), *q;

    other.context = (void *)0x1010;
    q = get_key(&other, MIB);
    put(p);
    put(q);
    zr_cache_drop_context(cache, key.context);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(driver.last_context, key.context);
    ck_assert_ptr_eq(get_key(&other, MIB), q);
    ck_assert_int_eq(put(live), ZR_FREED_FOREIGN);
    ck_assert_ptr_ne(get(MIB), p);
}
END_TEST

START_TEST(what_was_learnt_of_a_context_ends_with_it)
{
    struct zr_key other = key;
    struct zr_again again;
    void *p;

    put(get(MIB));
    p = get(MIB);
    ck_assert(zr_cache_learn(&again, &key));
    put(p);
    ck_assert_ptr_eq((void *)zr_cache_again(&again, MIB)->base, p);
    put(p);
    zr_cache_drop_context(cache, key.context);
    /* Another key, and blocks of another size, have the places of the first by now. */
    other.context = (void *)0x1010;
    put(get_key(&other, 4096));
    put(get_key(&other, 4096));
    ck_assert_ptr_null(zr_cache_again(&again, MIB));
}
END_TEST

START_TEST(contexts_may_come_and_go_without_end)
{
    for (uintptr_t i = 0; i < 3 * ZR_KEYS_MAX; i++) {
        struct zr_key k = key;
        void *p;

        k.context = (void *)(0x10000 + i * 16);
        p = get_key(&k, MIB);
        ck_assert_int_eq(put(p), ZR_FREED);
        ck_assert_ptr_eq(get_key(&k, MIB), p);
        put(p);
        zr_cache_drop_context(cache, k.context);
        ck_assert_int_eq(driver.frees, (int)i + 1);
    }
}
END_TEST

START_TEST(too_many_keys_are_served_by_the_driver_alone)
{
    for (uintptr_t i = 0; i < ZR_KEYS_MAX + 10; i++) {
        struct zr_key k = key;

        k.context = (void *)(0x10000 + i * 16);
        ck_assert_int_eq(put(get_key(&k, MIB)), i < ZR_KEYS_MAX ? ZR_FREED : ZR_FREED_BY_DRIVER);
    }
}
END_TEST

START_TEST(hits_and_misses_are_counted_whatever_way_a_block_takes)
{
    struct zr_cache_counts counts;
    void *p[200];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++)
            p[i] = get(4096);
        for (int i = 0; i < 200; i++)
            put(p[i]);
    }
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.misses, 200);
    ck_assert_uint_eq(counts.hits, 400);
    ck_assert_uint_eq(counts.kept_blocks, 200);
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    put(get(4096));
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.misses, 201);
    ck_assert_uint_eq(counts.hits, 400);
    ck_assert_uint_eq(counts.kept_blocks, 1);
}
END_TEST

START_TEST(a_forked_child_starts_with_nothing)
{
    void *p = get(MIB);
    int status;
    pid_t child;

    put(p);
    child = fork();
    if (child == 0) {
        zr_cache_fork_child();
        _exit(zr_map_base(p) || zr_cache_kept(cache, 1) || put(p) != ZR_FREED_UNKNOWN ||
              get(MIB) == p || driver.allocs != 2);
    }
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_ptr_eq(get(MIB), p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache whole");
    TCase *c = tcase_create("whole");

    suite_add_tcase(suite, c);
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_freed_block_is_reused_and_remembers_the_asked_size);
    tcase_add_test(c, waste_is_bounded);
    tcase_add_test(c, blocks_of_another_key_are_not_reused);
    tcase_add_test(c, who_must_not_get_more_than_he_asks_for_gets_no_larger_block_that_is_kept);
    tcase_add_test(c, alignment_is_honoured_for_any_power_of_two);
    tcase_add_test(c, misuse_is_told_apart_and_corrupts_nothing);
    tcase_add_test(c, a_block_that_may_be_in_use_goes_to_the_driver);
    tcase_add_test(c, a_block_that_the_driver_refuses_stays_alive);
    tcase_add_test(c, a_block_with_an_ipc_handle_is_really_freed);
    tcase_add_test(c, a_block_that_became_resident_elsewhere_is_kept_under_those_peers);
    tcase_add_test(c, out_of_memory_gives_back_this_device_and_asks_once_more);
    tcase_add_test(c, the_second_try_asks_for_the_very_size);
    tcase_add_test(c, other_codes_of_the_driver_go_up_unchanged);
    tcase_add_test(c, sizes_without_a_class_reach_the_driver_as_they_are);
    tcase_add_test(c, no_more_is_kept_than_the_limit_allows);
    tcase_add_test(c, a_limit_of_nothing_keeps_nothing);
    tcase_add_test(c, what_lies_unused_is_given_back_on_a_later_call);
    tcase_add_test(c, what_lies_unused_is_given_back_in_portions);
    tcase_add_test(c, room_is_made_in_portions_but_as_much_as_is_needed);
    tcase_add_test(c, a_destroyed_context_leaves_nothing_behind);
    tcase_add_test(c, what_was_learnt_of_a_context_ends_with_it);
    tcase_add_test(c, contexts_may_come_and_go_without_end);
    tcase_add_test(c, too_many_keys_are_served_by_the_driver_alone);
    tcase_add_test(c, hits_and_misses_are_counted_whatever_way_a_block_takes);
    tcase_add_test(c, a_forked_child_starts_with_nothing);
    return run_suite(suite);
}
