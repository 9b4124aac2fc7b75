/*
 * The runner. Each seed and each script runs in a child of fork: this process has the preload in it, but has never
 * called it, so that every child begins as a new process would, without the cost of one.
 */
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, MOST_LINES = 2000, MOST_SHRINKS = 600, RULES = 64, MOST_KINDS = 8 };

static struct options {
    const char *settings, *known;
    uint64_t first, seeds;
    unsigned slice, slices, lines;
    bool atomics, one, quiet, shrink, until_found;
    uint64_t also;    /* operations that are not left out, though they are known to fail */
    struct plan plan; /* what is left out */
} options = {.first = 1, .seeds = 100, .slices = 1, .lines = 40, .shrink = true};

static struct rule { /* of the list of what is known: this operation is left out under this setting */
    char operation[32], setting[160];
} rules[RULES];
static unsigned rule_count;
static const char *program;

/* --- a room: where records are written, and what the kernel tells ------------------------------------------------- */

static char room[64];

static void make_room(void) {
    char path[96];

    snprintf(room, sizeof room, "/dev/shm/turnstile.XXXXXX");
    if (!mkdtemp(room)) {
        fprintf(stderr, "%s: %s: %s\n", program, room, strerror(errno));
        exit(2);
    }
    snprintf(path, sizeof path, "%s/proc", room);
    mkdir(path, 0700);
    setenv("TURNSTILE_ROOM", room, 1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    return at->level ? remove(path) : 0;
}

static void clear(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Those of the children of fork, too. */
static void remove_records(void) {
    char path[sizeof room + 300];
    DIR *d = opendir(room);
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "record", 6) == 0) {
            snprintf(path, sizeof path, "%s/%s", room, e->d_name);
            unlink(path);
        }
    if (d)
        closedir(d);
}

static void clear_after(pid_t pid) {
    char path[96];

    remove_records();

    snprintf(path, sizeof path, "%s/proc/%d", room, pid);
    clear(path);
    rmdir(path);
}

static void remove_room(void) {
    clear(room);
    rmdir(room);
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

struct outcome {
    bool failed;
    char why[768];
};

static void become_quiet(void) {
    int fd = open("/dev/null", O_WRONLY);

    if (!getenv("TURNSTILE_LOUD") && fd >= 0)
        dup2(fd, 2);
    if (fd > 2)
        close(fd);
}

static bool wait_for(pid_t pid, int *status) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool ended = fd < 0 || poll(&p, 1, PATIENCE_MS) == 1;

    if (fd >= 0)
        close(fd);
    if (!ended)
        kill(pid, SIGKILL);
    waitpid(pid, status, 0);
    return ended;
}

static struct outcome run(void (*body)(const void *), const void *arg) {
    struct outcome o = {.failed = true};
    int status = 0;
    bool ended;
    pid_t pid;

    memset(ts_shared, 0, offsetof(struct ts_shared, step));
    ts_shared->ended = 0;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        become_quiet();
        body(arg);
    }
    ended = wait_for(pid, &status);
    clear_after(pid);
    if (!ended)
        snprintf(o.why, sizeof o.why, "it does not come to an end (%d s)", PATIENCE_MS / 1000);
    else if (ts_shared->violation[0])
        snprintf(o.why, sizeof o.why, "%s", ts_shared->violation);
    else if (WIFSIGNALED(status))
        snprintf(o.why, sizeof o.why, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (status || !ts_shared->ended)
        snprintf(o.why, sizeof o.why, "it ended with status 0x%x", (unsigned)status);
    else
        o.failed = false;
    return o;
}

static void run_plan_body(const void *plan) {
    run_plan(plan);
}

static void run_script_body(const void *script) {
    run_script(script);
}

/* --- what went wrong ---------------------------------------------------------------------------------------------- */

/* The text without its numbers: two findings with the same one are one finding. */
static const char *kind_of(const char *why, char *out, size_t size) {
    size_t n = 0;

    for (const char *at = why; *at && n + 1 < size; at++) {
        if ((*at >= '0' && *at <= '9') || *at == 'x' || (*at >= 'a' && *at <= 'f' && n && out[n - 1] == '#')) {
            if (!n || out[n - 1] != '#')
                out[n++] = '#';
        } else {
            out[n++] = *at;
        }
    }
    out[n] = '\0';
    return out;
}

static bool is_same_finding(const struct outcome *a, const struct outcome *b) {
    char first[768], second[768];

    return b->failed && strcmp(kind_of(a->why, first, sizeof first), kind_of(b->why, second, sizeof second)) == 0;
}

static bool is_atomic(const struct ts_step *s) {
    return s->place && strcmp(s->place, "at an atomic operation") == 0;
}

