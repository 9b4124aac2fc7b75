/* Our side: starts the helper, asks it, and goes on without it where it does not get on. */
#include "outside/wire.h"
#include "reader/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEP_MS = 500, LOOK_MS = 2000, GLANCE_MS = 50, FORGIVEN_MS = 30000 };
enum { WAITS_OF_A_RUNNER = 10, WAITS_OF_A_LOOK = 5 };

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER; /* one question at a time; guards all of these */
static pid_t helper, helpers_parent;
static int helper_socket = -1;
static struct zr_progress *progress;
static unsigned step_ms = STEP_MS, look_ms = LOOK_MS;
static struct zr_stuck stuck[ZR_SKIPPED];
static unsigned stuck_count;
static struct zr_unanswered unanswered[ZR_SKIPPED];
static size_t unanswered_count;

static uint64_t now_ms(void) {
    return zr_clock_ns() / 1000000;
}

void zr_outside_deadlines(unsigned process_ms, unsigned whole_ms) {
    step_ms = process_ms;
    look_ms = whole_ms;
}

/* --- the helper's life ------------------------------------------------------------------------ */

/*
 * One that waits in another's file system cannot be killed before that answers: it is left behind, and dies with the
 * next word from there, or from us at our end.
 */
static void end_helper(void) {
    if (!helper)
        return;
    kill(helper, SIGKILL);
    close(helper_socket);
    waitpid(helper, NULL, WNOHANG);
    helper = 0;
    helper_socket = -1;
}

static bool start_helper(void) {
    int pair[2];
    pid_t us = getpid();

    if (helper && helpers_parent == us)
        return true;
    helper = 0; /* after a fork: it is our parent's */
    if (!progress) {
        progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (progress == MAP_FAILED) {
            progress = NULL;
            return false;
        }
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != us)
            _exit(0);
        zr_helper_run(pair[1], progress);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return false;
    }
    helper = pid;
    helpers_parent = us;
    helper_socket = pair[0];
    return true;
}

/*
 * A helper that was left behind and has gone by now got its answer: its place may be entered again. Not at once: one
 * that answers each time a little too late would cost its deadline each time.
 */
static void forgive(void) {
    for (unsigned i = 0; i < stuck_count;) {
        struct zr_stuck *s = &stuck[i];

        if (s->helper && (waitpid(s->helper, NULL, WNOHANG) == s->helper || kill(s->helper, 0)))
            s->helper = 0;
        if (!s->helper && now_ms() - s->since_ms >= FORGIVEN_MS)
            *s = stuck[--stuck_count];
        else
            i++;
    }
}

static void note_unanswered(unsigned uid, int pid) {
    struct zr_unanswered *u = &unanswered[unanswered_count];
    struct passwd entry, *found = NULL;
    char buffer[4096];

    for (size_t i = 0; i < unanswered_count; i++)
        if (unanswered[i].uid == uid)
            return;
    if (unanswered_count == ZR_SKIPPED)
        return;
    unanswered_count++;
    *u = (struct zr_unanswered){.uid = uid, .pid = pid};
    if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) || !found)
        snprintf(u->user, sizeof u->user, "%u", uid);
    else
        snprintf(u->user, sizeof u->user, "%s", entry.pw_name);
}

/* Blames whoever the helper was at, and gives it up. */
static void give_up_helper(void) {
    struct zr_stuck *s = &stuck[stuck_count < ZR_SKIPPED ? stuck_count : ZR_SKIPPED - 1];

    *s = (struct zr_stuck){
        .uid = progress->uid, .pid = progress->pid, .mounts = progress->mounts, .helper = helper, .since_ms = now_ms()};
    if (stuck_count < ZR_SKIPPED)
        stuck_count++;
    note_unanswered(s->uid, s->pid);
    end_helper();
}

size_t zr_outside_unanswered(const struct zr_unanswered **list) {
    *list = unanswered;
    return unanswered_count;
}

