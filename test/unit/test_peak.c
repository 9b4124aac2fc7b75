/*
 * The peak of several threads: each has a lease up to which it rises by itself (peak.c). Threads take turns here, one
 * step at a time, so that the true peak is known. What the record may lack is less than the smallest block: it is
 * exact.
 */
#include "suite.h"
#include "zeroute.h"
#include "zeroute/reader.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { WORKERS = 3, CARDS = 3, MOST = 400, LACKS = 16 * (WORKERS + 1) };
#define BLOCK ((uint64_t)4 << 20)

static struct step {
    bool up, end, call; /* call: anything but memory */
    unsigned card;
    uint64_t bytes;
} step;
static int turn = -1; /* whose; -1: the test's */

static int whose(void)
{
    return __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
}

static void *work(void *arg)
{
    int mine = (int)(intptr_t)arg;
    bool end = false;

    while (!end) {
        while (whose() != mine)
            sched_yield();
        end = step.end;
        if (step.call)
            zr_count(ZR_F_CACHE_HITS, 1);
        else if (step.up)
            zr_book(ZR_KIND_DEVICE, step.card, step.bytes);
        else if (!end)
            zr_unbook(ZR_KIND_DEVICE, step.card, step.bytes);
        __atomic_store_n(&turn, -1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* --- what is true ------------------------------------------------------------------------------------------------- */
static struct {
    uint64_t all, card[CARDS];
    unsigned blocks;
} now, peak;
static struct step live[MOST];
static pthread_t worker[WORKERS];

static void raise_to(uint64_t *mark, uint64_t level)
{
    *mark = level > *mark ? level : *mark;
}

static void tell(unsigned who, struct step s)
{
    step = s;
    __atomic_store_n(&turn, (int)who, __ATOMIC_RELEASE);
    while (whose() != -1)
        sched_yield();
}

static void take(unsigned who, unsigned card, uint64_t bytes)
{
    struct step s = {.up = true, .card = card, .bytes = bytes};

    tell(who, s);
    live[now.blocks++] = s;
    now.all += bytes;
    now.card[card] += bytes;
    raise_to(&peak.all, now.all);
    raise_to(&peak.card[card], now.card[card]);
    peak.blocks = now.blocks > peak.blocks ? now.blocks : peak.blocks;
}

static void give(unsigned who, unsigned which)
{
    struct step s = live[which];

    s.up = false;
    tell(who, s);
    live[which] = live[--now.blocks];
    now.all -= s.bytes;
    now.card[s.card] -= s.bytes;
}

static char path[320]; /* of this process's own segment */

static void start(void)
{
    struct zeroute_list *list;

    ck_assert(zr_stats_open());
    list = zeroute_list_new();
    for (size_t i = 0; i < list->count; i++)
        if (list->process[i].pid_inside == getpid() && list->process[i].nonce == zr_segment.header->nonce)
            snprintf(path, sizeof path, "%s", list->process[i].path);
    zeroute_list_free(list);
    ck_assert(*path);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&worker[i], NULL, work, (void *)(intptr_t)i), 0);
}

static void finish(void)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        tell(i, (struct step){.end = true});
        pthread_join(worker[i], NULL);
    }
    unlink(path);
}

/* As anybody would read it. */
static void is_recorded(void)
{
    char why[256] = "", name[64];
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);

    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.current", 1), now.all);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.peak", 0), peak.all);
    ck_assert_uint_le(zeroute_value(s, "allocation.all.peak", UINT64_MAX), peak.blocks);
    ck_assert_uint_ge(zeroute_value(s, "allocation.all.peak", 0) + LACKS, peak.blocks);
    for (unsigned card = 0; card < CARDS; card++) {
        snprintf(name, sizeof name, "device.%u.allocated_bytes.all.peak", card);
        if (peak.card[card])
            ck_assert_uint_eq(zeroute_value(s, name, 0), peak.card[card]);
    }
    zeroute_snapshot_free(s);
}