static void print_step(const struct ts_step *s, unsigned atomics) {
    char place[64];

    snprintf(place, sizeof place, "%s", s->place);
    if (atomics > 1)
        snprintf(place, sizeof place, "%u atomic operations", atomics);
    printf("    %6llu  t%d  %-34s", (unsigned long long)s->number, s->thread, place);
    if (s->subject)
        printf(" %#-16llx", (unsigned long long)s->subject);
    else
        printf(" %-16s", "");
    printf(" %s\n", s->operation);
}

/* The last ones; what one thread does by atomic operations in a row is one line. */
static void print_steps(void) {
    uint64_t last = ts_shared->steps, oldest = last > TS_STEPS - 2 ? last - TS_STEPS + 2 : 0, at = last + 1;
    const struct ts_step *line[MOST_LINES];
    unsigned atomics[MOST_LINES], lines = 0;

    while (at-- > oldest && lines < options.lines) {
        const struct ts_step *s = &ts_shared->step[at % TS_STEPS];

        if (s->number != at || !s->place)
            continue;
        if (lines && is_atomic(s) && is_atomic(line[lines - 1]) && line[lines - 1]->thread == s->thread) {
            atomics[lines - 1]++;
            continue;
        }
        line[lines] = s;
        atomics[lines++] = 1;
    }
    while (lines--)
        print_step(line[lines], atomics[lines]);
}

static void explain(const struct outcome *o) {
    printf("  %s\n  threads:\n", o->why);
    for (uint32_t i = 0; i < ts_shared->threads && i < TS_THREADS; i++)
        printf("    t%u  %-34s %-12s %s\n", i, ts_shared->thread[i].place ? ts_shared->thread[i].place : "",
               ts_shared->thread[i].state ? ts_shared->thread[i].state : "", ts_shared->thread[i].operation);
    printf("  the last steps:\n");
    print_steps();
}

/* --- shrinking ---------------------------------------------------------------------------------------------------- */

static unsigned shrinks;

/* Tries the smaller plan; keeps it if it fails in the same way. */
static bool try(struct plan *best, const struct plan *smaller, const struct outcome *wanted) {
    struct outcome o;

    if (shrinks++ > MOST_SHRINKS)
        return false;
    o = run(run_plan_body, smaller);
    if (!is_same_finding(wanted, &o))
        return false;
    *best = *smaller;
    return true;
}

static void shrink_threads(struct plan *p, const struct outcome *wanted) {
    for (unsigned t = 0; t < plan_threads(p); t++) {
        struct plan smaller = *p;

        smaller.threads_left_out |= 1u << t;
        if (smaller.threads_left_out != p->threads_left_out)
            try(p, &smaller, wanted);
    }
}

static void shrink_kinds(struct plan *p, const struct outcome *wanted) {
    for (unsigned k = 0; k < operation_count; k++) {
        struct plan smaller = *p;

        smaller.kinds_left_out |= UINT64_C(1) << k;
        if (smaller.kinds_left_out != p->kinds_left_out)
            try(p, &smaller, wanted);
    }
}

/* Leaves out runs of operations, long ones first. */
static bool shrink_operations(struct plan *p, const struct outcome *wanted) {
    bool any = false;

    for (unsigned length = 16; length; length /= 2)
        for (unsigned t = 0; t < plan_threads(p); t++)
            for (unsigned i = 0; i < plan_operations(p, t); i += length) {
                struct plan smaller = *p;
                uint64_t some = (UINT64_C(1) << length) - 1;

                if (p->threads_left_out >> t & 1)
                    break;
                smaller.left_out[t] |= some << i;
                if (smaller.left_out[t] != p->left_out[t])
                    any |= try(p, &smaller, wanted);
            }
    return any;
}

static struct plan shrink(const struct plan *failing, const struct outcome *wanted) {
    struct plan best = *failing;

    shrinks = 0;
    shrink_threads(&best, wanted);
    shrink_kinds(&best, wanted);
    while (shrink_operations(&best, wanted) && shrinks < MOST_SHRINKS)
        ;
    return best;
}

static void print_replay(const struct plan *p) {
    const char *separator = "";

    printf("  again: test/turnstile/run --setting %s --seed %llu%s", p->setting->name, (unsigned long long)p->seed,
           p->atomics ? " --atomics" : "");
    if (p->threads_left_out)
        printf(" --no-threads 0x%x", p->threads_left_out);
    if (p->kinds_left_out) {
        printf(" --without ");
        for (unsigned k = 0; k < operation_count; k++)
            if (p->kinds_left_out >> k & 1) {
                printf("%s%s", separator, operations[k].name);
                separator = ",";
            }
    }
    for (unsigned t = 0; t < MOST_THREADS; t++)
        if (p->left_out[t])
            printf(" --leave-out %u:0x%llx", t, (unsigned long long)p->left_out[t]);
    printf("\n");
}

