/* zeroute diff: two recorded runs or fingerprints, from this machine or another. */
#include "ab/ab.h"
#include "replay/replay.h"
#include "stat/stat.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct record {
    char *name; /* what is compared: file, and which run of it */
    struct zr_pairs fingerprint, figures;
    bool watched; /* by zeroute ab */
};

struct options {
    bool json, all, latency;
};

static const struct zr_option option_table[] = {
    {'a', "all", NULL, "show figures that are the same, too"},
    {'l', "latency", NULL, "show latencies, too: those of single runs are mostly noise"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "diff",
    .usage = "zeroute diff [OPTIONS] RUN1 RUN2",
    .about = "Compares two runs: what they ran on (the fingerprint), then what they counted. Two records are "
             "compared by call stack, as 'zeroute report --diff --text' does.",
    .options = option_table,
    .notes = "A RUN is a file and, where it holds several, which one:\n"
             "  RECORD      written by 'zeroute record'; the other one is a record, too\n"
             "  FILE        written by 'zeroute run --json FILE' (all its processes\n"
             "              together), or holding a fingerprint alone\n"
             "  FILE#N      run N of a comparison written by 'zeroute ab --json=FILE';\n"
             "              without #N the first\n"
             "  FILE#ARM    the first run of that arm\n"
             "\n"
             "Exit code: 0 the fingerprints are the same, 1 they differ, 2 an error or wrong usage.\n",
    .operands = "two runs",
    .least = 2,
    .most = 2,
    .one_of = "all|json;latency|json",
    .examples = "zeroute diff mine.json yours.json\n"
                "zeroute diff report.json#a report.json#b",
};

static bool take_flag(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    (void)value;
    *(option->id == 'a' ? &o->all : option->id == 'l' ? &o->latency : &o->json) = true;
    return true;
}

/* Several processes are added up; for latencies the longest is taken. */
static void add_number(struct zr_pairs *p, const char *name, double value) {
    const char *old = zr_pairs_get(p, name);
    double before = old ? strtod(old, NULL) : 0;
    size_t n = strlen(name);
    bool latency = n > 3 && !strcmp(name + n - 3, "_ns");
    double both = value + before;

    if (old && latency)
        both = fmax(value, before);
    char *text = zr_ab_text("%.17g", both);

    zr_pairs_set(p, name, text);
    free(text);
}

/* The number of a figure, which zeroute ab writes as text; NaN: it is none. */
static double number_of(const json_t *value) {
    const char *text = json_string_value(value);
    char *end;
    if (!text)
        return json_is_number(value) ? json_number_value(value) : NAN;
    double number = strtod(text, &end);
    return end != text && !*end ? number : NAN;
}

static void take(struct record *r, json_t *fingerprint, json_t *figures) {
    const char *key;
    json_t *value;
    json_object_foreach(fingerprint, key, value) {
        if (json_is_string(value))
            zr_ab_fact(&r->fingerprint, key, json_string_value(value));
    }
    json_object_foreach(figures, key, value) {
        if (isfinite(number_of(value)))
            add_number(&r->figures, key, number_of(value));
    }
}

/* The run of a comparison that `which` names: a number, an arm, or "" for the first. */
static json_t *find_run(const json_t *root, const char *which) {
    json_t *runs = json_object_get(root, "runs"), *arms = json_object_get(root, "arms");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i);
        double arm = zr_json_get_number(run, "arm");
        if (isdigit((unsigned char)*which)) {
            if (zr_json_get_number(run, "number") == strtod(which, NULL))
                return run;
            continue;
        }
        if (zr_json_get_flag(run, "warmup"))
            continue;
        if (!*which)
            return run;
        if (arm >= 0 && arm < (double)json_array_size(arms)) {
            const char *name = zr_json_get_text(json_array_get(arms, (size_t)arm), "name");
            if (name && !strcmp(name, which))
                return run;
        }
    }
    return NULL;
}

static char *load_record(struct record *r, json_t *root, const char *which) {
    json_t *processes = json_object_get(root, "processes"), *run;

    if (json_object_get(root, "runs")) {
        run = find_run(root, which);
        if (!run)
            return zr_ab_text("has no run '%s'", which);
        take(r, json_object_get(run, "fingerprint"), json_object_get(run, "values"));
        take(r, NULL, json_object_get(run, "fields"));
        r->watched = true;
        return NULL;
    }
    if (json_is_array(processes)) {
        for (size_t i = 0; i < json_array_size(processes); i++) {
            json_t *process = json_array_get(processes, i);
            take(r, json_object_get(process, "fingerprint"), json_object_get(process, "fields"));
        }
        return json_array_size(processes) ? NULL : zr_ab_text("holds no process that used a device");
    }
    if (json_object_get(root, "fingerprint"))
        take(r, json_object_get(root, "fingerprint"), json_object_get(root, "fields"));
    else
        take(r, root, NULL);
    return r->fingerprint.n ? NULL : zr_ab_text("is not a recorded run");
}

