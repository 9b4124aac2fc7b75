/*
 * What one user can make the commands of another wait for, or read: file systems that never answer, texts without end,
 * thousands of segments. Each of these held up a command of root once. Root plays all the users.
 */
#define WORK "run_work"
#include "outside/wire.h"
#include "shell.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define USER 65534u

static void setup(void) {
    shell_setup();
    ck_assert_int_eq(sh("chmod 755 ."), 0);
    setenv("ZE_SIMGPU", "devices:1,vram:1GiB", 1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- another user ----------------------------------------------------------------------------- */

struct user {
    pid_t pid;
    int ready;
};

/* Runs `be` as a process of its own, until it has written a byte. */
static struct user begin_user(void (*be)(int ready)) {
    struct user u;
    int ready[2];
    char c = 0;
    ck_assert_int_eq(pipe(ready), 0);
    u.pid = fork();
    if (u.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        be(ready[1]);
        _exit(0);
    }
    close(ready[1]);
    u.ready = ready[0];
    if (read(u.ready, &c, 1) != 1)
        c = 'x';
    if (c != 'r') {
        waitpid(u.pid, NULL, 0);
        u.pid = 0;
    }
    return u;
}

static void end_user(struct user *u) {
    if (u->pid) {
        kill(u->pid, SIGKILL);
        waitpid(u->pid, NULL, 0);
    }
    close(u->ready);
}

/* Answers how it is mounted, takes every other request, and says nothing to it. */
static void serve_silence(int fuse, int ready) {
    static char request[1 << 20];
    for (;;) {
        struct fuse_in_header in;
        ssize_t n = read(fuse, request, sizeof request);
        if (n < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (n < (ssize_t)sizeof in)
            _exit(0);
        memcpy(&in, request, sizeof in);
        if (in.opcode != FUSE_INIT)
            continue;
        struct {
            struct fuse_out_header head;
            struct fuse_init_out init;
        } reply = {.head = {.len = sizeof reply, .unique = in.unique},
                   .init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096}};
        if (write(fuse, &reply, sizeof reply) != sizeof reply || write(ready, "r", 1) != 1)
            _exit(90);
    }
}

static void mount_silence(int ready) {
    char options[128];
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other", fuse, USER, USER);
    if (fuse < 0 || unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev/shm", "fuse", MS_NOSUID | MS_NODEV, options) || setgid(USER) || setuid(USER))
        _exit(90);
    serve_silence(fuse, ready);
}

START_TEST(a_file_system_that_never_answers_holds_up_no_command) {
    static const char *const commands[] = {"stat",           "stat --json", "stat --prometheus",
                                           "top --once",     "top --json",  "ctl --all get",
                                           "gc --all-users", "doctor",      "serve --textfile . --once"};
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    struct user u = begin_user(mount_silence);
    if (!u.pid)
        SKIP("no FUSE, or no namespaces here");
    ck_assert_int_eq(sh("mkfifo go; (exec 9<>go; exec $Z run --sim --no-summary -- $W keep 100 wait <&9 >said) & "
                        "echo $!; while ! grep -q ready said; do sleep 0.05; done"),
                     0);
    int ours = atoi(out);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int code = sh("timeout -s KILL 20 $Z %s", commands[i]);
        ck_assert_msg(code != 137, "%s never ended", commands[i]);
        ck_assert_msg(code <= 1, "%s: %d: %s", commands[i], code, err);
        ck_assert_msg(strstr(out, "not answered in time: user nobody") ||
                          strstr(err, "not answered in time: user nobody") || strstr(out, "not_answered"),
                      "%s: %s\n%s", commands[i], out, err);
        if (strncmp(commands[i], "stat", 4) == 0)
            ck_assert_msg(strstr(out, "keep") || strstr(out, "zeroute_"), "%s: %s", commands[i], out);
    }
    end_user(&u);
    sh("kill %d", ours);
}
END_TEST

START_TEST(a_server_goes_on_beside_a_file_system_that_never_answers_and_ends_when_told) {
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    struct user u = begin_user(mount_silence);
    if (!u.pid)
        SKIP("no FUSE, or no namespaces here");
    int code =
        sh("$Z serve --textfile . --interval 0.3 & pid=$!\n"
           "for i in $(seq 100); do [ -s zeroute.prom ] && break; sleep 0.1; done\n"
           "first=$(stat -c %%y zeroute.prom)\n"
           "for i in $(seq 100); do [ \"$(stat -c %%y zeroute.prom)\" != \"$first\" ] && break; sleep 0.1; done\n"
           "[ \"$(stat -c %%y zeroute.prom)\" != \"$first\" ] || exit 3\n"
           "kill -TERM $pid\n"
           "for i in $(seq 50); do kill -0 $pid 2>/dev/null || exit 0; sleep 0.1; done; exit 4");
    end_user(&u);
    ck_assert_int_eq(code, 0);
}
END_TEST

/* --- texts without end ------------------------------------------------------------------------ */

/* An environment of a terabyte, of which no page is there until it is read. */
static void claim_an_endless_environment(int ready) {
    const size_t size = (size_t)1 << 40;
    char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct prctl_mm_map mm = {0};
    unsigned long at[64] = {0};
    char text[8192], *field;
    FILE *f = fopen("/proc/self/stat", "r");
    if (map == MAP_FAILED || !f || !fgets(text, sizeof text, f))
        _exit(90);
    fclose(f);
    field = strrchr(text, ')') + 3; /* behind it the state, field 3 of proc(5), and then numbers */
    for (int i = 4; i < 53; i++)
        at[i] = strtoul(field + 1, &field, 10);
    mm.start_code = at[26];
    mm.end_code = at[27];
    mm.start_stack = at[28];
    mm.start_data = at[45];
    mm.end_data = at[46];
    mm.start_brk = at[47];
    mm.brk = (unsigned long)sbrk(0);
    mm.arg_start = at[48];
    mm.arg_end = at[49];
    mm.env_start = (unsigned long)map;
    mm.env_end = (unsigned long)map + size;
    mm.exe_fd = ~0u;
    if (setgid(USER) || setuid(USER) || prctl(PR_SET_DUMPABLE, 1) ||
        prctl(PR_SET_MM, PR_SET_MM_MAP, &mm, sizeof mm, 0) || write(ready, "r", 1) != 1)
        _exit(91);
    pause();
}

START_TEST(an_environment_without_end_is_read_up_to_a_bound) {
    size_t length = 0;
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    struct user u = begin_user(claim_an_endless_environment);
    if (!u.pid)
        SKIP("PR_SET_MM_MAP is not allowed here");
    char *text = zr_outside_text(u.pid, ZR_FILE_ENVIRON, ZR_OUTSIDE_BYTES, &length);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(length, ZR_OUTSIDE_BYTES); /* there was more */
    free(text);
    int code = sh("ulimit -v 2000000; timeout -s KILL 20 $Z doctor %d >/dev/null", (int)u.pid);
    end_user(&u);
    ck_assert_msg(code != 137 && code <= 3, "%d: %s", code, err);
}
END_TEST

/* --- who is blamed, and when it is forgiven --------------------------------------------------- */

/* A process whose memory lies in a file that nobody answers for: who reads its environment waits. */
START_TEST(one_process_that_cannot_be_read_costs_its_deadline_once) {
    const struct zr_unanswered *list;
    struct zr_look look;
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    struct user u = begin_user(mount_silence);
    if (!u.pid)
        SKIP("no FUSE, or no namespaces here");
    zr_outside_deadlines(300, 2000);
    double began = seconds();
    ck_assert(zr_outside_look(&look, ZR_LOOK_NOW));
    zr_look_free(&look);
    ck_assert_uint_eq(zr_outside_unanswered(&list), 1);
    ck_assert_uint_eq(list[0].uid, USER);
    ck_assert_int_eq(list[0].pid, u.pid);
    double first = seconds() - began;
    for (int i = 0; i < 5; i++) {
        ck_assert(zr_outside_look(&look, ZR_LOOK_NOW));
        zr_look_free(&look);
    }
    double others = seconds() - began - first;
    printf("the first look %.2f s, five more %.2f s\n", first, others);
    ck_assert(first >= 0.3);
    ck_assert_uint_eq(zr_outside_unanswered(&list), 1);
    end_user(&u);
}
END_TEST

/* --- a file system that answers as it likes --------------------------------------------------------------- */

/*
 * As /dev/shm: a directory of the user's, and in it large segments of living processes. Their heads come at once, and
 * what follows comes piece by piece.
 */
enum { ROOT = FUSE_ROOT_ID, DIRECTORY, SEGMENT, LARGE = 60 << 20, PIECE_MS = 300, MOST_SEGMENTS = 40 };
struct segment {
    struct zeroute_segment_header h;
    struct zeroute_segment_field f;
    uint64_t shard[512];
};
static struct odd { /* shared with the processes that have the segments */
    unsigned count;
    struct segment segment[MOST_SEGMENTS];
} * odd;

static const char *name_of(unsigned i) {
    static char name[40];
    snprintf(name, sizeof name, "%u.%016llx", odd->segment[i].h.pid, (unsigned long long)odd->segment[i].h.nonce);
    return name;
}

static uint64_t node_of(const char *name) {
    if (strcmp(name, "zeroute-65534") == 0)
        return DIRECTORY;
    for (unsigned i = 0; i < odd->count; i++)
        if (strcmp(name, name_of(i)) == 0)
            return SEGMENT + i;
    return 0;
}

static struct fuse_attr attributes(uint64_t node) {
    return (struct fuse_attr){.ino = node,
                              .size = LARGE,
                              .mode = node <= DIRECTORY ? S_IFDIR | 0755 : S_IFREG | 0644,
                              .nlink = 1,
                              .uid = USER,
                              .gid = USER,
                              .blksize = 4096};
}

/* Entries from this one on, and their size; none: 1. */
static long list_directory(uint64_t node, uint64_t from, size_t room, char *to) {
    unsigned count = node == ROOT ? 1 : odd->count;
    size_t size = 0;
    for (unsigned i = (unsigned)from; i < count && size + 256 < room; i++) {
        const char *name = node == ROOT ? "zeroute-65534" : name_of(i);
        struct fuse_dirent e = {
            .ino = node == ROOT ? DIRECTORY : SEGMENT + i, .off = i + 1, .namelen = (uint32_t)strlen(name)};
        memcpy(to + size, &e, FUSE_NAME_OFFSET);
        memcpy(to + size + FUSE_NAME_OFFSET, name, e.namelen);
        size += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + e.namelen);
    }
    return size ? (long)size : 1;
}

/* The answer to one request, and its size; 0: there is none. An error is below zero. */
static long answer_request(const struct fuse_in_header *in, const void *body, char *to) {
    const struct fuse_read_in *read_in = body;
    switch (in->opcode) {
    case FUSE_INIT:
        memcpy(to, &(struct fuse_init_out){.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096},
               sizeof(struct fuse_init_out));
        return sizeof(struct fuse_init_out);
    case FUSE_LOOKUP: {
        struct fuse_entry_out e = {.nodeid = node_of(body), .attr_valid = 1000, .entry_valid = 1000};
        e.attr = attributes(e.nodeid);
        memcpy(to, &e, sizeof e);
        return e.nodeid ? (long)sizeof e : -ENOENT;
    }
    case FUSE_GETATTR:
        memcpy(to, &(struct fuse_attr_out){.attr_valid = 1000, .attr = attributes(in->nodeid)},
               sizeof(struct fuse_attr_out));
        return sizeof(struct fuse_attr_out);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        memcpy(to, &(struct fuse_open_out){.open_flags = in->nodeid >= SEGMENT ? FOPEN_DIRECT_IO : 0},
               sizeof(struct fuse_open_out));
        return sizeof(struct fuse_open_out);
    case FUSE_READDIR:
        return list_directory(in->nodeid, read_in->offset, read_in->size, to);
    case FUSE_READ:
        if (read_in->offset)
            usleep(PIECE_MS * 1000);
        memset(to, 0, read_in->size);
        if (read_in->offset == 0)
            memcpy(to, &odd->segment[in->nodeid - SEGMENT],
                   read_in->size < sizeof *odd->segment ? read_in->size : sizeof *odd->segment);
        return (long)read_in->size;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        return 1;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return 0;
    default:
        return -ENOSYS;
    }
}

static void serve_oddly(int fuse) {
    static char request[1 << 20], reply[(1 << 20) + sizeof(struct fuse_out_header)];
    for (;;) {
        struct fuse_in_header in;
        struct fuse_out_header head;
        ssize_t n = read(fuse, request, sizeof request);
        if (n < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (n < (ssize_t)sizeof in)
            _exit(0);
        memcpy(&in, request, sizeof in);
        long size = answer_request(&in, request + sizeof in, reply + sizeof head);
        if (size == 0)
            continue;
        bool empty = size < 2; /* an error, or done */
        head = (struct fuse_out_header){
            .len = sizeof head + (empty ? 0 : (uint32_t)size), .error = size < 0 ? (int)size : 0, .unique = in.unique};
        memcpy(reply, &head, sizeof head);
        if (write(fuse, reply, head.len) < 0 && errno != ENOENT)
            _exit(90);
    }
}

/* In a mount namespace of its own; the server is a child. */
static void mount_oddly(void) {
    char options[128];
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other", fuse, USER, USER);
    if (fuse < 0 || unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev/shm", "fuse", MS_NOSUID | MS_NODEV, options))
        _exit(90);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setgid(USER) || setuid(USER))
            _exit(90);
        serve_oddly(fuse);
    }
    close(fuse);
}

static uint64_t own_start_time(void) {
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* A segment that this process could have. */
static struct segment own_segment(uint64_t nonce) {
    struct segment s = {.h = {.magic = ZEROUTE_SEGMENT_MAGIC,
                              .layout = ZEROUTE_SEGMENT_LAYOUT,
                              .header_size = sizeof s.h,
                              .file_size = sizeof s,
                              .pid = (uint32_t)getpid(),
                              .uid = USER,
                              .start_time = own_start_time(),
                              .nonce = nonce,
                              .created_ns = 1,
                              .globals_size = 64,
                              .fields_offset = sizeof s.h,
                              .field_size = sizeof s.f,
                              .field_count = 1,
                              .shards_offset = sizeof s.h + sizeof s.f,
                              .shard_size = sizeof s.shard,
                              .shard_count = 1,
                              .shard_generation = 8,
                              .buckets = ZEROUTE_BUCKETS,
                              .clock_hz = 1000000000,
                              .command = "odd"},
                        .f = {.name = "calls.a.b", .type = ZEROUTE_COUNTER, .offset = 64, .stride = 8, .count = 1}};
    char link[64] = "";
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    s.h.pid_namespace = n > 5 ? strtoull(link + 5, NULL, 10) : 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(s.h.boot_id, 37, f))
        *s.h.boot_id = '\0';
    if (f)
        fclose(f);
    return s;
}

static void hold_slow_segment(unsigned i, int begun, int ready) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    char path[128], c;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    odd->segment[i] = own_segment(i + 1);
    if (write(ready, "d", 1) != 1 || read(begun, &c, 1) != 1)
        _exit(90);
    snprintf(path, sizeof path, "/dev/shm/zeroute-65534/%s", name_of(i));
    int fd = setgid(USER) || setuid(USER) ? -1 : open(path, O_RDWR);
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) || write(ready, "d", 1) != 1)
        _exit(91);
    pause();
}

