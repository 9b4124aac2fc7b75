/*
 * Peaks, as a reader finds them: exact with one thread, within a batch per thread with several (stats/book.c). Where
 * the truth must be known, threads take turns, or meet at a barrier when all are at their highest.
 */
#include "stats/stats.h"
#include "suite.h"
#include "zeroute/reader.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CARDS = 3, MOST = 400 };
#define MIB ((uint64_t)1 << 20)

static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child, .thread_end = zr_stats_thread_end},
    {.fork_child = zr_libraries_fork_child},
};

static char path[128]; /* of this process's own segment */

static void start(void) {
    ck_assert(zr_stats_open());
    snprintf(path, sizeof path, "%s", zr_segment.path);
}

static void finish(void) {
    unlink(path);
}

static struct zeroute_snapshot *look(void) {
    char why[256] = "";
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);

    ck_assert_msg(s != NULL, "%s", why);
    return s;
}

static unsigned dice(unsigned *seed, unsigned sides) {
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 12) % sides;
}

/* Some are folded at once, some lie just below a batch, most are small. */
static uint64_t any_size(unsigned *seed) {
    switch (dice(seed, 4)) {
    case 0:
        return 2 * MIB * (1 + dice(seed, 20));
    case 1:
        return MIB - 1 - dice(seed, 4096);
    case 2:
        return MIB / 8 + dice(seed, MIB / 2);
    default:
        return 1 + dice(seed, 8192);
    }
}

/* --- what is true --------------------------------------------------------------------------------------------------
 */

struct block {
    unsigned card;
    uint64_t bytes;
};
static struct block live[MOST];
static struct { uint64_t all, card[CARDS], blocks; } now, peak;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void up(unsigned card, uint64_t bytes) {
    live[now.blocks++] = (struct block){card, bytes};
    now.all += bytes;
    now.card[card] += bytes;
    peak.all = larger(peak.all, now.all);
    peak.card[card] = larger(peak.card[card], now.card[card]);
    peak.blocks = larger(peak.blocks, now.blocks);
}

static struct block down(unsigned which) {
    struct block b = live[which];

    live[which] = live[--now.blocks];
    now.all -= b.bytes;
    now.card[b.card] -= b.bytes;
    return b;
}

static void is_within(const char *what, uint64_t read, uint64_t truth, uint64_t bound) {
    ck_assert_msg(read + bound >= truth && read <= truth + bound, "%s reads %llu, is %llu, may be off by %llu", what,
                  (unsigned long long)read, (unsigned long long)truth, (unsigned long long)bound);
}

/* Present values are exact whenever nobody books; peaks may be off by so many batches. */
static void is_recorded(unsigned batches) {
    struct zeroute_snapshot *s = look();
    char name[64];

    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.current", 1), now.all);
    ck_assert_uint_eq(zeroute_value(s, "allocation.all.current", 1), now.blocks);
    is_within("allocated_bytes.all.peak", zeroute_value(s, "allocated_bytes.all.peak", 0), peak.all,
              (uint64_t)batches * ZR_BATCH_BYTES);
    is_within("allocation.all.peak", zeroute_value(s, "allocation.all.peak", 0), peak.blocks, batches * 64);
    ck_assert_uint_ge(zeroute_value(s, "allocated_bytes.all.peak", 0), now.all);
    ck_assert_uint_ge(zeroute_value(s, "allocation.all.peak", 0), now.blocks);
    for (unsigned card = 0; card < CARDS; card++) {
        if (!peak.card[card])
            continue;
        snprintf(name, sizeof name, "device.%u.allocated_bytes.all.current", card);
        ck_assert_uint_eq(zeroute_value(s, name, 1), now.card[card]);
        snprintf(name, sizeof name, "device.%u.allocated_bytes.all.peak", card);
        is_within(name, zeroute_value(s, name, 0), peak.card[card], (uint64_t)batches * ZR_BATCH_BYTES);
        ck_assert_uint_ge(zeroute_value(s, name, 0), now.card[card]);
    }
    zeroute_snapshot_free(s);
}

/* --- one thread ----------------------------------------------------------------------------------------------------
 */

