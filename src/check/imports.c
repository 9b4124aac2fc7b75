/*
 * check:ipc: which processes have an IPC handle open, and who has freed the block behind it. They
 * meet at an empty file in the directory of their user. Each fact about a handle has a byte in it,
 * and a process holds a POSIX read lock on that byte for as long as the fact is true. A process
 * that frees asks the kernel who has the handle open, one that has it open polls for who has freed
 * it, and the kernel drops the locks of processes that end.
 */
#include "check/check.h"
#include "machine/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMPORTS = 256, FREED = 256 };
/* CLOSED_ONCE: and still open. */
enum fact { EXPORTED_HERE, FREED_HERE, OPEN_HERE, CLOSED_ONCE_HERE, FACTS };
/* CLOSED: but not as often as opened. */
enum state { UNUSED, OPEN, CLOSED };

/* One for each opening. Under the lock, as all below. */
static struct import {
    enum state state;
    bool quiet; /* reported as freed by its exporter, or closed by the program */
    struct zr_handle_id id;
    const void *at;
    struct zr_origin origin;
} imports[IMPORTS];
static struct zr_handle_id freed[FREED]; /* the last ones: facts about others are forgotten */
static unsigned frees;
static struct zr_lock imports_lock;
/* Never closed once there are locks on it: that would release them. */
static struct zr_descriptor facts_file = {.fd = -1};
/* The program has closed it, and with it all locks are gone. */
static bool file_lost;

/*
 * The file is the one behind the descriptor at the start of the handle, in the process that owns
 * it: a driver reuses the number once a handle was put, and then handles of different blocks have
 * the same bytes.
 */
static struct zr_handle_id handle_id(const ze_ipc_mem_handle_t *handle, int owner) {
    ze_ipc_mem_handle_t rest = *handle;
    struct statx s = {0}; /* fstat is a function of libc's own only from glibc 2.33 on */
    char path[64];
    int fd;

    memcpy(&fd, handle, sizeof fd);
    memset(&rest, 0, sizeof fd);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", owner, fd);
    (void)statx(AT_FDCWD, path, 0, STATX_INO, &s); /* 0: there is none, for others neither */
    return (struct zr_handle_id){zr_hash_bytes(handle, sizeof *handle),
                                 zr_hash_bytes(&rest, sizeof rest) ^
                                     zr_hash_bytes(&s.stx_ino, sizeof s.stx_ino)};
}

/*
 * Whether facts can be told. If the program has closed our file, what is known elsewhere of this
 * process is gone.
 */
static bool facts_are_there(void) {
    if (facts_file.fd < 0)
        return false;
    if (zr_descriptor_is_ours(&facts_file))
        return true;
    facts_file = ZR_NO_DESCRIPTOR;
    file_lost = true;
    zr_warn("check: the program has closed a descriptor of zeroute: what other processes do with "
            "IPC handles is no "
            "longer seen");
    return false;
}

/*
 * Sets (F_RDLCK) or clears (F_UNLCK) a fact and returns 0; or queries it (F_WRLCK) and returns
 * another process for which it is true, 0 if that is in another PID namespace. -1 if there is none
 * or on failure.
 */
static int fact_is(uint64_t id, enum fact fact, short type) {
    struct flock l = {.l_type = type,
                      .l_whence = SEEK_SET,
                      .l_start = (off_t)((id >> 4) * FACTS + fact),
                      .l_len = 1};

    if (!facts_are_there() || fcntl(facts_file.fd, type == F_WRLCK ? F_GETLK : F_SETLK, &l) != 0)
        return -1;
    if (type != F_WRLCK)
        return 0;
    return l.l_type == F_UNLCK ? -1 : l.l_pid;
}

