/* Compares fingerprints: what was declared, what follows from it, and what was not declared. */
#include "ab/ab.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *cause, *effect;
} follows[] = {
#define ZR_FOLLOWS(cause, effect) {cause, effect},
#define ZR_IN_PATH(library, effect)
#define ZR_PART_OF(setting, whole)
#include "ab/consequences.def"
#undef ZR_FOLLOWS
#undef ZR_IN_PATH
#undef ZR_PART_OF
};

static const struct {
    const char *library, *effect;
} in_path[] = {
#define ZR_FOLLOWS(cause, effect)
#define ZR_IN_PATH(library, effect) {library, effect},
#define ZR_PART_OF(setting, whole)
#include "ab/consequences.def"
#undef ZR_FOLLOWS
#undef ZR_IN_PATH
#undef ZR_PART_OF
};

static const struct {
    const char *setting, *whole;
} part_of[] = {
#define ZR_FOLLOWS(cause, effect)
#define ZR_IN_PATH(library, effect)
#define ZR_PART_OF(setting, whole) {setting, whole},
#include "ab/consequences.def"
#undef ZR_FOLLOWS
#undef ZR_IN_PATH
#undef ZR_PART_OF
};

static const char *const setting_names[] = {
#define ZR_SETTING(name, type, def, values, help) #name,
#include "base/settings.def"
};
#define SETTINGS (sizeof(setting_names) / sizeof(*setting_names))

/* --- what the arms declare -------------------------------------------------------------------- */

static const struct zr_ab_item *last_item(const struct zr_ab_arm *arm, enum zr_ab_kind kind, const char *key) {
    const struct zr_ab_item *found = NULL;

    for (size_t i = 0; i < arm->n_items; i++)
        if (arm->items[i].kind == kind && (!key || !strcmp(arm->items[i].key, key)))
            found = &arm->items[i];
    return found;
}

static bool same_item(const struct zr_ab_item *a, const struct zr_ab_item *b) {
    return a == b || (a && b && !strcmp(a->value, b->value) && !strcmp(a->key, b->key));
}

static bool setting_differs(const struct zr_ab_arm *a, const struct zr_ab_arm *b, const char *setting) {
    char *va = zr_ab_setting_value(a, setting), *vb = zr_ab_setting_value(b, setting);
    bool differs = !va || !vb ? va != vb : strcmp(va, vb) != 0;

    free(va);
    free(vb);
    return differs;
}

static bool env_differs(const struct zr_ab_arm *a, const struct zr_ab_arm *b, const char *name) {
    return !same_item(last_item(a, ZR_AB_ENV, name), last_item(b, ZR_AB_ENV, name));
}

/* A name of the fingerprint that the two arms declare to differ in. */
static bool declared_name(const struct zr_ab_arm *a, const struct zr_ab_arm *b, const char *what) {
    if (!strncmp(what, "setting.", 8))
        return zr_ab_is_setting(what + 8, strlen(what + 8)) && setting_differs(a, b, what + 8);
    if (!strncmp(what, "env.", 4))
        return env_differs(a, b, what + 4);
    if (!strcmp(what, "command"))
        return !same_item(last_item(a, ZR_AB_CMD, NULL), last_item(b, ZR_AB_CMD, NULL));
    return false;
}

struct declared {
    char **text;
    size_t n, max;
};

static void declare(struct declared *d, char *text) {
    if (d->n < d->max)
        d->text[d->n] = text;
    else
        free(text);
    d->n++;
}

static void declare_settings(const struct zr_ab_arm *a, const struct zr_ab_arm *b, struct declared *d) {
    bool by_preset = false;

    for (size_t i = 0; i < SETTINGS; i++) {
        const char *setting = setting_names[i], *whole = NULL;
        if (!setting_differs(a, b, setting))
            continue;
        if (!last_item(a, ZR_AB_SETTING, setting) && !last_item(b, ZR_AB_SETTING, setting)) {
            by_preset = true;
            continue;
        }
        for (size_t p = 0; p < sizeof(part_of) / sizeof(*part_of); p++)
            if (!strcmp(part_of[p].setting, setting))
                whole = part_of[p].whole;
        if (whole && setting_differs(a, b, whole))
            continue;
        char *va = zr_ab_setting_value(a, setting), *vb = zr_ab_setting_value(b, setting);
        declare(d, zr_ab_text("%s (%s, %s)", setting, va, vb));
        free(va);
        free(vb);
    }
    if (by_preset) {
        const struct zr_ab_item *pa = last_item(a, ZR_AB_PRESET, NULL);
        const struct zr_ab_item *pb = last_item(b, ZR_AB_PRESET, NULL);
        declare(d, zr_ab_text("preset (%s, %s)", pa ? pa->key : "observe", pb ? pb->key : "observe"));
    }
}

