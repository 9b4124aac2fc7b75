/* What reader.c needs to make a snapshot. Private to the reader: zeroute/reader.h is for everybody. */
#ifndef ZEROUTE_READER_SNAPSHOT_H
#define ZEROUTE_READER_SNAPSHOT_H

#include "zeroute/reader.h"

enum { ZEROUTE_DERIVED = 5 }; /* fields that follow a histogram */

#pragma GCC visibility push(hidden)

/* Zeroed memory that lives as long as the snapshot; NULL for none. */
void *zeroute_keep(struct zeroute_snapshot *s, size_t size);
/* A copy that ends with a zero; "" where there is no memory for it. */
const char *zeroute_keep_text(struct zeroute_snapshot *s, const char *text, size_t length);
/* at[0] is a histogram, with its sum in `value`; the derived fields follow it. */
void zeroute_derive(struct zeroute_field *at, uint64_t max);
bool zeroute_name_derived(struct zeroute_snapshot *s, struct zeroute_field *at);
/* Without it all is found as well, and takes longer. */
void zeroute_index_names(struct zeroute_snapshot *s);
/* zeroute_snapshot_new of a file that was opened already, and is closed; below zero: errno says why it was not. */
struct zeroute_snapshot *zeroute_snapshot_of_listed(const struct zeroute_process *p, int fd, char *why,
                                                    size_t why_size);

/* --- reader_list.c ------------------------------------------------------------------------------ */
/* For who makes a list where looking may take for ever: each is told before, NULL: nobody is. */
struct zeroute_watchman {
    /* The mount namespace of this process comes next; false: it is left out. */
    bool (*enter)(int pid, uint64_t mounts);
    /* A file in the directory of this user comes next; false: it and what follows it there are left out. */
    bool (*step)(unsigned uid);
};
struct zeroute_list *zeroute_list_watched(const struct zeroute_watchman *watchman);

/* --- reader_processes.c --------------------------------------------------------------------------- */
/* Processes by their numbers inside, from one pass over /proc: to be asked as often as there are segments. */
struct zeroute_pid {
    int pid, inside;
    uint64_t pid_namespace, start_time; /* 0: not known */
};
struct zeroute_pids {
    struct zeroute_pid *at; /* by their numbers inside, ascending */
    size_t count;
    bool made;
};
/* The first process of this number inside from `from` on, the end of the list if there is none. Makes the list. */
size_t zeroute_pids_find(struct zeroute_pids *pids, int inside);
void zeroute_pids_free(struct zeroute_pids *pids);
/* The start time of a process by its number here, in clock ticks since boot; 0 if there is none or it is a zombie. */
uint64_t zeroute_start_time(const char *pid);
/* Its number in its innermost namespace. */
int zeroute_inner_pid(const char *pid);
/* "pid", "mnt"; 0: not to be told. */
uint64_t zeroute_namespace(const char *pid, const char *kind);
/* The first line of a file. */
void zeroute_read_line(const char *path, char *out, size_t size);

/* --- budget.c ---------------------------------------------------------------------------------- */
struct zeroute_budget {
    unsigned uid;
    bool free;      /* one's own */
    uint64_t began; /* of the thread's processor time */
};
/* False: this user's segments have cost enough for now. */
bool zeroute_budget_begin(struct zeroute_budget *b, unsigned uid);
/* Charges the time since then, and memory. */
void zeroute_budget_end(const struct zeroute_budget *b, int64_t bytes);
/* Memory that was charged is free again. */
void zeroute_budget_return(unsigned uid, uint64_t bytes);
/* The same with the memory of the snapshot, which is given back when it is freed. */
void zeroute_snapshot_charge(struct zeroute_snapshot *s, const struct zeroute_budget *b);
#define ZEROUTE_BUDGET_WHY "not read: the segments of user %u take too much time or memory"

#pragma GCC visibility pop

#endif
