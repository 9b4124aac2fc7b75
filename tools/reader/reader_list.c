/* zeroute/reader.h: which segments there are, and whether their processes live. */
#include "reader/found.h"
#include "reader/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define MOST_UNREADABLE 8192        /* of one directory */
#define MOST_ASKED 64               /* of which it is asked whether their processes live */
#define MOST_OLD 16384              /* files of released versions */
#define MOST_OWN 32768              /* of this user: who finds more has them removed, and finds the rest then */
#define MOST_OF_OTHERS 24576        /* of all other users together */
#define MOST_OF_ANOTHER 8192        /* of one of them */
#define MOST_MAPS ((size_t)4 << 20) /* bytes of a list of mappings */

struct search {
    struct zeroute_list *list;
    size_t room;
    uint64_t own_namespace;
    struct zeroute_pids pids;
    const struct zeroute_watchman *watchman; /* or NULL */
    uint64_t began_ns;                       /* CLOCK_REALTIME */
    char boot_id[40];
    unsigned over[16]; /* users of whom it was said that their segments have cost enough */
    unsigned overs;
    unsigned unreadable;        /* files in this directory that are no segments, or may not be read */
    uint64_t directory;         /* this one, by its owner plus one; 0: those of released versions */
    unsigned old;               /* files seen that lie outside of a directory of their user */
    unsigned own, others, here; /* listed: of this user, of all others, of this directory */
};

/*
 * Is the process that began at `began`, 0 for none, the one? One that could not read its own start time (no
 * descriptor was free) is known by its number alone; whether it has the segment is looked up later.
 */
static bool is_it(uint64_t began, uint64_t start_time) {
    return began && (!start_time || began == start_time);
}

/* The process of a segment as we see it: its pid here, or 0. */
static int find_process(struct zeroute_pids *pids, const struct zeroute_process *p, uint64_t own_namespace) {
    char pid[16];
    if (p->pid_namespace == own_namespace) {
        snprintf(pid, sizeof pid, "%d", p->pid_inside);
        return is_it(zeroute_start_time(pid), p->start_time) ? p->pid_inside : 0;
    }
    for (size_t i = zeroute_pids_find(pids, p->pid_inside); i < pids->count; i++) {
        const struct zeroute_pid *one = &pids->at[i];
        if (one->inside != p->pid_inside)
            break;
        if (is_it(one->start_time, p->start_time) && (!one->pid_namespace || one->pid_namespace == p->pid_namespace))
            return one->pid;
    }
    return 0;
}

/*
 * Real, effective, saved or file-system id. What may not be looked at is taken to own it; a segment of root is,
 * whatever the process has become since.
 */
static bool owns(int pid, unsigned uid) {
    char path[64], line[256];
    unsigned id[4] = {uid, uid, uid, uid};
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *at = line + strlen("Uid:");
        if (strncmp(line, "Uid:", strlen("Uid:")) != 0)
            continue;
        for (int i = 0; i < 4; i++)
            id[i] = (unsigned)strtoul(at, &at, 10);
        break;
    }
    if (f)
        fclose(f);
    return uid == 0 || uid == id[0] || uid == id[1] || uid == id[2] || uid == id[3];
}

/* Who holds the writer's lock: its pid here, 0 if it cannot be seen from here, -1 if nobody does. */
static int holder(int fd) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    if (fcntl(fd, F_GETLK, &l) || l.l_type == F_UNLCK)
        return -1;
    return l.l_pid;
}

/* In a line of /proc/PID/maps: the fifth word. */
static uint64_t inode_of(const char *line) {
    for (int i = 0; i < 4; i++) {
        line += strcspn(line, " ");
        line += strspn(line, " ");
    }
    return strtoull(line, NULL, 10);
}

/*
 * After exec the pid and the start time are the same, and the segment is a finished program's: the
 * new one does not have it mapped. What may not be looked at is taken to have it.
 */
static bool maps_it(int pid, const struct zeroute_process *p, int fd) {
    char path[64], *line = NULL, name[64];
    struct statfs system;
    size_t size = 0;
    bool found = false, on_tmpfs = fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true;
    snprintf(name, sizeof name, "/" ZEROUTE_SEGMENT_NAME, p->pid_inside, (unsigned long long)p->nonce);
    size_t lines = 0, most = MOST_MAPS;
    ssize_t n;
    while (!found && (n = getline(&line, &size, f)) > 0) {
        lines++;
        if ((size_t)n > most)
            lines = 0; /* too long to be looked at */
        if (!lines)
            break;
        most -= (size_t)n;
        /* Elsewhere, an overlay for example, the two inodes may be told differently. */
        found = strstr(line, name) && (!on_tmpfs || inode_of(line) == p->inode);
    }
    free(line);
    fclose(f);
    return found || lines == 0;
}

