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
    enum zr_post_state state;
    bool done;
    char reply[1024];
    uint64_t answered_ns;
    int fd;                                  /* private, and so are these */
    struct zeroute_segment_control *control; /* mapped */
    void *map;
    size_t map_size;
    uint32_t number;
};

/* Leaves the request with the process. `p` is filled in but for its process, which the caller has set. */
void zr_post(struct zr_post *p, const char *request, uint64_t deadline_ns);
/* Looks for the answer. Returns true once there is nothing to wait for any more. */
bool zr_post_answered(struct zr_post *p);
/* Withdraws the request, unless it was answered meanwhile, and lets go of the segment. */
void zr_post_end(struct zr_post *p);
/* CLOCK_MONOTONIC. */
uint64_t zr_post_clock(void);

#endif
