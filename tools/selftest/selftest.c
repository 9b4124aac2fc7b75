/* zeroute selftest: whether zeroute holds on this machine, with its driver, cards and SYCL runtime. */
#include "selftest/selftest.h"

#include "view/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    QUICK = ZR_LONG,
    WHOLE,
    CARDS,
    PYTHON,
    BUDGET,
    BEYOND,
    FORCE,
    SEED,
    SEEDS,
    COUNT,
    SETTINGS,
    ONLY,
    TIME,
    PATIENCE,
    SIM,
    JSON,
    HTML
};
enum { QUICK_SECONDS = 60, DEFAULT_SECONDS = 120, LONG_SECONDS = 1800, PATIENCE_SECONDS = 15, AGAIN = 2 };

static const struct zr_option option_table[] = {
    {QUICK, "quick", NULL, "some seconds: one seed, the presets, no figures but the mirror's"},
    {WHOLE, "long", NULL, "up to half an hour: many seeds"},
    {CARDS, "cards", "LIST", "these cards alone, such as 0 or 0,2 (default: all that no other process uses)"},
    {PYTHON, "python", "PROGRAM", "the SYCL runtime of this Python (default: the active one's, or /opt/intel's)"},
    {BUDGET, "budget", "SIZE",
     "what a test may allocate (default: 1GiB, or 5 % of the smallest card or of host memory if that is less)"},
    {BEYOND, "overcommit", "SIZE",
     "with --long: fill the first card and ask for so much more than it has, to see whether that is refused or spills "
     "into host memory"},
    {FORCE, "force", NULL, "test cards that other processes use"},
    {SEED, "seed", "N", "begin with this seed (default: another one each time)"},
    {SEEDS, "seeds", "N", "seeds to try (default 3; --quick 1, --long 40)"},
    {COUNT, "count", "N", "operations of a program (default 400; --quick 250)"},
    {SETTINGS, "settings", "LIST", "these settings alone, such as reroute,safe; without figures"},
    {ONLY, "only", "LIST", "these operations of the program alone, such as 3-5,9"},
    {TIME, "time", "SECONDS", "how long it may take in all (default 120; --quick 60, --long 1800)"},
    {PATIENCE, "patience", "SECONDS", "how long a step may be silent before it counts as hanging (default 15)"},
    {SIM, "sim", "[SPEC]", "test a simulated GPU (SPEC as for ZE_SIMGPU)"},
    {JSON, "json", NULL, "print everything as JSON"},
    {HTML, "html", "FILE", "write the page to this file, too"},
    {0},
};

static const struct zr_command command = {
    .name = "selftest",
    .usage = "zeroute selftest [OPTIONS]",
    .about =
        "Runs random programs on the driver, cards and SYCL runtime of this machine, alone and under every preset, "
        "and compares each answer and every byte. Then it measures what people ask for: host memory per byte of "
        "device memory, the cost of an allocation, whether free memory is told truly. Two minutes at most.",
    .options = option_table,
    .one_of = "quick|long",
    .notes = "Harmless: it needs no root, allocates within its budget, leaves alone the cards that another process "
             "uses, and runs everything in processes that are ended if they hang.\n"
             "\n"
             "The page is made to be shared: it says what it contains, and names no host, user or path.\n"
             "\n"
             "Exit code: 0 all agrees, 1 something differs or is wrong, 2 an error or wrong usage, 3 nothing could be "
             "tested.\n",
    .examples = "zeroute selftest                             # two minutes at most\n"
                "zeroute selftest --quick                     # some seconds\n"
                "zeroute selftest --html page.html            # for an issue report\n"
                "zeroute selftest --settings reroute --seed 7 # one seed again\n"
                "zeroute selftest --sim=devices:2 --quick     # without a GPU\n",
};

const struct zr_selftest_setting zr_selftest_settings[] = {
#define ZR_SELFTEST(name, conf, level_zero, sycl, quick, what) {#name, conf, what, level_zero, sycl, quick},
#include "selftest/settings.def"
#undef ZR_SELFTEST
};
const unsigned zr_selftest_setting_count = sizeof zr_selftest_settings / sizeof *zr_selftest_settings;

