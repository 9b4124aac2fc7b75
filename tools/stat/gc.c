/* zeroute gc: removes what finished processes have left. A live segment is never touched. */
#include "outside/outside.h"
#include "stat/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OLD_SECONDS 600
#define READ_SECONDS 60 /* until then whoever has started the process may read its segment */
#define COMPACT_BYTES (96 << 10)
#define COMPACTED_AT_ONCE 256 /* by one command: each takes half a millisecond */
#define MOST_KEPT 1000
#define NS INT64_C(1000000000)

/* Segments of other users are left to them, unless root asks for all. */
static bool is_ours(const struct zeroute_process *p, bool all_users) {
    return all_users || p->uid == geteuid();
}

/* The process's number, a dot, and the nonce: the list takes any name that begins like one. */
static bool has_our_name(const struct zeroute_process *p) {
    const char *name = strrchr(p->path, '/') + 1;
    size_t old = strlen(ZEROUTE_SEGMENT_OLD_PREFIX);
    char *end;
    long pid = strtol(strncmp(name, ZEROUTE_SEGMENT_OLD_PREFIX, old) ? name : name + old, &end, 10);
    return pid > 0 && *end == '.' && strspn(end + 1, "0123456789abcdef") == 16 && !end[17];
}

/*
 * A file that cannot be judged by what it says: it never became a segment, because its maker died in the first
 * millisecond, or another version of zeroute wrote it. It is dead if it is old, nobody holds the writer's lock (else it
 * is ZEROUTE_LIVE), and there is no process of the number in its name.
 */
static bool is_abandoned(const struct zeroute_process *p, int fd, const struct stat *st) {
    struct zeroute_segment_header h;
    const ssize_t size = offsetof(struct zeroute_segment_header, header_size);
    if (p->readable || !S_ISREG(st->st_mode) || st->st_uid != geteuid() || time(NULL) - st->st_mtime <= OLD_SECONDS ||
        !has_our_name(p) || pread(fd, &h, (size_t)size, 0) != size)
        return false;
    bool another_layout = h.magic == ZEROUTE_SEGMENT_MAGIC && h.layout != ZEROUTE_SEGMENT_LAYOUT;
    return (h.magic == 0 || another_layout) && kill(p->pid_inside, 0) != 0 && errno == ESRCH;
}

/*
 * In another mount namespace /dev/shm is what its owner has mounted there, possibly a folder in which the caller keeps
 * copies. A file is touched there only if the process that leads to it is root's, or of the file's owner.
 */
static bool found_by_who_may(const struct zeroute_process *p) {
    bool may = false;
    char *text, *rest, *line;
    if (strncmp(p->path, "/proc/", 6) != 0)
        return true;
    text = rest =
        zr_outside_text((int)strtol(p->path + 6, NULL, 10), ZR_FILE_STATUS | ZR_FILE_REAL, ZR_OUTSIDE_BYTES, NULL);
    while ((line = zr_next_line(&rest))) {
        const char *value = zr_value_of(line, "Uid");
        char *at;
        if (!value)
            continue;
        unsigned long first = strtoul(value, &at, 10);
        may = first == 0 || first == p->uid;
        for (int others = 3; others > 0; others--)
            may = strtoul(at, &at, 10) == first && may;
    }
    free(text);
    return may;
}

/* Its file as the list has found it, no other. -1: it has gone, or may not be opened. */
static int open_dead(const struct zeroute_process *p, int *directory, struct stat *st) {
    int fd = found_by_who_may(p) ? zr_outside_open(p, directory) : -1;
    if (fd < 0)
        return -1;
    /* A finished process stays finished; any other state is asked again. */
    enum zeroute_state now = p->state == ZEROUTE_FINISHED ? p->state : zr_outside_state(p);
    if (fstat(fd, st) == 0 && (now == ZEROUTE_FINISHED || (now == ZEROUTE_UNKNOWN && is_abandoned(p, fd, st))))
        return fd;
    close(fd);
    close(*directory);
    errno = EBUSY;
    return -1;
}