/* Is the holder of the lock the process that the segment says it is of? What may not be looked at is by its number. */
static bool is_holder(int pid, const struct zeroute_process *p, uint64_t own_namespace) {
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    uint64_t began = zeroute_start_time(text);
    if (!began)
        return p->pid_namespace != own_namespace || pid == p->pid_inside;
    return is_it(began, p->start_time) && zeroute_inner_pid(text) == p->pid_inside;
}

static enum zeroute_state forged(struct zeroute_process *p, const char *why) {
    snprintf(p->why, sizeof p->why, "forged: %s", why);
    p->readable = false;
    p->pid = 0;
    return ZEROUTE_UNKNOWN;
}

/*
 * Alive is what holds its lock, or is that very process. What cannot be seen from here is not
 * called dead.
 */
static enum zeroute_state judge(struct search *s, int fd, struct zeroute_process *p, const char *boot_id) {
    uint64_t own_namespace = s->own_namespace;
    if (*boot_id && *s->boot_id && strcmp(boot_id, s->boot_id) != 0)
        return ZEROUTE_FINISHED;
    int held_by = holder(fd);
    if (held_by > 0) {
        if (!is_holder(held_by, p, own_namespace))
            return forged(p, "another process holds it than the one that it names");
        p->pid = held_by;
        p->held = true;
        return ZEROUTE_LIVE;
    }
    p->pid = find_process(&s->pids, p, own_namespace);
    if (held_by == 0) {
        /* One that cannot be seen from here holds it. */
        if (p->pid || p->pid_namespace == own_namespace)
            return forged(p, "another process holds it than the one that it names");
        return ZEROUTE_LIVE;
    }
    if (p->pid)
        return maps_it(p->pid, p, fd) ? ZEROUTE_LIVE : ZEROUTE_FINISHED;
    /* Processes are listed once: one that has begun since then is in no list. */
    if (s->pids.made && p->pid_namespace != own_namespace && p->created_ns > s->began_ns)
        return ZEROUTE_UNKNOWN;
    /* From the first namespace every process can be seen; from any other, only those below it. */
    char first[64] = "";
    ssize_t n = readlink("/proc/self/ns/pid", first, sizeof first - 1);
    first[n < 0 ? 0 : n] = '\0';
    bool see_all = strcmp(first, "pid:[4026531836]") == 0;
    return p->pid_namespace == own_namespace || see_all ? ZEROUTE_FINISHED : ZEROUTE_UNKNOWN;
}

/* What is in the file. Nothing in it is believed unless the system confirms it, whoever owns it. */
static void examine(struct search *s, struct zeroute_process *p, int fd) {
    struct zeroute_segment_header h;
    ssize_t n = pread(fd, &h, sizeof h, 0);
    if (n < (ssize_t)sizeof h || h.magic != ZEROUTE_SEGMENT_MAGIC || h.layout != ZEROUTE_SEGMENT_LAYOUT) {
        /* Named, with the reason; the pid in its name is all there is to judge it by. */
        zeroute_snapshot_free(zeroute_snapshot_of_fd(fd, p->why, sizeof p->why));
        p->state = holder(fd) >= 0 ? ZEROUTE_LIVE : ZEROUTE_UNKNOWN;
        /* Its maker was killed before it was whole: named in it, in our namespace, and gone. */
        if (p->state == ZEROUTE_UNKNOWN && n == (ssize_t)sizeof h && h.magic == 0 && (int)h.pid == p->pid_inside &&
            h.pid_namespace == s->own_namespace && kill((pid_t)h.pid, 0) != 0 && errno == ESRCH)
            p->state = ZEROUTE_FINISHED;
        return;
    }
    h.boot_id[sizeof h.boot_id - 1] = '\0';
    p->readable = true;
    p->pid_inside = (int)h.pid;
    p->pid_namespace = h.pid_namespace;
    p->start_time = h.start_time;
    p->nonce = h.nonce;
    p->created_ns = h.created_ns;
    snprintf(p->command, sizeof p->command, "%.*s", (int)sizeof h.command - 1, h.command);
    snprintf(p->version, sizeof p->version, "%.*s", (int)sizeof h.version - 1, h.version);
    snprintf(p->run_id, sizeof p->run_id, "%.*s", (int)sizeof h.run_id - 1, h.run_id);
    snprintf(p->job_id, sizeof p->job_id, "%.*s", (int)sizeof h.job_id - 1, h.job_id);
    snprintf(p->rank, sizeof p->rank, "%.*s", (int)sizeof h.rank - 1, h.rank);
    p->state = judge(s, fd, p, h.boot_id);
    if (p->pid && !owns(p->pid, p->uid)) {
        char why[80];
        snprintf(why, sizeof why, "it belongs to user %u, and process %d does not", p->uid, p->pid);
        p->state = forged(p, why);
    }
    if (p->state == ZEROUTE_FINISHED && !p->pid && h.pid_namespace == s->own_namespace)
        p->pid = (int)h.pid;
}