static bool load(struct record *r, const char *text) {
    const char *hash = strrchr(text, '#');
    char *file = hash ? strndup(text, (size_t)(hash - text)) : strdup(text), *why = NULL;
    json_t *root = file ? zr_json_read(file, &why) : NULL;

    r->name = zr_ab_text("%s", text);
    if (root)
        why = load_record(r, root, hash ? hash + 1 : "");
    else if (!why)
        why = zr_ab_text("out of memory");
    json_decref(root);
    if (why)
        zr_complain("diff", "%s: %s; expected what 'zeroute run --json' or 'zeroute ab --json' wrote",
                    file ? file : text, why);
    bool fine = why == NULL;
    free(why);
    free(file);
    return fine;
}

/* --- what is shown ---------------------------------------------------------------------------- */

/* What only zeroute ab notes, from outside: no difference against a run that was not watched so. */
static void drop_outside(struct record *r) {
    static const char *const names[] = {"command", "kernel", "output*", "card.dri*"};
    struct zr_pairs kept = {0};

    for (size_t i = 0; i < r->fingerprint.n; i++) {
        const struct zr_pair *p = &r->fingerprint.at[i];
        bool drop = false;
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
            drop |= !fnmatch(names[k], p->name, 0);
        if (!drop)
            zr_pairs_set(&kept, p->name, p->value);
    }
    zr_pairs_clear(&r->fingerprint);
    r->fingerprint = kept;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* Times of calls: what differs from run to run by itself. */
static bool is_latency(const char *name) {
    return ends_with(name, "_ns") || !strncmp(name, "latency.", 8);
}

struct figure {
    const char *name;
    double first, second;
};

/* How far apart, whatever the unit: what is only in one of them comes first. */
static double apart(const struct figure *f) {
    if (f->first == f->second)
        return 0;
    if (f->first == 0 || f->second == 0)
        return INFINITY;
    return fabs(log(fabs(f->second / f->first)));
}

static int by_difference(const void *a, const void *b) {
    const struct figure *x = a, *y = b;
    double dx = apart(x), dy = apart(y);

    if (dx != dy)
        return dx < dy ? 1 : -1;
    dx = fabs(x->second - x->first);
    dy = fabs(y->second - y->first);
    return dx != dy ? (dx < dy ? 1 : -1) : strcmp(x->name, y->name);
}

/* In the unit that the name tells: the documents hold numbers alone. */
static const char *with_unit(char *out, const char *name, double value) {
    bool bytes = strstr(name, "bytes") || !strncmp(name, "device.live", 11) || !strncmp(name, "device.reserved", 15) ||
                 (!strncmp(name, "host.", 5) && strcmp(name, "host.per_device_byte") != 0);

    if (!strcmp(name, "wall") || !strcmp(name, "cpu") || !strncmp(name, "latency.p", 9) || !strcmp(name, "latency.max"))
        return zr_text_time(out, (uint64_t)(value * 1e9));
    if (ends_with(name, "_ns"))
        return zr_text_time(out, (uint64_t)value);
    if (bytes && value >= 0)
        return zr_text_bytes(out, (uint64_t)value);
    if (value >= 0 && value < 0x1p53 && value == trunc(value))
        return zr_text_count(out, (uint64_t)value);
    snprintf(out, ZR_TEXT_SIZE, "%.4g", value);
    return out;
}

static const char *change_of(char *out, const struct figure *f) {
    if (f->first == f->second)
        return memcpy(out, "", 1);
    if (f->first == 0 || f->second == 0)
        return f->first == 0 ? memcpy(out, "new", sizeof "new") : memcpy(out, "gone", sizeof "gone");
    return zr_ab_percent(out, f->second / f->first - 1);
}

static double value_of(const struct zr_pairs *p, const char *name) {
    const char *text = zr_pairs_get(p, name);

    return text ? strtod(text, NULL) : 0;
}

static void show_figures(const struct record *r, const struct options *o) {
    struct zr_pairs names = {0};
    size_t n = 0, latencies = 0;

    zr_pairs_copy(&names, &r[0].figures);
    zr_pairs_copy(&names, &r[1].figures);
    struct figure *figures = zr_ab_more(NULL, names.n + 1, sizeof(*figures));
    for (size_t i = 0; i < names.n; i++) {
        struct figure f = {names.at[i].name, value_of(&r[0].figures, names.at[i].name),
                           value_of(&r[1].figures, names.at[i].name)};
        bool hidden = is_latency(f.name) && !o->latency && !o->all;
        if (ends_with(f.name, ".sum_ns") || (f.first == f.second && !o->all)) /* a sum follows from the others */
            continue;
        latencies += hidden;
        if (!hidden)
            figures[n++] = f;
    }
    if (n)
        qsort(figures, n, sizeof(*figures), by_difference);
    struct zr_table *t = zr_table_new("~figure", ">first", ">second", ">change", (char *)NULL);
    for (size_t i = 0; i < n; i++) {
        char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], change[ZR_AB_WORD];
        zr_table_row(t, figures[i].name, with_unit(a, figures[i].name, figures[i].first),
                     with_unit(b, figures[i].name, figures[i].second), change_of(change, &figures[i]));
    }
    fputc('\n', stdout);
    if (n)
        zr_table_print(t, stdout, zr_colour(stdout));
    else
        zr_table_free(t);
    if (!n)
        puts(latencies ? "The figures are the same, but for latencies." : "The figures are the same.");
    if (latencies)
        printf("%zu latencies differ as well: --latency shows them\n", latencies);
    if (n)
        puts("\nOne run each: a difference may be noise; 'zeroute ab' can tell.");
    free(figures);
    zr_pairs_clear(&names);
}