void zr_outside_complain(FILE *to) {
    for (size_t i = 0; i < unanswered_count; i++)
        fprintf(to, "not answered in time: user %s (process %d)\n", zr_shown(unanswered[i].user), unanswered[i].pid);
}

/* --- one question ----------------------------------------------------------------------------- */

/* It waits for a processor of a busy machine, and for nobody's answer. Our own child's state is always told. */
static bool helper_runs(void) {
    char path[64], text[512];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)helper);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *behind = strrchr(text, ')');
    return behind && behind[1] == ' ' && behind[2] == 'R';
}

/* One message; its descriptors go to `files`, -1 where there are less. Returns its size, 0 at the end, -1. */
static ssize_t receive(void *buffer, size_t size, int files[2]) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {buffer, size};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n;

    do
        n = recvmsg(helper_socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && files[0] < 0)
        memcpy(files, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    return n > 0 && m.msg_flags & MSG_TRUNC ? -1 : n;
}

/* What came of waiting for a message. */
enum wait { WAIT_MESSAGE, WAIT_STUCK, WAIT_OVER };

static enum wait wait_for_message(uint64_t whole_deadline) {
    uint64_t since = now_ms();
    uint32_t step = progress->step;

    for (;;) {
        struct pollfd p = {helper_socket, POLLIN, 0};
        if (poll(&p, 1, GLANCE_MS) > 0)
            return WAIT_MESSAGE;
        uint64_t now = now_ms();
        if (progress->step != step) {
            step = progress->step;
            since = now;
        }
        if (now - since >= step_ms && (!helper_runs() || now - since >= WAITS_OF_A_RUNNER * (uint64_t)step_ms))
            return WAIT_STUCK;
        /* On a busy machine it may take longer, as long as it gets on. */
        uint64_t over = now > whole_deadline ? now - whole_deadline : 0;
        if ((over && now - since >= GLANCE_MS && !helper_runs()) || over >= WAITS_OF_A_LOOK * (uint64_t)look_ms)
            return WAIT_OVER;
    }
}

/* Returns true with the answer complete. Else the helper is gone, and errno says why. */
static bool converse(const struct zr_ask *ask, struct zr_answer *answer, int files[2], uint64_t whole_deadline) {
    static char message[ZR_TOLD_BYTES];

    if (!start_helper())
        return false;
    progress->pid = ask->pid;
    if (send(helper_socket, ask, sizeof *ask, MSG_NOSIGNAL) != sizeof *ask) {
        end_helper();
        errno = EPIPE;
        return false;
    }
    while (!answer->ended) {
        enum wait got = wait_for_message(whole_deadline);
        if (got != WAIT_MESSAGE) {
            give_up_helper();
            errno = ETIMEDOUT;
            return false;
        }
        ssize_t n = receive(message, sizeof message, files);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0 || !zr_told_take(answer, message, (size_t)n)) {
            give_up_helper(); /* what it was reading was the end of it */
            errno = EIO;
            return false;
        }
    }
    return true;
}

static void drop_files(int files[2]) {
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0)
            close(files[i]);
    files[0] = files[1] = -1;
}

/* The caller has filled in what it asks; this adds what every question has. */
static void complete(struct zr_ask *ask) {
    const char *root = getenv("ZEROUTE_ROOT");

    snprintf(ask->root, sizeof ask->root, "%s", root ? root : "");
    forgive();
    ask->stuck_count = stuck_count;
    memcpy(ask->stuck, stuck, sizeof stuck);
}

/*
 * What a question may take all in all, as long as the helper gets on: a file system may answer slowly, too. Libraries
 * are large, and their disk may be far away.
 */
static uint64_t deadline_of(const struct zr_ask *ask) {
    bool large = ask->kind == ZR_ASK_LIBRARY || ask->kind == ZR_ASK_MENTIONS;

    return now_ms() + (large ? WAITS_OF_A_LOOK * (uint64_t)look_ms : step_ms);
}