static bool await_all(int from) {
    char c;
    for (unsigned i = 0; i < odd->count; i++)
        if (read(from, &c, 1) != 1)
            return false;
    return true;
}

static void have_slow_segments(int ready) {
    static const char begin[MOST_SEGMENTS];
    int there[2], begun[2];
    mount_oddly();
    if (pipe(there) || pipe(begun))
        _exit(90);
    for (unsigned i = 0; i < odd->count; i++)
        if (fork() == 0)
            hold_slow_segment(i, begun[0], there[1]);
    close(there[1]);
    if (!await_all(there[0]) || write(begun[1], begin, odd->count) != (ssize_t)odd->count || !await_all(there[0]) ||
        write(ready, "r", 1) != 1)
        _exit(91);
    pause();
}

/*
 * Each piece of it comes in time, and there are thousands: one such segment took a quarter of an hour. Of a user who
 * has forty of them two are waited for.
 */
START_TEST(a_file_system_that_answers_slowly_costs_a_deadline_or_two) {
    static const char *const commands[] = {"stat", "top --once", "ctl --all get", "doctor",
                                           "serve --textfile . --once"};
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    odd = mmap(NULL, sizeof *odd, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(odd != MAP_FAILED);
    odd->count = _i ? MOST_SEGMENTS : 1;
    struct user u = begin_user(have_slow_segments);
    if (!u.pid)
        SKIP("no FUSE, or no namespaces here");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int code = sh("timeout -s KILL 15 $Z %s", commands[i]);
        ck_assert_msg(code != 137, "%s never ended", commands[i]);
        if (i == 0)
            ck_assert_msg(strstr(out, "not answered in time: user nobody") || strstr(err, "user nobody"), "%s%s", out,
                          err);
    }
    end_user(&u);
}
END_TEST

