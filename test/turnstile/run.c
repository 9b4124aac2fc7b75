/* One seed: its program, its threads, and what is looked at when they have ended. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_STEPS = 20000, MOST_ATOMIC_STEPS = 2000000 };

unsigned plan_threads(const struct plan *p) {
    return 2 + (unsigned)(ts_mix(p->seed * 3 + 1) % 3);
}

unsigned plan_operations(const struct plan *p, unsigned thread) {
    return 4 + (unsigned)(ts_mix(p->seed * 5 + thread) % 20);
}

static uint64_t stream_of(const struct plan *p, unsigned thread, unsigned index) {
    return ts_mix(p->seed * 7 + ts_mix(thread * 64 + index));
}

static bool is_allowed(const struct plan *p, unsigned kind) {
    const struct operation *o = &operations[kind];

    return (p->setting->flags & o->needs) == o->needs && !(p->setting->flags & o->not_with);
}

/* Each program has operations that it never does, and some that it likes: such programs find more than even ones. */
static unsigned weight_of(const struct plan *p, unsigned kind) {
    static const unsigned factor[] = {0, 1, 1, 4};
    uint64_t taste = ts_mix(p->seed * 11 + kind);

    if (!is_allowed(p, kind))
        return 0;
    if (operations[kind].weight >= 10) /* all do allocate and free */
        return operations[kind].weight;
    return operations[kind].weight * factor[taste % 4];
}

unsigned plan_kind(const struct plan *p, unsigned thread, unsigned index) {
    unsigned total = 0, at;

    for (unsigned k = 0; k < operation_count; k++)
        total += weight_of(p, k);
    at = (unsigned)(ts_mix(stream_of(p, thread, index)) % total);
    for (unsigned k = 0; k < operation_count; k++) {
        if (at < weight_of(p, k))
            return k;
        at -= weight_of(p, k);
    }
    return operation_count;
}

struct part {
    const struct plan *plan;
    unsigned thread;
};

static void run_thread(void *arg) {
    const struct part *part = arg;
    const struct plan *p = part->plan;

    for (unsigned i = 0; i < plan_operations(p, part->thread); i++) {
        unsigned kind = plan_kind(p, part->thread, i);
        struct actor a = {.random = stream_of(p, part->thread, i), .thread = part->thread, .index = i};

        if (kind == operation_count || p->left_out[part->thread] >> i & 1 || p->kinds_left_out >> kind & 1)
            continue;
        operations[kind].act(&a);
        ts_operation(i, NULL);
    }
}

void set_root(const struct setting *setting) {
    char path[160];
    const char *root = getenv("TURNSTILE_ROOM");

    if (!root || !(setting->flags & AUTO))
        return;
    setenv("ZEROUTE_ROOT", root, 1);
    snprintf(path, sizeof path, "%s/proc/%d", root, getpid());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/proc/%d/fdinfo", root, getpid());
    mkdir(path, 0700);
    snprintf(ts_driver.kernel, sizeof ts_driver.kernel, "%s", path);
    ts_driver.fdinfo = setting->flags & FDINFO;
    ts_kernel_tells();
}

static void set_conf(const struct setting *setting) {
    char conf[512];
    const char *at = strstr(setting->conf, "%R"), *room = getenv("TURNSTILE_ROOM");

    if (at)
        snprintf(conf, sizeof conf, "%.*s%s/record%s", (int)(at - setting->conf), setting->conf, room ? room : "/tmp",
                 at + 2);
    else
        snprintf(conf, sizeof conf, "%s", setting->conf);
    setenv("ZEROUTE_CONF", conf, 1);
}

void prepare(const struct setting *setting, uint64_t seed) {
    ts_driver_begin(seed);
    if (setting->flags & GROUP)
        ts_driver.most_of_all = setting->limit;
    else
        ts_driver.most = setting->limit;
    set_conf(setting);
    if (setting->flags & SYCL) /* the runtime is probed with blocks of 16 MiB */
        for (int i = 0; i < TS_CARDS; i++)
            ts_driver.vram[i] += (uint64_t)64 << 20;
    truth_begin(setting);
    ts_last_words = segment_unlink;
}

/* Starts the threads of this process, waits for them, and looks at what is left. */
static void run_program(const struct plan *p, unsigned first, unsigned count) {
    struct part parts[MOST_THREADS];
    int thread[MOST_THREADS];

    set_root(p->setting);
    program_opens();
    for (unsigned t = first; t < first + count; t++) {
        parts[t] = (struct part){p, t};
        thread[t] = p->threads_left_out >> t & 1 ? -1 : ts_start(run_thread, &parts[t], t + 1);
    }
    for (unsigned t = first; t < first + count; t++)
        if (thread[t] >= 0)
            ts_join(thread[t]);
    ts_operation(MOST_OPERATIONS, "at rest");
    ts_driver.refuse_alloc = ts_driver.refuse_free = 0;
    rest_compare("at rest", false);
    program_closes();
    rest_compare("with everything freed", true);
    truth_check_answers();
    ts_operation(MOST_OPERATIONS, "the end of the process");
}

void run_plan(const struct plan *p) {
    enum ts_strategy strategy = (enum ts_strategy)(ts_mix(p->seed + 99) % TS_STRATEGIES);
    unsigned count = plan_threads(p), own = p->setting->flags & SEVERAL ? count / 2 : count;
    int other = -1;

    prepare(p->setting, p->seed);
    program_seed = ts_mix(p->seed + 5);
    ts_atomics = p->atomics;
    ts_begin(p->seed, strategy, p->atomics ? MOST_ATOMIC_STEPS : MOST_STEPS);
    if (own < count) {
        ts_driver.spills = true;
        for (int i = 0; i < TS_CARDS && !(p->setting->flags & GROUP); i++)
            ts_driver.vram[i] = (uint64_t)(3 + p->seed % 3) << 20;
        other = ts_process(MOST_THREADS + 1);
        if (other < 0) {
            run_program(p, own, count - own);
            segment_unlink();
            ts_driver_ends();
            ts_process_ends();
        }
    }
    run_program(p, 0, own);
    if (other >= 0) {
        segment_unlink();
        ts_driver_ends();
        ts_join(other);
    }
    ts_shared->ended = 1;
    segment_unlink(); /* it would stay, for those who ask what finished processes had */
    exit(0);
}
