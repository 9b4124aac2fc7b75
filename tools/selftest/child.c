/* Runs one worker in a group of its own, with a deadline, and keeps what it says. */
#include "selftest/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A worker says some hundred kilobytes; one that says more is ended. */
enum { SAID_MOST = 8 << 20, ERRORS_MOST = 64 << 10, END_MS = 5000 };

char *zr_without_paths(char *out, size_t size, const char *text) {
    const char *shown = zr_shown(text);
    size_t used = 0, word = 0;

    for (; *shown && used + 1 < size; shown++) {
        out[used++] = *shown;
        if (strchr(" '\"(,:=;", *shown))
            word = used;
        else if (*shown == '/')
            used = word;
    }
    out[used] = '\0';
    return out;
}

/* --- the child ------------------------------------------------------------------------------- */

struct start {
    const struct zr_child *c;
    const char *library;
};

static void prepend(const char *variable, const char *path) {
    const char *old = getenv(variable);
    char both[4096];

    snprintf(both, sizeof both, "%s%s%s", path, old && *old ? ":" : "", old ? old : "");
    setenv(variable, both, 1);
}

static void prepare(const void *data) {
    const struct start *s = data;
    const struct zr_child *c = s->c;
    char kept[128];

    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    unsetenv("ZEROUTE_CONF_FILE");
    unsetenv("ZEROUTE_CONF");
    if (c->mask)
        setenv("ZE_AFFINITY_MASK", c->mask, 1);
    if (c->runtime && *c->runtime)
        prepend("LD_LIBRARY_PATH", c->runtime);
    if (!c->conf)
        return;
    setenv("ZEROUTE_CONF", c->conf, 1);
    if ((strstr(c->conf, "backing:eager") || strstr(c->conf, "preset:eager")))
        zr_eager_environment(kept, sizeof kept);
    zr_preload_set(s->library);
}

/* --- what it says ---------------------------------------------------------------------------- */

struct said {
    char *text;
    size_t length, room;
};

/* False: it has closed its end, or said too much. */
static bool take_more(struct said *s, int from) {
    ssize_t n;

    for (;;) {
        if (s->length + 1 >= s->room) {
            size_t room = s->room ? 2 * s->room : 64 << 10;
            char *more = room > SAID_MOST ? NULL : realloc(s->text, room);

            if (!more)
                return false;
            s->text = more;
            s->room = room;
        }
        n = read(from, s->text + s->length, s->room - s->length - 1);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        s->length += (size_t)n;
    }
}

static bool add_line(struct zr_child *c, const char *text) {
    char **more = realloc(c->line, (c->count + 1) * sizeof *more);

    if (!more)
        return false;
    c->line = more;
    c->line[c->count] = strdup(text);
    c->count += c->line[c->count] != NULL;
    return true;
}

static void take_lines(struct zr_child *c, char *text) {
    char *rest = text, *line;

    if (!text)
        return;
    while ((line = strsep(&rest, "\n"))) {
        if (strcmp(line, "# preload yes") == 0)
            c->preloaded = true;
        else if (strncmp(line, "# cannot ", 9) == 0)
            zr_without_paths(c->why, sizeof c->why, line + 9);
        else if (*line && strncmp(line, "# preload", 9) != 0)
            add_line(c, line);
    }
}

/* "zeroute: check: KIND: ..."; what check says of itself has more than a word there. */
static bool is_report(const char *line) {
    static const char begins[] = "zeroute: check: ";
    const char *kind = line + sizeof begins - 1;
    size_t length;

    if (strncmp(line, begins, sizeof begins - 1) != 0)
        return false;
    length = strspn(kind, "abcdefghijklmnopqrstuvwxyz_");
    return length && kind[length] == ':';
}

/* Reports of check are answers, too. The last line of stderr may say why it died. */
static void take_errors(struct zr_child *c, int from, char *last, size_t size) {
    char *text = calloc(1, ERRORS_MOST), *rest = text, *line;
    char report[400];

    *last = '\0';
    if (text && pread(from, text, ERRORS_MOST - 1, 0) > 0) {
        while ((line = strsep(&rest, "\n"))) {
            if (is_report(line)) {
                snprintf(report, sizeof report, "report: %.380s", line + 16);
                add_line(c, report);
            }
            if (*line)
                zr_without_paths(last, size, line);
        }
    }
    free(text);
}