/* --- the machine of another user ------------------------------------------------------------------------ */

/* The segment is the user's, and its process a program that has root's rights, with what the user has set for it. */
static void begin_with_rights_of_root(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    char root[128], driver[PATH_MAX + 64], path[128];
    if (chdir(folder) || setgid(USER) || setuid(USER))
        _exit(90);
    struct segment s = own_segment(1);
    snprintf(path, sizeof path, "/dev/shm/zeroute-65534/%d.%016x", (int)getpid(), 1);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (write(fd, &s, sizeof s) != sizeof s || fcntl(fd, F_SETLK, &lock))
        _exit(91);
    snprintf(root, sizeof root, "ZEROUTE_ROOT=%s/theirs", folder);
    snprintf(driver, sizeof driver, "ZE_ENABLE_ALT_DRIVERS=%s/libze_simgpu.so", build);
    execle("./helper", "sleep", "1000", (char *)NULL, (char *const[]){root, driver, NULL});
    _exit(92);
}

START_TEST(no_user_leads_the_commands_of_root_to_a_machine_of_their_own) {
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    ck_assert_int_eq(sh("mkdir -p theirs/proc && mkfifo theirs/proc/meminfo && chown -R 65534:65534 theirs && "
                        "cp $(command -v sleep) helper && chmod 4755 helper && mkdir -p /dev/shm/zeroute-65534 && "
                        "chown 65534:65534 /dev/shm/zeroute-65534 && chmod 700 /dev/shm/zeroute-65534"),
                     0);
    pid_t process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        begin_with_rights_of_root();
    }
    char line[160];
    snprintf(line, sizeof line,
             "for i in $(seq 100); do grep -q helper /proc/%d/comm && exit 0; sleep 0.1; done; exit 1", (int)process);
    ck_assert_int_eq(sh("%s", line), 0);
    int shown = sh("timeout -s KILL 10 $Z stat");
    bool listed = strstr(out, "odd") != NULL;
    int looked_at = sh("timeout -s KILL 10 $Z doctor %d", (int)process);
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    ck_assert(listed);
    ck_assert_int_eq(shown, 0);
    ck_assert_int_ne(looked_at, 137);
}
END_TEST

