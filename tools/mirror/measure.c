/* Runs one worker in a fresh process and reads what it prints. */
#include "mirror/mirror.h"

#include "common/common.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_MS = 5000 };

volatile sig_atomic_t zr_mirror_interrupted;

static void interrupt(int signal_number) {
    zr_mirror_interrupted = signal_number;
}

void zr_mirror_catch(void) {
    struct sigaction act = {.sa_handler = interrupt};

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
}

/* "NAME=VALUE NAME=VALUE" into the environment. */
static void set_variables(const char *list) {
    char text[512], *rest = text, *one;

    if (!list)
        return;
    snprintf(text, sizeof text, "%s", list);
    while ((one = strsep(&rest, " "))) {
        char *value = strchr(one, '=');

        if (value) {
            *value++ = '\0';
            setenv(one, value, 1);
        }
    }
}

/* SYCL sees the first cards by this; Level Zero's route limits its context instead. */
static void limit_cards(unsigned cards) {
    char mask[256];
    size_t used = 0;

    *mask = '\0';
    for (unsigned i = 0; i < cards && used < sizeof mask - 16; i++)
        used += (size_t)sprintf(mask + used, "%s%u", i ? "," : "", i);
    setenv("ZE_AFFINITY_MASK", mask, 0);
}

struct worker {
    const struct zr_mirror_plan *plan;
    const char *library;
};

/* The worker's environment. What it cannot have is said in the worker's own words. */
static void prepare_worker(const void *data) {
    const struct worker *w = data;
    const struct zr_mirror_plan *plan = w->plan;
    bool native = !strcmp(plan->route, "native");
    char conf[256], kept[128], path[4096];

    snprintf(conf, sizeof conf, "route:%s,cache:off,residency:%s,backing:%s",
             native || !strcmp(plan->route, "runtime") ? "native" : plan->route, plan->residency, plan->backing);
    setenv("ZEROUTE_CONF", conf, 1);
    unsetenv("ZEROUTE_CONF_FILE");
    set_variables(plan->variables);
    if (plan->runtime && *plan->runtime) {
        const char *old = getenv("LD_LIBRARY_PATH");

        snprintf(path, sizeof path, "%s%s%s", plan->runtime, old && *old ? ":" : "", old ? old : "");
        setenv("LD_LIBRARY_PATH", path, 1);
    }
    if (!native)
        limit_cards(plan->cards);
    if (!strcmp(plan->backing, "eager") && !zr_eager_environment(kept, sizeof kept))
        printf("stop backing:eager is not possible: %s is set already\n", zr_shown(kept));
    zr_preload_set(w->library);
    fflush(stdout);
}

/* Starts `zeroute mirror-worker` with its output in this descriptor. Returns as zr_spawn. */
static int start_worker(const struct worker *w, struct zr_program *program, int out) {
    const struct zr_mirror_plan *plan = w->plan;
    char self[4096], share[8], cards[8], count[8], step[24], keep[24];
    char *argv[] = {self, (char[]){"mirror-worker"}, (char *)(uintptr_t)plan->route, share, cards, count, step, keep,
                    NULL};

    zr_own_path(self, sizeof self);
    snprintf(share, sizeof share, "%d", (int)plan->share);
    snprintf(cards, sizeof cards, "%u", plan->cards);
    snprintf(count, sizeof count, "%u", plan->count);
    snprintf(step, sizeof step, "%" PRIu64, plan->step);
    snprintf(keep, sizeof keep, "%" PRIu64, plan->keep);
    *program = (struct zr_program){.argv = argv, .own_group = true, .out = out, .prepare = prepare_worker, .data = w};
    int error = zr_spawn(program);
    program->argv = NULL; /* ours ends here */
    return error;
}

