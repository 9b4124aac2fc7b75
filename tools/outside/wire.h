/* What is asked of the helper, and what it tells. Private to the folder, and to the fuzzer of answers. */
#ifndef ZEROUTE_TOOLS_OUTSIDE_WIRE_H
#define ZEROUTE_TOOLS_OUTSIDE_WIRE_H

#include "outside/outside.h"

enum zr_ask_kind {
    ZR_ASK_LOOK,
    ZR_ASK_MEMORY,
    ZR_ASK_TEXT,
    ZR_ASK_USER,
    ZR_ASK_CHILDREN,
    ZR_ASK_OPEN,
    ZR_ASK_STATE,
    ZR_ASK_LIBRARY,
    ZR_ASK_MENTIONS,
    ZR_ASKS,
};

enum { ZR_SKIPPED = 32, ZR_MOST_SEGMENTS = 65536 + 64, ZR_MOST_HOLDERS = 16384 };

/* Whoever kept a helper waiting: that helper may never end. */
struct zr_stuck {
    unsigned uid;
    int pid;
    uint64_t mounts;   /* the mount namespace that was entered; 0: the process itself was read */
    pid_t helper;      /* 0: it has ended meanwhile */
    uint64_t since_ms; /* when it was given up */
};

struct zr_ask {
    uint32_t kind;
    int32_t pid;
    uint32_t detail; /* enum zr_thoroughness, enum zr_outside_file, or whether a directory is wanted */
    uint32_t most;   /* bytes, or children */
    char root[512];  /* ZEROUTE_ROOT */
    char path[1024];
    char string[256];
    struct zeroute_process process;
    unsigned stuck_count;
    struct zr_stuck stuck[ZR_SKIPPED];
};

/* A message of the helper: a head, and what it tells. */
enum zr_told_kind {
    ZR_TOLD_SEGMENTS, /* struct zeroute_process, one after another */
    ZR_TOLD_HOLDERS,  /* struct zr_holder, one after another */
    ZR_TOLD_MEMORY,   /* struct zr_process_memory */
    ZR_TOLD_TEXT,     /* bytes */
    ZR_TOLD_CHILDREN, /* int, one after another */
    ZR_TOLD_LIBRARY,  /* struct zr_outside_library */
    ZR_TOLD_END,      /* struct zr_told_end: nothing follows */
    ZR_TOLDS,
};
struct zr_told_head {
    uint32_t kind, size;
};
struct zr_told_end {
    int32_t good, error;
    uint32_t value;
    uint32_t files; /* descriptors that come with it */
};
enum { ZR_TOLD_BYTES = 48 << 10 }; /* of a message, its head included */

/* Where the helper is: it shares this page with us. */
struct zr_progress {
    _Atomic uint32_t step; /* grows with every process and every place */
    _Atomic int pid;
    _Atomic unsigned uid;
    _Atomic uint64_t mounts;
};

/* --- told.c: an answer, message by message ---------------------------------------------------- */
struct zr_answer {
    struct zr_look look;
    size_t process_room, holder_room;
    char *text;
    size_t length, text_room;
    struct zr_process_memory memory;
    struct zr_outside_library library;
    int child[4096];
    size_t children;
    bool ended;
    struct zr_told_end end;
};
/*
 * Adds a message to the answer. Returns false for one that the helper does not send: too short, of a wrong size, or
 * more than an answer can have. Texts in it are ended, counts and kinds within their bounds, whatever it holds.
 */
bool zr_told_take(struct zr_answer *answer, const void *message, size_t size);
void zr_answer_free(struct zr_answer *answer);

/* --- helper.c: the process that reads --------------------------------------------------------- */
/* Serves questions from the socket until it is closed. Never returns. */
_Noreturn void zr_helper_run(int socket, struct zr_progress *progress);
/* Says what is looked at next, and whose it is: that is what is blamed if we never come back. */
void zr_helper_at(int pid, unsigned uid, uint64_t mounts);
bool zr_helper_is_stuck(int pid, unsigned uid, uint64_t mounts);
void zr_helper_tell(enum zr_told_kind kind, const void *what, size_t size);

/* --- reading.c: files of processes, bounded --------------------------------------------------- */
char *zr_reading_text(const char *path, size_t most, size_t *length);
/* The real id of a process's user; false: there is none. */
bool zr_reading_user(int pid, unsigned *uid);

/* --- memory.c --------------------------------------------------------------------------------- */
/* zr_process_memory_read for every process that is to be looked at. */
void zr_memory_tell_holders(enum zr_thoroughness how, const struct zeroute_list *list);

/* --- library.c -------------------------------------------------------------------------------- */
bool zr_library_look(int pid, const char *path, struct zr_outside_library *out);
bool zr_library_has(const char *file, const char *string);

#endif