static void declare_env(const struct zr_ab_arm *a, const struct zr_ab_arm *b, struct declared *d) {
    size_t before = d->n;
    bool keys = false;

    for (int side = 0; side < 2; side++) {
        const struct zr_ab_arm *one = side ? b : a, *other = side ? a : b;
        for (size_t i = 0; i < one->n_items; i++) {
            const struct zr_ab_item *item = &one->items[i];
            if (item->kind != ZR_AB_ENV || last_item(one, ZR_AB_ENV, item->key) != item ||
                !env_differs(a, b, item->key) || (side && last_item(other, ZR_AB_ENV, item->key)))
                continue;
            if (!strcmp(item->key, "NEOReadDebugKeys")) { /* only lets the other keys be read */
                keys = true;
                continue;
            }
            const struct zr_ab_item *ia = last_item(a, ZR_AB_ENV, item->key);
            const struct zr_ab_item *ib = last_item(b, ZR_AB_ENV, item->key);
            declare(d, zr_ab_text("%s (%s, %s)", item->key, ia ? ia->value : "as it is", ib ? ib->value : "as it is"));
        }
    }
    if (keys && d->n == before)
        declare(d, zr_ab_text("NEOReadDebugKeys"));
}

size_t zr_ab_declared(const struct zr_ab_arm *a, const struct zr_ab_arm *b, char **texts, size_t max) {
    struct declared d = {texts, 0, max};

    if (a->none != b->none)
        declare(&d, zr_ab_text("the preload (none)"));
    else if (!a->none)
        declare_settings(a, b, &d);
    declare_env(a, b, &d);
    const struct zr_ab_item *la = last_item(a, ZR_AB_LIB, NULL), *lb = last_item(b, ZR_AB_LIB, NULL);
    if (!same_item(la, lb))
        declare(&d, zr_ab_text("libraries (%s, %s)", la ? la->value : "as they are", lb ? lb->value : "as they are"));
    const struct zr_ab_item *ca = last_item(a, ZR_AB_CMD, NULL), *cb = last_item(b, ZR_AB_CMD, NULL);
    if (!same_item(ca, cb))
        declare(&d, zr_ab_text("the command"));
    return d.n;
}

/* --- what follows from a declaration ---------------------------------------------------------- */

static bool lies_in(const char *file, const char *path) {
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return n && !strncmp(file, path, n) && (file[n] == '/' || file[n] == 0);
}

/* Does an item that only one of the arms has (or has so) bring the file at this path? */
static const struct zr_ab_item *brings(const struct zr_ab_arm *arm, const struct zr_ab_arm *other, const char *file) {
    for (size_t i = 0; file && i < arm->n_items; i++) {
        const struct zr_ab_item *item = &arm->items[i];
        bool path = item->kind == ZR_AB_LIB ||
                    (item->kind == ZR_AB_ENV &&
                     (!strcmp(item->key, "ZE_ENABLE_ALT_DRIVERS") || !strcmp(item->key, "LD_LIBRARY_PATH")));
        if (!path || same_item(item, last_item(other, item->kind, item->key)))
            continue;
        char *list = zr_ab_text("%s", item->value), *rest = list, *one;
        bool found = false;
        while (!found && (one = strsep(&rest, ":,")))
            found = lies_in(file, one);
        free(list);
        if (found)
            return item;
    }
    return NULL;
}

/* The part of "library.NAME.path" that is the name; sonames have dots, so the last dot counts. */
static char *library_of(const char *what) {
    const char *name = what + strlen("library."), *dot = strrchr(name, '.');

    return strndup(name, dot ? (size_t)(dot - name) : strlen(name));
}

struct view { /* an arm and a run of it */
    const struct zr_ab_arm *arm;
    const struct zr_pairs *print;
};

static const char *library_path(const struct view *v, const char *library) {
    char *name = zr_ab_text("library.%s.path", library);
    const char *path = zr_pairs_get(v->print, name);

    free(name);
    return path;
}

static char *item_text(const struct zr_ab_item *item) {
    if (item->kind == ZR_AB_LIB)
        return zr_ab_text("lib:%s", item->value);
    return zr_ab_text("env.%s", item->key);
}

