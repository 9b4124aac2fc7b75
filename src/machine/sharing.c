/*
 * Which processes of this user share a block through its IPC handle. They meet at an empty file in
 * the directory of their user. Each fact about a handle has a byte in it, and a process holds a
 * POSIX read lock on that byte for as long as the fact is true. A process that frees asks the
 * kernel who has the handle open, one that has it open may ask who has freed it, and the kernel
 * drops the locks of processes that end.
 */
#include "machine/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FREED = 256 };
/* CLOSED_ONCE: and still open. */
enum fact { EXPORTED_HERE, FREED_HERE, OPEN_HERE, CLOSED_ONCE_HERE, FACTS };

/* One for each opening. Under the lock, as all below. */
static struct zr_import imports[ZR_IMPORTS];
static struct zr_handle_id freed[FREED]; /* the last ones: facts about others are forgotten */
static unsigned frees;
static struct zr_lock sharing_lock;
/* Never closed once there are locks on it: that would release them. */
static struct zr_descriptor facts_file = {.fd = -1};
/* The program has closed it, and with it all locks are gone. */
static bool file_lost;

/*
 * The file is the one behind the descriptor at the start of the handle, in the process that owns
 * it: a driver reuses the number once a handle was put, and then handles of different blocks have
 * the same bytes.
 */
static struct zr_handle_id handle_id(const void *handle, int owner) {
    char rest[ZR_HANDLE_BYTES];
    struct statx s = {0}; /* fstat is a function of libc's own only from glibc 2.33 on */
    char path[64];
    int fd;

    memcpy(rest, handle, sizeof rest);
    memcpy(&fd, handle, sizeof fd);
    memset(rest, 0, sizeof fd);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", owner, fd);
    (void)statx(AT_FDCWD, path, 0, STATX_INO, &s); /* 0: there is none, for others neither */
    return (struct zr_handle_id){zr_hash_bytes(handle, ZR_HANDLE_BYTES),
                                 zr_hash_bytes(rest, sizeof rest) ^
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
    zr_warn("the program has closed a descriptor of zeroute: what other processes do with IPC "
            "handles is no longer seen");
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
            openat(directory, "ipc", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        close(directory);
    }
    if (facts_file.fd < 0)
        zr_warn("cannot use %s/ipc: what other processes do with IPC handles is not seen", path);
}

/* An import in this state, of this handle unless 0, at this address unless NULL; or NULL. */
static struct zr_import *import_find(enum zr_import_state state, uint64_t id, const void *at) {
    for (struct zr_import *i = imports; i < imports + ZR_IMPORTS; i++)
        if (i->state == state && (!at || i->at == at) && (!id || i->id.file == id))
            return i;
    return NULL;
}

/* --- what this process has given away --------------------------------------------------------- */

struct zr_handle_id zr_share_exported(const void *handle) {
    struct zr_handle_id id = handle_id(handle, getpid());

