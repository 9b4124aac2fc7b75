/* Runners: what was submitted to each, in which epoch, and up to where it is proven. */
#include "stats/stats.h"
#include "work/runner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NEVER UINT64_MAX

static uint64_t epoch = 1;        /* atomic */
static struct zr_runner *runners; /* atomic; of all runners, which are never freed */
static bool is_lost;              /* atomic */
static char why[200];
static uint64_t checked_libraries; /* atomic: the list of libraries in which nothing passed us */

/* --- one runner ------------------------------------------------------------------------------- */

struct zr_runner *zr_runner_new(unsigned device, bool in_order, bool synchronous) {
    struct zr_runner *r = zr_piece(sizeof *r);

    if (!r) {
        zr_work_lost("there was no memory for the books of a queue");
        return NULL;
    }
    r->oldest = NEVER;
    zr_runner_renew(r, device, in_order, synchronous);
    r->next = __atomic_load_n(&runners, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&runners, &r->next, r, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
    return r;
}

void zr_runner_renew(struct zr_runner *r, unsigned device, bool in_order, bool synchronous) {
    zr_lock(&r->lock);
    r->device = (uint16_t)device;
    r->in_order = in_order;
    r->synchronous = synchronous;
    zr_unlock(&r->lock);
}

/*
 * The caller holds the lock. Submissions of a later epoch are put to the one before when there is
 * no place for more.
 */
static void note_epoch(struct zr_runner *r) {
    uint64_t now = __atomic_load_n(&epoch, __ATOMIC_SEQ_CST);

    if (r->marks && (r->mark[r->marks - 1].epoch == now || r->marks == RUNNER_MARKS))
        return;
    r->mark[r->marks++] = (struct runner_mark){.first = r->begun, .epoch = now};
    if (r->marks == 1)
        __atomic_store_n(&r->oldest, now, __ATOMIC_SEQ_CST);
}

/* The caller holds the lock and has moved r->proved. */
static void forget_proven(struct zr_runner *r) {
    unsigned done = 0;

    while (done < r->marks) {
        uint64_t last = done + 1 < r->marks ? r->mark[done + 1].first - 1 : r->begun;

        if (last > r->proved)
            break;
        done++;
    }
    if (!done)
        return;
    r->marks -= done;
    memmove(r->mark, r->mark + done, r->marks * sizeof *r->mark);
    __atomic_store_n(&r->oldest, r->marks ? r->mark[0].epoch : NEVER, __ATOMIC_SEQ_CST);
}

/* The caller holds the lock. The first one inside needs no lock to say that it has returned. */
static void take_note(struct zr_runner *r) {
    if (!r->inside || __atomic_load_n(&r->returned, __ATOMIC_ACQUIRE) != r->inside_first)
        return;
    __atomic_store_n(&r->returned, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&r->thread, NULL, __ATOMIC_RELAXED);
    r->inside--;
}

/*
 * Whether this thread is inside, first of all. Only the thread itself makes that true, so no lock
 * is needed.
 */
static bool is_inside(const struct zr_runner *r) {
    return __atomic_load_n(&r->thread, __ATOMIC_RELAXED) == &zr_thread &&
           __atomic_load_n(&r->returned, __ATOMIC_RELAXED) != r->inside_first;
}

/*
 * A call that passes a second hook on its way down is a submission already. What longjmp has left
 * inside stays inside: such a runner is never proven again.
 */
struct zr_submission zr_work_begin(struct zr_runner *r) {
    struct zr_submission s = {.runner = NULL};

