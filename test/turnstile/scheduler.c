/*
 * One thread at a time: points, virtual time, and the calls of libc that wait.
 *
 * A thread that reaches a point picks who goes on, wakes that one and waits for its own turn. What is picked depends on
 * the seed, on the thread, on its operation and on how many points that operation has passed, and on nothing else; so
 * leaving out one operation changes little in the others.
 */
#include "turnstile.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum state { READY, SLEEPING, WAITING, JOINING, IDLE, ENDED };
static const char *const state_name[] = {"ready", "sleeps", "waits at a futex", "waits for a thread", "idle", "ended"};
static const uint64_t NEVER = UINT64_MAX;
enum { STEP_NS = 1000, STREAMS = 64 };

struct thread {
    uint32_t turn; /* a futex: 1 lets it go on */
    enum state state;
    uint64_t wake; /* when, if it sleeps or waits */
    const uint32_t *futex;
    int joins;
    bool timed_out;
    unsigned stream, operation, points, process;
    uint64_t priority;
    void (*run)(void *);
    void *(*start)(void *);
    void *arg;
};

/* Of all processes of a run; the memory is theirs together. */
static struct crowd {
    int count, processes; /* beside the first */
    struct thread thread[TS_THREADS];
} * crowd;
static bool scheduled;
static bool child;
static unsigned process; /* of those that share the turnstile: 0, 1 */
static int other_process;
static uint64_t seed, most_steps;
static enum ts_strategy strategy;
static int script_thread;        /* the one that the script lets run; beside it only those of the preload do */
static const char *script_place; /* where the script wants its thread to stop */
static uint64_t asleep_in_child;
static unsigned daemons; /* threads that the preload has started */
static struct ts_shared nowhere;
struct ts_shared *ts_shared = &nowhere;
static struct ts_shared *runner = &nowhere; /* the same, but that a child of fork has one of its own */
bool ts_atomics;
void (*ts_last_words)(void);
static __thread int self = -1;
static pthread_key_t end_of_thread;
static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);

/* --- the system below --------------------------------------------------------------------------------------------- */

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void *real(const char *name) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;

    for (size_t i = 0; i < sizeof versions / sizeof *versions && !found; i++)
        found = dlvsym(RTLD_NEXT, name, versions[i]);
    return found;
}

__attribute__((constructor(101))) static void find_libc(void) {
    *(void **)&real_create = real("pthread_create");
    *(void **)&real_clock_gettime = real("clock_gettime");
    *(void **)&real_clock_nanosleep = real("clock_nanosleep");
}

static void let_go(struct thread *t) {
    __atomic_store_n(&t->turn, 1, __ATOMIC_RELEASE);
    system_call(SYS_futex, (long)&t->turn, FUTEX_WAKE, 1, 0, 0, 0);
}

static void wait_for_turn(struct thread *t) {
    while (!__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE))
        system_call(SYS_futex, (long)&t->turn, FUTEX_WAIT, 0, 0, 0, 0);
    t->turn = 0;
}

/* --- violations --------------------------------------------------------------------------------------------------- */

int ts_self(void) {
    return self;
}

bool ts_is_daemon(void) {
    return self >= 0 && crowd && crowd->thread[self].start;
}

uint64_t ts_now(void) {
    return ts_shared->steps;
}

bool ts_is_child(void) {
    return child;
}

