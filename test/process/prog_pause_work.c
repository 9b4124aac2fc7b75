/*
 * Work that is paused meanwhile: pause_work [THREADS [MIB [export]]]. Each thread holds blocks of 4 KiB to 8 MiB in
 * turn on all cards, MIB megabytes in all, resident on every card. It fills them with patterns from the host, copies
 * them to each other, also between cards, frees and allocates some, and reads back every byte that it knows; with
 * nothing to do it sleeps. With `export` it takes an IPC handle of one more. Says "ready PID" once all are there.
 * After a line of input it verifies all blocks and prints "right"; a line "idle" makes it do nothing until the next.
 */
#include "sim.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 24, THREADS = 7 }; /* an event for each on each of eight cards, from a pool of 64 */

static struct gpu gpu;
static atomic_bool stop, idle;
static atomic_ulong rounds;
static atomic_uint at_rest;

struct worker {
    pthread_t thread;
    unsigned number;
    uint64_t seed;
    size_t limit; /* bytes */
    ze_command_list_handle_t list[8];
    ze_event_handle_t done[8];
    struct {
        unsigned char *at;
        size_t size;
        unsigned card;
        uint64_t pattern;
    } block[BLOCKS];
    uint64_t *host; /* as large as a block, and host USM */
};

static uint64_t next(struct worker *w) {
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed;
}

/* 4 KiB to 8 MiB, and not always a power of two. */
static size_t some_size(struct worker *w) {
    size_t size = (size_t)4096 << next(w) % 11;

    return size + (next(w) % 2 ? 0 : size / 4);
}

static void expect_right(const struct worker *w, unsigned b) {
    size_t words = w->block[b].size / 8;

    for (size_t i = 0; i < words; i++)
        if (w->host[i] != w->block[b].pattern + i) {
            printf("wrong: thread %u, block %u of %zu bytes at %p on card %u: word %zu is %#llx, not %#llx\n",
                   w->number, b, w->block[b].size, (void *)w->block[b].at, w->block[b].card, i,
                   (unsigned long long)w->host[i], (unsigned long long)(w->block[b].pattern + i));
            exit(1);
        }
}

static void copy(struct worker *w, unsigned card, void *to, const void *from, size_t size) {
    OK(zeCommandListAppendMemoryCopy(w->list[card], to, from, size, w->done[card], 0, NULL));
    OK(zeEventHostSynchronize(w->done[card], UINT64_MAX));
    OK(zeEventHostReset(w->done[card]));
}

static void fill(struct worker *w, unsigned b) {
    w->block[b].pattern = next(w);
    for (size_t i = 0; i < w->block[b].size / 8; i++)
        w->host[i] = w->block[b].pattern + i;
    copy(w, w->block[b].card, w->block[b].at, w->host, w->block[b].size);
}

static void verify(struct worker *w, unsigned b) {
    memset(w->host, 0x5a, w->block[b].size);
    copy(w, w->block[b].card, w->host, w->block[b].at, w->block[b].size);
    expect_right(w, b);
}

static void make(struct worker *w, unsigned b) {
    size_t size = some_size(w);

    w->block[b].card = (w->number + b) % gpu.cards;
    w->block[b].size = size < w->limit / BLOCKS ? size : w->limit / BLOCKS / 4096 * 4096;
    w->block[b].at = on_card(&gpu, w->block[b].card, w->block[b].size);
    for (unsigned card = 0; card < gpu.cards; card++)
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], w->block[b].at, w->block[b].size));
    fill(w, b);
}

static void renew(struct worker *w, unsigned b) {
    OK(zeMemFree(gpu.context, w->block[b].at));
    make(w, b);
}

/* What fits of one block goes to another, which may be on another card. */
static void pass_on(struct worker *w, unsigned from, unsigned to) {
    if (w->block[from].size < w->block[to].size || from == to)
        return;
    copy(w, w->block[next(w) % 2 ? from : to].card, w->block[to].at, w->block[from].at, w->block[to].size);
    w->block[to].pattern = w->block[from].pattern;
    verify(w, to);
}

static void *work(void *arg) {
    struct worker *w = arg;

    while (!atomic_load(&stop)) {
        unsigned a = next(w) % BLOCKS, b = next(w) % BLOCKS;

        if (atomic_load(&idle)) {
            atomic_fetch_add(&at_rest, 1);
            while (atomic_load(&idle) && !atomic_load(&stop))
                usleep(1000);
            atomic_fetch_sub(&at_rest, 1);
            continue;
        }
        switch (next(w) % 4) {
        case 0:
            fill(w, a);
            break;
        case 1:
            renew(w, a);
            break;
        default:
            pass_on(w, a, b);
        }
        verify(w, b);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void begin(struct worker *w, unsigned number, size_t limit) {
    w->number = number;
    w->seed = 88172645463325252ull + number;
    w->limit = limit;
    OK(zeMemAllocHost(gpu.context, &host_desc, 12 * MIB, 64, (void **)&w->host));
    for (unsigned card = 0; card < gpu.cards; card++) {
        w->list[card] = immediate(&gpu, card, false);
        w->done[card] = new_event(&gpu);
    }
    for (unsigned b = 0; b < BLOCKS; b++)
        make(w, b);
}

int main(int argc, char **argv) {
    static struct worker worker[THREADS];
    unsigned threads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 2;
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
    ze_ipc_mem_handle_t handle;
    char line[64];

    gpu = first_gpu();
    EXPECT(threads && threads <= THREADS && mib);
    /* The simulated GPU reserves at multiples of 2 MiB alone, and the first block decides whether it does at all. */
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 2 * MIB)));
    for (unsigned i = 0; i < threads; i++)
        begin(&worker[i], i, mib * MIB / threads);
    if (argc > 3)
        OK(zeMemGetIpcHandle(gpu.context, on_card(&gpu, 0, MIB), &handle));
    for (unsigned i = 0; i < threads; i++)
        EXPECT(pthread_create(&worker[i].thread, NULL, work, &worker[i]) == 0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "idle", 4) == 0) {
        atomic_store(&idle, true);
        while (atomic_load(&at_rest) < threads)
            usleep(1000);
        puts("idle");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            break;
        atomic_store(&idle, false);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(worker[i].thread, NULL);
    for (unsigned i = 0; i < threads; i++)
        for (unsigned b = 0; b < BLOCKS; b++) {
            verify(&worker[i], b);
            OK(zeMemFree(gpu.context, worker[i].block[b].at));
        }
    printf("right after %lu rounds\n", (unsigned long)atomic_load(&rounds));
    return 0;
}
