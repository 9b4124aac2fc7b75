/* The address map: what it finds, what it does not, and what threads may do to it at once. */
#include "cache/cache.h"
#include "suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static struct zr_block *put(uintptr_t base, size_t size) {
    struct zr_block *b = zr_block_new();

    ck_assert_ptr_nonnull(b);
    zr_block_place(b, base, size, size);
    ck_assert(zr_map_insert(b));
    return b;
}

static void drop(uintptr_t base) {
    struct zr_block *b = zr_map_take((void *)base);

    ck_assert_ptr_nonnull(b);
    zr_block_recycle(b);
}

START_TEST(a_block_is_found_by_its_base_and_by_every_address_inside) {
    uintptr_t at = 0x7f0012340000;
    struct zr_block *b = put(at, 100000);

    ck_assert_ptr_eq(zr_map_base((void *)at), b);
    ck_assert_ptr_null(zr_map_base((void *)(at + 1)));
    ck_assert_ptr_eq(zr_map_find((void *)at), b);
    ck_assert_ptr_eq(zr_map_find((void *)(at + 1)), b);
    ck_assert_ptr_eq(zr_map_find((void *)(at + 99999)), b);
    ck_assert_ptr_null(zr_map_find((void *)(at + 100000)));
    ck_assert_ptr_null(zr_map_find((void *)(at - 1)));
    drop(at);
    ck_assert_ptr_null(zr_map_find((void *)(at + 1)));
    ck_assert_ptr_null(zr_map_take((void *)at));
}
END_TEST

START_TEST(blocks_that_begin_in_one_page_are_told_apart_down_to_the_byte) {
    static const size_t offsets[] = {0, 1, 2, 9, 64, 512, 513, 4096, 65024, 65535};
    uintptr_t page = 0xabc0000;
    size_t n = sizeof offsets / sizeof *offsets;

    for (size_t i = 0; i < n; i++)
        put(page + offsets[i], 1);
    for (size_t i = 0; i < n; i++) {
        struct zr_block *b = zr_map_base((void *)(page + offsets[i]));

        ck_assert_ptr_nonnull(b);
        ck_assert_uint_eq(b->base, page + offsets[i]);
        ck_assert_ptr_eq(zr_map_find((void *)(page + offsets[i])), b);
    }
    ck_assert_ptr_null(zr_map_find((void *)(page + 3)));
    for (size_t i = 0; i < n; i++)
        drop(page + offsets[i]);
    for (size_t i = 0; i < n; i++)
        ck_assert_ptr_null(zr_map_find((void *)(page + offsets[i])));
}
END_TEST

START_TEST(a_huge_block_is_found_far_from_its_base) {
    uintptr_t at = 0x600000000000 - (1 << 20);
    size_t size = (size_t)19 << 30;
    struct zr_block *b = put(at, size);

    ck_assert_ptr_eq(zr_map_find((void *)(at + size - 1)), b);
    ck_assert_ptr_eq(zr_map_find((void *)(at + size / 2)), b);
    ck_assert_ptr_null(zr_map_find((void *)(at + size)));
    drop(at);
}
END_TEST

START_TEST(addresses_above_48_bits_work_sign_extended_or_not) {
    static const uintptr_t at[] = {(uintptr_t)0x123 << 48 | 0x5550000, 0xff00fffffffe0000, 0xffffd556aa600000,
                                   0x00fffffffffe0000};
    for (int i = 0; i < 4; i++) {
        struct zr_block *b = put(at[i], 70000);

        ck_assert_ptr_eq(zr_map_base((void *)at[i]), b);
        ck_assert_ptr_eq(zr_map_find((void *)(at[i] + 69999)), b);
        ck_assert_ptr_null(zr_map_find((void *)(at[i] - 1)));
    }
    for (int i = 0; i < 4; i++)
        drop(at[i]);
    ck_assert_ptr_null(zr_map_base((void *)UINTPTR_MAX));
    ck_assert_ptr_null(zr_map_find((void *)UINTPTR_MAX));
    ck_assert_ptr_null(zr_map_find(NULL));
}
END_TEST