/* A question about one process. Returns whether the helper could answer it; errno is the helper's, or ours. */
static bool ask_once(struct zr_ask *ask, struct zr_answer *answer, int files[2]) {
    bool good;

    pthread_mutex_lock(&asking);
    complete(ask);
    files[0] = files[1] = -1;
    good = converse(ask, answer, files, deadline_of(ask));
    pthread_mutex_unlock(&asking);
    if (good && !answer->end.good) {
        errno = answer->end.error;
        good = false;
    }
    if (!good) {
        int saved = errno;
        drop_files(files);
        errno = saved;
    }
    return good;
}

/* --- looks ------------------------------------------------------------------------------------ */

static int by_pid(const void *a, const void *b) {
    const struct zr_holder *p = a, *q = b;

    return (p->pid > q->pid) - (p->pid < q->pid);
}

const struct zr_holder *zr_look_holder(const struct zr_look *look, int pid) {
    struct zr_holder wanted = {.pid = pid};

    return look->holders ? bsearch(&wanted, look->holder, look->holders, sizeof wanted, by_pid) : NULL;
}

/* Each time that it gets stuck it begins again without who was to blame, until the time is over. */
bool zr_outside_look(struct zr_look *look, enum zr_thoroughness how) {
    uint64_t deadline = now_ms() + look_ms;
    bool good = false;

    *look = (struct zr_look){0};
    pthread_mutex_lock(&asking);
    while (!good) {
        struct zr_ask ask = {.kind = ZR_ASK_LOOK, .detail = how};
        struct zr_answer *answer = calloc(1, sizeof *answer);
        int files[2] = {-1, -1};
        if (!answer)
            break;
        complete(&ask);
        good = converse(&ask, answer, files, deadline);
        drop_files(files);
        if (good) {
            *look = answer->look;
            answer->look = (struct zr_look){0};
        }
        zr_answer_free(answer);
        free(answer);
        if (!good && (errno != ETIMEDOUT && errno != EIO))
            break;
        if (!good && now_ms() >= deadline + look_ms)
            break;
    }
    pthread_mutex_unlock(&asking);
    if (look->holders)
        qsort(look->holder, look->holders, sizeof *look->holder, by_pid);
    return good;
}

/* --- questions about one process -------------------------------------------------------------- */

/* Allocated, because it is large. */
struct question {
    struct zr_ask ask;
    struct zr_answer answer;
    int files[2];
};

static struct question *new_question(enum zr_ask_kind kind, int pid) {
    struct question *q = calloc(1, sizeof *q);

    if (!q)
        abort();
    q->ask.kind = kind;
    q->ask.pid = pid;
    return q;
}

static bool put(struct question *q) {
    return ask_once(&q->ask, &q->answer, q->files);
}

static void end_question(struct question *q) {
    int saved = errno;

    zr_answer_free(&q->answer);
    free(q);
    errno = saved;
}

bool zr_outside_memory(int pid, struct zr_process_memory *out) {
    struct question *q = new_question(ZR_ASK_MEMORY, pid);
    bool good = put(q);

    *out = q->answer.memory;
    if (!good)
        *out = (struct zr_process_memory){.rss = ZR_ABSENT, .cgroup_current = ZR_ABSENT, .cgroup_limit = ZR_ABSENT};
    end_question(q);
    return good;
}

char *zr_outside_text(int pid, unsigned file, size_t most, size_t *length) {
    struct question *q = new_question(ZR_ASK_TEXT, pid);
    char *text = NULL;

    q->ask.detail = file;
    q->ask.most = (uint32_t)(most < ZR_OUTSIDE_MOST ? most : ZR_OUTSIDE_MOST);
    if (put(q)) {
        text = q->answer.text ? q->answer.text : calloc(1, 1);
        q->answer.text = NULL;
        if (length)
            *length = q->answer.length;
    }
    end_question(q);
    return text;
}

