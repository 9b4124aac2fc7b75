/*
 * Reading segments: which processes there are, and what each has counted. Plain C, libc alone; the
 * reader never writes to a segment, and the writer never notices it.
 *
 *     struct zeroute_list *list = zeroute_list_new();
 *     for (size_t i = 0; i < list->count; i++) {
 *         char why[256];
 *         struct zeroute_snapshot *s = zeroute_snapshot_new(&list->process[i], why, sizeof why);
 *         if (s)
 *             printf("%d %llu\n", s->process.pid,
 *                    (unsigned long long)zeroute_value(s, "allocated_bytes.all.current", 0));
 *         zeroute_snapshot_free(s);
 *     }
 *     zeroute_list_free(list);
 *
 * Not for use inside a process that writes a segment itself: closing a descriptor of the file drops
 * its lock (readers then still know the process by its pid and start time).
 */
#ifndef ZEROUTE_READER_H
#define ZEROUTE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zeroute/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

enum zeroute_state {
    ZEROUTE_LIVE,
    ZEROUTE_FINISHED,
    ZEROUTE_UNKNOWN, /* cannot be told from here; never to be taken for finished */
};

struct zeroute_process {
    int pid;        /* as seen from here; 0 when it cannot be seen from here */
    int pid_inside; /* in its own PID namespace; 0: the directory of a user whom the caller may not look at */
    unsigned uid;
    enum zeroute_state state;
    bool held; /* the process itself holds the lock on it */
    bool readable;
    char why[128]; /* when not readable */
    char path[320];
    char command[256];
    char version[16];
    char run_id[40];
    char job_id[96];
    char rank[16];
    uint64_t pid_namespace;
    uint64_t start_time;
    uint64_t nonce;
    uint64_t created_ns;    /* CLOCK_REALTIME */
    uint64_t device, inode; /* of the file */
};

struct zeroute_list {
    size_t count;
    struct zeroute_process *process; /* oldest first */
};

/*
 * All segments that can be found from here, those in containers included. NULL only when out of
 * memory.
 */
struct zeroute_list *zeroute_list_new(void);
void zeroute_list_free(struct zeroute_list *list);
/* Is it the process of that segment still? Asks again, for a process from the list and its file. */
enum zeroute_state zeroute_state_now(const struct zeroute_process *p, int fd);

struct zeroute_field {
    const char *name;
    const char *unit;
    const char *help;
    enum zeroute_type type;
    uint64_t value;
    const char *text;        /* ZEROUTE_TEXT */
    const uint64_t *buckets; /* ZEROUTE_HISTOGRAM: ZEROUTE_BUCKETS of them */
};

/* One line of the fingerprint. */
struct zeroute_fact {
    const char *key;
    const char *value;
};

struct zeroute_snapshot {
    struct zeroute_process process;
    size_t processes; /* how many were added up in this one */
    size_t field_count;
    struct zeroute_field *field;
    size_t fact_count;
    struct zeroute_fact *fact;
    /*
     * The process booked all the time while it was read, or was stopped in the middle of it: fields may disagree by
     * what was under way, present values and peaks by up to 32 MiB (64 blocks) per thread.
     */
    bool torn;
    uint64_t last_activity_ns; /* CLOCK_REALTIME of the last driver call, 0 if there was none */
    void *memory;              /* private */
    void *names;               /* private */
};

/*
 * All fields of a process. A histogram NAME is followed by the fields NAME.calls, .sum_ns, .p50_ns,
 * .p99_ns and .max_ns, worked out from it. Gauges are never below zero. NULL, with the reason, when
 * it cannot be read.
 */
struct zeroute_snapshot *zeroute_snapshot_new(const struct zeroute_process *p, char *why, size_t why_size);
/* The same from any path: a copied segment, too. */
struct zeroute_snapshot *zeroute_snapshot_of_file(const char *path, char *why, size_t why_size);
struct zeroute_snapshot *zeroute_snapshot_of_fd(int fd, char *why, size_t why_size);
void zeroute_snapshot_free(struct zeroute_snapshot *s);
/*
 * Opens a segment, or the directory of segments, by the path that the list has for it. Follows no symbolic link below
 * another process's root. -1 and errno on failure; the caller closes it.
 */
int zeroute_open(const char *path, int flags);
/*
 * Opens the very file that the list has found, for reading; -1 with ESTALE if another has taken its place. *directory,
 * unless NULL, is its directory then, to remove it from with unlinkat(2): by its path it may be another one by now.
 */
int zeroute_open_listed(const struct zeroute_process *p, int *directory);

/*
 * Adds `other` to `sum`, field by field: counters, gauges and peaks (so an upper bound),
 * histograms; texts stay as they are in `sum` where both agree and read "differ" where not. False
 * when out of memory, or when the segments of that user have taken too much time (doc/promises.md).
 */
bool zeroute_snapshot_add(struct zeroute_snapshot *sum, const struct zeroute_snapshot *other);

/* All fields, for callers that do not know the layout of the snapshot; returns how many there are. */
size_t zeroute_fields(const struct zeroute_snapshot *s, const struct zeroute_field **fields);
const struct zeroute_field *zeroute_find(const struct zeroute_snapshot *s, const char *name);
uint64_t zeroute_value(const struct zeroute_snapshot *s, const char *name, uint64_t absent);
const char *zeroute_fact(const struct zeroute_snapshot *s, const char *key);
/* The lowest nanosecond of a bucket. */
uint64_t zeroute_bucket_floor(unsigned bucket);

#ifdef __cplusplus
}
#endif
#endif