/* --- requests --------------------------------------------------------------------------------- */

/* A process of the user, and one of ours; both make calls all the time. */
#define BEGIN_TWO                                                                                                      \
    "chmod 777 . && mkfifo go && exec 9<>go\n"                                                                         \
    "ZEROUTE_CONF=preset:observe LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so\n"               \
    "export ZEROUTE_CONF LD_PRELOAD ZE_ENABLE_ALT_DRIVERS\n"                                                           \
    "setpriv --reuid 65534 --regid 65534 --clear-groups $W keep 2 %s wait <&9 >theirs &\n"                             \
    "$W keep 3 busy wait <&9 >ours &\n"                                                                                \
    "unset LD_PRELOAD; while ! grep -q ready ours || ! grep -q ready theirs; do sleep 0.05; done\n"                    \
    "cut -d' ' -f2 theirs ours"

static void begin_two(const char *what, int pid[2]) {
    char *end;
    ck_assert_int_eq(sh(BEGIN_TWO, what), 0);
    pid[0] = (int)strtol(out, &end, 10);
    pid[1] = (int)strtol(end, NULL, 10);
    ck_assert_int_gt(pid[1], 0);
}

static void end_two(const int pid[2]) {
    kill(pid[0], SIGKILL);
    kill(pid[1], SIGKILL);
}

