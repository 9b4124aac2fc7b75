/*
 * What an allocation costs at the Level Zero entry points, called as a program that is linked against the loader
 * calls them. Takes orders on stdin and answers each with one line, so that several of these processes (the driver
 * alone, the driver under zeroute) can be measured in turn; test/bench/bench_entry gives the orders.
 *
 *   begin PATTERN SIZE THREADS   pair, live (1000 blocks, random replacement) or resident (a pair, resident on all
 *                                cards); answers "ready", or "full" when the blocks do not fit
 *   slice                        answers the ns per allocation and free of one thread, and how many it made
 *   end                          answers "done"
 */
#include "bench_ze.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LIVE = 1000, THREADS = 2, WARM = 200 };
static const double slice_ns = 2e6;

struct work {
    void (*run)(struct work *w, size_t steps);
    size_t size, steps, lives;
    double ns;
    pthread_barrier_t *gate;
    void *live[LIVE];
};
static struct work work[THREADS];
static int threads;

static void run_pair(struct work *w, size_t steps)
{
    for (size_t i = 0; i < steps; i++)
        give(take(w->size));
}

static void run_resident(struct work *w, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        void *p = take(w->size);

        spread(p, w->size);
        give(p);
    }
}

static void run_live(struct work *w, size_t steps)
{
    uint64_t r = 88172645463325252u;

    for (size_t i = 0; i < steps; i++) {
        void **at;

        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        at = &w->live[r % LIVE];
        give(*at);
        *at = take(w->size);
    }
}

/* A thread is new in each slice: what it does first is not timed. */
static void *timed(void *arg)
{
    struct work *w = arg;
    double start;

    w->run(w, w->steps < WARM ? w->steps : WARM);
    pthread_barrier_wait(w->gate);
    start = now_ns();
    w->run(w, w->steps);
    w->ns = (now_ns() - start) / (double)w->steps;
    return NULL;
}

/* ns per step of one thread while all of them run. */
static double slice(void)
{
    pthread_t other[THREADS];
    pthread_barrier_t gate;
    double sum;

    pthread_barrier_init(&gate, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        work[i].gate = &gate;
        if (i)
            pthread_create(&other[i], NULL, timed, &work[i]);
    }
    timed(&work[0]);
    sum = work[0].ns;
    for (int i = 1; i < threads; i++) {
        pthread_join(other[i], NULL);
        sum += work[i].ns;
    }
    pthread_barrier_destroy(&gate);
    return sum / threads;
}

static void end(void)
{
    for (int i = 0; i < threads; i++)
        while (work[i].lives)
            give(work[i].live[--work[i].lives]);
}

/* As many steps as take about as long as a slice. */
static void calibrate(void)
{
    size_t steps = 16;
    double ns;

    for (;;) {
        for (int i = 0; i < threads; i++)
            work[i].steps = steps;
        ns = slice() * (double)steps;
        if (ns >= slice_ns)
            return;
        steps = ns * 8 < slice_ns ? steps * 8 : (size_t)((double)steps * slice_ns / ns) + 1;
        if (ns > slice_ns / 2)
            return;
    }
}

static bool begin(const char *name, size_t size, int number)
{
    bool live = strcmp(name, "live") == 0;

    threads = number;
    for (int i = 0; i < threads; i++) {
        struct work *w = &work[i];

        w->run = live ? run_live : strcmp(name, "resident") == 0 ? run_resident : run_pair;
        w->size = size;
        for (w->lives = 0; live && w->lives < LIVE; w->lives++)
            if (zeMemAllocDevice(context, &plain_desc, size, 0, cards[0], &w->live[w->lives])) {
                end();
                return false;
            }
    }
    calibrate();
    return true;
}

int main(void)
{
    char line[128], name[16];
    size_t size;
    int number;

    open_cards();
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "begin %15s %zu %d", name, &size, &number) == 3 && number >= 1 && number <= THREADS)
            puts(begin(name, size, number) ? "ready" : "full");
        else if (strcmp(line, "slice\n") == 0)
            printf("%.2f %zu\n", slice(), work[0].steps);
        else if (strcmp(line, "end\n") == 0)
            end(), puts("done");
        else
            return 2;
        fflush(stdout);
    }
    MUST(zeContextDestroy(context));
    return 0;
}