    zr_lock(&sharing_lock);
    facts_open();
    for (unsigned i = 0; i < FREED; i++)
        if (freed[i].bytes == id.bytes)
            freed[i].bytes = 0;            /* they are this block's from now on */
    fact_is(id.file, FREED_HERE, F_UNLCK); /* of an earlier block */
    fact_is(id.bytes, FREED_HERE, F_UNLCK);
    fact_is(id.file, EXPORTED_HERE, F_RDLCK);
    fact_is(id.bytes, EXPORTED_HERE, F_RDLCK);
    zr_unlock(&sharing_lock);
    return id;
}

int zr_share_freed(const struct zr_handle_id *id) {
    struct zr_handle_id *place;
    int pid;

    zr_lock(&sharing_lock);
    place = &freed[frees++ % FREED];
    fact_is(place->file, FREED_HERE, F_UNLCK);
    fact_is(place->file, EXPORTED_HERE, F_UNLCK);
    fact_is(place->bytes, EXPORTED_HERE, F_UNLCK);
    fact_is(place->bytes, FREED_HERE, F_UNLCK);
    *place = *id;
    /* Set before looking: of two processes that do this at once, one sees the other. */
    fact_is(place->file, FREED_HERE, F_RDLCK);
    fact_is(place->bytes, FREED_HERE, F_RDLCK);
    pid = fact_is(place->file, OPEN_HERE, F_WRLCK);
    zr_unlock(&sharing_lock);
    return pid;
}

int zr_share_open_in(const struct zr_handle_id *id) {
    int pid;

    zr_lock(&sharing_lock);
    pid = fact_is(id->file, OPEN_HERE, F_WRLCK);
    zr_unlock(&sharing_lock);
    return pid;
}

bool zr_share_half_closed(const struct zr_handle_id *id, int pid) {
    bool half;

    zr_lock(&sharing_lock);
    half = fact_is(id->file, CLOSED_ONCE_HERE, F_WRLCK) == pid;
    zr_unlock(&sharing_lock);
    return half;
}

void zr_share_forget(const struct zr_handle_id *id) {
    zr_lock(&sharing_lock);
    fact_is(id->file, EXPORTED_HERE, F_UNLCK);
    fact_is(id->bytes, EXPORTED_HERE, F_UNLCK);
    zr_unlock(&sharing_lock);
}

/* --- what it has open ------------------------------------------------------------------------- */

/*
 * The id under which the exporter knows the handle. A program that has sent the descriptor has put
 * its own in the handle; else it is the exporter's.
 */
static void identify_opened(struct zr_handle_id *id, const void *handle) {
    bool known = fact_is(id->file, EXPORTED_HERE, F_WRLCK) >= 0;
    int exporter = known ? -1 : fact_is(id->bytes, EXPORTED_HERE, F_WRLCK);

    if (exporter > 0)
        *id = handle_id(handle, exporter);
    if (fact_is(id->bytes, FREED_HERE, F_WRLCK) >= 0 &&
        fact_is(id->file, EXPORTED_HERE, F_WRLCK) < 0)
        id->file = id->bytes; /* freed before it was opened, and the exporter's descriptor closed */
}

int zr_share_opened(const void *ptr, const void *handle) {
    struct zr_import new = {
        .state = ZR_IMPORT_OPEN, .quiet = true, .id = handle_id(handle, getpid()), .at = ptr};
    struct zr_import *to;

    zr_lock(&sharing_lock);
    facts_open();
    identify_opened(&new.id, handle);
    to = import_find(ZR_IMPORT_NONE, 0, NULL);
    if (to) {
        fact_is(new.id.file, OPEN_HERE, F_RDLCK);
        *to = new;
    }
    zr_unlock(&sharing_lock);
    return to ? (int)(to - imports) : -1;
}

void zr_share_watch(int import) {
    zr_lock(&sharing_lock);
    imports[import].quiet = false;
    zr_unlock(&sharing_lock);
}

/*
 * Forgets the imports of a handle in this state. Returns how many there were. The caller holds the
 * lock.
 */
static unsigned forget_imports(enum zr_import_state state, uint64_t id) {
    unsigned count = 0;
    struct zr_import *i;

    while ((i = import_find(state, id, NULL))) {
        i->state = ZR_IMPORT_NONE;
        count++;
    }
    return count;
}

void zr_share_closed(const void *ptr) {
    struct zr_import *i;

    zr_lock(&sharing_lock);
    i = import_find(ZR_IMPORT_OPEN, 0, ptr);
    if (i) {
        uint64_t id = i->id.file;
        bool last;

        i->state = ZR_IMPORT_CLOSED;
        last = !import_find(ZR_IMPORT_OPEN, id, NULL);
        fact_is(id, CLOSED_ONCE_HERE, last ? F_UNLCK : F_RDLCK);
        if (last) {
            fact_is(id, OPEN_HERE, F_UNLCK);
            forget_imports(ZR_IMPORT_CLOSED, id);
        }
    }
    zr_unlock(&sharing_lock);
}

void zr_share_kept_open(const void *ptr, bool kept) {
    struct zr_import *i;

    zr_lock(&sharing_lock);
    i = import_find(ZR_IMPORT_OPEN, 0, ptr);
    if (i) {
        i->quiet = kept;
        fact_is(i->id.file, OPEN_HERE, kept ? F_UNLCK : F_RDLCK);
    }
    zr_unlock(&sharing_lock);
}

int zr_share_stale(struct zr_import *out, unsigned *index) {
    int pid = -1;

    zr_lock(&sharing_lock);
    for (struct zr_import *i = imports; i < imports + ZR_IMPORTS && pid < 0; i++) {
        if (i->state != ZR_IMPORT_OPEN || i->quiet)
            continue;
        pid = fact_is(i->id.file, FREED_HERE, F_WRLCK);
        i->quiet = pid >= 0;
        *out = *i;
        *index = (unsigned)(i - imports);
    }
    zr_unlock(&sharing_lock);
    return pid;
}

bool zr_share_unclosed(struct zr_unclosed *out) {
    struct zr_import *i;

    zr_lock(&sharing_lock);
    i = import_find(ZR_IMPORT_CLOSED, 0, NULL);
    if (i) {
        uint64_t id = i->id.file;

        out->index = (unsigned)(i - imports);
        out->exporter = fact_is(id, EXPORTED_HERE, F_WRLCK);
        out->closes = forget_imports(ZR_IMPORT_CLOSED, id);
        out->opens = out->closes + forget_imports(ZR_IMPORT_OPEN, id);
    }
    zr_unlock(&sharing_lock);
    return i != NULL;
}

/* Locks are not inherited. The descriptor may be shared with the parent: it is left alone. */
void zr_sharing_fork_child(void) {
    memset(imports, 0, sizeof imports);
    facts_file = ZR_NO_DESCRIPTOR;
    file_lost = false;
}
