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
/* Lets go of the segment. What has begun and not finished is said to be so. */
void zr_post_end(struct zr_post *p);
/* CLOCK_MONOTONIC. */
uint64_t zr_post_clock(void);

#endif