START_TEST(with_one_thread_every_peak_is_exact_at_every_step) {
    unsigned seed = (unsigned)_i * 77 + 5;

    for (unsigned i = 0; i < 1500; i++) {
        unsigned more = i / 300 % 2 ? 3 : 7; /* of ten: it rises, and falls */

        if (!now.blocks || (now.blocks < MOST && dice(&seed, 10) < more)) {
            up(dice(&seed, CARDS), any_size(&seed));
            zr_book(ZR_KIND_DEVICE, live[now.blocks - 1].card, live[now.blocks - 1].bytes);
        } else {
            struct block b = down(dice(&seed, (unsigned)now.blocks));

            zr_unbook(ZR_KIND_DEVICE, b.card, b.bytes);
        }
        is_recorded(0);
    }
}
END_TEST

START_TEST(many_small_blocks_are_counted_exactly_as_well) {
    for (unsigned i = 0; i < MOST; i++) {
        up(0, 1);
        zr_book(ZR_KIND_DEVICE, 0, 1);
    }
    is_recorded(0);
    while (now.blocks) {
        struct block b = down(0);

        zr_unbook(ZR_KIND_DEVICE, b.card, b.bytes);
    }
    is_recorded(0);
}
END_TEST

START_TEST(memory_on_no_device_has_a_peak_of_its_own) {
    static const struct {
        enum zr_kind kind;
        const char *name;
    } kinds[] = {{ZR_KIND_HOST, "allocated_bytes.host.peak"},
                 {ZR_KIND_VIRTUAL, "virtual_bytes.reserved.peak"},
                 {ZR_KIND_MAPPED, "virtual_bytes.mapped.peak"},
                 {ZR_KIND_IMPORTED, "imported_bytes.all.peak"}};
    struct zeroute_snapshot *s;

    for (unsigned i = 0; i < 4; i++) {
        zr_book(kinds[i].kind, 0, (i + 1) * 100);
        zr_book(kinds[i].kind, 0, 3 * MIB);
        zr_unbook(kinds[i].kind, 0, 3 * MIB);
    }
    s = look();
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(zeroute_value(s, kinds[i].name, 0), 3 * MIB + (i + 1) * 100);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.peak", 1), 0);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(a_child_of_fork_starts_at_zero) {
    int status;
    pid_t child;

    up(0, 5 * MIB);
    up(1, 1000);
    zr_book(ZR_KIND_DEVICE, 0, 5 * MIB);
    zr_book(ZR_KIND_DEVICE, 1, 1000);
    child = fork();
    if (child == 0) {
        struct zeroute_snapshot *s;
        bool right;

        zr_fork_check();
        start();
        zr_book(ZR_KIND_DEVICE, 0, 7);
        s = look();
        right = zeroute_value(s, "allocated_bytes.all.peak", 0) == 7 &&
                zeroute_value(s, "device.0.allocated_bytes.all.peak", 0) == 7 &&
                zeroute_value(s, "device.1.allocated_bytes.all.peak", 1) == 1 && /* not there */
                zeroute_value(s, "allocation.all.peak", 0) == 1;
        finish();
        _exit(!right);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    is_recorded(0);
}
END_TEST

/* --- several, in turns ---------------------------------------------------------------------------------------------
 */

static struct step {
    struct block block;
    bool up, end;
} step;
static int turn = -1; /* whose; -1: the test's */

static void *take_turns(void *arg) {
    int mine = (int)(intptr_t)arg;

    for (bool end = false; !end;) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != mine)
            sched_yield();
        end = step.end;
        if (step.up)
            zr_book(ZR_KIND_DEVICE, step.block.card, step.block.bytes);
        else if (!end)
            zr_unbook(ZR_KIND_DEVICE, step.block.card, step.block.bytes);
        __atomic_store_n(&turn, -1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void tell(unsigned who, struct step s) {
    step = s;
    __atomic_store_n(&turn, (int)who, __ATOMIC_RELEASE);
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != -1)
        sched_yield();
}

START_TEST(with_several_threads_every_peak_is_within_a_batch_per_thread) {
    unsigned seed = (unsigned)_i * 77 + 5;
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, take_turns, (void *)(intptr_t)i), 0);
    for (unsigned i = 0; i < 1500; i++) {
        unsigned who = dice(&seed, THREADS), more = i / 300 % 2 ? 3 : 7;

        if (!now.blocks || (now.blocks < MOST && dice(&seed, 10) < more)) {
            up(dice(&seed, CARDS), any_size(&seed));
            tell(who, (struct step){.block = live[now.blocks - 1], .up = true});
        } else { /* whoever took it */
            tell(who, (struct step){.block = down(dice(&seed, (unsigned)now.blocks))});
        }
        if (i % 10 == 0)
            is_recorded(THREADS);
    }
    is_recorded(THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        tell(i, (struct step){.end = true});
        pthread_join(thread[i], NULL);
    }
    is_recorded(THREADS);
}
END_TEST