static void take_line(struct zr_mirror_result *r, char *text) {
    text[strcspn(text, "\n")] = '\0';
    if (!strncmp(text, "stop ", 5)) {
        snprintf(r->stopped, sizeof r->stopped, "%.199s", text + 5);
    } else if (!strncmp(text, "data ", 5)) {
        snprintf(r->data, sizeof r->data, "%.31s", text + 5);
    } else if (!strncmp(text, "info ", 5)) {
        char *bar = strchr(text + 5, '|'), *vram = strrchr(text + 5, '|');

        if (bar && vram != bar) {
            r->vram = strtoull(vram + 1, NULL, 10);
            *bar = *vram = '\0';
            snprintf(r->driver, sizeof r->driver, "%.63s", text + 5);
            snprintf(r->device, sizeof r->device, "%.95s", bar + 1);
        }
    } else if (r->count <= ZR_STEPS_MAX && zr_mirror_parse_step(text, &r->step[r->count])) {
        r->count++;
    }
}

/* Steps that the worker has printed so far, without the baseline. It still writes: its place in the file is left. */
static unsigned steps_so_far(int out) {
    char text[8192];
    ssize_t n = pread(out, text, sizeof text - 1, 0);
    unsigned steps = 0;

    text[n < 0 ? 0 : n] = '\0';
    for (const char *line = text; (line = strstr(line, "step ")); line += 5)
        steps += line == text || line[-1] == '\n';
    return steps ? steps - 1 : 0;
}

/* Shows on a terminal how far it is: a step of 2 GiB takes its time. As zr_spawn_wait. */
static bool wait_for_worker(struct zr_program *program, const struct zr_mirror_plan *plan, int out) {
    enum { EVERY_MS = 200 };
    char done[ZR_TEXT_SIZE], all[ZR_TEXT_SIZE];
    bool ended;

    if (plan->seconds || !isatty(STDERR_FILENO))
        return zr_spawn_wait(program, plan->seconds ? (int)plan->seconds * 1000 : -1, -1);
    do {
        unsigned steps = steps_so_far(out);
        fprintf(stderr, "\r\033[K%s%s%u card%s, step %u of %u: %s of %s", plan->label, *plan->label ? ", " : "",
                plan->cards, plan->cards == 1 ? "" : "s", steps, plan->count, zr_text_bytes(done, steps * plan->step),
                zr_text_bytes(all, plan->count * plan->step));
        ended = zr_spawn_wait(program, EVERY_MS, -1);
    } while (!ended && !program->asked_to_end);
    fputs("\r\033[K", stderr);
    return ended;
}

void zr_mirror_measure(const struct zr_mirror_plan *plan, struct zr_mirror_result *result) {
    char library[4096], text[1024];
    struct worker worker = {plan, library};
    struct zr_program program;
    bool hung = false;
    int error, status, out = memfd_create("zeroute-mirror-worker", MFD_CLOEXEC);
    FILE *said = out < 0 ? NULL : fdopen(out, "r");

    memset(result, 0, sizeof *result);
    result->plan = *plan;
    result->vram = ZR_ABSENT;
    snprintf(result->data, sizeof result->data, "unchecked");
    if (!zr_find_file("libzeroute.so", library, sizeof library)) {
        snprintf(result->stopped, sizeof result->stopped, "libzeroute.so is not found: %.150s", library);
        return;
    }
    error = said ? start_worker(&worker, &program, out) : errno;
    if (error) {
        snprintf(result->stopped, sizeof result->stopped, "no worker: %s", strerror(error));
        return;
    }
    if (!wait_for_worker(&program, plan, out)) {
        hung = !program.asked_to_end;
        zr_spawn_end_within(&program, END_MS);
    }
    if (program.asked_to_end && !hung)
        zr_mirror_interrupted = program.asked_to_end;
    rewind(said);
    while (fgets(text, sizeof text, said))
        take_line(result, text);
    fclose(said);
    status = program.status;
    if (zr_mirror_interrupted)
        snprintf(result->stopped, sizeof result->stopped, "interrupted");
    else if (hung)
        snprintf(result->stopped, sizeof result->stopped, "no end after %u s", plan->seconds);
    else if (WIFSIGNALED(status))
        snprintf(result->stopped, sizeof result->stopped, "the worker was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) && !*result->stopped)
        snprintf(result->stopped, sizeof result->stopped, "the worker ended with code %d", WEXITSTATUS(status));
    zr_mirror_judge(result);
}
