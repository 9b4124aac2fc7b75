/* Fields of a segment as series of metrics, by the table metrics.def; series of several processes added up. */
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

enum { STARS = 2 };

/* One line of the table (metrics.def). */
enum kind { COUNTER, GAUGE, HISTOGRAM, RANKED, ALWAYS };

static struct rule {
    const char *field, *family_name;
    enum kind kind;
    const char *labels, *help;
    unsigned family;
} rules[] = {
#define ZR_METRIC(field, family, kind, labels, help) {field, family, kind, labels, help, 0},
#include "view/metrics.def"
#undef ZR_METRIC
};

struct zr_metric zr_metric[ZR_FAMILIES_MOST];
unsigned zr_metric_count;

struct part {
    const char *at;
    size_t length;
};

uint64_t zr_le_ns(unsigned bucket) {
    return bucket < ZR_LE ? UINT64_C(256) << 2 * bucket : UINT64_MAX;
}

/* --- families --------------------------------------------------------------------------------- */

/* ZR_FAMILIES_MOST: there is no room for one more. */
static unsigned family_of(const char *name, const char *help, enum zr_metric_type type, bool nanoseconds) {
    unsigned i = 0;
    while (i < zr_metric_count && strcmp(zr_metric[i].name, name) != 0)
        i++;
    if (i == zr_metric_count && i < ZR_FAMILIES_MOST) {
        struct zr_metric *f = &zr_metric[zr_metric_count++];
        snprintf(f->name, sizeof f->name, "%s", name);
        snprintf(f->help, sizeof f->help, "%s", help);
        f->type = type;
        f->nanoseconds = nanoseconds;
    }
    return i;
}

static void load_rules(void) {
    static const enum zr_metric_type type[] = {ZR_METRIC_COUNTER, ZR_METRIC_GAUGE, ZR_METRIC_HISTOGRAM, ZR_METRIC_GAUGE,
                                               ZR_METRIC_COUNTER};
    if (zr_metric_count)
        return;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (*rules[i].family_name)
            rules[i].family = family_of(rules[i].family_name, rules[i].help, type[rules[i].kind], false);
}

/* A field that the table does not know: its own name, with what Prometheus expects behind it. */
static unsigned family_of_unknown(const struct zeroute_field *f) {
    char name[96], help[160];
    size_t length = strlen(f->name);
    bool ns = length > 3 && strcmp(f->name + length - 3, "_ns") == 0, counter = f->type == ZEROUTE_COUNTER;
    snprintf(name, sizeof name, "%.*s%s%s", (int)(ns ? length - 3 : length), f->name, ns ? "_seconds" : "",
             counter ? "_total" : "");
    for (char *p = name; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9')))
            *p = '_';
    snprintf(help, sizeof help, "%s", f->help && *f->help ? f->help : "a field of the statistics");
    return family_of(name, help, counter ? ZR_METRIC_COUNTER : ZR_METRIC_GAUGE, ns);
}

/* --- fields ----------------------------------------------------------------------------------- */

/* A star stands for one character or more, as few as will do; the last one for the rest. */
static bool fits(const char *pattern, const char *name, struct part *star) {
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (*pattern != *name)
            return false;
    if (!*pattern)
        return !*name;
    star->at = name;
    for (star->length = 1; name[star->length - 1]; star->length++)
        if (pattern[1] ? fits(pattern + 1, name + star->length, star + 1) : !name[star->length])
            return true;
    return false;
}

static const struct rule *rule_of(const char *name, struct part *star) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(rules[i].field, name, star))
            return &rules[i];
    return NULL;
}

void zr_label(char *labels, size_t size, const char *name, const char *value) {
    size_t used = strlen(labels);
    char *harmless;
    if (!*value)
        return;
    harmless = zr_harmless(value, ZR_FOR_METRIC);
    /* One that does not fit as a whole is left out: half of an escape would spoil the page. */
    if ((size_t)snprintf(labels + used, size - used, "%s%s=\"%s\"", used ? "," : "", name, harmless) >= size - used)
        labels[used] = '\0';
    free(harmless);
}

