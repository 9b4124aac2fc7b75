/*
 * Two threads. "peak": each gets 1 GiB and frees it, one after the other, then both hold 1 GiB at once.
 * "twice": both free the same block at the same time; one of them must succeed, thousands of times.
 */
#include "sim.h"

#include <pthread.h>
#include <sched.h>

enum { SMALL = 64 << 10, ROUNDS = 500, BLOCKS = 40, WARM = 300 };

static struct gpu gpu;
static pthread_barrier_t gate;

static void *get(size_t size) {
    return on_card(&gpu, 0, size);
}

static void hold_in_turn_then_together(int me) {
    void *p = NULL;

    for (int turn = 0; turn < 2; turn++) {
        if (turn == me)
            zeMemFree(gpu.context, get(GIB));
        pthread_barrier_wait(&gate);
    }
    for (int turn = 0; turn < 2; turn++) {
        if (turn == me)
            p = get(GIB);
        pthread_barrier_wait(&gate);
    }
    zeMemFree(gpu.context, p);
}

/* Many blocks each time that one thread waits for the other: on a busy machine that takes long. */
static void *block[BLOCKS];
static ze_result_t other_result[BLOCKS];
static int round_begun, round_done;

static void warm_up(void) {
    for (int i = 0; i < WARM; i++)
        zeMemFree(gpu.context, get(SMALL));
}

static void free_what_the_other_frees(void) {
    warm_up();
    for (int i = 1; i <= ROUNDS; i++) {
        while (__atomic_load_n(&round_begun, __ATOMIC_ACQUIRE) < i)
            sched_yield();
        for (int n = 0; n < BLOCKS; n++)
            other_result[n] = zeMemFree(gpu.context, block[n]);
        __atomic_store_n(&round_done, i, __ATOMIC_RELEASE);
    }
}

static void free_each_block_twice(void) {
    ze_result_t result[BLOCKS];

    warm_up();
    for (int i = 1; i <= ROUNDS; i++) {
        for (int n = 0; n < BLOCKS; n++)
            block[n] = get(SMALL);
        __atomic_store_n(&round_begun, i, __ATOMIC_RELEASE);
        for (volatile int k = 0; k < i % 60; k++)
            ;
        for (int n = 0; n < BLOCKS; n++)
            result[n] = zeMemFree(gpu.context, block[n]);
        while (__atomic_load_n(&round_done, __ATOMIC_ACQUIRE) < i)
            sched_yield();
        for (int n = 0; n < BLOCKS; n++)
            if ((result[n] == ZE_RESULT_SUCCESS) + (other_result[n] == ZE_RESULT_SUCCESS) != 1) {
                printf("round %d: %#x and %#x\n", i, (unsigned)result[n], (unsigned)other_result[n]);
                exit(1);
            }
    }
    warm_up();
}

static bool twice;

static void *other(void *arg) {
    (void)arg;
    if (twice)
        free_what_the_other_frees();
    else
        hold_in_turn_then_together(1);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;

    twice = argc > 1 && strcmp(argv[1], "twice") == 0;
    gpu = first_gpu();
    pthread_barrier_init(&gate, NULL, 2);
    if (pthread_create(&thread, NULL, other, NULL))
        return 1;
    if (twice)
        free_each_block_twice();
    else
        hold_in_turn_then_together(0);
    pthread_join(thread, NULL);
    return 0;
}