static bool was_said_over(const struct search *s, unsigned uid) {
    unsigned i = 0;
    while (i < s->overs && s->over[i] != uid)
        i++;
    return i < s->overs;
}

/* Returns false if that was reported before for this user, or for many. */
static bool say_over(struct search *s, unsigned uid) {
    if (was_said_over(s, uid) || s->overs == sizeof s->over / sizeof *s->over)
        return false;
    s->over[s->overs++] = uid;
    return true;
}

/* What lies outside of a directory of its user was put there by a released version, or is not what it says. */
static void examine_old(struct search *s, struct zeroute_process *p, int fd) {
    examine(s, p, fd);
    if (!p->readable)
        return;
    p->readable = false;
    p->pid = 0;
    p->state = ZEROUTE_UNKNOWN;
    snprintf(p->why, sizeof p->why, "not in the directory of its user");
}

/* A directory may hold any number of files: so many are listed that the list stays within bounds for every reader. */
static bool has_room(struct search *s, unsigned uid) {
    if (uid == geteuid())
        return s->own++ < MOST_OWN;
    return s->here++ < MOST_OF_ANOTHER && s->others++ < MOST_OF_OTHERS;
}

/* False: it is gone, or one too many of a user of whom that was said. */
static bool look_at(struct search *s, struct zeroute_process *p, const struct zeroute_found *f) {
    struct stat st;
    int fd = openat(f->directory, f->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY), error = errno;
    if ((fd < 0 ? fstatat(f->directory, f->name, &st, AT_SYMLINK_NOFOLLOW) : fstat(fd, &st)) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    p->uid = f->old ? st.st_uid : f->owner;
    p->device = st.st_dev;
    p->inode = st.st_ino;
    struct zeroute_budget budget;
    bool may = zeroute_budget_begin(&budget, p->uid) && s->unreadable < MOST_UNREADABLE && has_room(s, p->uid);
    bool listed = may || say_over(s, p->uid);
    if (!may) {
        snprintf(p->why, sizeof p->why, ZEROUTE_BUDGET_WHY, p->uid);
        p->state = ZEROUTE_UNKNOWN;
    } else if (st.st_uid != p->uid) {
        snprintf(p->why, sizeof p->why, "forged: a file of user %u in the directory of user %u", st.st_uid, p->uid);
        p->state = ZEROUTE_UNKNOWN;
    } else if (fd >= 0 && f->old) {
        examine_old(s, p, fd);
    } else if (fd >= 0) {
        examine(s, p, fd);
    } else {
        char pid[16];
        snprintf(p->why, sizeof p->why, "not readable: %s", strerror(error));
        p->state = ZEROUTE_UNKNOWN;
        snprintf(pid, sizeof pid, "%d", p->pid_inside);
        if (s->unreadable < MOST_ASKED && zeroute_start_time(pid))
            p->pid = p->pid_inside;
    }
    s->unreadable += !p->readable;
    zeroute_budget_end(&budget, listed ? sizeof *p : 0);
    if (fd >= 0)
        close(fd);
    return listed;
}

/* NULL: out of memory. */
static struct zeroute_process *next_place(struct search *s) {
    if (s->list->count == s->room) {
        size_t room = s->room ? s->room * 2 : 16;
        struct zeroute_process *more = realloc(s->list->process, room * sizeof *s->list->process);

        if (!more)
            return NULL;
        s->list->process = more;
        s->room = room;
    }
    return &s->list->process[s->list->count];
}

static bool list_found(const struct zeroute_found *f, void *arg) {
    struct search *s = arg;
    struct zeroute_process *p = next_place(s);

    if (!p || (s->watchman && !s->watchman->step(f->old ? 0 : f->owner)))
        return false;
    /* The directory of a user who has cost enough is not gone through for the rest, nor names without end. */
    if (f->old ? s->old++ >= MOST_OLD : was_said_over(s, f->owner))
        return false;
    if (s->directory != (f->old ? 0 : (uint64_t)f->owner + 1)) {
        s->directory = f->old ? 0 : (uint64_t)f->owner + 1;
        s->unreadable = 0;
        s->here = 0;
    }
    memset(p, 0, sizeof *p);
    p->pid_inside = f->pid;
    if (!f->name) {
        snprintf(p->path, sizeof p->path, "%s", f->path);
        snprintf(p->why, sizeof p->why,
                 f->crowd ? "not read: too many users have directories there" : "not readable: Permission denied");
        p->uid = f->owner;
        p->state = ZEROUTE_UNKNOWN;
        s->list->count++;
        return true;
    }
    if ((size_t)snprintf(p->path, sizeof p->path, "%s/%s", f->path, f->name) >= sizeof p->path)
        return true;
    s->list->count += look_at(s, p, f);
    return true;
}

static int by_age(const void *a, const void *b) {
    const struct zeroute_process *p = a, *q = b;
    if (p->created_ns != q->created_ns)
        return p->created_ns < q->created_ns ? -1 : 1;
    return (p->pid_inside > q->pid_inside) - (p->pid_inside < q->pid_inside);
}

static bool claims_process(const struct zeroute_process *p) {
    return p->readable && p->state == ZEROUTE_LIVE && p->pid;
}

/* Those of one process stand together; first the one that it holds, then the newest. */
static int by_claim(const void *a, const void *b) {
    const struct zeroute_process *p = a, *q = b;
    int p_pid = claims_process(p) ? p->pid : 0, q_pid = claims_process(q) ? q->pid : 0;
    if (p_pid != q_pid)
        return p_pid < q_pid ? -1 : 1;
    return p->held != q->held ? q->held - p->held : by_age(q, p);
}

/*
 * A process has one segment. Of several that say to be of it, and are as good in all else, the others are made up: by
 * somebody else, or by itself, to count more than once.
 */
static void compare_claims(struct zeroute_list *list) {
    int owner = 0;
    qsort(list->process, list->count, sizeof *list->process, by_claim);
    for (size_t i = 0; i < list->count; i++) {
        struct zeroute_process *p = &list->process[i];
        if (!claims_process(p))
            continue;
        if (p->pid == owner)
            p->state = forged(p, "the process that it names has another");
        else
            owner = p->pid;
    }
    qsort(list->process, list->count, sizeof *list->process, by_age);
}

static uint64_t wall_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct zeroute_list *zeroute_list_watched(const struct zeroute_watchman *watchman) {
    struct search s = {.list = calloc(1, sizeof *s.list), .watchman = watchman, .began_ns = wall_ns()};
    if (!s.list)
        return NULL;
    s.own_namespace = zeroute_namespace("self", "pid");
    zeroute_read_line("/proc/sys/kernel/random/boot_id", s.boot_id, sizeof s.boot_id);
    zeroute_each_found(list_found, watchman, &s);
    zeroute_pids_free(&s.pids);
    if (s.list->count)
        compare_claims(s.list);
    return s.list;
}

struct zeroute_list *zeroute_list_new(void) {
    return zeroute_list_watched(NULL);
}

void zeroute_list_free(struct zeroute_list *list) {
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        zeroute_budget_return(list->process[i].uid, sizeof *list->process);
    free(list->process);
    free(list);
}

enum zeroute_state zeroute_state_now(const struct zeroute_process *p, int fd) {
    struct search s = {.began_ns = wall_ns()};
    struct zeroute_process again = {.pid_inside = p->pid_inside, .uid = p->uid, .inode = p->inode};
    struct stat st;
    if (fstat(fd, &st) == 0)
        again.inode = st.st_ino;
    s.own_namespace = zeroute_namespace("self", "pid");
    zeroute_read_line("/proc/sys/kernel/random/boot_id", s.boot_id, sizeof s.boot_id);
    examine(&s, &again, fd);
    zeroute_pids_free(&s.pids);
    return again.readable && again.nonce != p->nonce ? ZEROUTE_UNKNOWN : again.state;
}