START_TEST(a_base_that_is_there_is_not_inserted_twice) {
    struct zr_block *b, *twice = zr_block_new();

    b = put(0x10000, 10);
    zr_block_place(twice, 0x10000, 20, 20);
    ck_assert(!zr_map_insert(twice));
    ck_assert_ptr_eq(zr_map_base((void *)0x10000), b);
    drop(0x10000);
    ck_assert(zr_map_insert(twice));
    drop(0x10000);
}
END_TEST

START_TEST(a_block_that_was_taken_can_come_back) {
    uintptr_t at = 0x7f0200000000;
    struct zr_block *b = put(at, 4096), *neighbour = put(at + 4096, 4096);

    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_eq(zr_map_take((void *)at), b);
        ck_assert_ptr_null(zr_map_find((void *)(at + 5)));
        ck_assert(zr_map_insert(b));
        ck_assert_ptr_eq(zr_map_find((void *)(at + 5)), b);
        ck_assert_ptr_eq(zr_map_find((void *)(at + 4096)), neighbour);
    }
    drop(at);
    drop(at + 4096);
}
END_TEST

START_TEST(a_cached_block_is_no_allocation) {
    struct zr_block *b = put(0x40000000, 4096);

    ck_assert(zr_block_shift(b, zr_block_word(b), ZR_BLOCK_CACHED));
    ck_assert_ptr_null(zr_map_base((void *)0x40000000));
    ck_assert_ptr_null(zr_map_find((void *)0x40000001));
    ck_assert_ptr_null(zr_map_take((void *)0x40000000));
    ck_assert(zr_block_shift(b, zr_block_word(b), ZR_BLOCK_LIVE));
    drop(0x40000000);
}
END_TEST

START_TEST(an_address_in_what_is_reserved_belongs_to_its_block_cached_or_not) {
    uintptr_t at = 0x50000000;
    struct zr_block *b = zr_block_new();
    uint64_t word = 0;

    zr_block_place(b, at, 1000, 70000);
    ck_assert(zr_map_insert(b));
    ck_assert_ptr_eq(zr_map_around((void *)at, &word), b);
    ck_assert_ptr_eq(zr_map_around((void *)(at + 69999), &word), b);
    ck_assert_ptr_null(zr_map_around((void *)(at + 70000), &word));
    ck_assert_ptr_null(zr_map_around((void *)(at - 1), &word));
    ck_assert_ptr_null(zr_map_find((void *)(at + 1000)));

    ck_assert(zr_block_shift(b, zr_block_word(b), ZR_BLOCK_CACHED));
    ck_assert_ptr_eq(zr_map_around((void *)(at + 69999), &word), b);
    ck_assert_int_eq(zr_word_state(word), ZR_BLOCK_CACHED);
    ck_assert_uint_eq(word, zr_block_word(b));
    ck_assert(zr_block_shift(b, word, ZR_BLOCK_NONE));
    ck_assert_ptr_null(zr_map_around((void *)at, &word));
    zr_block_recycle(b);
}
END_TEST

/* For the one who goes on with zr_block_shift: a block that was freed is told from one that never was. */
START_TEST(a_look_tells_what_became_of_a_base) {
    struct zr_block *b = put(0x60000000, 4096);
    uint64_t word, live = zr_block_word(b);

    ck_assert_ptr_eq(zr_map_look((void *)0x60000000, &word), b);
    ck_assert_uint_eq(word, live);
    ck_assert_ptr_null(zr_map_look((void *)0x60000001, &word));
    ck_assert(zr_block_shift(b, live, ZR_BLOCK_CACHED));
    ck_assert(!zr_block_shift(b, live, ZR_BLOCK_CACHED));
    ck_assert_ptr_eq(zr_map_look((void *)0x60000000, &word), b);
    ck_assert_int_eq(zr_word_state(word), ZR_BLOCK_CACHED);
    ck_assert(zr_block_shift(b, word, ZR_BLOCK_LIVE));
    drop(0x60000000);
    b = zr_map_look((void *)0x60000000, &word);
    ck_assert(!b || zr_word_state(word) == ZR_BLOCK_NONE);
}
END_TEST