/* Holds the lock of requesters of a segment for ever. */
static char held[PATH_MAX];
static void hold_requests(int ready) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_REQUEST_BYTE, .l_len = 1};
    int fd = open(held, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) || write(ready, "r", 1) != 1)
        _exit(90);
    pause();
}

START_TEST(a_lock_that_a_user_never_gives_back_holds_up_no_other_process) {
    int pid[2];
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    begin_two("busy", pid);
    ck_assert_int_eq(sh("ls /dev/shm/zeroute-65534/%d.*", pid[0]), 0);
    snprintf(held, sizeof held, "%.*s", (int)strcspn(out, "\n"), out);
    struct user u = begin_user(hold_requests);
    ck_assert_int_ne(u.pid, 0);
    double began = seconds();
    int code = sh("$Z ctl --all --timeout 1 trim");
    double took = seconds() - began;
    end_user(&u);
    end_two(pid);
    ck_assert_int_eq(code, 2);
    ck_assert_msg(took < 8, "%.1f s", took);
    char line[64];
    snprintf(line, sizeof line, "%d  not asked: another zeroute ctl is waiting for it", pid[0]);
    ck_assert_msg(strstr(out, line), "%s", out);
    snprintf(line, sizeof line, "%d  ", pid[1]);
    ck_assert_msg(strstr(out, line) && strstr(strstr(out, line), "in force since"), "%s", out);
}
END_TEST