static void *take_and_leave(void *bytes) {
    zr_book(ZR_KIND_DEVICE, 0, *(uint64_t *)bytes);
    zr_book(ZR_KIND_DEVICE, 0, 1000);
    zr_unbook(ZR_KIND_DEVICE, 0, 1000);
    return NULL;
}

/* What a thread has not folded is folded when it ends. */
START_TEST(threads_one_after_the_other_leave_the_peak_exact) {
    for (unsigned i = 0; i < 50; i++) {
        uint64_t bytes = MIB / 2 + i;
        pthread_t t;

        up(0, bytes);
        up(0, 1000);
        down((unsigned)now.blocks - 1);
        ck_assert_int_eq(pthread_create(&t, NULL, take_and_leave, &bytes), 0);
        pthread_join(t, NULL);
        is_recorded(0);
        for (unsigned a = 0; a < ZR_STATS_ACCOUNTS; a++)
            ck_assert_int_eq(zr_segment_shard(1)->level[a].level, 0);
    }
}
END_TEST

/* --- several, at once ----------------------------------------------------------------------------------------------
 */

enum { ROUNDS = 20, BLOCKS = 40 };
static pthread_barrier_t barrier;
static uint64_t round_bytes[ROUNDS];

/* All are at their highest when they meet: the sum of what they have is the peak of that round. */
static void *rise_and_fall(void *arg) {
    unsigned seed = (unsigned)(intptr_t)arg * 991 + 1;

    for (unsigned r = 0; r < ROUNDS; r++) {
        struct block own[BLOCKS];

        for (unsigned i = 0; i < BLOCKS; i++) {
            own[i] = (struct block){dice(&seed, CARDS), any_size(&seed)};
            zr_book(ZR_KIND_DEVICE, own[i].card, own[i].bytes);
            __atomic_fetch_add(&round_bytes[r], own[i].bytes, __ATOMIC_RELAXED);
        }
        pthread_barrier_wait(&barrier);
        for (unsigned i = 0; i < BLOCKS; i++)
            zr_unbook(ZR_KIND_DEVICE, own[i].card, own[i].bytes);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void at_once(unsigned threads) {
    pthread_t *thread = calloc(threads, sizeof *thread);
    uint64_t most = 0;
    struct zeroute_snapshot *s;

    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, threads), 0);
    for (unsigned i = 0; i < threads; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, rise_and_fall, (void *)(intptr_t)i), 0);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    for (unsigned r = 0; r < ROUNDS; r++)
        most = larger(most, round_bytes[r]);
    s = look();
    is_within("allocated_bytes.all.peak", zeroute_value(s, "allocated_bytes.all.peak", 0), most,
              (uint64_t)threads * ZR_BATCH_BYTES);
    is_within("allocation.all.peak", zeroute_value(s, "allocation.all.peak", 0), threads * BLOCKS, threads * 64);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.current", 1), 0);
    zeroute_snapshot_free(s);
    free(thread);
}

START_TEST(threads_that_book_at_once_lose_no_more_than_a_batch_each) {
    at_once(THREADS);
}
END_TEST

START_TEST(more_threads_than_shards_lose_no_more_than_that_either) {
    at_once(ZR_SHARDS + 20);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("peak");
    TCase *t = tcase_create("peak");

    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, start, finish);
    tcase_add_loop_test(t, with_one_thread_every_peak_is_exact_at_every_step, 0, 3);
    tcase_add_test(t, many_small_blocks_are_counted_exactly_as_well);
    tcase_add_test(t, memory_on_no_device_has_a_peak_of_its_own);
    tcase_add_test(t, a_child_of_fork_starts_at_zero);
    tcase_add_loop_test(t, with_several_threads_every_peak_is_within_a_batch_per_thread, 0, 4);
    tcase_add_test(t, threads_one_after_the_other_leave_the_peak_exact);
    tcase_add_test(t, threads_that_book_at_once_lose_no_more_than_a_batch_each);
    tcase_add_test(t, more_threads_than_shards_lose_no_more_than_that_either);
    return run_suite(suite);
}