static void fill_in(char *labels, size_t size, const char *pattern, const struct part *star,
                    const struct zr_device_names *devices) {
    while (*pattern) {
        size_t n = strcspn(pattern, "="), all = strcspn(pattern, ",");
        char name[32], value[128];
        const char *from = pattern + n + 1;
        snprintf(name, sizeof name, "%.*s", (int)n, pattern);
        if (*from != '$') {
            snprintf(value, sizeof value, "%.*s", (int)(all - n - 1), from);
        } else {
            const struct part *p = &star[from[1] == '2'];
            unsigned long number = from[1] == 'd' ? strtoul(p->at, NULL, 10) : 0;
            snprintf(value, sizeof value, "%.*s", (int)p->length, p->at);
            if (from[1] == 'd' && devices && number < devices->count)
                snprintf(value, sizeof value, "%s", devices->name[number]);
        }
        zr_label(labels, size, name, value);
        pattern += all + (pattern[all] == ',');
    }
}

/* --- sums ------------------------------------------------------------------------------------- */

/* FNV-1a, seeded with an address that is unknown to whoever chooses labels. */
static struct zr_series **chain_of(struct zr_figures *f, unsigned family, const char *labels) {
    uint64_t hash = (14695981039346656037u ^ (uintptr_t)rules ^ family) * 1099511628211u;
    for (const char *c = labels; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return &f->chain[(hash ^ hash >> 32) % ZR_CHAINS];
}

/* NULL: there are `most` already, or no memory. */
static struct zr_series *series_of(struct zr_figures *f, unsigned family, const char *labels, size_t most) {
    struct zr_series **chain = chain_of(f, family, labels);
    for (struct zr_series *s = *chain; s; s = s->below)
        if (s->family == family && strcmp(s->labels, labels) == 0)
            return s;
    size_t size = strlen(labels) + 1;
    struct zr_series *s = f->count < most ? calloc(1, sizeof *s + size) : NULL;
    if (!s)
        return NULL;
    s->family = family;
    memcpy(s->labels, labels, size);
    s->next = f->first;
    s->below = *chain;
    *chain = f->first = s;
    f->count++;
    return s;
}

static void take_histogram(struct zr_series *s, const struct zeroute_field *f) {
    unsigned le = 0;
    s->value += f->value;
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++) {
        uint64_t below = b + 1 < ZEROUTE_BUCKETS ? zeroute_bucket_floor(b + 1) : UINT64_MAX;
        while (le < ZR_LE && below > zr_le_ns(le))
            le++;
        s->bucket[le] += f->buckets[b];
    }
}

static void take_field(struct zr_figures *figures, const struct zeroute_field *f, const struct zr_device_names *devices,
                       const char *rank) {
    struct part star[STARS + 1];
    const struct rule *r = rule_of(f->name, star);
    char labels[320] = "";
    if (r && (!*r->family_name || (r->kind == HISTOGRAM) != (f->type == ZEROUTE_HISTOGRAM)))
        return;
    if (!r && f->type == ZEROUTE_HISTOGRAM)
        return;
    unsigned family = r ? r->family : family_of_unknown(f);
    if (family == ZR_FAMILIES_MOST)
        return;
    if (r)
        fill_in(labels, sizeof labels, r->labels, star, devices);
    if (r && r->kind == RANKED && rank)
        zr_label(labels, sizeof labels, "rank", rank);
    struct zr_series *s = series_of(figures, family, labels, ZR_PROCESS_SERIES);
    if (s && f->type == ZEROUTE_HISTOGRAM)
        take_histogram(s, f);
    else if (s)
        s->value += f->value;
}

void zr_figures_take(struct zr_figures *figures, const struct zeroute_snapshot *s,
                     const struct zr_device_names *devices, const char *rank) {
    load_rules();
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        bool any = f->type == ZEROUTE_HISTOGRAM ? f->buckets && i + 1 < s->field_count && s->field[i + 1].value
                                                : f->type != ZEROUTE_TEXT && f->value && f->value != ZEROUTE_ABSENT;
        if (any)
            take_field(figures, f, devices, rank);
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct zeroute_field *f = rules[i].kind == ALWAYS ? zeroute_find(s, rules[i].field) : NULL;
        if (f && !f->value)
            take_field(figures, f, devices, rank);
    }
}

bool zr_figures_add(struct zr_figures *f, const struct zr_figures *other, bool gauges, size_t most) {
    bool all = true;
    for (const struct zr_series *o = other->first; o; o = o->next) {
        if (zr_metric[o->family].type == ZR_METRIC_GAUGE && !gauges)
            continue;
        struct zr_series *s = series_of(f, o->family, o->labels, most);
        all &= s != NULL;
        if (!s)
            continue;
        s->value += o->value;
        for (unsigned b = 0; b <= ZR_LE; b++)
            s->bucket[b] += o->bucket[b];
    }
    return all;
}

void zr_figures_free(struct zr_figures *f) {
    for (struct zr_series *s = f->first, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    *f = (struct zr_figures){0};
}
