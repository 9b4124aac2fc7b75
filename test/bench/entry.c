/*
 * What an allocation costs at the Level Zero entry points, called as a program that is linked against the loader
 * calls them. Takes orders on stdin and answers each with one line, so that several of these processes (the driver
 * alone, the driver under zeroute) can be measured in turn; test/bench/bench_entry gives the orders.
 *
 *   begin PATTERN SIZE THREADS   pair, live (1000 blocks, random replacement), resident (a pair, resident on all
 *                                cards) or submit (a barrier to an immediate list, a wait after each SIZE of them);
 *                                answers "ready", or "full" when the blocks do not fit
 *   slice                        answers the ns per allocation and free, or submission, of one thread
 *   end                          answers "done"
 *   pairs SIZE COUNT             allocates and frees so often, for callgrind; answers "done"
 *   submits WAIT COUNT           the same for commands, with a wait after each WAIT of them
 *   growth FEW MANY              ns of a lookup (zeMemGetAddressRange) and of a free and an allocation of the same FEW
 *                                blocks of 64 KiB, in any order: with no others, and with MANY live ones. Four figures,
 *                                each the lowest of many turns; "full" when they do not fit
 */
#include "bench_ze.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LIVE = 1000, THREADS = 2, WARM = 200, TURNS = 300 };
enum task { FILL, RUN, DRAIN };
enum { BLOCK = 65536 };
static const double slice_ns = 2e6;

/* One thread's part. Threads stay: each frees what it has allocated itself. */
struct work {
    void (*run)(struct work *w, size_t steps);
    size_t size, steps, lives, want;
    double ns;
    void *live[LIVE];
};
static struct work work[THREADS];
static int threads;
static enum task task;
static pthread_barrier_t gate;

static void run_pair(struct work *w, size_t steps) {
    for (size_t i = 0; i < steps; i++)
        give(take(w->size));
}

static void run_resident(struct work *w, size_t steps) {
    for (size_t i = 0; i < steps; i++) {
        void *p = take(w->size);

        spread(p, w->size);
        give(p);
    }
}

static void run_live(struct work *w, size_t steps) {
    uint64_t r = 88172645463325252u;

    for (size_t i = 0; i < steps; i++) {
        void **at;

        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        at = &w->live[r % LIVE];
        give(*at);
        *at = take(w->size);
    }
}

static void run_submit(struct work *w, size_t steps) {
    static const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                                 .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    static const ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    static const ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    static ze_command_list_handle_t list;
    static ze_event_pool_handle_t pool;
    static ze_event_handle_t done;

    if (!list) {
        MUST(zeCommandListCreateImmediate(context, cards[0], &desc, &list));
        MUST(zeEventPoolCreate(context, &pool_desc, 1, cards, &pool));
        MUST(zeEventCreate(pool, &event_desc, &done));
    }
    for (size_t i = 1; i <= steps; i++) {
        bool last = i % w->size == 0;

        MUST(zeCommandListAppendBarrier(list, last ? done : NULL, 0, NULL));
        if (last) {
            MUST(zeEventHostSynchronize(done, UINT64_MAX));
            MUST(zeEventHostReset(done));
        }
    }
}

static void perform(struct work *w) {
    cpu_set_t before;
    double start;

    switch (task) {
    case FILL:
        while (w->lives < w->want &&
               zeMemAllocDevice(context, &plain_desc, w->size, 0, cards[0], &w->live[w->lives]) == ZE_RESULT_SUCCESS)
            w->lives++;
        break;
    case RUN:
        sched_getaffinity(0, sizeof before, &before);
        stay_on((int)(w - work)); /* not for long: threads that the driver makes are free to go elsewhere */
        w->run(w, w->steps < WARM ? w->steps : WARM);
        if (threads > 1)
            pthread_barrier_wait(&gate);
        start = now_ns();
        w->run(w, w->steps);
        w->ns = (now_ns() - start) / (double)w->steps;
        sched_setaffinity(0, sizeof before, &before);
        break;
    case DRAIN:
        while (w->lives)
            give(w->live[--w->lives]);
        break;
    }
}

static void *second(void *unused) {
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&gate);
        perform(&work[1]);
        pthread_barrier_wait(&gate);
    }
    return NULL;
}