/*
 * By its name in the folder in which it was found, which stays the same one whatever becomes of the path. In a folder
 * that is not its own a user cannot exchange what another has put there.
 */
static bool remove_dead(const struct zeroute_process *p, int fd, int directory) {
    bool good = unlinkat(directory, strrchr(p->path, '/') + 1, 0) == 0;
    int saved = errno;
    close(fd);
    close(directory);
    errno = saved;
    return good;
}

bool zr_gc_remove(const struct zeroute_process *p, bool all_users) {
    struct stat st;
    int directory, fd = is_ours(p, all_users) ? open_dead(p, &directory, &st) : -1;
    return fd >= 0 && remove_dead(p, fd, directory);
}

/* How many dead segments of one user are still too many. */
struct tidying {
    size_t beyond; /* so many are too many: the oldest go */
    bool many;     /* far too many: nobody who might still read them is waited for */
};

/*
 * When a process finished is in no file. The time stamp of its segment stands in for it: the process sets it when it
 * ends, and the first command that finds a killed one sets it. 0: nobody has yet.
 */
static int64_t finished_ns(const struct zeroute_process *p, const struct stat *st) {
    int64_t untouched = (int64_t)st->st_mtime - (int64_t)(p->created_ns / NS);
    bool stamped = !p->readable || untouched < 0 || untouched > 1;
    return stamped ? (int64_t)st->st_mtim.tv_sec * NS + st->st_mtim.tv_nsec : 0;
}

/* Removes or stamps the segment. Returns whether it stays, and is large. */
static bool tidy(const struct zeroute_process *p, struct tidying *t) {
    struct stat st;
    int directory, fd = open_dead(p, &directory, &st);
    if (fd < 0)
        return false;
    int64_t finished = finished_ns(p, &st);
    time_t finished_for = finished ? time(NULL) - st.st_mtime : 0;
    if (finished_for > OLD_SECONDS || (t->beyond && (t->many || finished_for > READ_SECONDS))) {
        t->beyond -= t->beyond > 0;
        remove_dead(p, fd, directory);
        return false;
    }
    if (!finished)
        futimens(fd, NULL);
    close(fd);
    close(directory);
    return p->readable && st.st_blocks * 512 > COMPACT_BYTES;
}

/* In place of a process that was killed. */
static void make_small(const struct zeroute_process *p) {
    struct stat st;
    int directory, fd = open_dead(p, &directory, &st);
    if (fd < 0)
        return;
    zr_segment_compact(directory, strrchr(p->path, '/') + 1, fd, &st);
    close(fd);
    close(directory);
}

/* A segment of the caller's own that is not known to live. */
struct left {
    const struct zeroute_process *process;
    int64_t ended; /* where some are too many: when, or of one that was killed when it began */
    bool large;
};

/* The one that ended first. Not the one that began first: a parent may outlive thousands of children. */
static int by_end(const void *a, const void *b) {
    const struct left *x = a, *y = b;
    if (x->ended != y->ended)
        return x->ended < y->ended ? -1 : 1;
    return (x->process > y->process) - (x->process < y->process);
}

/* Looks at names alone, and at none in another mount namespace: the order is no matter of trust, and there are many. */
static void sort_by_end(struct left *left, size_t count) {
    struct stat st;
    for (size_t i = 0; i < count; i++) {
        const struct zeroute_process *p = left[i].process;
        left[i].ended = (int64_t)p->created_ns;
        if (strncmp(p->path, "/dev/shm/", strlen("/dev/shm/")) == 0 && lstat(p->path, &st) == 0 && finished_ns(p, &st))
            left[i].ended = finished_ns(p, &st);
    }
    qsort(left, count, sizeof *left, by_end);
}

