/* Runs one worker in a fresh process and reads what it prints. */
#include "mirror/mirror.h"

#include "common/common.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

volatile sig_atomic_t zr_mirror_interrupted;
static volatile sig_atomic_t under_way; /* the worker */

static void interrupt(int signal_number) {
    zr_mirror_interrupted = signal_number;
    if (under_way)
        kill(under_way, SIGKILL);
}

void zr_mirror_catch(void) {
    struct sigaction act = {.sa_handler = interrupt};

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
}

/* The command itself, to be started again. Through an ld-linux that was called by hand the link names that instead. */
static void own_path(char *out, size_t size) {
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    const char *base;

    out[length < 0 ? 0 : length] = '\0';
    base = strrchr(out, '/');
    if (length < 0 || (base && !strncmp(base + 1, "ld-", 3)))
        snprintf(out, size, "%s", program_invocation_name);
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

static void start_worker(const struct zr_mirror_plan *plan, const char *library) {
    bool native = !strcmp(plan->route, "native");
    char self[4096], conf[256], share[8], cards[8], count[8], step[24], keep[24], kept[128];
    char *argv[] = {self, (char[]){"mirror-worker"}, (char *)(uintptr_t)plan->route, share, cards, count, step, keep,
                    NULL};

    own_path(self, sizeof self);
    snprintf(share, sizeof share, "%d", (int)plan->share);
    snprintf(cards, sizeof cards, "%u", plan->cards);
    snprintf(count, sizeof count, "%u", plan->count);
    snprintf(step, sizeof step, "%" PRIu64, plan->step);
    snprintf(keep, sizeof keep, "%" PRIu64, plan->keep);
    snprintf(conf, sizeof conf, "route:%s,cache:off,residency:%s,backing:%s",
             native || !strcmp(plan->route, "runtime") ? "native" : plan->route, plan->residency, plan->backing);
    setenv("ZEROUTE_CONF", conf, 1);
    unsetenv("ZEROUTE_CONF_FILE");
    set_variables(plan->variables);
    if (!native)
        limit_cards(plan->cards);
    if (!strcmp(plan->backing, "eager") && !zr_eager_environment(kept, sizeof kept))
        printf("stop backing:eager is not possible: %s is set already\n", zr_shown(kept));
    zr_preload_set(library);
    fflush(stdout);
    execv(self, argv);
    printf("stop cannot start %s: %s\n", zr_shown(self), strerror(errno));
    fflush(stdout);
    _exit(127);
}

static void take_line(struct zr_mirror_result *r, char *text) {
    text[strcspn(text, "\n")] = '\0';
    if (!strncmp(text, "stop ", 5)) {
        snprintf(r->stopped, sizeof r->stopped, "%.199s", text + 5);
    } else if (!strncmp(text, "data ", 5)) {
        snprintf(r->data, sizeof r->data, "%.31s", text + 5);
    } else if (!strncmp(text, "info ", 5)) {
        char *bar = strchr(text + 5, '|');

        if (bar) {
            *bar = '\0';
            snprintf(r->driver, sizeof r->driver, "%.63s", text + 5);
            snprintf(r->device, sizeof r->device, "%.95s", bar + 1);
        }
    } else if (r->count <= ZR_STEPS_MAX && zr_mirror_parse_step(text, &r->step[r->count])) {
        r->count++;
    }
}

void zr_mirror_measure(const struct zr_mirror_plan *plan, struct zr_mirror_result *result) {
    char library[4096], text[1024];
    int ends[2], status = 0;
    pid_t worker;
    FILE *from;

    memset(result, 0, sizeof *result);
    result->plan = *plan;
    snprintf(result->data, sizeof result->data, "unchecked");
    if (!zr_find_file("libzeroute.so", library, sizeof library)) {
        snprintf(result->stopped, sizeof result->stopped, "libzeroute.so is not found: %.150s", library);
        return;
    }
    fflush(stdout);
    if (pipe(ends) || (worker = fork()) < 0) {
        snprintf(result->stopped, sizeof result->stopped, "no worker: %s", strerror(errno));
        return;
    }
    if (!worker) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* device memory must not outlive us */
        close(ends[0]);
        dup2(ends[1], 1);
        close(ends[1]);
        start_worker(plan, library);
    }
    under_way = worker;
    if (zr_mirror_interrupted)
        kill(worker, SIGKILL); /* it came before we could know whom to end */
    close(ends[1]);
    from = fdopen(ends[0], "r");
    while (from && fgets(text, sizeof text, from))
        take_line(result, text);
    if (from)
        fclose(from);
    while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
        ;
    under_way = 0;
    if (zr_mirror_interrupted)
        snprintf(result->stopped, sizeof result->stopped, "interrupted");
    else if (WIFSIGNALED(status))
        snprintf(result->stopped, sizeof result->stopped, "the worker was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) && !*result->stopped)
        snprintf(result->stopped, sizeof result->stopped, "the worker ended with code %d", WEXITSTATUS(status));
    zr_mirror_judge(result);
}
