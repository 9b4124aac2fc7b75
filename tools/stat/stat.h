/* Showing what processes have counted: zeroute stat, gc and diff, and what run shows at its end. */
#ifndef ZEROUTE_TOOLS_STAT_H
#define ZEROUTE_TOOLS_STAT_H

#include "common/common.h"
#include "view/view.h"

/* --- summary.c: a process, or several as one, on one page, at most ZR_COLUMNS wide ------------------- */
#define ZR_COLUMNS 80
struct zr_sheet {
    const struct zeroute_snapshot *snapshot; /* of the process, or the sum (zr_sum) */
    const struct zr_view *view;
    struct zr_process_view *const *process; /* of the view: those that the page is about */
    size_t count;
    const struct zr_watched *watched; /* how it was while it ran; NULL: nobody watched */
};
/* Memory, then what happened, then the busiest entry points; verbose: every row and column. */
void zr_summary(FILE *out, const struct zr_sheet *page, bool colour, bool verbose);
/* A label and a text behind it, which is made harmless and wrapped. */
void zr_line(FILE *out, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* --- its parts, each in a file of its name ------------------------------------------------------ */
/* Where its device memory is while it is paused; nothing of one that runs. */
void zr_summary_pause(FILE *out, const struct zeroute_snapshot *s);
void zr_summary_events(FILE *out, const struct zr_sheet *page, bool colour, bool verbose);
void zr_summary_entries(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose);
/* What the cards hold and what it is, host memory behind it, the mirror. */
void zr_summary_account(FILE *out, const struct zr_sheet *page, bool verbose);

/* --- overview.c ------------------------------------------------------------------------------- */
#define ZR_SORT_NOT_SAID UINT32_MAX
struct zr_overview {
    bool finished;   /* those that have ended, else those that run */
    size_t most;     /* of them */
    unsigned column; /* of top, by which lines are sorted; not said: in use; of finished ones the newest first */
};
/*
 * One line for each process; of a job of several a line of sums, with its processes below it. Returns how many there
 * were.
 */
size_t zr_overview(FILE *out, const struct zr_view *m, const struct zr_overview *how, bool colour);

/* --- compact.c -------------------------------------------------------------------------------- */
struct stat;
/*
 * Replaces the segment of a finished process of this user, of this name in a directory and open for reading, by one
 * without the fields that are zero; its time stamp stays. Returns false, and leaves it, if that cannot be.
 */
bool zr_segment_compact(int directory, const char *name, int fd, const struct stat *st);

/* --- gc.c ------------------------------------------------------------------------------------- */
/* Removes what has been finished for ten minutes, counted from when a command first saw it finished. */
void zr_gc_old(void);
/* Removes the segment of one process. Returns false if it is not finished, another user's, or cannot be removed. */
bool zr_gc_remove(const struct zeroute_process *p, bool all_users);

#endif