/* --- options --------------------------------------------------------------------------------- */

/* Whether a name is in "a,b,c". */
static bool is_named(const char *list, const char *name) {
    size_t n = strlen(name);

    while (list && *list) {
        size_t length = strcspn(list, ",");

        if (length == n && strncmp(list, name, n) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static bool are_settings(const char *list) {
    while (*list) {
        size_t n = strcspn(list, ",");
        bool found = false;

        for (unsigned i = 0; i < zr_selftest_setting_count; i++)
            found |= strlen(zr_selftest_settings[i].name) == n && !strncmp(zr_selftest_settings[i].name, list, n);
        if (!found)
            return false;
        list += n + (list[n] == ',');
    }
    return true;
}

static bool take_number(const struct zr_option *option, const char *value, uint64_t most, unsigned *out) {
    uint64_t n;

    if (!zr_option_number(&command, option, value, 1, most, &n))
        return false;
    *out = (unsigned)n;
    return true;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct zr_selftest_options *o = to;

    switch (option->id) {
    case CARDS:
        o->cards = value;
        return (*value && !value[strspn(value, "0123456789,")]) ||
               zr_option_bad(&command, option, value, "numbers of cards, such as 0,2");
    case PYTHON:
        o->python = value;
        return true;
    case BUDGET:
        return zr_option_bytes(&command, option, value, &o->budget) &&
               (o->budget >= UINT64_C(16) << 20 || zr_option_bad(&command, option, value, "16MiB at least"));
    case BEYOND:
        return zr_option_bytes(&command, option, value, &o->beyond) &&
               (o->beyond >= UINT64_C(64) << 20 || zr_option_bad(&command, option, value, "64MiB at least"));
    case SEED:
        o->seed_set = true;
        return zr_option_number(&command, option, value, 0, INT64_MAX, &o->seed);
    case SEEDS:
        return take_number(option, value, 1000000, &o->seeds);
    case COUNT:
        return take_number(option, value, 100000, &o->count);
    case TIME:
        return take_number(option, value, 1000000, &o->seconds);
    case PATIENCE:
        return take_number(option, value, 3600, &o->patience);
    case SETTINGS:
        o->settings = value;
        return are_settings(value) || zr_option_bad(&command, option, value, "names as the page lists them");
    case ONLY:
        o->only = value;
        return !value[strspn(value, "0123456789,-")] ||
               zr_option_bad(&command, option, value, "numbers of operations, such as 3-5,9");
    case SIM:
        o->sim = true;
        o->sim_spec = value;
        return true;
    case HTML:
        o->html = value;
        return true;
    default:
        *(option->id == QUICK   ? &o->quick
          : option->id == WHOLE ? &o->whole
          : option->id == FORCE ? &o->force
                                : &o->json) = true;
        return true;
    }
}

/* What was not said. */
static void complete(struct zr_selftest_options *o) {
    uint32_t random = 0;

    if (!o->seeds)
        o->seeds = o->quick ? 1 : o->whole ? 40 : 3;
    if (!o->count)
        o->count = o->quick ? 250 : 400;
    if (!o->patience)
        o->patience = PATIENCE_SECONDS;
    if (!o->seconds)
        o->seconds = o->quick ? QUICK_SECONDS : o->whole ? LONG_SECONDS : DEFAULT_SECONDS;
    if (!o->seed_set && getrandom(&random, sizeof random, 0) == sizeof random)
        o->seed = random % 1000000;
}

/* --- what the parts share --------------------------------------------------------------------- */

void zr_selftest_note(struct zr_selftest *t, const char *format, ...) {
    va_list args;

    if (t->note_count == sizeof t->note / sizeof *t->note)
        return;
    va_start(args, format);
    vsnprintf(t->note[t->note_count++], sizeof *t->note, format, args);
    va_end(args);
}

bool zr_selftest_late(struct zr_selftest *t) {
    if (zr_clock_seconds() - t->began - t->hung > t->options.seconds)
        t->time_over = true;
    return t->time_over || t->interrupted;
}

struct zr_child zr_selftest_child(const struct zr_selftest *t, const char *program, const char *conf) {
    return (struct zr_child){
        .program = {.name = program,
                    .count = t->options.count,
                    .only = t->options.only,
                    .budget = t->budget - t->budget / 8, /* the rest is what driver and allocators round up */
                    .cards = t->cards},
        .conf = conf,
        .mask = *t->mask ? t->mask : NULL,
        .runtime = t->runtime_folder,
        .deadline_ms = t->options.patience * 1000,
    };
}

/* The command that repeats it. */
static void say_again(struct zr_selftest_finding *f, const struct zr_selftest *t, const struct zr_child *c) {
    const struct zr_selftest_options *o = &t->options;
    bool compared = strcmp(c->program.name, "calls") == 0 || strcmp(c->program.name, "sycl") == 0;
    char setting[48] = "", budget[40] = "";

    if (strcmp(c->program.name, "beyond") == 0) {
        snprintf(f->again, sizeof f->again, "zeroute selftest --long --seeds 1 --overcommit %" PRIu64, o->beyond);
        return;
    }
    if (!compared) {
        snprintf(f->again, sizeof f->again, "zeroute selftest%s", o->quick ? " --quick" : "");
        return;
    }
    if (*f->setting)
        snprintf(setting, sizeof setting, " --settings %.31s", f->setting);
    if (o->budget)
        snprintf(budget, sizeof budget, " --budget %" PRIu64, o->budget);
    snprintf(f->again, sizeof f->again, "zeroute selftest --seed %" PRIu64 " --seeds 1 --count %u%s%s%.60s%s",
             c->program.seed, c->program.count, setting, o->cards ? " --cards " : "", o->cards ? o->cards : "", budget);
}

struct zr_selftest_finding *zr_selftest_finds(struct zr_selftest *t, const struct zr_child *c, const char *setting,
                                              const char *format, ...) {
    struct zr_selftest_finding *f;
    va_list args;

    if (t->finding_count == ZR_SELFTEST_FINDINGS) {
        t->findings_left_out++;
        return NULL;
    }
    f = &t->finding[t->finding_count++];
    *f = (struct zr_selftest_finding){.seed = c->program.seed, .runs = 1, .of = 1};
    snprintf(f->program, sizeof f->program, "%s", c->program.name);
    snprintf(f->setting, sizeof f->setting, "%s", setting ? setting : "");
    va_start(args, format);
    vsnprintf(f->what, sizeof f->what, format, args);
    va_end(args);
    say_again(f, t, c);
    return f;
}

static void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void progress(const char *format, ...) {
    va_list args;

    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

/* --- what there is to test -------------------------------------------------------------------- */

static void take_card(struct zr_selftest *t, const char *line) {
    struct zr_selftest_card *card = &t->card[t->card_count];
    int at = 0;

    if (t->card_count == ZR_SELFTEST_CARDS ||
        sscanf(line, "card %31s %" SCNu64 " %n", card->pdev, &card->vram, &at) < 2 || !at)
        return;
    snprintf(card->name, sizeof card->name, "%s", zr_shown(line + at));
    t->card_count++;
}

/* Asks the driver which cards there are. Returns false if nothing can be tested: then a note says why. */
static bool probe(struct zr_selftest *t) {
    struct zr_child c = zr_selftest_child(t, "cards", NULL);

    zr_child_run(&c);
    for (size_t i = 0; i < c.count; i++) {
        if (strncmp(c.line[i], "driver ", 7) == 0)
            snprintf(t->driver, sizeof t->driver, "%s", zr_shown(c.line[i] + 7));
        take_card(t, c.line[i]);
    }
    if (c.ending == ZR_HUNG || c.ending == ZR_DIED || c.ending == ZR_FAILED)
        zr_selftest_finds(t, &c, NULL, "the driver starts: %s", c.why);
    else if (c.ending == ZR_INTERRUPTED)
        t->interrupted = true;
    else if (!t->card_count)
        zr_selftest_note(t, "Nothing can be tested: %s.", c.why);
    zr_child_free(&c);
    return t->card_count > 0;
}

/* Which cards other processes use. Those whose address the driver does not tell are used if any is. */
static void find_users(struct zr_selftest *t) {
    const struct zr_scope scope = {.all_at_once = true};
    struct zr_view *view = zr_view_new(&scope);

    if (!view || !zr_view_sample(view)) {
        zr_selftest_note(t, "Which processes use a card could not be found out.");
        zr_view_free(view);
        return;
    }
    for (unsigned i = 0; i < t->card_count; i++) {
        struct zr_selftest_card *card = &t->card[i];
        bool known = false;
        uint64_t all = 0;

        for (unsigned k = 0; k < view->card_count; k++) {
            uint64_t bytes = view->card[k].ours + view->card[k].others;

            all += bytes;
            if (strcmp(view->card[k].pdev, card->pdev) == 0) {
                known = true;
                card->used_bytes = bytes;
            }
        }
        if (!known)
            card->used_bytes = all;
        card->used = card->used_bytes > 0;
    }
    zr_view_free(view);
}

/* The n-th word of "3,0,1"; "" if there is none. */
static void nth_of(const char *list, unsigned n, char *out, size_t size) {
    while (n-- && *list) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
}

/* Chooses the cards, and writes ZE_AFFINITY_MASK for the workers, within a mask that the user has set. */
static void choose(struct zr_selftest *t) {
    const char *old = getenv("ZE_AFFINITY_MASK");
    size_t used = 0;

    for (unsigned i = 0; i < t->card_count; i++) {
        char number[16], name[32] = "";

        snprintf(number, sizeof number, "%u", i);
        if ((t->options.cards && !is_named(t->options.cards, number)) || (t->card[i].used && !t->options.force))
            continue;
        if (old && *old)
            nth_of(old, i, name, sizeof name);
        if (used < sizeof t->mask - 40)
            used +=
                (size_t)snprintf(t->mask + used, sizeof t->mask - used, "%s%s", used ? "," : "", *name ? name : number);
        t->cards++;
    }
    if (t->cards == t->card_count)
        *t->mask = '\0';
}

/* 1 GiB, or 5 % of the smallest card and of the host. */
static void find_budget(struct zr_selftest *t) {
    uint64_t budget = UINT64_C(1) << 30;
    struct zr_meminfo host;

    t->host = ZR_ABSENT;
    if (zr_meminfo_read(&host)) {
        t->host = host.total;
        budget = host.total / 20 < budget ? host.total / 20 : budget;
    }
    for (unsigned i = 0; i < t->card_count; i++) {
        if (t->card[i].vram && t->card[i].vram / 20 < budget)
            budget = t->card[i].vram / 20;
    }
    t->budget = t->options.budget ? t->options.budget : budget;
}

static void find_versions(struct zr_selftest *t) {
    struct zr_selftest_state now;
    struct utsname name;
    time_t clock = time(NULL);
    struct tm tm;

    if (uname(&name) == 0)
        snprintf(t->kernel, sizeof t->kernel, "%s", zr_shown(name.release));
    if (gmtime_r(&clock, &tm))
        strftime(t->when, sizeof t->when, "%Y-%m-%d", &tm);
    zr_selftest_state_now(&now);
    snprintf(t->loader, sizeof t->loader, "%s", now.loader);
    if (!t->options.sim)
        zr_selftest_find_runtime(t->options.python, t->runtime_folder, sizeof t->runtime_folder, t->runtime,
                                 sizeof t->runtime);
}

/* Returns false if there is nothing to test. */
static bool prepare(struct zr_selftest *t) {
    find_versions(t);
    t->budget = UINT64_C(16) << 20;
    if (!probe(t))
        return false;
    if (!t->options.sim)
        find_users(t);
    choose(t);
    find_budget(t);
    for (unsigned i = 0; i < t->card_count; i++) {
        char bytes[ZR_TEXT_SIZE];

        if (t->card[i].used && !t->options.force)
            zr_selftest_note(t, "Card %u is used by another process (%s) and was left alone; --force tests it.", i,
                             zr_text_bytes(bytes, t->card[i].used_bytes));
    }
    if (!t->cards)
        zr_selftest_note(t, "No card is left to be tested.");
    return t->cards > 0;
}

/* --- comparing -------------------------------------------------------------------------------- */

static struct zr_selftest_row *row_of(struct zr_selftest *t, const char *program,
                                      const struct zr_selftest_setting *setting) {
    for (unsigned i = 0; i < t->row_count; i++) {
        if (t->row[i].setting == setting && strcmp(t->row[i].program, program) == 0)
            return &t->row[i];
    }
    t->row[t->row_count] = (struct zr_selftest_row){.program = program, .setting = setting};
    return &t->row[t->row_count++];
}

/* What happens without zeroute is not its doing, and is worth knowing. Returns false if nothing can be compared. */
static bool reference_is_good(struct zr_selftest *t, const struct zr_child *alone) {
    const char *below = strcmp(alone->program.name, "sycl") ? "the driver" : "the SYCL runtime";
    struct zr_selftest_finding *f = NULL;
    const char *what;
    size_t at;

    if (alone->ending == ZR_INTERRUPTED) {
        t->interrupted = true;
        return false;
    }
    if (alone->ending == ZR_CANNOT) {
        if (strncmp(alone->why, "no SYCL", 7) != 0) /* the page says that anyhow */
            zr_selftest_note(t, "%s: %s.", strcmp(alone->program.name, "sycl") ? "Level Zero" : "SYCL", alone->why);
        return false;
    }
    what = zr_contradiction(alone, &at);
    if (what) {
        f = zr_selftest_finds(t, alone, NULL, "%s alone: %s", below, what);
        if (f)
            zr_without_paths(f->alone, sizeof f->alone, alone->line[at]);
    }
    if (alone->ending != ZR_ENDED)
        zr_selftest_finds(t, alone, NULL, "%s alone: %s", below, alone->why);
    return alone->ending == ZR_ENDED;
}

static void show_line(struct zr_selftest_finding *f, const struct zr_child *alone, const struct zr_child *under,
                      size_t at) {
    if (!f)
        return;
    zr_without_paths(f->alone, sizeof f->alone, at < alone->count ? alone->line[at] : "(nothing)");
    zr_without_paths(f->under, sizeof f->under, at < under->count ? under->line[at] : "(nothing)");
}

/*
 * A run that differed is made again, and the driver alone as well: where that does not agree with itself, nothing is
 * said about the setting. Returns how many of `of` runs differ; 0: the driver alone varies.
 */
static unsigned confirm(struct zr_selftest *t, const char *setting, const struct zr_child *alone,
                        const struct zr_child *under, unsigned *of) {
    unsigned differing = 1;

    *of = 1;
    for (unsigned i = 0; i < AGAIN && !t->interrupted; i++) {
        struct zr_child a = zr_selftest_child(t, alone->program.name, NULL);
        struct zr_child u = zr_selftest_child(t, alone->program.name, under->conf);
        const char *reason;
        bool varies;
        size_t at;

        a.program.seed = u.program.seed = alone->program.seed;
        zr_child_run(&a);
        zr_child_run(&u);
        t->interrupted |= a.ending == ZR_INTERRUPTED || u.ending == ZR_INTERRUPTED;
        varies = a.ending != ZR_ENDED || zr_compare("", alone, &a, &at, &reason) == ZR_DIFFERS;
        differing += u.ending != ZR_ENDED || zr_compare(setting, alone, &u, &at, &reason) == ZR_DIFFERS;
        ++*of;
        zr_child_free(&a);
        zr_child_free(&u);
        if (varies)
            return 0;
    }
    return differing;
}

static void compare_one(struct zr_selftest *t, struct zr_selftest_row *row, const struct zr_child *alone) {
    struct zr_child under = zr_selftest_child(t, alone->program.name, row->setting->conf);
    struct zr_selftest_finding *f = NULL;
    const char *reason = NULL;
    unsigned differing, of;
    size_t at = 0;

    under.program.seed = alone->program.seed;
    zr_child_run(&under);
    if (under.ending == ZR_INTERRUPTED) {
        t->interrupted = true;
        zr_child_free(&under);
        return;
    }
    row->runs++;
    if (under.ending != ZR_ENDED) {
        row->ended_badly++;
        if (under.ending == ZR_HUNG)
            t->hung += under.seconds;
        zr_selftest_finds(t, &under, row->setting->name, "under %s: %s", row->setting->name, under.why);
    } else if (!under.preloaded) {
        row->ended_badly++;
        zr_selftest_finds(t, &under, row->setting->name, "under %s: libzeroute.so was not loaded into the program",
                          row->setting->name);
    } else {
        switch (zr_compare(row->setting->name, alone, &under, &at, &reason)) {
        case ZR_SAME:
            row->same++;
            break;
        case ZR_SAME_BUT_KNOWN:
            row->known++;
            row->reason = reason;
            break;
        case ZR_DIFFERS:
            differing = confirm(t, row->setting->name, alone, &under, &of);
            if (!differing) {
                zr_selftest_note(t, "The driver alone answers seed %" PRIu64 " differently each time: not compared.",
                                 alone->program.seed);
                row->runs--;
                break;
            }
            row->differing++;
            f = zr_selftest_finds(t, &under, row->setting->name, "under %s: another answer than without",
                                  row->setting->name);
            show_line(f, alone, &under, at);
            if (f) {
                f->runs = differing;
                f->of = of;
            }
            break;
        }
    }
    zr_child_free(&under);
}

static bool wanted(const struct zr_selftest *t, const struct zr_selftest_setting *s, bool sycl) {
    if (sycl ? !s->sycl : !s->level_zero)
        return false;
    if (t->options.settings)
        return is_named(t->options.settings, s->name);
    return !t->options.quick || s->quick;
}

/* One seed on the driver alone and under each setting. Returns false if nothing can be compared. */
static bool compare_seed(struct zr_selftest *t, const char *program, uint64_t seed) {
    struct zr_child alone = zr_selftest_child(t, program, NULL);
    bool sycl = strcmp(program, "sycl") == 0, good;

    progress("%s, seed %" PRIu64 ", the driver alone", program, seed);
    alone.program.seed = seed;
    zr_child_run(&alone);
    good = reference_is_good(t, &alone);
    for (unsigned i = 0; i < zr_selftest_setting_count && good && !zr_selftest_late(t); i++) {
        const struct zr_selftest_setting *s = &zr_selftest_settings[i];

        if (!wanted(t, s, sycl))
            continue;
        progress("%s, seed %" PRIu64 ", %s", program, seed, s->name);
        compare_one(t, row_of(t, program, s), &alone);
    }
    if (alone.ending == ZR_HUNG) /* the rest has its time all the same */
        t->hung += alone.seconds;
    good = good || (alone.ending != ZR_CANNOT && alone.ending != ZR_HUNG);
    zr_child_free(&alone);
    return good;
}

/* A program that somebody has started meanwhile has the card for itself. */
static bool still_unused(struct zr_selftest *t) {
    bool chosen[ZR_SELFTEST_CARDS];

    if (t->options.force || t->options.sim)
        return true;
    for (unsigned i = 0; i < t->card_count; i++)
        chosen[i] = !t->card[i].used;
    find_users(t);
    for (unsigned i = 0; i < t->card_count; i++) {
        if (!chosen[i] || !t->card[i].used)
            continue;
        zr_selftest_note(t, "Another process began to use card %u: the test ended there.", i);
        t->interrupted = true;
    }
    return !t->interrupted;
}

/* A call that is made to fail under the preload must show: what agrees was compared with the preload in the way. */
static void check_hooks(struct zr_selftest *t) {
    struct zr_child c = zr_selftest_child(t, "cost", "route:native,cache:off,inject:zeMemAllocDevice@1=0x78000004");

    zr_child_run(&c);
    if (c.ending == ZR_ENDED || (c.ending == ZR_CANNOT && !strstr(c.why, "0x78000004")))
        zr_selftest_finds(t, &c, "observe", "a call that was made to fail did not: zeroute does not see the calls");
    zr_child_free(&c);
}

/* Seed after seed, so that each setting has had its turn when the time is over. */
static void compare(struct zr_selftest *t) {
    bool calls = true, sycl = !t->options.sim;

    check_hooks(t);
    t->first_seed = t->options.seed;
    t->seeds_asked = t->options.seeds;
    for (unsigned i = 0; i < t->options.seeds && (calls || sycl) && !zr_selftest_late(t) && still_unused(t); i++) {
        calls = calls && compare_seed(t, "calls", t->first_seed + i);
        t->seeds_done[0] += calls;
        if (!sycl || zr_selftest_late(t))
            continue;
        sycl = compare_seed(t, "sycl", t->first_seed + i);
        t->seeds_done[1] += sycl;
    }
}

/* --- the command ------------------------------------------------------------------------------ */

bool zr_selftest_agrees(const struct zr_selftest *t) {
    return !t->finding_count;
}

static int code_of(const struct zr_selftest *t) {
    if (!zr_selftest_agrees(t))
        return ZR_EXIT_FINDING;
    return t->row_count ? ZR_EXIT_DONE : ZR_EXIT_NO_VERDICT;
}

static bool write_html(const struct zr_selftest *t) {
    struct zr_publish p;
    FILE *to;

    if (!t->options.html)
        return true;
    to = zr_publish_open(&p, command.name, t->options.html);
    if (!to)
        return false;
    zr_selftest_html(to, t);
    return zr_publish_close(&p, true);
}

static int run(struct zr_selftest *t) {
    bool written;

    t->began = zr_clock_seconds();
    if (prepare(t) && !t->interrupted) {
        compare(t);
        if (!t->options.settings && !t->options.only && !t->interrupted)
            zr_selftest_measure(t);
    }
    progress("%s", "");
    t->seconds = zr_clock_seconds() - t->began;
    if (t->options.json)
        zr_selftest_json(stdout, t);
    else
        zr_selftest_page(stdout, t);
    written = write_html(t);
    if (t->row_count && !t->options.sim && !t->options.settings && !t->interrupted) {
        struct zr_selftest_state now;

        zr_selftest_state_now(&now);
        zr_selftest_state_write(&now);
    }
    return written ? code_of(t) : ZR_EXIT_ERROR;
}

int zr_cmd_selftest(int argc, char **argv) {
    struct zr_selftest *t = calloc(1, sizeof *t);
    const char *preload = getenv("LD_PRELOAD");
    char root[512] = "";
    int at, code;

    if (!t || !zr_options(&command, argc, argv, take, &t->options, &at)) {
        code = t ? at : ZR_EXIT_ERROR;
        free(t);
        return code;
    }
    if (t->options.beyond && !t->options.whole)
        code = zr_wrong(&command, "--overcommit needs --long");
    else if (preload && strstr(preload, "libzeroute.so"))
        code = zr_wrong(&command, "LD_PRELOAD holds libzeroute.so already: unset it");
    else if ((t->options.html && !zr_publish_possible(command.name, t->options.html)) ||
             (t->options.sim &&
              !zr_simulate(command.name, t->options.sim_spec ? t->options.sim_spec : "", root, sizeof root)))
        code = ZR_EXIT_ERROR;
    else {
        complete(&t->options);
        code = run(t);
    }
    zr_simulate_end(root);
    free(t);
    return code;
}
