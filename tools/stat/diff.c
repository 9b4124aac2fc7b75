/* zeroute diff: two recorded runs or fingerprints, from this machine or another. */
#include "ab/ab.h"
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
    bool json, all;
};

static const struct zr_option option_table[] = {
    {'a', "all", NULL, "show figures that are the same, too"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "diff",
    .usage = "zeroute diff [--all] [--json] RUN1 RUN2",
    .about = "Compares two recorded runs: what they ran on (the fingerprint), then what they counted.",
    .options = option_table,
    .notes = "A RUN is a file and, where it holds several, which one:\n"
             "  FILE        written by 'zeroute run --json FILE' (all its processes together), or holding a\n"
             "              fingerprint alone\n"
             "  FILE#N      run N of a comparison written by 'zeroute ab --json=FILE'; without #N the first\n"
             "  FILE#ARM    the first run of that arm\n"
             "\n"
             "Exit code: 0 the fingerprints are the same, 1 they differ, 2 an error or wrong usage.\n",
    .operands = "two runs",
    .least = 2,
    .most = 2,
    .examples = "zeroute diff mine.json yours.json\n"
                "zeroute diff report.json#a report.json#b",
};

static bool take_flag(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    (void)value;
    *(option->id == 'a' ? &o->all : &o->json) = true;
    return true;
}

/* Of several processes: together, but of latencies the longest. */
static void add_number(struct zr_pairs *p, const char *name, double value) {
    const char *old = zr_pairs_get(p, name);
    double before = old ? strtod(old, NULL) : 0;
    size_t n = strlen(name);
    bool latency = n > 3 && !strcmp(name + n - 3, "_ns");
    bool whole = value >= 0 && value < 0x1p53 && value == trunc(value) && before == trunc(before);
    double both = value + before;

    if (old && latency)
        both = fmax(value, before);
    else if (old && whole)
        both = (double)zeroute_together(name, (uint64_t)before, (uint64_t)value);
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
    return r->fingerprint.n ? NULL
                            : zr_ab_text("is not a recorded run: expected a file written by zeroute run --json "
                                         "or zeroute ab --json");
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
        zr_complain("diff", "%s: %s", file ? file : text, why);
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

static bool worth_showing(const char *name) {
    size_t n = strlen(name);

    return !(n > 7 && !strcmp(name + n - 7, ".sum_ns")); /* follows from the others */
}

static void show_figures(const struct record *r, bool all) {
    struct zr_pairs names = {0};
    bool head = false;

    zr_pairs_copy(&names, &r[0].figures);
    zr_pairs_copy(&names, &r[1].figures);
    for (size_t i = 0; i < names.n; i++) {
        const char *a = zr_pairs_get(&r[0].figures, names.at[i].name);
        const char *b = zr_pairs_get(&r[1].figures, names.at[i].name);
        double va = a ? strtod(a, NULL) : 0, vb = b ? strtod(b, NULL) : 0;
        char change[ZR_AB_WORD];
        if ((va == vb && !all) || !worth_showing(names.at[i].name))
            continue;
        if (!head)
            printf("\n%-44s %18s %18s %10s\n", "figure", "first", "second", "change");
        head = true;
        zr_ab_percent(change, va != 0 ? vb / va - 1 : NAN);
        printf("%-44s %18.12g %18.12g %10s\n", names.at[i].name, va, vb, change);
    }
    if (!head)
        puts("\nThe figures are the same.");
    else
        puts("\nOne run each: what differs may be noise; zeroute ab tells.");
    zr_pairs_clear(&names);
}

static void show(const struct record *r, const struct zr_ab_differences *d, bool all) {
    printf("first   %s\nsecond  %s\n\n", zr_shown(r[0].name), zr_shown(r[1].name));
    if (d->n == 0)
        puts("The fingerprints are the same.");
    else
        printf("The fingerprints differ in %zu thing%s:\n", d->n, d->n == 1 ? "" : "s");
    for (size_t i = 0; i < d->n; i++)
        printf("  %s\n    first   %s\n    second  %s\n", zr_shown(d->at[i].what),
               *d->at[i].other ? zr_shown(d->at[i].other) : "(not there)",
               *d->at[i].value ? zr_shown(d->at[i].value) : "(not there)");
    show_figures(r, all);
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
        show(r, &d, o->all);
    zr_ab_differences_clear(&d);
    return code;
}

int zr_cmd_diff(int argc, char **argv) {
    struct record r[2] = {0};
    struct options o = {0};
    int at, code = ZR_EXIT_ERROR;

    if (!zr_options(&command, argc, argv, take_flag, &o, &at))
        return at;
    if (load(&r[0], argv[at]) && load(&r[1], argv[at + 1]))
        code = compare(r, &o);
    for (size_t i = 0; i < 2; i++) {
        free(r[i].name);
        zr_pairs_clear(&r[i].fingerprint);
        zr_pairs_clear(&r[i].figures);
    }
    return code;
}