    if (is_inside(r))
        return s;
    zr_lock(&r->lock);
    take_note(r);
    s.runner = r;
    s.number = ++r->begun;
    if (r->inside++ == 0) {
        r->inside_first = s.number;
        __atomic_store_n(&r->thread, &zr_thread, __ATOMIC_RELAXED);
    }
    note_epoch(r);
    zr_unlock(&r->lock);
    return s;
}

void zr_work_end(const struct zr_submission *s) {
    struct zr_runner *r = s->runner;

    if (!r)
        return;
    /* As long as it is inside, nobody else changes this. */
    if (likely(__atomic_load_n(&r->thread, __ATOMIC_RELAXED) == &zr_thread)) {
        __atomic_store_n(&r->returned, s->number, __ATOMIC_RELEASE);
        return;
    }
    zr_lock(&r->lock);
    r->inside--;
    zr_unlock(&r->lock);
}

uint64_t zr_work_waited(struct zr_runner *r) {
    uint64_t number;

    zr_lock(&r->lock);
    take_note(r);
    number = r->inside ? r->inside_first - 1 : r->begun;
    zr_unlock(&r->lock);
    return number;
}

void zr_work_prove(struct zr_runner *r, uint64_t number) {
    zr_lock(&r->lock);
    if (number > r->proved) {
        uint64_t moved = number - r->proved;

        r->window = moved < 64 ? r->window >> moved : 0;
        r->proved = number;
        while (r->window & 1) {
            r->window >>= 1;
            r->proved++;
        }
        forget_proven(r);
    }
    zr_unlock(&r->lock);
}

/*
 * On a runner without an order a proof counts for one submission: the 64 after the last proven one
 * are kept apart.
 */
void zr_work_prove_one(struct zr_runner *r, uint64_t number) {
    if (r->in_order) {
        zr_work_prove(r, number);
        return;
    }
    zr_lock(&r->lock);
    if (number > r->proved && number - r->proved <= 64) {
        r->window |= UINT64_C(1) << (number - r->proved - 1);
        while (r->window & 1) {
            r->window >>= 1;
            r->proved++;
        }
        forget_proven(r);
    }
    zr_unlock(&r->lock);
}

bool zr_runner_is_proven(struct zr_runner *r, uint64_t number) {
    bool proven;

    zr_lock(&r->lock);
    proven = number && (number <= r->proved ||
                        (number - r->proved <= 64 && r->window >> (number - r->proved - 1) & 1));
    zr_unlock(&r->lock);
    return proven;
}

bool zr_runner_has_proven(struct zr_runner *r, uint64_t number) {
    bool proven;

    zr_lock(&r->lock);
    proven = number <= r->proved;
    zr_unlock(&r->lock);
    return proven;
}

bool zr_runner_is_synchronous(const struct zr_runner *r) {
    return r->synchronous;
}

void zr_work_each(unsigned device, void (*see)(struct zr_runner *runner, void *arg), void *arg) {
    for (struct zr_runner *r = __atomic_load_n(&runners, __ATOMIC_ACQUIRE); r; r = r->next)
        if (r->device == device)
            see(r, arg);
}

/* --- all runners ------------------------------------------------------------------------------ */

uint64_t zr_work_freed(void) {
    return __atomic_fetch_add(&epoch, 1, __ATOMIC_SEQ_CST);
}

uint64_t zr_work_proven(void) {
    uint64_t least = NEVER;

    for (struct zr_runner *r = __atomic_load_n(&runners, __ATOMIC_ACQUIRE); r; r = r->next) {
        uint64_t oldest = __atomic_load_n(&r->oldest, __ATOMIC_SEQ_CST);

        least = oldest < least ? oldest : least;
    }
    return least;
}

/* --- what may have been missed ---------------------------------------------------------------- */

static bool is_video_driver(const char *file) {
    return strncmp(file, "iHD_drv_video", 13) == 0 || strncmp(file, "libmfx-gen", 10) == 0;
}

/*
 * Drivers that give the same cards work past Level Zero's functions: video, and OpenCL. Where there
 * is a SYCL runtime it has loaded OpenCL's driver to list the devices; work that it does give to
 * OpenCL reaches a block of Level Zero only if that was exported, and such a block is never kept.
 */
static enum zr_answer has_other_driver(void) {
    enum zr_answer found = zr_elf_named(is_video_driver), runtime;

    if (found != ZR_LIST_ABSENT)
        return found;
    found = zr_elf_named(zr_who_is_opencl_name);
    if (found != ZR_LIST_FOUND)
        return found;
    runtime = zr_elf_named(zr_who_is_runtime_name);
    if (runtime == ZR_LIST_BUSY)
        return ZR_LIST_BUSY;
    return runtime == ZR_LIST_FOUND ? ZR_LIST_ABSENT : ZR_LIST_FOUND;
}

static bool is_level_zero(const char *file) {
    return strncmp(file, "libze_", 6) == 0;
}

/* What passes us by, *what; BUSY if the libraries cannot be listed now. */
static enum zr_answer passes_by(const char **what) {
    enum zr_answer found = has_other_driver();

    *what = "another driver (OpenCL or video) uses the cards of this process";
    if (found != ZR_LIST_ABSENT)
        return found;
    *what = "Level Zero was opened in a namespace of its own (dlmopen), where there is no preload";
    return zr_elf_elsewhere(is_level_zero);
}

/* The list of libraries is read again whenever one was loaded. */
bool zr_work_is_sure(void) {
    const char *what;
    uint64_t now;

    if (!zr_work_is_watched() || __atomic_load_n(&is_lost, __ATOMIC_RELAXED))
        return false;
    if (!zr_elf_generation(&now))
        return false;
    if (likely(now == __atomic_load_n(&checked_libraries, __ATOMIC_RELAXED)))
        return true;
    switch (passes_by(&what)) {
    case ZR_LIST_FOUND:
        zr_work_lost("%s", what);
        return false;
    case ZR_LIST_BUSY:
        return false;
    default:
        __atomic_store_n(&checked_libraries, now, __ATOMIC_RELAXED);
        return true;
    }
}

void zr_work_lost(const char *format, ...) {
    va_list ap;

    if (!zr_work_is_watched() || __atomic_exchange_n(&is_lost, true, __ATOMIC_SEQ_CST))
        return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    if (zr_config.reuse == ZR_REUSE_PROVEN && zr_config.cache)
        zr_warn("reuse:proven falls back to reuse:runtime: %s", why);
    if (zr_stats_is_open())
        zr_text(ZR_T_REUSE_LOST, why);
}

const char *zr_work_why(void) {
    return why;
}

bool zr_work_is_watched(void) {
    zr_config_load();
    return (zr_config_at_start.cache && (zr_config_at_start.reuse == ZR_REUSE_PROVEN ||
                                         zr_config_at_start.residency == ZR_RESIDENCY_OWNER)) ||
           zr_config_at_start.check != ZR_CHECK_NONE || zr_config_at_start.pause;
}

void zr_work_fork_child(void) {
    runners = NULL;
    epoch = 1;
    is_lost = false;
    why[0] = '\0';
    checked_libraries = 0;
    zr_work_handles_fork_child();
}