static char *cause_by_path(const char *what, const struct view *a, const struct view *b) {
    const struct zr_ab_item *item = NULL;

    if (!strcmp(what, "env.LD_LIBRARY_PATH")) {
        item = last_item(b->arm, ZR_AB_LIB, NULL);
        item = item ? item : last_item(a->arm, ZR_AB_LIB, NULL);
        return item ? item_text(item) : NULL;
    }
    if (!strncmp(what, "library.", 8)) {
        char *library = library_of(what);
        item = brings(b->arm, a->arm, library_path(b, library));
        item = item ? item : brings(a->arm, b->arm, library_path(a, library));
        free(library);
        return item ? item_text(item) : NULL;
    }
    for (size_t i = 0; !item && i < sizeof(in_path) / sizeof(*in_path); i++) {
        if (fnmatch(in_path[i].effect, what, 0))
            continue;
        for (int side = 0; side < 2; side++) {
            const struct view *v = side ? b : a, *other = side ? a : b;
            for (size_t k = 0; !item && k < v->print->n; k++) {
                const char *name = v->print->at[k].name, *end = strrchr(name, '.');
                if (strncmp(name, "library.", 8) || !end || strcmp(end, ".path"))
                    continue;
                char *library = library_of(name);
                if (!fnmatch(in_path[i].library, library, 0))
                    item = brings(v->arm, other->arm, v->print->at[k].value);
                free(library);
            }
        }
    }
    return item ? item_text(item) : NULL;
}

/* The declaration that `what` follows from, to be freed; NULL: none. */
static char *cause_of(const char *what, const struct view *a, const struct view *b) {
    for (size_t i = 0; i < sizeof(follows) / sizeof(*follows); i++) {
        const char *cause = follows[i].cause;
        if (fnmatch(follows[i].effect, what, 0))
            continue;
        if (!strcmp(cause, "setting.*")) {
            for (size_t k = 0; k < SETTINGS; k++)
                if (setting_differs(a->arm, b->arm, setting_names[k]))
                    return zr_ab_text("setting.%s", setting_names[k]);
        } else if (declared_name(a->arm, b->arm, cause)) {
            return zr_ab_text("%s", cause);
        }
    }
    return cause_by_path(what, a, b);
}

/* --- comparing -------------------------------------------------------------------------------- */

bool zr_ab_allows(const char *allow, const char *what) {
    size_t n = strlen(allow);

    return !fnmatch(allow, what, 0) || (!strncmp(what, allow, n) && what[n] == '.');
}

bool zr_ab_allowed(const struct zr_ab *ab, const char *what) {
    for (size_t i = 0; i < ab->n_allow; i++)
        if (zr_ab_allows(ab->allow[i], what))
            return true;
    return false;
}

static struct zr_ab_difference *add(struct zr_ab_differences *out, enum zr_ab_status status, const char *what,
                                    const char *value, const char *other, char *why) {
    out->at = zr_ab_more(out->at, out->n + 1, sizeof(*out->at));
    struct zr_ab_difference *d = &out->at[out->n++];
    *d = (struct zr_ab_difference){
        .status = status,
        .what = zr_ab_text("%s", what),
        .value = zr_ab_text("%s", value ? value : ""),
        .other = zr_ab_text("%s", other ? other : ""),
        .why = why ? why : zr_ab_text("%s", ""),
    };
    return d;
}

/* Calls visit for every name in which a and b differ; both lists are sorted. */
static void each_difference(const struct zr_pairs *a, const struct zr_pairs *b, void *context,
                            void (*visit)(void *, const char *, const char *, const char *)) {
    size_t i = 0, j = 0;

    while (i < a->n || j < b->n) {
        int order = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->at[i].name, b->at[j].name);
        const char *name = order > 0 ? b->at[j].name : a->at[i].name;
        const char *va = order <= 0 ? a->at[i++].value : NULL;
        const char *vb = order >= 0 ? b->at[j++].value : NULL;
        if (!va || !vb || strcmp(va, vb))
            visit(context, name, va, vb);
    }
}

struct comparing {
    const struct zr_ab *ab;
    struct zr_ab_differences *out;
    const struct zr_ab_run *run, *other;
};

