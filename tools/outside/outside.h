/*
 * What belongs to other processes and users: their files in /proc, their cgroups, their directories of segments, their
 * libraries. Nobody else in tools/ opens these.
 *
 * Whoever owns a process chooses what such a file holds, how long it is, and whether it ever answers: a file system of
 * their own may not. So a helper process does the reading. It has no descriptor of ours, keeps no privilege but that of
 * reading, reads a bounded number of bytes and entries, and is killed when it does not get on. Whoever kept it waiting
 * is remembered and left out, and all else goes on.
 *
 * Grouped by the file that defines it.
 */
#ifndef ZEROUTE_TOOLS_OUTSIDE_H
#define ZEROUTE_TOOLS_OUTSIDE_H

#include "common/common.h"

/* --- ask.c: questions ------------------------------------------------------------------------- */

/* A process that holds memory of a card, or has a segment. */
struct zr_holder {
    int pid;
    unsigned uid;
    struct zr_process_memory memory;
};

/* One look at the machine: every segment, and every process that holds a card. */
struct zr_look {
    size_t count;
    struct zeroute_process *process; /* of which there is a segment; oldest first */
    size_t holders;
    struct zr_holder *holder; /* by pid, ascending */
};

enum zr_thoroughness {
    ZR_LOOK_NOW,      /* at every process of the machine */
    ZR_LOOK_SEGMENTS, /* at segments alone */
    ZR_LOOK_AGAIN, /* at those that are known to hold a card, and in turn at some of the others: for who looks often */
};

/* Fills in what could be read within two seconds. Returns false if there is nothing: no helper could be started. */
bool zr_outside_look(struct zr_look *look, enum zr_thoroughness how);
void zr_look_free(struct zr_look *look);
/* The holder of this pid, or NULL. */
const struct zr_holder *zr_look_holder(const struct zr_look *look, int pid);

/* Who did not answer in time since this command began: each user once. */
struct zr_unanswered {
    unsigned uid;
    int pid; /* one of the processes that were being read */
    char user[40];
};
size_t zr_outside_unanswered(const struct zr_unanswered **list);
/* A line for each on `to`: "not answered in time: user NAME (process PID)". */
void zr_outside_complain(FILE *to);

/* False with errno set: there is no such process, or it did not answer (ETIMEDOUT). */
bool zr_outside_memory(int pid, struct zr_process_memory *out);

enum zr_outside_file {
    ZR_FILE_ENVIRON,
    ZR_FILE_CMDLINE,
    ZR_FILE_MAPS,
    ZR_FILE_CGROUP,
    ZR_FILE_STATUS,
    ZR_FILES,
    ZR_FILE_REAL = 1 << 8, /* with one of these: in /proc itself, also where ZEROUTE_ROOT is set */
};
#define ZR_OUTSIDE_BYTES ((size_t)64 << 10) /* of a text, unless the caller needs more */
#define ZR_OUTSIDE_MOST ((size_t)1 << 20)
/* The first `most` bytes of a file, ended by a zero, to be freed. NULL with errno set. length may be NULL. */
char *zr_outside_text(int pid, unsigned file, size_t most, size_t *length);

/* The user of a process, real id; false: there is none. */
bool zr_outside_user(int pid, unsigned *uid);
/* The pids of a process's children, `most` at most; how many. */
size_t zr_outside_children(int pid, int *child, size_t most);

/*
 * The segment that was listed, for reading; -1 with errno set, ESTALE if another file has taken its place. *directory,
 * unless NULL, is its directory. Neither ever waits: what is on a file system of another's is refused with EXDEV where
 * the directory is asked for, and is otherwise a copy.
 */
int zr_outside_open(const struct zeroute_process *p, int *directory);
/* The state of the process of a listed segment, asked again. */
enum zeroute_state zr_outside_state(const struct zeroute_process *p);
/* The fields of a listed segment, as zeroute_snapshot_new; NULL with an empty reason: it has gone meanwhile. */
struct zeroute_snapshot *zr_outside_snapshot(const struct zeroute_process *p, char *why, size_t why_size);

/* What the file of a library tells. */
struct zr_outside_library {
    char file[1024];   /* where it can be read from here; "" if it cannot: the rest is then empty */
    char build_id[72]; /* "" when it has none */
    char driver[48];   /* how Intel's driver names itself */
    char compiler[48]; /* the release of DPC++ that built it */
    char wheel[48];    /* of the runtime's package beside it */
    bool needs_loader; /* it is linked to libze_loader.so, or imports zeInit */
    bool unversioned;  /* libze_loader.so stands beside it */
};
/* A path as the process has it mapped; pid 0: a path of ours. False: it cannot be read. */
bool zr_outside_library(int pid, const char *path, struct zr_outside_library *out);
/* Whether such a file, by zr_outside_library.file, has this string in it. It is the process's `pid`, or ours: 0. */
bool zr_outside_mentions(int pid, const char *file, const char *string);

/*
 * The folder of the simulated machine that a process of ours runs on, into `out`; false: it runs on the real one, is
 * another user's, or ZEROUTE_ROOT is set already.
 */
bool zr_outside_simulation(int pid, char *out, size_t size);

/* For tests: the time that one process, and one look, may take. */
void zr_outside_deadlines(unsigned process_ms, unsigned look_ms);

#endif
