/* The table of bases in front of the address map: it may miss, it never mistakes one block for another. */
#include "cache/map.h"
#include "suite.h"

#include <pthread.h>
#include <sched.h>

static struct zr_block *add(uintptr_t base, unsigned bin)
{
    struct zr_block *b = zr_block_new();

    if (!b) /* Check writes to a pipe for every assertion: there are many blocks */
        ck_abort_msg("no descriptor");
    zr_block_place(b, base, 1, 1);
    b->bin = bin;
    if (!zr_map_insert(b))
        ck_abort_msg("not in the map");
    zr_index_add(b);
    return b;
}

static void drop(struct zr_block *b)
{
    zr_index_remove(b);
    zr_block_recycle(b);
}

static void all_are_found(uintptr_t from, uintptr_t distance, unsigned count)
{
    static struct zr_block *b[20000];
    unsigned at_home = 0;

    for (unsigned i = 0; i < count; i++)
        b[i] = add(from + i * distance, i % 1000);
    for (unsigned i = 0; i < count; i++) {
        void *p = (void *)(from + i * distance);

        ck_assert_ptr_eq(zr_index_guess(p), b[i]);
        ck_assert_uint_eq(zr_slot_bin(zr_index_probe(p)), i % 1000);
        at_home += zr_slot_block(zr_index_first(p)) == b[i];
    }
    ck_assert_uint_gt(at_home, count / 2);
    for (unsigned i = 0; i < count; i += 2)
        drop(b[i]);
    for (unsigned i = 0; i < count; i++) {
        void *p = (void *)(from + i * distance);

        if (i % 2)
            ck_assert_ptr_eq(zr_index_guess(p), b[i]);
        else
            ck_assert_ptr_null(zr_map_base(p));
    }
    for (unsigned i = 1; i < count; i += 2)
        drop(b[i]);
}

START_TEST(blocks_at_any_distance_are_found_mostly_at_once)
{
    static const uintptr_t distance[] = {64, 512, 4096, 65536, 3 * 65536, 1 << 20, 2 << 20, 20 << 20, 64 << 20};

    for (unsigned i = 0; i < sizeof distance / sizeof *distance; i++) {
        all_are_found(0x500000000000, distance[i], 1000);
        all_are_found(0x7f0000010000, distance[i], 20000);
    }
}
END_TEST

START_TEST(distances_that_a_factor_cannot_spread_get_another_one)
{
    for (uintptr_t pages = 1; pages < 3000; pages = pages * 3 / 2 + 1)
        all_are_found(0x600000000000, pages * 65536, 3000);
}
END_TEST

static size_t home_of(uintptr_t base)
{
    return zr_index_mix(base) * zr_index.factor >> zr_index.shift;
}

/* Ranges that lie upon each other in the table must not push the blocks of all others from their places. */
START_TEST(many_ranges_of_blocks_keep_their_order)
{
    enum { RANGES = 60, EACH = 4000 };
    static struct zr_block *b[RANGES][EACH];
    unsigned near = 0, found = 0;

    for (unsigned i = 0; i < RANGES; i++)
        for (unsigned j = 0; j < EACH; j++)
            b[i][j] = add(0x500000000000 + i * 0x123450000ul + j * 65536ul, j % 1000);
    for (unsigned i = 0; i < RANGES; i++)
        for (unsigned j = 0; j < EACH; j++) {
            void *p = (void *)b[i][j]->base;

            found += zr_map_base(p) == b[i][j] && zr_slot_bin(zr_index_probe(p)) == j % 1000;
            near += home_of(b[i][j]->base) - home_of(b[i][j]->base - 65536) <= 2;
        }
    ck_assert_uint_eq(found, RANGES * EACH);
    ck_assert_uint_gt(near, RANGES * EACH / 10 * 9);
    for (unsigned i = 0; i < RANGES; i++)
        for (unsigned j = 0; j < EACH; j++)
            drop(b[i][j]);
}
END_TEST