static void report(const struct plan *p, const struct outcome *o) {
    struct plan small = options.shrink ? shrink(p, o) : *p;
    struct outcome again = run(run_plan_body, &small);

    printf("FAILED: setting %s (%s), seed %llu\n", p->setting->name, p->setting->conf, (unsigned long long)p->seed);
    if (!is_same_finding(o, &again))
        printf("  (it does not replay: %s)\n", again.failed ? again.why : "nothing was found this time");
    explain(again.failed ? &again : o);
    print_replay(&small);
    printf("\n");
}

/* --- seeds -------------------------------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_listed(const char *list, const char *name) {
    size_t length = strlen(name);

    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

static uint64_t known_to_fail(const struct setting *s) {
    uint64_t kinds = 0;

    for (unsigned r = 0; r < rule_count; r++)
        for (unsigned k = 0; k < operation_count; k++)
            if (strcmp(rules[r].operation, operations[k].name) == 0 && is_listed(rules[r].setting, s->name))
                kinds |= UINT64_C(1) << k;
    return kinds;
}

static bool is_known_to_fail(const struct setting *s) {
    for (unsigned r = 0; r < rule_count; r++)
        if (strcmp(rules[r].operation, "all") == 0 && is_listed(rules[r].setting, s->name))
            return true;
    return false;
}

/* Runs the seeds of this slice. Returns how many failed. */
static unsigned run_seeds(const struct setting *s) {
    struct outcome found[MOST_KINDS];
    unsigned kinds = 0, failed = 0;
    uint64_t steps = 0, calls = 0, ran = 0;
    double start = seconds(), spent;

    for (uint64_t i = options.slice; i < options.seeds; i += options.slices) {
        struct plan p = options.plan;
        struct outcome o;
        bool is_new = true;

        p.setting = s;
        p.seed = options.first + i;
        p.atomics = options.atomics;
        if (!options.one)
            p.kinds_left_out |= known_to_fail(s) & ~options.also;
        o = run(run_plan_body, &p);
        ran++;
        steps += ts_shared->steps;
        calls += ts_shared->calls;
        if (!o.failed)
            continue;
        failed++;
        if (options.until_found) {
            printf("found by seed %llu (%s): %s\n", (unsigned long long)p.seed, s->name, o.why);
            return failed;
        }
        for (unsigned k = 0; k < kinds; k++)
            is_new = is_new && !is_same_finding(&found[k], &o);
        if (!is_new || kinds == MOST_KINDS)
            continue;
        found[kinds++] = o;
        report(&p, &o);
    }
    spent = seconds() - start;
    if (!options.quiet || failed)
        printf("%-8s %8llu seeds %9llu steps %8llu driver calls %6.0f seeds/s %7.0f steps/s  %u failed\n", s->name,
               (unsigned long long)ran, (unsigned long long)steps, (unsigned long long)calls, (double)ran / spent,
               (double)steps / spent, failed);
    return failed;
}

/* --- scripts ------------------------------------------------------------------------------------------------------ */

