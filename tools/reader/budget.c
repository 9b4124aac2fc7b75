/*
 * What the segments of one other user may cost a reader, all together: whoever can write into /dev/shm can put as many
 * files there as they like, each of which takes the time and the memory that one may. One's own cost what they cost.
 */
#include "reader/snapshot.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define USERS 64                         /* the last account is that of all further users */
#define WINDOW_NS UINT64_C(10000000000)  /* in which */
#define MOST_NS UINT64_C(1000000000)     /* this much of the processor may be used, */
#define MOST_BYTES ((uint64_t)256 << 20) /* and lists and snapshots at one time hold no more than this */

static struct account {
    unsigned uid;
    uint64_t began, ns, bytes;
} account[USERS];
static unsigned users;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The caller ends with leave(). */
static struct account *enter(unsigned uid) {
    unsigned i = 0;
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
        ;
    while (i < users && account[i].uid != uid && i + 1 < USERS)
        i++;
    if (i == users)
        account[users++] = (struct account){.uid = uid};
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now - account[i].began > WINDOW_NS) {
        account[i].began = now;
        account[i].ns = 0;
    }
    return &account[i];
}

static void leave(void) {
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

bool zeroute_budget_begin(struct zeroute_budget *b, unsigned uid) {
    *b = (struct zeroute_budget){.uid = uid, .free = uid == geteuid()};
    if (b->free)
        return true;
    struct account *a = enter(uid);
    bool left = a->ns < MOST_NS && a->bytes < MOST_BYTES;
    leave();
    b->began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return left;
}

void zeroute_budget_end(const struct zeroute_budget *b, int64_t bytes) {
    if (b->free)
        return;
    uint64_t ns = b->began ? clock_ns(CLOCK_THREAD_CPUTIME_ID) - b->began : 0;
    struct account *a = enter(b->uid);
    a->ns += ns;
    a->bytes = bytes < 0 && (uint64_t)-bytes > a->bytes ? 0 : a->bytes + (uint64_t)bytes;
    leave();
}

void zeroute_budget_return(unsigned uid, uint64_t bytes) {
    zeroute_budget_end(&(struct zeroute_budget){.uid = uid, .free = uid == geteuid()}, -(int64_t)bytes);
}