/* Takes what a worker says on stderr, up to its size: what comes after that its write(2) refuses. -1, with errno. */
static int errors_open(void) {
    int fd = memfd_create("zeroute-selftest-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && (ftruncate(fd, ERRORS_MOST) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* --- running it ------------------------------------------------------------------------------ */

static void judge(struct zr_child *c, const struct zr_program *p, bool hung, const char *last) {
    char step[64];

    zr_child_step(c, step, sizeof step);
    if (hung) {
        c->ending = ZR_HUNG;
        snprintf(c->why, sizeof c->why, "no answer for %u s in %s", c->deadline_ms / 1000, step);
    } else if (p->asked_to_end) {
        c->ending = ZR_INTERRUPTED;
    } else if (WIFSIGNALED(p->status)) {
        c->ending = ZR_DIED;
        snprintf(c->why, sizeof c->why, "ended by signal %d (%s) in %s", WTERMSIG(p->status),
                 strsignal(WTERMSIG(p->status)), step);
    } else if (WEXITSTATUS(p->status) == ZR_EXIT_NO_VERDICT) {
        c->ending = ZR_CANNOT;
    } else if (WEXITSTATUS(p->status)) {
        c->ending = ZR_FAILED;
        snprintf(c->why, sizeof c->why, "exit code %d in %s: %.100s", WEXITSTATUS(p->status), step, last);
    } else {
        c->ending = ZR_ENDED;
    }
}

/* Returns whether it hung. */
static bool follow(struct zr_program *p, const struct zr_child *c, struct said *said, int from) {
    double heard = zr_clock_seconds();
    bool open = true;

    for (;;) {
        double left = heard + c->deadline_ms / 1000.0 - zr_clock_seconds();
        size_t before = said->length;

        if (left <= 0 || p->asked_to_end) {
            bool hung = !p->asked_to_end;

            zr_spawn_end_within(p, END_MS);
            return hung;
        }
        bool ended = zr_spawn_wait(p, (int)(left * 1000) + 1, open ? from : -1);
        if (open)
            open = take_more(said, from);
        if (ended)
            return false;
        if (said->length != before)
            heard = zr_clock_seconds();
        if (!open && said->room >= SAID_MOST) /* it talks without end */
            heard = 0;
    }
}

void zr_child_run(struct zr_child *c) {
    char self[4096], seed[32], count[32], budget[32], cards[32], library[4096], last[200] = "";
    char *argv[] = {self,
                    (char *)(uintptr_t) "selftest-worker",
                    (char *)(uintptr_t)c->program.name,
                    (char *)(uintptr_t) "--seed",
                    seed,
                    (char *)(uintptr_t) "--count",
                    count,
                    (char *)(uintptr_t) "--budget",
                    budget,
                    (char *)(uintptr_t) "--cards",
                    cards,
                    c->program.only ? (char *)(uintptr_t) "--only" : NULL,
                    (char *)(uintptr_t)c->program.only,
                    NULL};
    struct start start = {c, library};
    struct said said = {0};
    struct zr_program p = {.argv = argv, .own_group = true, .prepare = prepare, .data = &start};
    int out[2] = {-1, -1}, error;
    double began = zr_clock_seconds();
    bool hung = false;

    c->ending = ZR_FAILED;
    snprintf(seed, sizeof seed, "%" PRIu64, c->program.seed);
    snprintf(count, sizeof count, "%u", c->program.count);
    snprintf(budget, sizeof budget, "%" PRIu64, c->program.budget);
    snprintf(cards, sizeof cards, "%u", c->program.cards);
    zr_own_path(self, sizeof self);
    if (c->conf && !zr_find_file("libzeroute.so", library, sizeof library)) {
        snprintf(c->why, sizeof c->why, "libzeroute.so is not found beside the command or in ../lib/zeroute");
        return;
    }
    p.err = errors_open();
    error = p.err < 0 || pipe2(out, O_CLOEXEC | O_NONBLOCK) ? errno : 0;
    if (!error) {
        /* The worker's end waits where the pipe is full. */
        fcntl(out[1], F_SETFL, 0);
        p.out = out[1];
        error = zr_spawn(&p);
    }
    if (out[1] >= 0)
        close(out[1]);
    if (!error) {
        hung = follow(&p, c, &said, out[0]);
        take_more(&said, out[0]);
    }
    if (said.text)
        said.text[said.length] = '\0';
    take_lines(c, said.text);
    if (error)
        snprintf(c->why, sizeof c->why, "no worker: %s", strerror(error));
    else if (p.err >= 0)
        take_errors(c, p.err, last, sizeof last);
    if (!error)
        judge(c, &p, hung, last);
    free(said.text);
    if (out[0] >= 0)
        close(out[0]);
    if (p.err >= 0)
        close(p.err);
    c->seconds = zr_clock_seconds() - began;
}

void zr_child_free(struct zr_child *c) {
    for (size_t i = 0; i < c->count; i++)
        free(c->line[i]);
    free(c->line);
    c->line = NULL;
    c->count = 0;
}

/* What driver and runtime print themselves is passed over. */
const char *zr_child_step(const struct zr_child *c, char *out, size_t size) {
    size_t i = c->count;

    while (i && (c->line[i - 1][0] < '0' || c->line[i - 1][0] > '9') && strncmp(c->line[i - 1], "end:", 4) != 0)
        i--;
    if (!i) {
        snprintf(out, size, "its start");
    } else if (c->line[i - 1][0] == 'e') {
        snprintf(out, size, "its end");
    } else {
        const char *line = c->line[i - 1], *name = line + strspn(line, "0123456789 ");

        snprintf(out, size, "%.*s (operation %d)", (int)strcspn(name, ":"), name, atoi(line));
    }
    return out;
}