/* Returns whether it is as expected: it passes, or it is known to fail and fails. */
static bool run_one_script(const char *path) {
    struct script s;
    struct outcome o;

    if (!script_read(&s, path)) {
        printf("FAILED: %s: %s\n", path, strerror(errno));
        return false;
    }
    o = run(run_script_body, &s);
    if (!o.failed && s.known[0]) {
        printf("FAILED: %s does not fail any more: remove its line 'known %s'\n", path, s.known);
        return false;
    }
    if (o.failed && s.known[0]) {
        printf("known:  %s: %s\n        (%s)\n", s.name, s.known, o.why);
        return true;
    }
    if (!o.failed) {
        printf("passed: %s\n", s.name);
        return true;
    }
    printf("FAILED: %s (%s)\n", path, s.conf);
    explain(&o);
    printf("  again: test/turnstile/run --script %s\n\n", path);
    return false;
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static void usage(void) {
    fprintf(stderr,
            "usage: %s [--setting NAME[,NAME...]] [--seeds N] [--from N] [--seed N] [--slice K/N] [--atomics]\n"
            "       [--known FILE] [--without OPERATION,...] [--no-threads MASK] [--leave-out THREAD:MASK]\n"
            "       [--no-shrink] [--until-found] [--also OPERATION,...] [--lines N] [--quiet] | --script FILE... | "
            "--list\n",
            program);
    exit(2);
}

static void list(void) {
    for (unsigned i = 0; i < setting_count; i++)
        printf("setting %-8s %s\n", settings[i].name, settings[i].conf);
    for (unsigned i = 0; i < operation_count; i++)
        printf("operation %s\n", operations[i].name);
    exit(0);
}

static void read_known(const char *path) {
    char line[256];
    FILE *in = fopen(path, "re");

    if (!in) {
        fprintf(stderr, "%s: %s: %s\n", program, path, strerror(errno));
        exit(2);
    }
    while (fgets(line, sizeof line, in))
        if (rule_count < RULES &&
            sscanf(line, "leave-out %31s %159s", rules[rule_count].operation, rules[rule_count].setting) == 2)
            rule_count++;
    fclose(in);
}

static uint64_t kinds_named(const char *names) {
    uint64_t kinds = 0;

    for (unsigned k = 0; k < operation_count; k++)
        if (is_listed(names, operations[k].name))
            kinds |= UINT64_C(1) << k;
    return kinds;
}

/* Returns false if it is no option without a value. */
static bool take_flag(const char *name) {
    if (strcmp(name, "--atomics") == 0)
        options.atomics = true;
    else if (strcmp(name, "--quiet") == 0)
        options.quiet = true;
    else if (strcmp(name, "--until-found") == 0)
        options.until_found = true;
    else if (strcmp(name, "--no-shrink") == 0)
        options.shrink = false;
    else if (strcmp(name, "--list") == 0)
        list();
    else
        return false;
    return true;
}

static void take_slice(const char *value) {
    if (sscanf(value, "%u/%u", &options.slice, &options.slices) != 2 || options.slice >= options.slices)
        usage();
}

static void take_lines(const char *value) {
    options.lines = (unsigned)strtoul(value, NULL, 0);
    if (options.lines > MOST_LINES)
        usage();
}

static void take_left_out(const char *value) {
    unsigned long long mask;
    unsigned thread;

    if (sscanf(value, "%u:%llx", &thread, &mask) != 2 || thread >= MOST_THREADS)
        usage();
    options.plan.left_out[thread] = mask;
}

static void take_value(const char *name, const char *value) {
    if (!value)
        usage();
    options.one |= strcmp(name, "--seed") == 0;
    if (strcmp(name, "--setting") == 0)
        options.settings = value;
    else if (strcmp(name, "--known") == 0)
        read_known(value);
    else if (strcmp(name, "--seeds") == 0)
        options.seeds = strtoull(value, NULL, 0);
    else if (strcmp(name, "--from") == 0 || strcmp(name, "--seed") == 0)
        options.first = strtoull(value, NULL, 0);
    else if (strcmp(name, "--lines") == 0)
        take_lines(value);
    else if (strcmp(name, "--slice") == 0)
        take_slice(value);
    else if (strcmp(name, "--without") == 0)
        options.plan.kinds_left_out = kinds_named(value);
    else if (strcmp(name, "--also") == 0)
        options.also = kinds_named(value);
    else if (strcmp(name, "--no-threads") == 0)
        options.plan.threads_left_out = (unsigned)strtoul(value, NULL, 0);
    else if (strcmp(name, "--also") == 0)
        options.also = kinds_named(value);
    else if (strcmp(name, "--no-threads") == 0)
        options.plan.threads_left_out = (unsigned)strtoul(value, NULL, 0);
    else if (strcmp(name, "--leave-out") == 0)
        take_left_out(value);
    else
        usage();
}

/* Addresses are the same each time. */
static void without_randomness(char **argv) {
    int persona = personality(0xffffffff);

    if (persona < 0 || persona & ADDR_NO_RANDOMIZE || personality((unsigned long)persona | ADDR_NO_RANDOMIZE) < 0)
        return;
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    unsigned failed = 0;
    int i = 1;

    program = argv[0];
    without_randomness(argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    ts_shared = mmap(NULL, sizeof *ts_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ts_shared == MAP_FAILED)
        return 2;
    make_room();
    if (argc > 1 && strcmp(argv[1], "--script") == 0) {
        for (i = 2; i < argc; i++)
            failed += !run_one_script(argv[i]);
        remove_room();
        return failed != 0;
    }
    for (; i < argc; i++)
        if (!take_flag(argv[i])) {
            take_value(argv[i], argv[i + 1]);
            i++;
        }
    if (options.one)
        options.seeds = 1;
    for (unsigned s = 0; s < setting_count; s++)
        if (options.settings ? is_listed(options.settings, settings[s].name) : !is_known_to_fail(&settings[s]))
            failed += run_seeds(&settings[s]);
    remove_room();
    return failed != 0;
}