static void show(const struct record *r, const struct zr_ab_differences *d, const struct options *o) {
    printf("first   %s\nsecond  %s\n\n", zr_shown(r[0].name), zr_shown(r[1].name));
    if (d->n == 0)
        puts("The fingerprints are the same.");
    else
        printf("The fingerprints differ in %zu thing%s:\n", d->n, d->n == 1 ? "" : "s");
    for (size_t i = 0; i < d->n; i++)
        printf("  %s\n    first   %s\n    second  %s\n", zr_shown(d->at[i].what),
               *d->at[i].other ? zr_shown(d->at[i].other) : "(not there)",
               *d->at[i].value ? zr_shown(d->at[i].value) : "(not there)");
    show_figures(r, o);
}

static void show_json(const struct record *r, const struct zr_ab_differences *d) {
    struct zr_pairs names = {0};

    json_t *document = zr_json_document(1);
    zr_json_text(document, "first", r[0].name);
    zr_json_text(document, "second", r[1].name);
    zr_json_flag(document, "same_fingerprint", d->n == 0);
    json_t *differences = zr_json_array(document, "differences");
    for (size_t i = 0; i < d->n; i++) {
        json_t *one = zr_json_object(differences, NULL);
        zr_json_text(one, "what", d->at[i].what);
        zr_json_text(one, "first", d->at[i].other);
        zr_json_text(one, "second", d->at[i].value);
    }
    json_t *figures = zr_json_object(document, "figures");
    zr_pairs_copy(&names, &r[0].figures);
    zr_pairs_copy(&names, &r[1].figures);
    for (size_t i = 0; i < names.n; i++) {
        json_t *named = zr_json_array(figures, names.at[i].name);
        for (size_t k = 0; k < 2; k++) {
            const char *v = zr_pairs_get(&r[k].figures, names.at[i].name);
            double value = v ? strtod(v, NULL) : 0;
            if (value >= 0 && value < 0x1p53 && value == trunc(value))
                zr_json_count(named, NULL, (uint64_t)value);
            else
                zr_json_real(named, NULL, value);
        }
    }
    zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
    zr_pairs_clear(&names);
}

static int compare(struct record *r, const struct options *o) {
    struct zr_ab_differences d = {0};

    for (int i = 0; i < 2; i++)
        if (r[i].watched && !r[!i].watched)
            drop_outside(&r[i]);
    zr_ab_fingerprint_compare(&r[0].fingerprint, &r[1].fingerprint, &d);
    int code = d.n ? ZR_EXIT_FINDING : ZR_EXIT_DONE;
    if (o->json)
        show_json(r, &d);
    else
        show(r, &d, o);
    zr_ab_differences_clear(&d);
    return code;
}

static int compare_records(char *first, char *second) {
    char *words[] = {(char[]){"report"}, (char[]){"--diff"}, (char[]){"--text"}, first, second, NULL};

    return zr_cmd_report(5, words);
}

int zr_cmd_diff(int argc, char **argv) {
    struct record r[2] = {0};
    struct options o = {0};
    int at, code = ZR_EXIT_ERROR;

    if (!zr_options(&command, argc, argv, take_flag, &o, &at))
        return at;
    bool first = zr_is_record(argv[at]), second = zr_is_record(argv[at + 1]);
    if (first && second)
        return compare_records(argv[at], argv[at + 1]);
    if (first || second) {
        zr_complain("diff", "%s is a record and %s is none: expected two records, or two files of 'zeroute run --json'",
                    argv[first ? at : at + 1], argv[first ? at + 1 : at]);
        return ZR_EXIT_ERROR;
    }
    if (load(&r[0], argv[at]) && load(&r[1], argv[at + 1]))
        code = compare(r, &o);
    for (size_t i = 0; i < 2; i++) {
        free(r[i].name);
        zr_pairs_clear(&r[i].fingerprint);
        zr_pairs_clear(&r[i].figures);
    }
    return code;
}