START_TEST(a_process_that_makes_no_calls_is_waited_for_beside_the_others_and_not_before_them) {
    int pid[2];
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    begin_two("", pid);
    int code = sh("$Z ctl --all --timeout 1 trim");
    end_two(pid);
    ck_assert_int_eq(code, 3);
    ck_assert_msg(strstr(out, "no answer: its last call was") && strstr(out, "in force since"), "%s", out);
}
END_TEST

/* A segment of the user's own that says to be of the victim's process, and to be the newest there is. */
START_TEST(a_segment_under_the_number_of_a_process_does_not_stand_in_for_its_own) {
    int pid[2];
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    begin_two("busy", pid);
    ck_assert_int_eq(sh("cd /dev/shm/zeroute-65534 && cp %d.* %d.0123456789abcdef && python3 - %d <<'END'\n"
                        "import struct, sys, glob\n"
                        "name = glob.glob(sys.argv[1] + '.0123456789abcdef')[0]\n"
                        "f = open(name, 'r+b')\n"
                        "f.seek(24); f.write(struct.pack('<I', int(sys.argv[1])))\n"             /* pid */
                        "f.seek(48); f.write(struct.pack('<QQ', 0x0123456789abcdef, 1 << 62))\n" /* nonce, created */
                        "f.write(b'another boot' + bytes(28))\n"
                        "END\nchown 65534 %d.0123456789abcdef",
                        pid[0], pid[1], pid[1], pid[1]),
                     0);
    int get = sh("$Z ctl %d get", pid[1]);
    bool ours = strstr(out, "cache:off") != NULL;
    int set = sh("$Z ctl %d set limit 512MiB", pid[1]);
    end_two(pid);
    ck_assert_int_eq(get, 0);
    ck_assert_msg(ours, "%s", out);
    ck_assert_msg(set == 0 && strstr(out, "limit:512MiB"), "%s%s", out, err);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bounds");
    TCase *tc = tcase_create("bounds");
    tcase_add_checked_fixture(tc, setup, shell_teardown);
    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, a_file_system_that_never_answers_holds_up_no_command);
    tcase_add_test(tc, a_server_goes_on_beside_a_file_system_that_never_answers_and_ends_when_told);
    tcase_add_test(tc, an_environment_without_end_is_read_up_to_a_bound);
    tcase_add_test(tc, one_process_that_cannot_be_read_costs_its_deadline_once);
    tcase_add_loop_test(tc, a_file_system_that_answers_slowly_costs_a_deadline_or_two, 0, 2);
    tcase_add_test(tc, no_user_leads_the_commands_of_root_to_a_machine_of_their_own);
    tcase_add_test(tc, a_lock_that_a_user_never_gives_back_holds_up_no_other_process);
    tcase_add_test(tc, a_process_that_makes_no_calls_is_waited_for_beside_the_others_and_not_before_them);
    tcase_add_test(tc, a_segment_under_the_number_of_a_process_does_not_stand_in_for_its_own);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
