/*
 * Pausing and resuming, by a thread of ours that also reads requests: a program that calls nothing
 * is paused as well. The devices are waited for by a second thread that lives as long as that
 * takes, because such a wait has no limit of time.
 */
#include "machine/machine.h"
#include "pause/inside.h"
#include "work/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNING, PAUSING, PAUSED, RESUMING };
enum { NO_THREAD, STARTED, IMPOSSIBLE, HALTED, STOPPED };
enum {
    TICK_NS = 10000000,
    AGAIN_MS = 250,   /* a resume that waits is tried again */
    PATIENCE_MS = 20, /* freed blocks wait for the program's own waits first */
    EXIT_MS = 2000,
    BOOKS_MS = 10000,
    TEXT = 512
};
static const struct timespec little = {0, 200000};

static uint32_t thread_state; /* atomic */
static uint32_t poke;         /* a futex: something is to be done now */
static uint32_t state;        /* atomic: RUNNING and so on */
static _Atomic bool busy;     /* a request is being carried out */
static bool resume_waits;     /* and is tried again at */
static uint32_t resume_at;
static const char *never; /* atomic: why it cannot be paused any more */
static uint64_t moved;    /* bytes; atomic */
static uint64_t pauses, resumes, refusals;

bool zr_pause_halts(void) {
    return __atomic_load_n(&thread_state, __ATOMIC_ACQUIRE) >= HALTED;
}

static void pause_state(uint32_t now) {
    __atomic_store_n(&state, now, __ATOMIC_SEQ_CST);
    zr_gauge(ZR_G_PAUSE_SINCE, zr_clock(CLOCK_REALTIME));
    zr_gauge(ZR_G_PAUSE_STATE, now);
}

static void pause_bytes(uint64_t bytes) {
    __atomic_store_n(&moved, bytes, __ATOMIC_RELAXED);
    zr_gauge(ZR_G_PAUSE_BYTES, bytes);
}

void zr_pause_moved(int64_t bytes) {
    zr_gauge(ZR_G_PAUSE_BYTES, __atomic_add_fetch(&moved, (uint64_t)bytes, __ATOMIC_RELAXED));
}