bool zr_outside_user(int pid, unsigned *uid) {
    struct question *q = new_question(ZR_ASK_USER, pid);
    bool good = put(q);

    *uid = q->answer.end.value;
    end_question(q);
    return good;
}

size_t zr_outside_children(int pid, int *child, size_t most) {
    struct question *q = new_question(ZR_ASK_CHILDREN, pid);
    size_t count = 0;

    if (put(q)) {
        count = q->answer.children < most ? q->answer.children : most;
        memcpy(child, q->answer.child, count * sizeof *child);
    }
    end_question(q);
    return count;
}

int zr_outside_open(const struct zeroute_process *p, int *directory) {
    struct question *q = new_question(ZR_ASK_OPEN, p->pid);
    int fd = -1;

    q->ask.process = *p;
    q->ask.detail = directory != NULL;
    if (put(q)) {
        fd = q->files[0];
        if (directory)
            *directory = q->files[1];
        else if (q->files[1] >= 0)
            close(q->files[1]);
    }
    end_question(q);
    return fd;
}

enum zeroute_state zr_outside_state(const struct zeroute_process *p) {
    struct question *q = new_question(ZR_ASK_STATE, p->pid);
    enum zeroute_state state = ZEROUTE_UNKNOWN;

    q->ask.process = *p;
    if (put(q) && q->answer.end.value <= ZEROUTE_UNKNOWN)
        state = (enum zeroute_state)q->answer.end.value;
    end_question(q);
    return state;
}

struct zeroute_snapshot *zr_outside_snapshot(const struct zeroute_process *p, char *why, size_t why_size) {
    if (!p->readable) {
        snprintf(why, why_size, "%s", p->why);
        return NULL;
    }
    int fd = zr_outside_open(p, NULL);
    if (fd < 0 && (errno == ENOENT || errno == ESTALE)) {
        *why = '\0';
        return NULL;
    }
    return zeroute_snapshot_of_listed(p, fd, why, why_size);
}

bool zr_outside_library(int pid, const char *path, struct zr_outside_library *out) {
    struct question *q = new_question(ZR_ASK_LIBRARY, pid);
    bool good;

    snprintf(q->ask.path, sizeof q->ask.path, "%s", path);
    good = put(q);
    *out = q->answer.library;
    if (!good)
        *out = (struct zr_outside_library){0};
    end_question(q);
    return good;
}

bool zr_outside_mentions(int pid, const char *file, const char *string) {
    struct question *q = new_question(ZR_ASK_MENTIONS, pid);
    bool good;

    snprintf(q->ask.path, sizeof q->ask.path, "%s", file);
    snprintf(q->ask.string, sizeof q->ask.string, "%s", string);
    good = put(q);
    end_question(q);
    return good;
}

/* --- the simulated machine -------------------------------------------------------------------- */

static const char *variable(const char *text, size_t length, const char *name) {
    size_t n = strlen(name);

    for (const char *at = text, *end = text + length; at < end; at += strnlen(at, (size_t)(end - at)) + 1)
        if ((size_t)(end - at) > n && strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

/* Another user's folder may lead anywhere: only our own processes are followed. */
bool zr_outside_simulation(int pid, char *out, size_t size) {
    unsigned uid;
    size_t length = 0;
    char *text;

    if (getenv("ZEROUTE_ROOT") || !zr_outside_user(pid, &uid) || uid != geteuid())
        return false;
    text = zr_outside_text(pid, ZR_FILE_ENVIRON, ZR_OUTSIDE_BYTES, &length);
    if (!text)
        return false;
    const char *root = variable(text, length, "ZEROUTE_ROOT");
    const char *driver = variable(text, length, "ZE_ENABLE_ALT_DRIVERS");
    bool simulated = root && *root && driver && strstr(driver, "libze_simgpu");
    if (simulated)
        snprintf(out, size, "%s", root);
    free(text);
    return simulated;
}