START_TEST(what_one_thread_has_given_back_another_may_use_but_not_both)
{
    start();
    for (unsigned round = 1; round <= 3; round++) {
        for (unsigned who = 0; who < WORKERS; who++) {
            take(who, 0, 64 * round * BLOCK);
            give(who, 0);
        }
        is_recorded();
        for (unsigned who = 0; who < WORKERS; who++)
            take(who, 0, 64 * round * BLOCK);
        is_recorded();
        while (now.blocks)
            give(0, 0); /* whoever took it */
    }
    finish();
}
END_TEST

/* All together stay below the peak of all, while one card has a new one. */
START_TEST(a_card_has_a_peak_of_its_own)
{
    start();
    take(2, 1, 1000 * BLOCK);
    give(2, 0);
    take(0, 0, 100 * BLOCK);
    give(0, 0);
    take(1, 0, 100 * BLOCK);
    take(0, 0, 10 * BLOCK);
    is_recorded();
    finish();
}
END_TEST

START_TEST(many_small_blocks_are_counted_as_well)
{
    start();
    for (unsigned who = 0; who < 2; who++) {
        for (unsigned i = 0; i < 190; i++)
            take(who, 0, 1);
        if (who == 0)
            while (now.blocks)
                give(0, 0);
    }
    for (unsigned i = 0; i < 190; i++)
        take(0, 0, 1);
    ck_assert_uint_eq(peak.blocks, 380);
    ck_assert_uint_le(zr_segment.globals->peak_blocks, 380); /* bytes lack a little here, too */
    ck_assert_uint_ge(zr_segment.globals->peak_blocks + LACKS, 380);
    finish();
}
END_TEST

/* Threads that call and take no memory make no difference. */
START_TEST(one_thread_that_takes_memory_has_the_exact_peak)
{
    start();
    for (unsigned who = 1; who < WORKERS; who++)
        tell(who, (struct step){.call = true});
    for (unsigned most = 10; most <= MOST; most += 30) {
        while (now.blocks < most)
            take(0, now.blocks % CARDS, 100);
        while (now.blocks)
            give(0, 0);
        is_recorded();
        ck_assert_uint_eq(zr_segment.globals->peak_blocks, peak.blocks);
    }
    finish();
}
END_TEST

/* What it took, another thread gives back: that one has no memory, and will rise to none. */
START_TEST(a_thread_that_only_gives_back_leaves_the_peak_exact)
{
    start();
    for (unsigned most = 10; most <= MOST; most += 30) {
        while (now.blocks < most)
            take(0, now.blocks % CARDS, 100);
        while (now.blocks)
            give(1 + now.blocks % (WORKERS - 1), 0);
        is_recorded();
        ck_assert_uint_eq(zr_segment.globals->peak_blocks, peak.blocks);
    }
    finish();
}
END_TEST

START_TEST(any_order_of_steps_gives_the_true_peak)
{
    unsigned seed = (unsigned)_i * 77 + 5;

    start();
    if (_i % 2) { /* all together stay below this: what counts is each card's own */
        take(0, CARDS - 1, 100000 * BLOCK);
        give(0, 0);
    }
    for (int i = 0; i < 4000; i++) {
        unsigned who, more = i / 500 % 2 ? 3 : 6; /* of ten: it rises, and falls */

        seed = seed * 1103515245 + 12345;
        who = (seed >> 8) % WORKERS;
        if (!now.blocks || (now.blocks < MOST && (seed >> 16) % 10 < more))
            take(who, (seed >> 20) % CARDS, (1 + (seed >> 24) % 50) * BLOCK);
        else
            give(who, (seed >> 12) % now.blocks);
        if (i % 100 == 0)
            is_recorded();
    }
    is_recorded();
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peak");
    TCase *t = tcase_create("threads in turn");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_one_thread_has_given_back_another_may_use_but_not_both);
    tcase_add_test(t, a_card_has_a_peak_of_its_own);
    tcase_add_test(t, many_small_blocks_are_counted_as_well);
    tcase_add_test(t, one_thread_that_takes_memory_has_the_exact_peak);
    tcase_add_test(t, a_thread_that_only_gives_back_leaves_the_peak_exact);
    tcase_add_loop_test(t, any_order_of_steps_gives_the_true_peak, 0, 4);
    return run_suite(suite);
}
