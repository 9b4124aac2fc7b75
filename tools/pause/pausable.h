/* zeroute pause and resume: device memory of programs given back, and returned. */
#ifndef ZEROUTE_TOOLS_PAUSABLE_H
#define ZEROUTE_TOOLS_PAUSABLE_H

#include "ctl/ctl.h"
#include "view/view.h"

/* What came of a process; show.c names them. */
enum zr_outcome {
    ZR_OUTCOME_DONE,    /* it is paused, or runs again */
    ZR_OUTCOME_ALREADY, /* so it was before */
    ZR_OUTCOME_REFUSED,
    ZR_OUTCOME_WAITS,  /* there is no room on its cards: it tries again until there is */
    ZR_OUTCOME_UNDONE, /* it was paused, and runs again because another of its job could not be */
    ZR_OUTCOME_ENDED,
    ZR_OUTCOME_SILENT, /* it did not begin; the request was withdrawn */
    ZR_OUTCOME_BEGUN,  /* it has begun, and nobody waited for its end */
    ZR_OUTCOME_FAILED, /* it could not be asked */
};

/* One process of those that are asked. */
struct zr_pausable {
    struct zr_post *post;
    char job[128], rank[16];
    struct zr_pause_view before, after;
    uint64_t took_ns;
    const char *to; /* where the contents were to go: host, nothing or a folder */
    unsigned cards;
    struct {
        char pdev[32];
        int at;                         /* its number in `zeroute stat`; -1: not listed */
        uint64_t before, after, blocks; /* VRAM as the kernel counts it, or ZR_ABSENT; what its blocks take */
    } card[ZR_CARDS_MAX];
    enum zr_outcome outcome;
    char why[1024];
};

/* --- look.c: how it is with the processes ---------------------------------------------------- */
/* Fills in `before`, or else `after`. False, reported: there was nothing to be seen. */
bool zr_pausables_look(const char *command, struct zr_pausable *p, size_t count, bool before);
/* A line for each card that has no room for what is given back: who holds how much of it. */
void zr_pausables_holders(FILE *out, const struct zr_pausable *p, size_t count);
/* "holders": the same. */
void zr_pausables_holders_json(json_t *document, const struct zr_pausable *p, size_t count);

/* --- show.c ---------------------------------------------------------------------------------- */
/* A line for each process. */
void zr_pausables_show(FILE *out, const struct zr_pausable *p, size_t count, bool resume);
void zr_pausables_json(FILE *out, const struct zr_pausable *p, size_t count, bool resume, const char *to);

#endif