static void between_arms(void *context, const char *what, const char *base, const char *value) {
    struct comparing *c = context;
    const struct zr_ab_arm *arm = &c->ab->arm[c->run->arm], *than = &c->ab->arm[c->other->arm];
    struct view a = {than, &c->other->fingerprint}, b = {arm, &c->run->fingerprint};
    enum zr_ab_status status = ZR_AB_UNDECLARED;
    char *why = NULL;

    if ((zr_ab_from_outside(arm) || zr_ab_from_outside(than)) && (!base || !value))
        return; /* from outside less is known: what only one side tells is no difference */
    if (declared_name(than, arm, what))
        status = ZR_AB_DECLARED;
    else if ((why = cause_of(what, &a, &b)))
        status = ZR_AB_CONSEQUENCE;
    else if (zr_ab_allowed(c->ab, what))
        status = ZR_AB_ALLOWED;
    struct zr_ab_difference *d = add(c->out, status, what, value, base, why);
    d->arm = c->run->arm;
    d->than = c->other->arm;
    d->run = c->run->number;
    d->other_run = c->other->number;
}

static void within_arm(void *context, const char *what, const char *first, const char *value) {
    struct comparing *c = context;
    enum zr_ab_status status = zr_ab_allowed(c->ab, what) ? ZR_AB_ALLOWED : ZR_AB_UNLIKE;

    if (zr_ab_from_outside(&c->ab->arm[c->run->arm]) && (!first || !value))
        return;                            /* a short run may be over before it is looked at */
    for (size_t i = 0; i < c->out->n; i++) /* each name once per arm is enough */
        if (c->out->at[i].arm == c->run->arm && c->out->at[i].than == c->run->arm && !strcmp(c->out->at[i].what, what))
            return;
    struct zr_ab_difference *d = add(c->out, status, what, value, first, NULL);
    d->arm = d->than = c->run->arm;
    d->run = c->run->number;
    d->other_run = c->other->number;
}

/* Would a process that has the variable tell of it? */
static bool is_told(const char *variable) {
    static const char *const prefixes[] = {
#define ZR_VARIABLE(prefix) prefix,
#include "stats/variables.def"
    };

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

/* A declared value that did not reach the process: a wrapper reset it, or a setting was refused. */
static void check_arrival(const struct zr_ab *ab, const struct zr_ab_run *run, struct zr_ab_differences *out) {
    const struct zr_ab_arm *arm = &ab->arm[run->arm];

    for (size_t i = 0; i < arm->n_items && !zr_ab_from_outside(arm); i++) {
        const struct zr_ab_item *item = &arm->items[i];
        bool env = item->kind == ZR_AB_ENV;
        if ((!env && item->kind != ZR_AB_SETTING) || last_item(arm, item->kind, item->key) != item)
            continue;
        char *what = zr_ab_text("%s.%s", env ? "env" : "setting", item->key);
        const char *seen = zr_pairs_get(&run->fingerprint, what);
        bool lost = !seen && env && is_told(item->key);
        if (lost || (seen && strcmp(seen, item->value))) {
            struct zr_ab_difference *d =
                add(out, zr_ab_allowed(ab, what) ? ZR_AB_ALLOWED : ZR_AB_UNDECLARED, what, seen, item->value,
                    zr_ab_text("declared otherwise: it did not reach the process"));
            d->arm = d->than = run->arm;
            d->run = d->other_run = run->number;
        }
        free(what);
    }
}

void zr_ab_fingerprints(const struct zr_ab *ab, struct zr_ab_differences *out) {
    const struct zr_ab_run *first[ZR_AB_ARMS] = {0};
    struct comparing c = {ab, out, NULL, NULL};

    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        if (!zr_ab_counts(run))
            continue;
        if (!first[run->arm]) {
            first[run->arm] = run;
            check_arrival(ab, run, out);
            continue;
        }
        c.run = run;
        c.other = first[run->arm];
        each_difference(&c.other->fingerprint, &run->fingerprint, &c, within_arm);
    }
    for (size_t arm = 1; arm < ab->n_arms && first[0]; arm++) {
        if (!first[arm])
            continue;
        c.run = first[arm];
        c.other = first[0];
        each_difference(&first[0]->fingerprint, &first[arm]->fingerprint, &c, between_arms);
    }
}

static void undeclared(void *context, const char *what, const char *a, const char *b) {
    struct zr_ab_difference *d = add(context, ZR_AB_UNDECLARED, what, b, a, NULL);

    d->arm = 1;
}

void zr_ab_fingerprint_compare(const struct zr_pairs *a, const struct zr_pairs *b, struct zr_ab_differences *out) {
    each_difference(a, b, out, undeclared);
}

void zr_ab_differences_clear(struct zr_ab_differences *d) {
    for (size_t i = 0; i < d->n; i++) {
        free(d->at[i].what);
        free(d->at[i].value);
        free(d->at[i].other);
        free(d->at[i].why);
    }
    free(d->at);
    *d = (struct zr_ab_differences){0};
}