void zr_pause_never(const char *why) {
    const char *none = NULL;

    __atomic_compare_exchange_n(&never, &none, why, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static ZR_COLD bool request_refuse(char *reply, size_t size, const char *why) {
    snprintf(reply, size, "refused: %s", why);
    zr_text(ZR_T_PAUSE, why);
    zr_gauge(ZR_G_PAUSE_REFUSED, ++refusals);
    return false;
}

/* --- rest: all devices are idle --------------------------------------------------------------- */

static uint64_t rest_begun, rest_ended; /* atomic: numbers of rests */
static uint32_t rest_runs;              /* atomic: the thread is waiting */
static uint32_t rest_failed;            /* atomic: the driver cannot tell */

uint64_t zr_rest_after_now(void) {
    return __atomic_load_n(&rest_begun, __ATOMIC_SEQ_CST) + 1;
}

bool zr_rest_has_ended(uint64_t number) {
    return number && __atomic_load_n(&rest_ended, __ATOMIC_SEQ_CST) >= number;
}

static void *rest_work(void *arg) {
    uint64_t number = (uintptr_t)arg;
    ZR_OWN_OP(own, 0);

    if (zr_devices_rest())
        __atomic_store_n(&rest_ended, number, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n(&rest_failed, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&rest_runs, 0, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Begins one, unless one is in progress. Only the thread of ours, or one with `busy`, is here. */
static void rest_begin(void) {
    uint64_t number;

    if (__atomic_exchange_n(&rest_runs, 1, __ATOMIC_SEQ_CST))
        return;
    __atomic_store_n(&rest_failed, 0, __ATOMIC_SEQ_CST);
    number = __atomic_add_fetch(&rest_begun, 1, __ATOMIC_SEQ_CST);
    if (!zr_thread_start(rest_work, (void *)(uintptr_t)number))
        __atomic_store_n(&rest_runs, 0, __ATOMIC_SEQ_CST);
}

/* Waits until the devices have come to rest after now. */
static bool rest_await(uint64_t end_ns) {
    uint64_t number = zr_rest_after_now();

    while (!zr_rest_has_ended(number)) {
        rest_begin();
        if (zr_now() >= end_ns || zr_pause_halts() ||
            __atomic_load_n(&rest_failed, __ATOMIC_SEQ_CST))
            return zr_rest_has_ended(number);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
    }
    return true;
}

/* --- why not ---------------------------------------------------------------------------------- */

struct survey {
    unsigned exported, imported;
    uint64_t device; /* bytes of all device blocks */
};

static bool survey_block(struct zr_block *b, void *arg) {
    enum zr_block_state s = zr_word_state(zr_block_word(b));
    struct survey *all = arg;

    if (s == ZR_BLOCK_NONE)
        return true;
    if (b->key.kind == ZR_KIND_IMPORTED)
        all->imported++;
    if (b->key.kind != ZR_KIND_DEVICE || zr_block_flags(b) & ZR_BLOCK_FOREIGN)
        return true;
    all->device += b->held;
    if (zr_block_flags(b) & ZR_BLOCK_EXPORTED)
        all->exported++;
    return true;
}

/* Asked before anything is touched, and again when nothing can change any more. */
static bool may_pause(struct survey *all, char *why, size_t size) {
    const char *known = __atomic_load_n(&never, __ATOMIC_SEQ_CST);
    unsigned lists;

    if (known) {
        snprintf(why, size, "%s", known);
        return false;
    }
    if (!zr_work_is_sure()) {
        snprintf(why, size, "what the devices do cannot be followed: %s",
                 *zr_work_why() ? zr_work_why() : "try again");
        return false;
    }
    lists = zr_work_lists_filled();
    if (lists) {
        snprintf(why, size,
                 "%u command list%s with commands in %s, which the driver has resolved to "
                 "addresses of memory",
                 lists, lists == 1 ? "" : "s", lists == 1 ? "it" : "them");
        return false;
    }
    *all = (struct survey){0};
    zr_block_each(survey_block, all);
    if (all->exported) {
        snprintf(why, size, "other processes may use %u blocks whose IPC handle was taken",
                 all->exported);
        return false;
    }
    if (all->imported) {
        snprintf(why, size, "%u blocks of other processes are open here", all->imported);
        return false;
    }
    return true;
}

/* --- pausing ---------------------------------------------------------------------------------- */

struct work {
    uint64_t bytes;
    uint64_t place;
    bool keeps;
    unsigned stuck, lost;
};

static bool add_bytes(struct zr_pausable *p, void *arg) {
    struct work *w = arg;

    if (!p->physical)
        return true;
    p->place = w->bytes;
    p->stored = false;
    w->bytes += p->held;
    return true;
}

static bool put(struct zr_pausable *p, void *arg) {
    (void)arg;
    if (!p->physical)
        return true;
    p->stored = zr_store_put(p) && zr_store_keeps();
    return p->stored || !zr_store_keeps();
}

/* What is announced to other processes under limit:auto is theirs meanwhile. */
static void unclaim(struct zr_pausable *p) {
    const struct zr_block *b = zr_map_base((const void *)p->base);
    struct zr_charge charge = {0};

    if (b)
        __atomic_load(&b->charge, &charge, __ATOMIC_RELAXED);
    if (charge.ledgers & ZR_LEDGER_CLAIM && zr_claim(p->number, -(int64_t)charge.bytes))
        p->unclaimed = charge.bytes;
}

static bool pause_block(struct zr_pausable *p, void *arg) {
    struct work *w = arg;

    if (!p->physical)
        return true;
    if (!zr_pausable_give_up(p)) {
        w->stuck++;
        return true;
    }
    w->lost += p->lost;
    w->bytes += p->held;
    if (!p->unclaimed)
        unclaim(p);
    return true;
}

static bool move_out(const char *to, struct work *w, char *why, size_t size) {
    const char *no_room;

    zr_pausable_each(add_bytes, w);
    no_room = zr_store_make(to, w->bytes);
    if (no_room) {
        snprintf(why, size, "%s: %llu bytes", no_room, (unsigned long long)w->bytes);
        return false;
    }
    pause_bytes(0);
    if (!zr_pausable_each(put, w)) {
        zr_store_drop();
        snprintf(why, size, "the contents could not be copied");
        return false;
    }
    w->bytes = 0;
    zr_pausable_each(pause_block, w);
    return true;
}

/* The gates are closed by and by; on a refusal both are open again. */
static bool pause_all(const char *to, uint64_t timeout, struct work *w, char *why, size_t size) {
    uint64_t end = zr_now() + timeout;
    struct survey all = {0};
    bool done = false;

    if (!zr_gate_close(ZR_GATE_WORK, end))
        snprintf(why, size, "a call that gives a device work did not return in time");
    else if (!may_pause(&all, why, size))
        done = false;
    else if (!rest_await(end))
        snprintf(why, size, "the devices did not come to rest in time");
    else if (!zr_gate_close(ZR_GATE_BOOKS, zr_now() + BOOKS_MS * UINT64_C(1000000)))
        snprintf(why, size, "a free did not return in time");
    else {
        zr_leaving_settle();
        done = move_out(to, w, why, size);
    }
    if (done)
        zr_gauge(ZR_G_PAUSE_KEPT_BYTES, all.device > w->bytes ? all.device - w->bytes : 0);
    zr_gate_open(ZR_GATE_BOOKS);
    if (!done)
        zr_gate_open(ZR_GATE_WORK);
    return done;
}

/* "to=" and "timeout=", in any order. */
static bool parse_pause(const char *rest, char *to, size_t size, uint64_t *timeout) {
    while (*rest) {
        size_t n = strcspn(rest, " ");
        char word[TEXT];

        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), rest);
        if (strncmp(word, "to=", 3) == 0 && word[3])
            snprintf(to, size, "%s", word + 3);
        else if (strncmp(word, "timeout=", 8) != 0 || !zr_parse_time(word + 8, timeout))
            return false;
        rest += n + strspn(rest + n, " ");
    }
    return strcmp(to, "host") == 0 || strcmp(to, "nothing") == 0 || *to == '/';
}

static bool pause_now(const char *to, uint64_t timeout, char *reply, size_t size) {
    struct work w = {0};
    struct survey all;
    char why[TEXT];

    if (!may_pause(&all, why, sizeof why))
        return request_refuse(reply, size, why);
    pause_state(PAUSING);
    if (!pause_all(to, timeout, &w, why, sizeof why)) {
        zr_engines_drop(NULL);
        pause_bytes(0);
        pause_state(RUNNING);
        return request_refuse(reply, size, why);
    }
    zr_engines_drop(NULL); /* they take memory of the card */
    pause_bytes(w.bytes);
    zr_gauge(ZR_G_PAUSE_HOST_BYTES, zr_store_host_bytes());
    zr_gauge(ZR_G_PAUSE_COUNT, ++pauses);
    pause_state(PAUSED);
    if (w.lost)
        zr_warn("pause: %u blocks have lost their address; they come back when it is free again",
                w.lost);
    snprintf(reply, size, "ok %llu bytes given up", (unsigned long long)w.bytes);
    return true;
}

/* --- resuming --------------------------------------------------------------------------------- */

struct need {
    uint64_t card[ZR_DEVICES];
};

static bool add_need(struct zr_pausable *p, void *arg) {
    struct need *n = arg;

    if (!p->physical && p->number < ZR_DEVICES)
        n->card[p->number] += p->held;
    return true;
}

/*
 * Beyond what a card has, an allocation succeeds at first and spills into host memory: so the
 * kernel is asked before anything is taken. Where it does not know, the driver decides.
 */
static bool cards_have_room(char *why, size_t size) {
    struct need need = {{0}};

    zr_pausable_each(add_need, &need);
    for (unsigned n = 0; n < ZR_DEVICES; n++) {
        uint32_t hook = 0;
        ze_device_handle_t device = zr_device_handle(n, &hook);
        uint64_t own = need.card[n] ? zr_claims_own(n) : 0, total, others;
        struct zr_op op = {.hook = hook};
        struct zr_look look;
        char who[300];

        if (!need.card[n] || own == UINT64_MAX || !device)
            continue;
        total = zr_device_memory(&op, device);
        zr_claims_look(n, own, true, &look);
        others = look.others + look.unseen;
        if (!total || own + others + need.card[n] <= total)
            continue;
        zr_claims_words(n, who, sizeof who);
        snprintf(why, size, "card %u has %llu MiB left, and %llu MiB are needed; %s", n,
                 (unsigned long long)((total > own + others ? total - own - others : 0) >> 20),
                 (unsigned long long)(need.card[n] >> 20), who);
        return false;
    }
    return true;
}

static ze_result_t back_result; /* of the block that could not come back */
static unsigned back_card;

static bool get_back(struct zr_pausable *p, void *arg) {
    (void)arg;
    if (p->physical)
        return true;
    back_result = zr_pausable_get_back(p);
    back_card = p->number;
    if (back_result != ZE_RESULT_SUCCESS)
        return false;
    p->returned = true;
    return true;
}

static bool give_up_again(struct zr_pausable *p, void *arg) {
    (void)arg;
    if (p->returned)
        (void)zr_pausable_give_up(p);
    p->returned = false;
    return true;
}

static bool fill_again(struct zr_pausable *p, void *arg) {
    (void)arg;
    if (!p->returned)
        return true;
    zr_pausable_make_resident(p);
    return zr_store_get(p);
}

static bool settle_block(struct zr_pausable *p, void *arg) {
    (void)arg;
    if (p->unclaimed)
        zr_claim(p->number, (int64_t)p->unclaimed);
    p->unclaimed = 0;
    p->returned = false;
    p->stored = false;
    return true;
}

/* Either all come back, or none. Contents are dropped last. */
static bool bring_back(char *why, size_t size) {
    char who[300];

    if (!cards_have_room(why, size))
        return false;
    if (!zr_pausable_each(get_back, NULL)) {
        zr_pausable_each(give_up_again, NULL);
        zr_claims_words(back_card, who, sizeof who);
        snprintf(why, size, "the driver has no memory of card %u for it (0x%x); %s", back_card,
                 (unsigned)back_result, who);
        return false;
    }
    if (!zr_pausable_each(fill_again, NULL)) {
        zr_pausable_each(give_up_again, NULL);
        snprintf(why, size, "the contents could not be copied back");
        return false;
    }
    zr_kernels_set_again();
    zr_pausable_each(settle_block, NULL);
    return true;
}

static bool resume_now(char *why, size_t size) {
    uint64_t bytes = __atomic_load_n(&moved, __ATOMIC_RELAXED);
    bool done = false;

    pause_state(RESUMING);
    if (zr_gate_close(ZR_GATE_BOOKS, zr_now() + BOOKS_MS * UINT64_C(1000000))) {
        pause_bytes(0);
        done = bring_back(why, size);
    } else {
        snprintf(why, size, "a free did not return in time");
    }
    zr_gate_open(ZR_GATE_BOOKS);
    if (!done) {
        pause_bytes(bytes);
        pause_state(PAUSED);
        return false;
    }
    zr_store_drop();
    zr_engines_drop(NULL);
    pause_bytes(0);
    zr_gauge(ZR_G_PAUSE_HOST_BYTES, 0);
    zr_gauge(ZR_G_PAUSE_RESUMES, ++resumes);
    pause_state(RUNNING);
    zr_gate_open(ZR_GATE_WORK);
    return true;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool is_on(char *reply, size_t size) {
    if (zr_pausing())
        return true;
    snprintf(reply, size, "refused: %s",
             zr_config.pause ? "check is on, and works on freed memory itself"
                             : "start the process with pause:on");
    return false;
}

bool zr_pause_request(const char *rest, char *reply, size_t size) {
    char to[TEXT] = "host";
    uint64_t timeout = UINT64_C(10000000000);
    bool done = true;

    if (!is_on(reply, size))
        return false;
    if (!parse_pause(rest, to, sizeof to, &timeout))
        return request_refuse(reply, size,
                              "pause takes to=host, to=nothing or to=FOLDER, and timeout=10s");
    if (atomic_exchange(&busy, true))
        return request_refuse(reply, size, "another request is being carried out");
    resume_waits = false;
    if (!zr_pause_start())
        done = request_refuse(reply, size, "the process ends, or no thread can be started");
    else if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == PAUSED)
        snprintf(reply, size, "ok paused already");
    else
        done = pause_now(to, timeout, reply, size);
    atomic_store(&busy, false);
    return done;
}

bool zr_resume_request(const char *rest, char *reply, size_t size) {
    bool waits = strcmp(rest, "wait=1") == 0, done = true;
    char why[TEXT] = "";

    if (!is_on(reply, size))
        return false;
    if (*rest && !waits && strcmp(rest, "wait=0") != 0)
        return request_refuse(reply, size, "resume takes wait=0 or wait=1");
    if (atomic_exchange(&busy, true))
        return request_refuse(reply, size, "another request is being carried out");
    resume_waits = false;
    if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == RUNNING) {
        snprintf(reply, size, "ok it runs");
    } else if (resume_now(why, sizeof why)) {
        snprintf(reply, size, "ok resumed");
    } else if (waits) {
        resume_waits = true;
        resume_at = zr_now_ms() + AGAIN_MS;
        zr_text(ZR_T_PAUSE, why);
        snprintf(reply, size, "ok waiting: %s", why);
    } else {
        done = request_refuse(reply, size, why);
    }
    atomic_store(&busy, false);
    return done;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void resume_again(void) {
    char why[TEXT] = "";

    if (!resume_waits || (int32_t)(zr_now_ms() - resume_at) < 0 || atomic_exchange(&busy, true))
        return;
    if (resume_now(why, sizeof why))
        resume_waits = false;
    else
        zr_text(ZR_T_PAUSE, why);
    resume_at = zr_now_ms() + AGAIN_MS;
    atomic_store(&busy, false);
}

static void *session_work(void *unused) {
    (void)unused;
    ZR_OWN_OP(own, 0); /* hooks pass on whatever this thread calls */

    while (!zr_pause_halts()) {
        zr_control_poll();
        resume_again();
        zr_leaving_settle();
        if (zr_leaving_ms() > PATIENCE_MS)
            rest_begin();
        zr_futex_wait(&poke, 0, TICK_NS);
    }
    __atomic_store_n(&thread_state, STOPPED, __ATOMIC_RELEASE);
    return NULL;
}

/* Runs before the driver is torn down, which was loaded before the first block. */
static void session_at_exit(void) {
    uint64_t end = zr_now() + EXIT_MS * UINT64_C(1000000);

    zr_fork_check();
    if (__atomic_load_n(&thread_state, __ATOMIC_ACQUIRE) != STARTED)
        return;
    zr_control_by_thread(false);
    __atomic_store_n(&thread_state, HALTED, __ATOMIC_RELEASE);
    while ((__atomic_load_n(&thread_state, __ATOMIC_ACQUIRE) == HALTED ||
            __atomic_load_n(&rest_runs, __ATOMIC_ACQUIRE)) &&
           zr_now() < end)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
}

bool zr_pause_start(void) {
    static bool registered;
    uint32_t none = NO_THREAD;

    if (likely(__atomic_load_n(&thread_state, __ATOMIC_ACQUIRE) == STARTED))
        return true;
    zr_fork_arm();
    if (!__atomic_compare_exchange_n(&thread_state, &none, STARTED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return none == STARTED;
    if (!registered)
        registered = atexit(session_at_exit) == 0;
    if (!zr_thread_start(session_work, NULL)) {
        __atomic_store_n(&thread_state, IMPOSSIBLE, __ATOMIC_RELEASE);
        zr_warn("pause:on has no effect: no thread can be started");
        return false;
    }
    pause_state(RUNNING);
    zr_control_by_thread(true);
    return true;
}

void zr_pause_fork_child(void) {
    zr_control_by_thread(false);
    thread_state = NO_THREAD;
    state = RUNNING;
    atomic_store(&busy, false);
    resume_waits = false;
    never = NULL;
    moved = 0;
    pauses = 0;
    resumes = 0;
    refusals = 0;
    rest_begun = 0;
    rest_ended = 0;
    rest_runs = 0;
    zr_gate_fork_child();
    zr_blocks_fork_child();
    zr_contents_fork_child();
    zr_kernels_fork_child();
}
