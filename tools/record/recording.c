/* zeroute record: a program under the preload with the setting `record`, and what its records say about leaks. */
#include "common/common.h"
#include "outside/outside.h"
#include "record/host_samples.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACKS = ZR_LONG, PRESET, SETTINGS, SIM, LEAK, GROWTH, JSON };
enum { RECORDS_MOST = 4096, GROWTH_EVENTS = 64 };
static const uint64_t growth_least = 1 << 20;

static const struct zr_option option_table[] = {
    {'o', "output", "FILE", "record in FILE; %p is the process id (default zeroute.%p.zr)"},
    {STACKS, "stacks", "WHICH", "call stacks: native frames (default), python: native and Python frames, or off"},
    {PRESET, "preset", "NAME",
     "settings to run with, as in 'zeroute run' (default: observe, which changes nothing, with those of ZEROUTE_CONF)"},
    {SIM, "sim", "[SPEC]", "use a simulated GPU, for example --sim=devices:2"},
    {LEAK, "fail-on-leak", "[SIZE]", "end with exit code 1 if more than SIZE (default 0) is not freed at the end"},
    {GROWTH, "fail-on-growth", NULL, "end with exit code 1 if the memory in use grows over the whole run"},
    {JSON, "json", "FILE", "write the findings as JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "record",
    .usage = "zeroute record [-o FILE] [OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .about = "Starts PROGRAM and records every allocation, free and failure of device memory with its call stack, one "
             "file for each process that uses a device. 'zeroute report' shows a record, 'zeroute replay' says what "
             "other settings would have done.",
    .options = option_table,
    .notes =
        "A leak is memory that is live when a process ends by exit. A SYCL runtime keeps some for itself: look how "
        "much is left after a good run, and allow that much. To find growth, the run up to its last allocation is cut "
        "into quarters of equal numbers of events. The first is warm-up and left out; memory grows if the least in "
        "use rises from each of the others to the next, by at least 1 MiB and 2 %.\n"
        "\n"
        "Exit code: the program's own (its signal is raised again); where that is 0, 1 for a leak or growth that was "
        "asked about, 2 if the record could not be written or lacks events, 3 if there is no verdict because nothing "
        "used a device; 125 our own failure, "
        "126 the program cannot be executed, 127 it was not found.\n",
    .examples = "zeroute record -o train.zr --stacks python -- python train.py\n"
                "zeroute report train.zr\n"
                "zeroute record --fail-on-leak=1MiB --fail-on-growth -- ./unit-tests",
    .program = true,
};

struct options {
    const char *file, *stacks, *preset, *sim, *json;
    bool leak, growth;
    uint64_t leak_bytes;
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;

    switch (option->id) {
    case 'o':
        o->file = value;
        return true;
    case STACKS:
        o->stacks = value;
        return zr_option_choice(&command, option, value, "native|python|off");
    case PRESET:
        o->preset = value;
        return true;
    case SIM:
        o->sim = value ? value : "";
        return true;
    case LEAK:
        o->leak = true;
        return !value || zr_option_bytes(&command, option, value, &o->leak_bytes);
    case GROWTH:
        o->growth = true;
        return true;
    default:
        o->json = value;
        return true;
    }
}

/* As `zeroute run` is called by hand. */
static int run(const struct options *o, int argc, char **argv) {
    const char **words = calloc((size_t)argc + 12, sizeof *words);
    char sim[512];
    int n = 0, code = ZR_EXIT_OWN;

    if (!words)
        return code;
    snprintf(sim, sizeof sim, "--sim%s%s", o->sim && *o->sim ? "=" : "", o->sim ? o->sim : "");
    words[n++] = "record"; /* the command that its messages name */
    words[n++] = "--no-summary";
    if (o->preset) {
        words[n++] = "--preset";
        words[n++] = o->preset;
    }
    words[n++] = "--record";
    words[n++] = o->file;
    if (o->stacks) {
        words[n++] = "--stacks";
        words[n++] = o->stacks;
    }
    if (o->sim)
        words[n++] = sim;
    words[n++] = "--";
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    code = zr_cmd_run(n, (char **)(uintptr_t)words);
    free(words);
    return code;
}

/* --- after the program ------------------------------------------------------------------------------- */

struct finding {
    uint64_t left, blocks; /* live at the end */
    uint64_t from, to;     /* the least in use in the second quarter and in the last; 0 and 0: it did not grow */
};

static void add_live(void *to, const struct zr_event *block) {
    struct finding *f = to;

    f->left += block->size;
    f->blocks++;
}

/* The least that was in use in each quarter of the events up to the last allocation. */
static void find_growth(const struct zr_record *r, struct finding *f) {
    uint64_t level = 0, least[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    uint32_t last = 0, seen = 0, all = 0;

    for (uint32_t i = 0; i < r->events; i++)
        if (zr_kind_memory(r->event[i].kind) &&
            (r->event[i].type == ZEROUTE_EVENT_ALLOC || r->event[i].type == ZEROUTE_EVENT_FREE)) {
            all++;
            last = r->event[i].type == ZEROUTE_EVENT_ALLOC ? all : last;
        }
    if (last < GROWTH_EVENTS)
        return;
    for (uint32_t i = 0; i < r->events && seen < last; i++) {
        const struct zr_event *e = &r->event[i];

        if (!zr_kind_memory(e->kind))
            continue;
        if (e->type == ZEROUTE_EVENT_ALLOC || e->type == ZEROUTE_EVENT_BACK)
            level += e->size;
        else if (e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT)
            level -= e->size < level ? e->size : level;
        if (e->type == ZEROUTE_EVENT_ALLOC || e->type == ZEROUTE_EVENT_FREE) {
            unsigned part = (unsigned)((uint64_t)seen++ * 4 / last);

            if (level < least[part])
                least[part] = level;
        }
    }
    if (least[1] < least[2] && least[2] < least[3] && least[3] - least[1] >= growth_least &&
        least[3] - least[1] >= least[1] / 50) {
        f->from = least[1];
        f->to = least[3];
    }
}

/* The records of this run: FILE, with %p for any number, and FILE.PID. *lost counts events that they lack. */
static size_t find_records(const char *file, const char *run, glob_t *found, uint64_t *lost) {
    char pattern[PATH_MAX], more[PATH_MAX + 8];
    size_t n = 0, kept = 0;

    for (; *file && n < sizeof pattern - 4; file++) {
        if (file[0] == '%' && file[1] == 'p') {
            pattern[n++] = '*';
            file++;
        } else {
            if (strchr("*?[\\", *file))
                pattern[n++] = '\\';
            pattern[n++] = *file;
        }
    }
    pattern[n] = '\0';
    snprintf(more, sizeof more, "%s.[0-9]*", pattern);
    if (glob(pattern, 0, NULL, found) == GLOB_NOSPACE || glob(more, GLOB_APPEND, NULL, found) == GLOB_NOSPACE)
        return 0;
    for (size_t i = 0; i < found->gl_pathc && kept < RECORDS_MOST; i++) {
        struct zeroute_record_header h = {0};
        int fd = open(found->gl_pathv[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        bool ours = fd >= 0 && read(fd, &h, sizeof h) == sizeof h && h.magic == ZEROUTE_RECORD_MAGIC &&
                    strncmp(h.run_id, run, sizeof h.run_id) == 0;

        if (fd >= 0)
            close(fd);
        for (size_t j = 0; j < kept; j++)
            ours = ours && strcmp(found->gl_pathv[i], found->gl_pathv[j]) != 0;
        if (ours) {
            char *swap = found->gl_pathv[kept];

            *lost += h.lost_events;
            found->gl_pathv[kept++] = found->gl_pathv[i];
            found->gl_pathv[i] = swap;
        }
    }
    return kept;
}

void zr_host_samples_add_all(const struct zr_host_samples *s, const char *file, const char *run) {
    glob_t found = {0};
    uint64_t lost;
    size_t n = find_records(file, run, &found, &lost);

    for (size_t i = 0; i < n; i++)
        zr_host_samples_add(s, found.gl_pathv[i]);
    globfree(&found);
}

/* One record: what was found is said; false: no verdict. */
static bool judge(const struct options *o, const char *path, json_t *list, int *findings) {
    char why[256], name[96], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    struct finding f = {0};
    struct zr_record *r = zr_record_load(path, why, sizeof why);

    if (!r || !zr_record_pair(r)) {
        zr_complain("record", "%s: %s", path, r ? "out of memory" : why);
        zr_record_free(r);
        return false;
    }
    zr_record_command(r, name, sizeof name);
    zr_record_live(r, ZR_NO_EVENT, add_live, &f);
    find_growth(r, &f);
    bool leaks = o->leak && r->ended && f.left > o->leak_bytes, grows = o->growth && f.to;
    unsigned long long lost = r->header.lost_events + r->damaged;
    bool known = lost == 0;

    if (leaks)
        zr_complain("record",
                    "%s: %s in %llu block%s never freed (process %u: %s); 'zeroute report --text %s' shows where", path,
                    zr_text_bytes(a, f.left), (unsigned long long)f.blocks, f.blocks == 1 ? " was" : "s were",
                    r->header.pid, name, path);
    if (grows)
        zr_complain("record",
                    "%s: memory in use grew over the whole run, from %s to %s (process %u: %s); 'zeroute report %s' "
                    "shows it",
                    path, zr_text_bytes(a, f.from), zr_text_bytes(b, f.to), r->header.pid, name, path);
    if (!known)
        zr_complain("record", "%s: %llu events were lost: what was not freed cannot be told", path, lost);
    *findings += leaks + grows;
    json_t *item = zr_json_object(list, NULL);
    zr_json_text(item, "file", path);
    zr_json_count(item, "pid", r->header.pid);
    zr_json_count(item, "events", r->events);
    zr_json_count(item, "lost_events", r->header.lost_events);
    zr_json_flag(item, "ended_by_exit", r->ended);
    zr_json_count(item, "left_bytes", f.left);
    zr_json_count(item, "left_blocks", f.blocks);
    zr_json_flag(item, "leaks", leaks);
    zr_json_count(item, "grew_bytes", f.to - f.from);
    zr_json_flag(item, "grows", grows);
    zr_record_free(r);
    return known;
}

static bool write_json(const char *path, json_t *document) {
    struct zr_publish to;
    FILE *f = zr_publish_open(&to, "record", path);

    if (f)
        return zr_publish_close(&to, zr_json_write(f, document, ZR_JSON_DIGITS, false));
    json_decref(document);
    return false;
}

/* Whether a process of this run has published that it used a device. */
static bool used_devices(const char *run) {
    struct zr_look look;
    bool used = false;

    zr_outside_look(&look, ZR_LOOK_SEGMENTS);
    for (size_t i = 0; i < look.count; i++)
        used |= zr_run_owns(&look.process[i], run);
    zr_look_free(&look);
    return used;
}

static int conclude(const struct options *o, const char *run) {
    json_t *document = zr_json_document(1), *list = zr_json_array(document, "records");
    glob_t found = {0};
    uint64_t lost = 0;
    size_t n = find_records(o->file, run, &found, &lost);
    bool asked = o->leak || o->growth, known = n > 0, whole = true;
    int findings = 0;

    for (size_t i = 0; (asked || o->json) && i < n; i++)
        known &= judge(o, found.gl_pathv[i], list, &findings);
    if (n == 0 && used_devices(run)) {
        zr_complain("record", "a Level Zero device was used, but no record could be written to %s", o->file);
        whole = false;
    } else if (n == 0) {
        zr_complain("record", "no process used a Level Zero device: nothing was recorded");
    } else if (lost) {
        zr_complain("record", "%" PRIu64 " events are missing, for they could not be written to %s", lost,
                    found.gl_pathv[0]);
        whole = false;
    }
    if (n && isatty(STDERR_FILENO))
        fprintf(stderr, "zeroute: %zu record%s; 'zeroute report %s' shows %s\n", n, n == 1 ? "" : "s",
                found.gl_pathv[0], n == 1 ? "it" : "the first");
    bool written = !o->json || write_json(o->json, document);
    globfree(&found);
    if (!whole && !findings)
        return ZR_EXIT_ERROR;
    return findings ? ZR_EXIT_FINDING : !written ? ZR_EXIT_OWN : asked && !known ? ZR_EXIT_NO_VERDICT : ZR_EXIT_DONE;
}

int zr_cmd_record(int argc, char **argv) {
    struct options o = {.file = "zeroute.%p.zr"};
    int at;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at == ZR_EXIT_DONE ? at : ZR_EXIT_OWN;
    if (at == argc) {
        zr_wrong(&command, "no program given: expected PROGRAM [ARGUMENTS]");
        return ZR_EXIT_OWN;
    }
    int code = run(&o, argc - at, argv + at);
    bool ran = code != ZR_EXIT_NOT_FOUND && code != ZR_EXIT_CANNOT;
    const char *name = ran ? getenv("ZEROUTE_RUN") : NULL;
    int found = name ? conclude(&o, name) : code;
    return code ? code : found;
}
