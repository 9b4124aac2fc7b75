/* Showing what processes have counted: zeroute stat, gc and diff, and what run shows at its end. */
#ifndef ZEROUTE_TOOLS_STAT_H
#define ZEROUTE_TOOLS_STAT_H

#include "common/common.h"

/* --- process_json.c --------------------------------------------------------------------------- */
/* "fields":{...},"fingerprint":{...} of a process. */
void zr_json_fields(json_t *object, const struct zeroute_snapshot *s);
/* Appends a process as an object: pid, command, state, fields, fingerprint. */
void zr_json_process(json_t *array, const struct zeroute_snapshot *s);

/* --- summary.c: a process on one page, at most ZR_COLUMNS wide -------------------------------- */
#define ZR_COLUMNS 80
/* Memory, then what happened, then the busiest entry points; verbose: every row and column. */
void zr_summary(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose);
/* A label and a text behind it, which is made harmless and wrapped. */
void zr_line(FILE *out, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* --- its parts, each in a file of its name ------------------------------------------------------ */
void zr_summary_events(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose);
void zr_summary_entries(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose);

/* --- overview.c ------------------------------------------------------------------------------- */
/* The sum of a job, to be shown behind the process of this index. */
struct zr_overview_sum {
    size_t behind;
    const char *name;
    const struct zeroute_snapshot *sum;
};
/* One line for each process, in the order given. */
void zr_overview(FILE *out, struct zeroute_snapshot *const *s, size_t count, const struct zr_overview_sum *sums,
                 size_t sum_count, bool colour);

/* --- compact.c -------------------------------------------------------------------------------- */
struct stat;
/*
 * Replaces the segment of a finished process of this user, of this name in a directory and open for reading, by one
 * without the fields that are zero; its time stamp stays. Returns false, and leaves it, if that cannot be.
 */
bool zr_segment_compact(int directory, const char *name, int fd, const struct stat *st);

/* --- host_summary.c: host memory behind device memory; of a live process as seen from outside -- */
void zr_summary_host(FILE *out, const struct zeroute_snapshot *s, bool verbose);
void zr_json_host(json_t *object, const struct zeroute_snapshot *s);

/* --- account.c: what the cards hold for a process, and what it is ------------------------------ */
void zr_summary_account(FILE *out, const struct zeroute_snapshot *s);

/* --- gc.c ------------------------------------------------------------------------------------- */
/* Removes what has been finished for ten minutes, counted from when a command first saw it finished. */
void zr_gc_old(void);
/* Removes the segment of one process. Returns false if it is not finished, another user's, or cannot be removed. */
bool zr_gc_remove(const struct zeroute_process *p, bool all_users);

#endif
