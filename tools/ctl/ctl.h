/* zeroute ctl: changes what can be changed in a running process, through its segment. */
#ifndef ZEROUTE_TOOLS_CTL_H
#define ZEROUTE_TOOLS_CTL_H

#include "common/common.h"

/* --- post.c: one request to one process --------------------------------------------------------- */
enum zr_post_state {
    ZR_POST_WAITS,     /* the process has not made a call yet */
    ZR_POST_ANSWERED,  /* done or refused: `done`, `reply`, `answered_ns` */
    ZR_POST_FAILED,    /* it could not be asked, or has ended: `reply` says why */
    ZR_POST_WITHDRAWN, /* it did not answer in time, and will not find the request any more */
};

struct zr_post {
    struct zeroute_process process;
    uint64_t last_call_ns; /* CLOCK_REALTIME; 0: none */
    enum zr_post_state state;
    bool done;
    bool begun; /* FAILED: it has begun with it, and nobody waited for its end */
    char reply[1024];
    uint64_t answered_ns;
    int fd;                                  /* private, and so are these */
    struct zeroute_segment_control *control; /* mapped */
    void *map;
    size_t map_size;
    uint32_t number;
    const char *request;
    bool asked; /* it is there; else another requester has the turn */
};

/*
 * Leaves the request with the process, or as soon as it is our turn: it waits for nobody. `p` is filled in but for its
 * process, which the caller has set; `request` lives as long.
 */
void zr_post(struct zr_post *p, const char *request);
/* Looks for the answer. Returns true once there is nothing to wait for any more. */
bool zr_post_answered(struct zr_post *p);
/* Withdraws the request. Returns false while the process is at it: it has begun, and is to be asked again. */
bool zr_post_withdraw(struct zr_post *p);
/* Lets go of the segment, and says so of a request that has begun and not finished. */
void zr_post_end(struct zr_post *p);
/* It is not asked any further: `reply` says why. */
void zr_post_failed(struct zr_post *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* CLOCK_MONOTONIC. */
uint64_t zr_post_clock(void);

/* --- together.c: several processes and one request ----------------------------------------------- */
struct zr_whom {
    const char *command; /* in messages */
    int pid;             /* this process; 0: those of the job */
    const char *job;     /* as 'zeroute top' and 'stat' name it; NULL, without a pid: every process of the user */
};
/*
 * The processes to ask, to be freed; NULL, with the reason on stderr, if there are none. A process is the one that
 * lives under its number; who else claims that number is none.
 */
struct zr_post *zr_whom_find(const struct zr_whom *w, size_t *count);
int zr_post_pid(const struct zr_post *p);
/* Since its last call. */
uint64_t zr_post_idle_ns(const struct zr_post *p);

struct zr_asking {
    const char *command;
    double timeout;                     /* seconds to wait for those that have not begun with it */
    double begun;                       /* seconds more for those that have */
    bool say_who_is_idle;               /* and answers at its next call */
    const volatile sig_atomic_t *stop;  /* no longer wait for those that have not begun; may be NULL */
    const volatile sig_atomic_t *leave; /* nor for those that have; may be NULL */
    void (*tick)(void *data);           /* called about once a second; may be NULL */
    void *data;
};
/* Asks all before any is waited for, so that none holds up another. Each has a state other than WAITS afterwards. */
void zr_ask(struct zr_post *post, size_t count, const char *request, const struct zr_asking *how);

#endif