void zr_gc_old(void) {
    struct tidying t = {0};
    struct zr_look look;
    size_t count = 0, dead = 0, made = 0;
    zr_outside_look(&look, ZR_LOOK_SEGMENTS);
    struct left *left = calloc(look.count + 1, sizeof *left);
    for (size_t i = 0; left && i < look.count; i++) /* the list has those first that began first */
        if (is_ours(&look.process[i], false) && look.process[i].state != ZEROUTE_LIVE) {
            left[count++].process = &look.process[i];
            dead += look.process[i].state == ZEROUTE_FINISHED;
        }
    t.beyond = dead > MOST_KEPT ? dead - MOST_KEPT : 0;
    t.many = dead > 2 * MOST_KEPT;
    if (t.beyond)
        sort_by_end(left, count);
    for (size_t i = 0; i < count; i++)
        left[i].large = tidy(left[i].process, &t);
    for (size_t i = count; i-- && made < COMPACTED_AT_ONCE;) /* the newest first: most is shown of them */
        if (left[i].large) {
            make_small(left[i].process);
            made++;
        }
    free(left);
    zr_look_free(&look);
}

struct options {
    bool dry_run, json, all_users;
};

static const struct zr_option option_table[] = {
    {'a', "all-users", NULL, "as root: remove those of other users, too"},
    {'n', "dry-run", NULL, "say what would be removed, and remove nothing"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "gc",
    .usage = "zeroute gc [--all-users] [--dry-run] [--json]",
    .about = "Removes the segments of all finished processes at once, and what a killed --sim has left. Any zeroute "
             "command removes segments ten minutes after it first saw that they are finished, and the oldest where "
             "there are more than 1,000.",
    .options = option_table,
    .notes = "Exit code: 0 done, 2 something could not be removed, or wrong usage.\n",
    .examples = "zeroute gc\n"
                "zeroute gc --dry-run",
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    (void)value;
    *(option->id == 'n' ? &o->dry_run : option->id == 'a' ? &o->all_users : &o->json) = true;
    return true;
}

/* Removes everything that is dead, or only looks for it; returns how many there were. */
static size_t remove_all(const struct options *o, json_t *removed, int *code) {
    struct zr_look look;
    size_t count = 0;
    zr_outside_look(&look, ZR_LOOK_SEGMENTS);
    for (size_t i = 0; i < look.count; i++) {
        const struct zeroute_process *p = &look.process[i];
        struct stat st;
        int directory, fd = is_ours(p, o->all_users) && p->state != ZEROUTE_LIVE ? open_dead(p, &directory, &st) : -1;
        if (fd < 0)
            continue;
        if (o->dry_run) {
            close(fd);
            close(directory);
        } else if (!remove_dead(p, fd, directory)) {
            if (errno != ENOENT) {
                zr_complain("gc", "cannot remove %s: %s", p->path, strerror(errno));
                *code = ZR_EXIT_ERROR;
            }
            continue;
        }
        count++;
        if (o->dry_run && !removed)
            printf("%s  %d  %s\n", zr_shown(p->path), p->pid_inside, zr_shown(p->command));
        json_t *one = zr_json_object(removed, NULL);
        zr_json_count(one, "pid", (uint64_t)p->pid_inside);
        zr_json_text(one, "path", p->path);
        zr_json_text(one, "command", p->command);
    }
    zr_look_free(&look);
    return count;
}

int zr_cmd_gc(int argc, char **argv) {
    struct options o = {0};
    int at, code = ZR_EXIT_DONE;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    json_t *document = o.json ? zr_json_document(1) : NULL;
    size_t count = remove_all(&o, zr_json_array(document, "removed"), &code);
    size_t machines = zr_simulate_sweep(!o.dry_run);
    zr_json_count(document, "simulated_machines", machines);
    if (o.json) {
        zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
        return code;
    }
    if (machines)
        printf("%zu folder%s of simulated GPUs that nobody uses %s\n", machines, machines == 1 ? "" : "s",
               o.dry_run ? "would be removed" : "removed");
    if (count || !machines)
        printf("%zu segment%s of finished processes %s\n", count, count == 1 ? "" : "s",
               o.dry_run ? "would be removed" : "removed");
    return code;
}