/* As drivers give out small blocks: from pieces of memory that do not touch each other, the newest lowest. */
START_TEST(many_blocks_with_holes_between_them_have_a_place_of_their_own)
{
    enum { PIECES = 4000, EACH = 32 };
    static struct zr_block *b[PIECES * EACH];
    unsigned at_home = 0;

    for (unsigned i = 0; i < PIECES * EACH; i++)
        b[i] = add(0x7f0000000000 - i / EACH * (2ul * EACH * 65536) + i % EACH * 65536ul, 1);
    for (unsigned i = 0; i < PIECES * EACH; i++)
        at_home += zr_slot_block(zr_index_first((void *)b[i]->base)) == b[i];
    ck_assert_uint_gt(at_home, PIECES * EACH / 100 * 99);
    for (unsigned i = 0; i < PIECES * EACH; i++)
        drop(b[i]);
}
END_TEST

START_TEST(nothing_is_found_in_an_empty_table)
{
    ck_assert_uint_ne(zr_index_guess((void *)0x10000)->base, 0x10000);
    ck_assert_uint_ne(zr_index_guess(NULL)->base, 0);
    ck_assert_int_eq(zr_word_state(zr_block_word(zr_index_guess((void *)UINTPTR_MAX))), ZR_BLOCK_NONE);
}
END_TEST

static struct zr_block *steady[256];
static int looking, stop;

static void *look(void *arg)
{
    size_t found = 0;

    for (; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); __atomic_store_n(&looking, 1, __ATOMIC_RELEASE))
        for (unsigned i = 0; i < 256; i++) {
            struct zr_block *b = zr_index_guess((void *)(0x400000000000 + i * 65536ul));

            /* A miss may be: then it is another base. The base says which one it is. */
            if (__atomic_load_n(&b->base, __ATOMIC_RELAXED) == 0x400000000000 + i * 65536ul && b != steady[i])
                return arg;
            found += b == steady[i];
        }
    return found ? NULL : arg;
}

START_TEST(readers_look_while_tables_grow_and_blocks_leave)
{
    static struct zr_block *b[4000];
    pthread_t thread;
    void *wrong;

    for (unsigned i = 0; i < 256; i++)
        steady[i] = add(0x400000000000 + i * 65536ul, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, look, &stop), 0);
    while (!__atomic_load_n(&looking, __ATOMIC_ACQUIRE))
        sched_yield();
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 4000; i++)
            b[i] = add(0x480000000000 + i * (round + 1) * 65536ul, 2);
        for (unsigned i = 0; i < 4000; i++)
            drop(b[i]);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
}
END_TEST

static void come_and_go(unsigned count)
{
    static struct zr_block *b[400000];

    for (unsigned i = 0; i < count; i++)
        b[i] = add(0x500000000000 + i * 65536ul, 3);
    for (unsigned i = 0; i < count; i++) {
        drop(b[i]);
        if (i % 1000 == 0 && zr_index_guess((void *)b[i + 1]->base) != b[i + 1])
            ck_abort_msg("block %u is not found any more", i + 1);
    }
}

/* Side by side there is no empty place between them: minutes, if all of those that follow were looked at. */
START_TEST(many_blocks_side_by_side_leave_as_fast_as_few)
{
    for (unsigned round = 0; round < 100; round++)
        come_and_go(30000); /* in the smallest of the large tables, and then in a larger one */
    come_and_go(400000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache index");
    TCase *c = tcase_create("index");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, nothing_is_found_in_an_empty_table);
    tcase_add_test(c, blocks_at_any_distance_are_found_mostly_at_once);
    tcase_add_test(c, many_ranges_of_blocks_keep_their_order);
    tcase_add_test(c, many_blocks_with_holes_between_them_have_a_place_of_their_own);
    tcase_add_test(c, distances_that_a_factor_cannot_spread_get_another_one);
    tcase_add_test(c, many_blocks_side_by_side_leave_as_fast_as_few);
    tcase_add_test(c, readers_look_while_tables_grow_and_blocks_leave);
    return run_suite(suite);
}