/* Whoever looked a block up before it was taken and inserted again holds a word that is good for nothing. */
START_TEST(a_word_of_an_earlier_life_moves_nothing) {
    struct zr_block *b = put(0x61000000, 4096);
    uint64_t before = zr_block_word(b);

    ck_assert_ptr_eq(zr_map_take((void *)0x61000000), b);
    ck_assert(zr_map_insert(b));
    ck_assert(!zr_block_shift(b, before, ZR_BLOCK_NONE));
    ck_assert_ptr_eq(zr_map_base((void *)0x61000000), b);
    drop(0x61000000);
}
END_TEST

START_TEST(blocks_that_have_left_hide_nothing) {
    enum { SMALL = 3000, LIVES = 40 };
    uintptr_t at = 0x300000000, elsewhere = 0x900000000;
    struct zr_block *b;

    for (int life = 0; life < LIVES; life++) {
        for (uintptr_t i = 0; i < SMALL; i++)
            put(at + i * 65536, 65536);
        for (uintptr_t i = 0; i < SMALL; i++)
            drop(at + i * 65536);
        for (uintptr_t i = 0; i < SMALL; i++)
            put(elsewhere + i * 65536, 65536);
        b = put(at, SMALL * 65536ul);
        for (uintptr_t i = 1; i < SMALL; i += 1 + i / 4)
            ck_assert_ptr_eq(zr_map_find((void *)(at + i * 65536ul + 5)), b);
        drop(at);
        for (uintptr_t i = 0; i < SMALL; i++)
            drop(elsewhere + i * 65536);
    }
}
END_TEST

/* The small ones are still known by their bases when the large one is inserted. */
START_TEST(a_block_over_many_that_have_left_is_found_quickly) {
    enum { SMALL = 60000, LOOKUPS = 20000 };
    uintptr_t at = 0x300000000;
    struct zr_block *b;
    clock_t start;

    for (uintptr_t i = 0; i < SMALL; i++)
        put(at + i * 65536, 65536);
    for (uintptr_t i = 0; i < SMALL; i++)
        drop(at + i * 65536);
    b = put(at, SMALL * 65536ul);
    start = clock();
    for (int i = 0; i < LOOKUPS; i++)
        ck_assert_ptr_eq(zr_map_find((void *)(at + (SMALL - 1) * 65536ul)), b);
    ck_assert_msg(clock() - start < CLOCKS_PER_SEC, "%ld ticks", (long)(clock() - start));
    drop(at);
}
END_TEST

static long anonymous_kib(void) {
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");

    ck_assert_ptr_nonnull(f);
    while (kib < 0 && fgets(line, sizeof line, f))
        sscanf(line, "RssAnon: %ld kB", &kib);
    fclose(f);
    return kib;
}

/* A program that goes through ever new addresses, a few blocks at a time, for as long as it likes. */
START_TEST(memory_does_not_grow_with_the_addresses_that_were_used) {
    enum { ALIVE = 100, STEPS = 500000, SLACK_KIB = 64 };
    uintptr_t live[ALIVE] = {0};
    uint64_t r = 1;
    long before = 0;

#ifdef __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer keeps what is freed");
#endif
    for (int i = 0; i < STEPS; i++) {
        uintptr_t *at = &live[i % ALIVE];

        if (i == STEPS / 10)
            before = anonymous_kib();
        if (*at)
            drop(*at);
        r = r * 6364136223846793005u + 1442695040888963407u;
        *at = (r >> 17 << 16) + 0x10000;
        put(*at, 4096);
    }
    ck_assert_int_le(anonymous_kib(), before + SLACK_KIB);
    for (int i = 0; i < ALIVE; i++)
        drop(live[i]);
}
END_TEST