/* All threads at once. */
static void all(enum task what) {
    static bool made;
    pthread_t other;

    task = what;
    if (threads > 1 && !made) {
        pthread_barrier_init(&gate, NULL, THREADS);
        pthread_create(&other, NULL, second, NULL);
        made = true;
    }
    if (threads > 1)
        pthread_barrier_wait(&gate);
    perform(&work[0]);
    if (threads > 1)
        pthread_barrier_wait(&gate);
}

/* ns per step of one thread while all of them run. */
static double slice(void) {
    double sum = 0;

    all(RUN);
    for (int i = 0; i < threads; i++)
        sum += work[i].ns;
    return sum / threads;
}

/* As many steps as take about as long as a slice. */
static void calibrate(void) {
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

static void (*pattern_named(const char *name))(struct work *, size_t) {
    static const struct {
        const char *name;
        void (*run)(struct work *, size_t);
    } patterns[] = {{"live", run_live}, {"resident", run_resident}, {"submit", run_submit}};

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(name, patterns[i].name) == 0)
            return patterns[i].run;
    return run_pair;
}

static bool begin(const char *name, size_t size, int number) {
    threads = number;
    for (int i = 0; i < threads; i++) {
        work[i].run = pattern_named(name);
        work[i].size = size;
        work[i].want = work[i].run == run_live ? LIVE : 0;
    }
    all(FILL);
    for (int i = 0; i < threads; i++)
        if (work[i].lives < work[i].want) {
            all(DRAIN);
            return false;
        }
    calibrate();
    return true;
}

static void look(void *p) {
    size_t size;
    void *base;

    MUST(zeMemGetAddressRange(context, p, &base, &size));
}

static double lower(double a, double b) {
    return a < b ? a : b;
}

/* ns per lookup, and per free and allocation, of the first blocks. */
static void use(void **p, size_t count, double *looked, double *again) {
    *looked = *again = 1e18;
    for (int turn = 0; turn < TURNS; turn++) {
        double start = now_ns(), middle;

        for (size_t i = 0; i < count; i++)
            look(p[i * 617 % count]);
        middle = now_ns();
        for (size_t i = 0; i < count; i++) {
            void **at = &p[i * 617 % count];

            give(*at);
            *at = take(BLOCK);
        }
        *looked = lower(*looked, (middle - start) / (double)count);
        *again = lower(*again, (now_ns() - middle) / (double)count);
    }
}

static void growth(size_t few, size_t many) {
    void **p = malloc(many * sizeof *p);
    double ns[4];
    size_t count = 0;

    while (p && count < many &&
           zeMemAllocDevice(context, &plain_desc, BLOCK, 0, cards[0], &p[count]) == ZE_RESULT_SUCCESS)
        if (++count == few)
            use(p, few, &ns[0], &ns[1]);
    if (count == many) {
        use(p, few, &ns[2], &ns[3]);
        printf("%.2f %.2f %.2f %.2f\n", ns[0], ns[1], ns[2], ns[3]);
    } else {
        puts("full");
    }
    while (count)
        give(p[--count]);
    free(p);
}

static void pairs(size_t size, size_t count) {
    for (size_t i = 0; i < count; i++)
        give(take(size));
    puts("done");
}

static void submits(size_t wait, size_t count) {
    struct work w = {.size = wait};

    run_submit(&w, count);
    puts("done");
}

static void end(void) {
    all(DRAIN);
    puts("done");
}

int main(void) {
    char line[128], name[16];
    size_t size, many;
    int number;

    open_cards();
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "begin %15s %zu %d", name, &size, &number) == 3 && number >= 1 && number <= THREADS)
            puts(begin(name, size, number) ? "ready" : "full");
        else if (sscanf(line, "growth %zu %zu", &size, &many) == 2 && size && size < many)
            growth(size, many);
        else if (sscanf(line, "pairs %zu %zu", &size, &many) == 2)
            pairs(size, many);
        else if (sscanf(line, "submits %zu %zu", &size, &many) == 2 && size)
            submits(size, many);
        else if (strcmp(line, "slice\n") == 0)
            printf("%.2f\n", slice());
        else if (strcmp(line, "end\n") == 0)
            end();
        else
            return 2;
        fflush(stdout);
    }
    MUST(zeContextDestroy(context));
    return 0;
}