/* The directory is the user's alone: nobody else has put a file there. */
static void facts_open(void) {
    char path[64];
    int directory;

    if (facts_file.fd >= 0 || file_lost)
        return;
    directory = zr_directory(path, sizeof path);
    if (directory >= 0) {
        facts_file = zr_descriptor_keep(
            openat(directory, "check", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        close(directory);
    }
    if (facts_file.fd < 0)
        zr_warn("check: cannot use %s/check: what other processes do with IPC handles is not seen",
                path);
}

/* An import in this state, of this handle unless 0, at this address unless NULL; or NULL. */
static struct import *import_find(enum state state, uint64_t id, const void *at) {
    for (struct import *i = imports; i < imports + IMPORTS; i++)
        if (i->state == state && (!at || i->at == at) && (!id || i->id.file == id))
            return i;
    return NULL;
}

void zr_check_exported(const void *base, const ze_ipc_mem_handle_t *handle) {
    struct zr_checked *c = zr_checked_at((uintptr_t)base);

    if (!c || !zr_checks(ZR_CHECK_IPC))
        return;
    zr_lock(&imports_lock);
    facts_open();
    c->handle = handle_id(handle, getpid());
    for (unsigned i = 0; i < FREED; i++)
        if (freed[i].bytes == c->handle.bytes)
            freed[i].bytes = 0;                   /* they are this block's from now on */
    fact_is(c->handle.file, FREED_HERE, F_UNLCK); /* of an earlier block */
    fact_is(c->handle.bytes, FREED_HERE, F_UNLCK);
    fact_is(c->handle.file, EXPORTED_HERE, F_RDLCK);
    fact_is(c->handle.bytes, EXPORTED_HERE, F_RDLCK);
    zr_unlock(&imports_lock);
}

/*
 * The id under which the exporter knows the handle. A program that has sent the descriptor has put
 * its own in the handle; else it is the exporter's.
 */
static void identify_opened(struct zr_handle_id *id, const ze_ipc_mem_handle_t *handle) {
    bool known = fact_is(id->file, EXPORTED_HERE, F_WRLCK) >= 0;
    int exporter = known ? -1 : fact_is(id->bytes, EXPORTED_HERE, F_WRLCK);

    if (exporter > 0)
        *id = handle_id(handle, exporter);
    if (fact_is(id->bytes, FREED_HERE, F_WRLCK) >= 0 &&
        fact_is(id->file, EXPORTED_HERE, F_WRLCK) < 0)
        id->file = id->bytes; /* freed before it was opened, and the exporter's descriptor closed */
}

void zr_check_imported(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    struct import new = {.state = OPEN, .id = handle_id(handle, getpid()), .at = ptr}, *to;

    if (!zr_checks(ZR_CHECK_IPC))
        return;
    zr_origin_here(&new.origin);
    zr_lock(&imports_lock);
    facts_open();
    identify_opened(&new.id, handle);
    to = import_find(UNUSED, 0, NULL);
    if (to) {
        fact_is(new.id.file, OPEN_HERE, F_RDLCK);
        *to = new;
    }
    zr_unlock(&imports_lock);
    if (to)
        zr_worker_start(); /* it looks after imports */
    else
        zr_check_count(ZR_FOUND_PASSED_SHARED, 1);
}

static void tell_process(struct zr_report *r, const char *what, int pid) {
    char words[256];

    zr_process_words(pid, words, sizeof words);
    zr_tell(r, "  %-10s %s\n", what, pid < 0 ? "no process that runs with check:ipc" : words);
}

void zr_imports_look(void) {
    for (;;) {
        struct zr_report r = {.what = ZR_FOUND_IPC_STALE};
        struct import stale;
        int pid = -1;

        zr_lock(&imports_lock);
        for (struct import *i = imports; i < imports + IMPORTS && pid < 0; i++) {
            if (i->state != OPEN || i->quiet)
                continue;
            pid = fact_is(i->id.file, FREED_HERE, F_WRLCK);
            i->quiet = pid >= 0;
            stale = *i;
        }
        zr_unlock(&imports_lock);
        if (pid < 0)
            return;
        zr_tell(&r,
                "memory opened at %p was freed by process %d, and is still open in process %d\n",
                stale.at, pid, getpid());
        tell_process(&r, "freed by", pid);
        tell_process(&r, "open in", getpid());
        zr_tell_origin(&r, "opened", &stale.origin);
        zr_found(&r);
    }
}

/*
 * Forgets the imports of a handle in this state. Returns how many there were. The caller holds the
 * lock.
 */
static unsigned forget_imports(enum state state, uint64_t id) {
    unsigned count = 0;
    struct import *i;

    while ((i = import_find(state, id, NULL))) {
        i->state = UNUSED;
        count++;
    }
    return count;
}

void zr_check_closed(const void *ptr) {
    struct import *i;

    zr_imports_look();
    zr_lock(&imports_lock);
    i = import_find(OPEN, 0, ptr);
    if (i) {
        uint64_t id = i->id.file;
        bool last;

        i->state = CLOSED;
        last = !import_find(OPEN, id, NULL);
        fact_is(id, CLOSED_ONCE_HERE, last ? F_UNLCK : F_RDLCK);
        if (last) {
            fact_is(id, OPEN_HERE, F_UNLCK);
            forget_imports(CLOSED, id);
        }
    }
    zr_unlock(&imports_lock);
}

void zr_check_kept_open(const void *ptr, bool kept) {
    struct import *i;

    zr_lock(&imports_lock);
    i = import_find(OPEN, 0, ptr);
    if (i) {
        i->quiet = kept;
        fact_is(i->id.file, OPEN_HERE, kept ? F_UNLCK : F_RDLCK);
    }
    zr_unlock(&imports_lock);
}

void zr_exports_freed(const struct zr_checked *c) {
    struct zr_report r = {.what = ZR_FOUND_IPC_FREED_OPEN};
    struct zr_handle_id *place;
    int pid;

    if (!c->handle.bytes)
        return;
    zr_lock(&imports_lock);
    place = &freed[frees++ % FREED];
    fact_is(place->file, FREED_HERE, F_UNLCK);
    fact_is(place->file, EXPORTED_HERE, F_UNLCK);
    fact_is(place->bytes, EXPORTED_HERE, F_UNLCK);
    fact_is(place->bytes, FREED_HERE, F_UNLCK);
    *place = c->handle;
    /* Set before looking: of two processes that do this at once, one sees the other. */
    fact_is(place->file, FREED_HERE, F_RDLCK);
    fact_is(place->bytes, FREED_HERE, F_RDLCK);
    pid = fact_is(place->file, OPEN_HERE, F_WRLCK);
    zr_unlock(&imports_lock);
    if (pid < 0)
        return;
    zr_tell(&r, "a block of %zu bytes was freed by process %d while process %d has it open%s\n",
            c->size, getpid(), pid,
            fact_is(c->handle.file, CLOSED_ONCE_HERE, F_WRLCK) == pid
                ? ", opened more often than closed"
                : "");
    tell_process(&r, "freed by", getpid());
    tell_process(&r, "open in", pid);
    zr_tell_block(&r, c);
    zr_found(&r);
}

/* A handle that was closed, but not as often as it was opened. Its imports are forgotten. */
struct unclosed {
    struct import import;
    unsigned opens, closes;
    int exporter;
};

static bool take_unclosed(struct unclosed *out) {
    struct import *i;

    zr_lock(&imports_lock);
    i = import_find(CLOSED, 0, NULL);
    if (i) {
        out->import = *i;
        out->exporter = fact_is(i->id.file, EXPORTED_HERE, F_WRLCK);
        out->closes = forget_imports(CLOSED, out->import.id.file);
        out->opens = out->closes + forget_imports(OPEN, out->import.id.file);
    }
    zr_unlock(&imports_lock);
    return i != NULL;
}

/*
 * A handle that is never closed is as common as memory that is never freed; one closed too few
 * times is an error. Other threads may still be opening and closing: the report is written without
 * the lock.
 */
void zr_imports_end(void) {
    struct unclosed u;

    zr_imports_look();
    while (take_unclosed(&u)) {
        struct zr_report r = {.what = ZR_FOUND_IPC_UNCLOSED};

        zr_tell(&r, "a handle was opened %u times and closed %u times by process %d\n", u.opens,
                u.closes, getpid());
        tell_process(&r, "opened by", getpid());
        tell_process(&r, "exporter", u.exporter);
        zr_tell_origin(&r, "opened", &u.import.origin);
        zr_found(&r);
    }
}

/* Locks are not inherited. The descriptor may be shared with the parent: it is left alone. */
void zr_imports_fork_child(void) {
    memset(imports, 0, sizeof imports);
    facts_file = ZR_NO_DESCRIPTOR;
    file_lost = false;
}