void ts_violation(const char *format, ...) {
    static bool said;
    char text[sizeof ts_shared->violation - 32];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (!runner->violation[0])
        snprintf(runner->violation, sizeof runner->violation, "%s%s", child ? "in the child of fork: " : "", text);
    for (int i = 0; crowd && i < crowd->count && !child; i++)
        ts_shared->thread[i].state = i == self ? "runs" : state_name[crowd->thread[i].state];
    if (!said && ts_last_words && !child) {
        said = true;
        ts_last_words();
    }
    if (other_process)
        kill(other_process, SIGKILL);
    system_call(SYS_exit_group, 70, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}

/* --- who goes on -------------------------------------------------------------------------------------------------- */

static uint64_t decision(struct thread *t) {
    return ts_mix(seed ^ ts_mix(((uint64_t)t->stream << 40) + ((uint64_t)t->operation << 20) + t->points));
}

static void note_step(const char *place, const void *subject) {
    struct ts_step *s = &ts_shared->step[ts_shared->steps % TS_STEPS];

    s->number = ts_shared->steps;
    s->thread = self;
    s->place = place;
    s->subject = (uint64_t)(uintptr_t)subject;
    memcpy(s->operation, ts_shared->thread[self].operation, sizeof s->operation);
    ts_shared->thread[self].place = place;
}

static void wake_sleepers(void) {
    for (int i = 0; i < crowd->count; i++)
        if ((crowd->thread[i].state == SLEEPING || crowd->thread[i].state == WAITING) &&
            crowd->thread[i].wake <= ts_shared->time) {
            crowd->thread[i].timed_out = true;
            crowd->thread[i].state = READY;
        }
}

/* The threads that can go on; if there is none, time passes until there is one. */
static int ready_threads(int *list) {
    for (;;) {
        uint64_t next = NEVER;
        int count = 0;

        wake_sleepers();
        for (int i = 0; i < crowd->count; i++) {
            if (crowd->thread[i].state == READY)
                list[count++] = i;
            else if ((crowd->thread[i].state == SLEEPING || crowd->thread[i].state == WAITING) &&
                     crowd->thread[i].wake < next)
                next = crowd->thread[i].wake;
        }
        if (count)
            return count;
        if (next == NEVER)
            ts_violation("nobody can go on: every thread waits for another");
        ts_shared->time = next;
    }
}

static int pick(struct thread *t) {
    int list[TS_THREADS], count = ready_threads(list), best;
    uint64_t r = decision(t);

    if (strategy == TS_SCRIPT)
        return crowd->thread[script_thread].state == READY ? script_thread : list[0];
    if (strategy == TS_PRIORITIES) {
        if (r % 16 == 0)
            t->priority = r >> 32; /* from now on it may be behind all others */
        best = list[0];
        for (int i = 1; i < count; i++)
            if (crowd->thread[list[i]].priority > crowd->thread[best].priority)
                best = list[i];
        return best;
    }
    if (strategy == TS_STAY && t->state == READY && r % 4)
        return (int)(t - crowd->thread);
    return list[(r >> 8) % (uint64_t)count];
}

/* The calling thread's state is set. Another one goes on, or this one does. */
static void switch_from(struct thread *t) {
    int next = pick(t);

    t->points++;
    if (next == self)
        return;
    ts_shared->switches++;
    let_go(&crowd->thread[next]);
    if (t->state != ENDED)
        wait_for_turn(t);
}

static bool is_scheduled(void) {
    return scheduled && self >= 0 && !child;
}

static void take_step(const char *place, const void *subject) {
    note_step(place, subject);
    ts_shared->time += STEP_NS;
    if (++ts_shared->steps > most_steps)
        ts_violation("more than %llu steps: somebody waits for ever", (unsigned long long)most_steps);
}

static void back_to_script(struct thread *t) {
    t->state = IDLE;
    crowd->thread[0].state = READY;
    let_go(&crowd->thread[0]);
    wait_for_turn(t);
}

void ts_point(const char *place, const void *subject) {
    struct thread *t;

    if (!is_scheduled())
        return;
    t = &crowd->thread[self];
    take_step(place, subject);
    if (strategy == TS_SCRIPT && self && script_place && strcmp(script_place, place) == 0) {
        script_place = NULL;
        back_to_script(t);
        return;
    }
    switch_from(t);
}

void ts_atomic_point(void) {
    if (ts_atomics && is_scheduled() && strategy != TS_SCRIPT)
        ts_point("at an atomic operation", NULL);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

/* After the preload's own end of the thread: libc calls keys' destructors behind those of thread-local objects. */
static void thread_ends(void *unused) {
    struct thread *t;

    (void)unused;
    if (!is_scheduled())
        return;
    t = &crowd->thread[self];
    take_step("the thread has ended", NULL);
    t->state = ENDED;
    for (int i = 0; i < crowd->count; i++)
        if (crowd->thread[i].state == JOINING && crowd->thread[i].joins == self)
            crowd->thread[i].state = READY;
    if (strategy == TS_SCRIPT)
        crowd->thread[0].state = READY;
    switch_from(t);
    self = -1;
}

static void *begin_thread(void *arg) {
    struct thread *t = arg;

    self = (int)(t - crowd->thread);
    pthread_setspecific(end_of_thread, t);
    wait_for_turn(t);
    if (t->start)
        return t->start(t->arg);
    t->run(t->arg);
    return NULL;
}

static struct thread *new_thread(unsigned stream) {
    struct thread *t = &crowd->thread[crowd->count];

    if (crowd->count == TS_THREADS)
        ts_violation("more than %d threads", TS_THREADS);
    memset(t, 0, sizeof *t);
    t->stream = stream;
    t->process = process;
    t->state = strategy == TS_SCRIPT && !daemons ? IDLE : READY;
    t->priority = ts_mix(seed + stream) >> 32;
    ts_shared->thread[crowd->count].operation[0] = '\0';
    ts_shared->thread[crowd->count].place = "at its start";
    ts_shared->threads = (uint32_t)++crowd->count;
    return t;
}

/* Before the preload's own handler, which was registered later: from here on nothing is scheduled. */
static void become_child(void) {
    static struct ts_shared own; /* the child's time and steps are not the parent's */

    child = true;
    own.time = ts_shared->time;
    own.steps = ts_shared->steps;
    ts_shared = &own;
}

void ts_script_done(void) {
    strategy = TS_UNIFORM;
}

void ts_begin(uint64_t new_seed, enum ts_strategy new_strategy, uint64_t most) {
    cpu_set_t one;

    runner = ts_shared;
    seed = new_seed;
    strategy = new_strategy;
    most_steps = most;
    crowd = mmap(NULL, sizeof *crowd, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crowd == MAP_FAILED)
        ts_violation("no memory for threads");
    daemons = 0;
    ts_shared->time = UINT64_C(1000000000000);
    pthread_key_create(&end_of_thread, thread_ends);
    pthread_atfork(NULL, NULL, become_child);
    /* On one processor a thread that is woken need not be sent an interrupt. */
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    new_thread(0)->state = READY;
    self = script_thread = 0;
    scheduled = true;
}

int ts_start(void (*run)(void *), void *arg, unsigned stream) {
    struct thread *t = new_thread(stream);
    pthread_attr_t small;
    pthread_t thread;

    t->run = run;
    t->arg = arg;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    if (real_create(&thread, &small, begin_thread, t))
        ts_violation("no thread can be started");
    pthread_detach(thread);
    return (int)(t - crowd->thread);
}

void ts_join(int thread) {
    struct thread *t = &crowd->thread[self];

    while (crowd->thread[thread].state != ENDED) {
        t->joins = thread;
        t->state = JOINING;
        take_step("waits for a thread", NULL);
        switch_from(t);
    }
}

void ts_end(void) {
    scheduled = false;
}

void ts_operation(unsigned index, const char *format, ...) {
    va_list ap;

    if (!is_scheduled())
        return;
    crowd->thread[self].operation = index;
    crowd->thread[self].points = 0;
    ts_shared->thread[self].operation[0] = '\0';
    if (!format)
        return;
    va_start(ap, format);
    vsnprintf(ts_shared->thread[self].operation, sizeof ts_shared->thread[self].operation, format, ap);
    va_end(ap);
}

bool ts_run_until(int thread, const char *place) {
    script_place = place;
    script_thread = thread;
    crowd->thread[thread].state = READY;
    crowd->thread[0].state = IDLE;
    let_go(&crowd->thread[thread]);
    wait_for_turn(&crowd->thread[0]);
    script_thread = 0;
    return script_place == NULL || !place;
}

void ts_idle(void) {
    ts_shared->thread[self].operation[0] = '\0';
    back_to_script(&crowd->thread[self]);
}

/* --- a second process --------------------------------------------------------------------------------------------- */

/* The new process's first thread is one of the crowd. */
int ts_process(unsigned stream) {
    int parent = getpid(), pid;
    struct thread *t;

    crowd->processes++;
    process++;
    t = new_thread(stream);
    process--;
    pid = (int)system_call(SYS_fork, 0, 0, 0, 0, 0, 0);
    if (pid < 0)
        ts_violation("no process can be started");
    other_process = pid ? pid : parent;
    if (pid)
        return (int)(t - crowd->thread);
    process++;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    self = (int)(t - crowd->thread);
    wait_for_turn(t);
    return -1;
}

void ts_process_ends(void) {
    thread_ends(NULL);
    system_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}

/* --- what libc would do ------------------------------------------------------------------------------------------- */

int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
    struct thread *t;

    if (!is_scheduled())
        return real_create(out, attributes, start, arg);
    daemons++;
    t = new_thread(STREAMS + daemons);
    t->start = start;
    t->arg = arg;
    snprintf(ts_shared->thread[t - crowd->thread].operation, sizeof ts_shared->thread->operation,
             "thread of the preload");
    return real_create(out, attributes, begin_thread, t);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!is_scheduled() && !child)
        return real_clock_gettime(clock, out);
    out->tv_sec = (time_t)(ts_shared->time / 1000000000);
    out->tv_nsec = (long)(ts_shared->time % 1000000000);
    return 0;
}