static void churn(uint64_t seed, uintptr_t arena, size_t steps) {
    enum { SPOTS = 256 };
    struct zr_block *held[SPOTS] = {0};

    for (size_t i = 0; i < steps; i++) {
        uint64_t r = seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned spot = r >> 33 & (SPOTS - 1);
        /* Spots of 64 B to 1 MiB apart: pages of one block and pages of many. */
        uintptr_t at = arena + ((uintptr_t)spot << (6 + spot % 4 * 4));
        uintptr_t in = at + (r >> 45) % 64;

        if (held[spot]) {
            ck_assert_ptr_eq(zr_map_base((void *)at), held[spot]);
            ck_assert_ptr_eq(zr_map_find((void *)in), held[spot]);
            drop(at);
            held[spot] = NULL;
        } else if (!zr_map_find((void *)at)) {
            held[spot] = put(at, 64);
        }
    }
    for (unsigned spot = 0; spot < SPOTS; spot++)
        if (held[spot])
            drop(held[spot]->base);
}

static void *churn_thread(void *arg) {
    uintptr_t n = (uintptr_t)arg;

    churn(n, 0x5500000000 + n * 0x40, 200000);
    return NULL;
}

START_TEST(threads_insert_find_and_take_side_by_side) {
    pthread_t thread[4];

    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, churn_thread, (void *)(i << 20)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}
END_TEST

static pthread_barrier_t both;
static int got[2];

static void *taker(void *arg) {
    int me = (int)(uintptr_t)arg;

    for (uintptr_t i = 0; i < 20000; i++) {
        struct zr_block *b;

        if (me == 0)
            put(0x9990000 + i * 512, 512);
        pthread_barrier_wait(&both);
        b = zr_map_take((void *)(0x9990000 + i * 512));
        got[me] += b != NULL;
        if (b)
            zr_block_recycle(b);
    }
    return NULL;
}

START_TEST(of_two_threads_that_take_one_block_one_gets_it) {
    pthread_t other;

    pthread_barrier_init(&both, NULL, 2);
    ck_assert_int_eq(pthread_create(&other, NULL, taker, (void *)1), 0);
    taker((void *)0);
    pthread_join(other, NULL);
    ck_assert_int_eq(got[0] + got[1], 20000);
}
END_TEST

static bool count_one(struct zr_block *b, void *arg) {
    (void)b;
    ++*(size_t *)arg;
    return true;
}

START_TEST(every_block_in_the_map_is_visited) {
    size_t before = 0, after = 0;

    zr_block_each(count_one, &before);
    for (uintptr_t i = 0; i < 5000; i++)
        put(0x8800000000 + i * 65536, 1);
    zr_block_each(count_one, &after);
    ck_assert_uint_eq(after - before, 5000);
    for (uintptr_t i = 0; i < 5000; i++)
        drop(0x8800000000 + i * 65536);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache map");
    TCase *c = tcase_create("map");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_block_is_found_by_its_base_and_by_every_address_inside);
    tcase_add_test(c, blocks_that_begin_in_one_page_are_told_apart_down_to_the_byte);
    tcase_add_test(c, a_huge_block_is_found_far_from_its_base);
    tcase_add_test(c, addresses_above_48_bits_work_sign_extended_or_not);
    tcase_add_test(c, a_base_that_is_there_is_not_inserted_twice);
    tcase_add_test(c, a_block_that_was_taken_can_come_back);
    tcase_add_test(c, a_cached_block_is_no_allocation);
    tcase_add_test(c, an_address_in_what_is_reserved_belongs_to_its_block_cached_or_not);
    tcase_add_test(c, a_look_tells_what_became_of_a_base);
    tcase_add_test(c, a_word_of_an_earlier_life_moves_nothing);
    tcase_add_test(c, blocks_that_have_left_hide_nothing);
    tcase_add_test(c, a_block_over_many_that_have_left_is_found_quickly);
    tcase_add_test(c, memory_does_not_grow_with_the_addresses_that_were_used);
    tcase_add_test(c, threads_insert_find_and_take_side_by_side);
    tcase_add_test(c, of_two_threads_that_take_one_block_one_gets_it);
    tcase_add_test(c, every_block_in_the_map_is_visited);
    return run_suite(suite);
}