static void sleep_for(uint64_t ns) {
    struct thread *t;

    if (child) {
        asleep_in_child += ns;
        ts_shared->time += ns;
        if (asleep_in_child > UINT64_C(100000000000))
            ts_violation("it waits for ever");
        return;
    }
    t = &crowd->thread[self];
    take_step("sleeps", NULL);
    t->wake = ts_shared->time + ns;
    if (strategy == TS_SCRIPT) { /* nobody else moves meanwhile */
        ts_shared->time = t->wake;
        return;
    }
    t->state = SLEEPING;
    switch_from(t);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *left) {
    uint64_t ns = (uint64_t)request->tv_sec * 1000000000 + (uint64_t)request->tv_nsec;

    if (!is_scheduled() && !child)
        return real_clock_nanosleep(clock, flags, request, left);
    if (flags & TIMER_ABSTIME)
        ns = ns > ts_shared->time ? ns - ts_shared->time : 0;
    sleep_for(ns);
    return 0;
}

int nanosleep(const struct timespec *request, struct timespec *left) {
    return clock_nanosleep(CLOCK_MONOTONIC, 0, request, left);
}

int sched_yield(void) {
    if (child)
        sleep_for(1000);
    else
        ts_point("yields", NULL);
    return 0;
}

/* With several processes, what one reads of another's file is a point. */
ssize_t pread(int fd, void *to, size_t size, off_t from) {
    long result;

    if (crowd && crowd->processes && strategy != TS_SCRIPT)
        ts_point("before a read", NULL);
    result = system_call(SYS_pread64, fd, (long)to, (long)size, from, 0, 0);
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

static long wait_at_futex(const uint32_t *word, uint32_t expected, const struct timespec *timeout) {
    struct thread *t = &crowd->thread[self];

    ts_point("before a futex wait", word);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected)
        return -EAGAIN;
    t->wake = NEVER;
    if (timeout)
        t->wake = ts_shared->time + (uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_nsec;
    t->futex = word;
    t->timed_out = false;
    t->state = WAITING;
    take_step("waits at a futex", word);
    switch_from(t);
    return t->timed_out ? -ETIMEDOUT : 0;
}

static long wake_at_futex(const uint32_t *word, int most) {
    int woken = 0;

    for (int i = 0; i < crowd->count && woken < most; i++)
        if (crowd->thread[i].state == WAITING && crowd->thread[i].process == process &&
            crowd->thread[i].futex == word) {
            crowd->thread[i].state = READY;
            woken++;
        }
    ts_point("after a futex wake", word);
    return woken;
}

long syscall(long number, ...) {
    long a[6], result;
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_futex && is_scheduled() && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
        result = wait_at_futex((const uint32_t *)a[0], (uint32_t)a[2], (const struct timespec *)a[3]);
    else if (number == SYS_futex && is_scheduled() && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE)
        result = wake_at_futex((const uint32_t *)a[0], (int)a[2]);
    else
        result = system_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (result >= 0 || result < -4095)
        return result;
    errno = (int)-result;
    return -1;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

int ts_fork(void) {
    return fork();
}

void ts_child_ends(void) {
    system_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}
