/* A snapshot: its memory, histograms and what follows from them, asking for fields, adding snapshots up. */
#include "reader/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of a snapshot, freed as a whole: pieces, many of them names, come from chunks. */
#define CHUNK ((size_t)32 << 10)
struct memory {
    struct memory *next;
    size_t used, room;
    uint64_t charged; /* to the owner of the segment, with the first chunk: budget.c */
    unsigned uid;
    _Alignas(16) char bytes[];
};

void *zeroute_keep(struct zeroute_snapshot *s, size_t size) {
    struct memory *m = s->memory;
    size = (size + 15) & ~(size_t)15;
    if (!m || m->room - m->used < size) {
        size_t room = size > CHUNK / 4 ? size : CHUNK;
        m = calloc(1, sizeof *m + room);
        if (!m)
            return NULL;
        m->room = room;
        m->next = s->memory;
        s->memory = m;
    }
    m->used += size;
    return m->bytes + m->used - size;
}

const char *zeroute_keep_text(struct zeroute_snapshot *s, const char *text, size_t length) {
    char *copy = zeroute_keep(s, length + 1);
    if (!copy)
        return "";
    memcpy(copy, text, length);
    return copy;
}

void zeroute_snapshot_charge(struct zeroute_snapshot *s, const struct zeroute_budget *b) {
    struct memory *first = s->memory;
    uint64_t bytes = 0;
    for (struct memory *m = first; m; m = m->next)
        bytes += sizeof *m + m->room;
    bytes += s->field_count * sizeof *s->field + s->fact_count * sizeof *s->fact;
    if (first && !b->free) {
        first->charged = bytes;
        first->uid = b->uid;
    }
    zeroute_budget_end(b, (int64_t)bytes);
}

void zeroute_snapshot_free(struct zeroute_snapshot *s) {
    if (!s)
        return;
    struct memory *m = s->memory;
    while (m) {
        struct memory *next = m->next;
        if (m->charged)
            zeroute_budget_return(m->uid, m->charged);
        free(m);
        m = next;
    }
    free(s->field);
    free(s->fact);
    free(s);
}

/* --- histograms ------------------------------------------------------------------------------- */

uint64_t zeroute_bucket_floor(unsigned bucket) {
    if (bucket == 0)
        return 0;
    unsigned octave = (bucket - 1) / 4 + 4;
    return (uint64_t)(4 + (bucket - 1) % 4) << (octave - 2);
}

static uint64_t percentile(const uint64_t *buckets, uint64_t total, uint64_t max, unsigned percent) {
    if (!total)
        return 0;
    if (total == 1)
        return max;
    uint64_t rank = (total * percent + 99) / 100, below = 0;
    unsigned b = 0;
    while (b + 1 < ZEROUTE_BUCKETS && below + buckets[b] < rank)
        below += buckets[b++];
    double low = (double)zeroute_bucket_floor(b);
    double high = b + 1 < ZEROUTE_BUCKETS ? (double)zeroute_bucket_floor(b + 1) : (double)max;
    double part = buckets[b] ? ((double)(rank - below) - 0.5) / (double)buckets[b] : 0;
    uint64_t value = (uint64_t)(low + (high - low) * part);
    return value > max ? max : value;
}

void zeroute_derive(struct zeroute_field *at, uint64_t max) {
    uint64_t total = 0;
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++)
        total += at->buckets[b];
    at[1].value = total;
    at[2].value = at->value;
    at[3].value = percentile(at->buckets, total, max, 50);
    at[4].value = percentile(at->buckets, total, max, 99);
    at[5].value = max;
}

bool zeroute_name_derived(struct zeroute_snapshot *s, struct zeroute_field *at) {
    static const struct {
        const char *name, *unit, *help;
        enum zeroute_type type;
    } part[ZEROUTE_DERIVED] = {
        {"calls", "", "calls that were timed, or that a timed one stands for", ZEROUTE_COUNTER},
        {"sum_ns", "ns", "time of these calls together", ZEROUTE_COUNTER},
        {"p50_ns", "ns", "half of the calls took no longer", ZEROUTE_GAUGE},
        {"p99_ns", "ns", "99 of 100 calls took no longer", ZEROUTE_GAUGE},
        {"max_ns", "ns", "the longest call", ZEROUTE_PEAK},
    };
    for (size_t i = 0; i < ZEROUTE_DERIVED; i++) {
        size_t size = strlen(at->name) + 16;
        char *name = zeroute_keep(s, size);
        if (!name)
            return false;
        snprintf(name, size, "%s.%s", at->name, part[i].name);
        at[1 + i] =
            (struct zeroute_field){.name = name, .unit = part[i].unit, .help = part[i].help, .type = part[i].type};
    }
    return true;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Where a name is looked for first; open addressing. */
struct names {
    size_t mask, fields;
    uint32_t at[]; /* of the field, from 1 */
};

static uint32_t *place_of(struct names *n, const struct zeroute_field *field, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    size_t i = (hash ^ hash >> 32) & n->mask;
    while (n->at[i] && strcmp(field[n->at[i] - 1].name, name) != 0)
        i = (i + 1) & n->mask;
    return &n->at[i];
}

void zeroute_index_names(struct zeroute_snapshot *s) {
    size_t room = 64;
    while (room < 2 * s->field_count)
        room *= 2;
    struct names *n = zeroute_keep(s, sizeof *n + room * sizeof n->at[0]);
    if (!n)
        return;
    n->mask = room - 1;
    n->fields = s->field_count;
    for (size_t i = 0; i < s->field_count; i++) {
        uint32_t *at = place_of(n, s->field, s->field[i].name);
        if (!*at)
            *at = (uint32_t)i + 1;
    }
    s->names = n;
}

const struct zeroute_field *zeroute_find(const struct zeroute_snapshot *s, const char *name) {
    struct names *n = s->names;
    uint32_t at = n ? *place_of(n, s->field, name) : 0;
    if (at)
        return &s->field[at - 1];
    for (size_t i = n ? n->fields : 0; i < s->field_count; i++)
        if (strcmp(s->field[i].name, name) == 0)
            return &s->field[i];
    return NULL;
}

size_t zeroute_fields(const struct zeroute_snapshot *s, const struct zeroute_field **fields) {
    *fields = s->field;
    return s->field_count;
}

uint64_t zeroute_value(const struct zeroute_snapshot *s, const char *name, uint64_t absent) {
    const struct zeroute_field *f = zeroute_find(s, name);
    return f ? f->value : absent;
}

const char *zeroute_fact(const struct zeroute_snapshot *s, const char *key) {
    for (size_t i = 0; i < s->fact_count; i++)
        if (strcmp(s->fact[i].key, key) == 0)
            return s->fact[i].value;
    return NULL;
}

/* --- adding up -------------------------------------------------------------------------------- */

static bool add_missing(struct zeroute_snapshot *sum, const struct zeroute_field *from, size_t n) {
    struct zeroute_field *grown = realloc(sum->field, (sum->field_count + n + 1) * sizeof *sum->field);
    if (!grown)
        return false;
    sum->field = grown;
    for (size_t i = 0; i < n; i++) {
        struct zeroute_field *to = &sum->field[sum->field_count++];
        *to = from[i];
        to->name = zeroute_keep_text(sum, from[i].name, strlen(from[i].name));
        to->unit = zeroute_keep_text(sum, from[i].unit, strlen(from[i].unit));
        to->help = zeroute_keep_text(sum, from[i].help, strlen(from[i].help));
        if (from[i].text)
            to->text = zeroute_keep_text(sum, from[i].text, strlen(from[i].text));
        if (from[i].buckets) {
            uint64_t *b = zeroute_keep(sum, ZEROUTE_BUCKETS * sizeof *b);
            if (!b)
                return false;
            memcpy(b, from[i].buckets, ZEROUTE_BUCKETS * sizeof *b);
            to->buckets = b;
        }
    }
    return true;
}

static bool add_to_histogram(struct zeroute_snapshot *sum, struct zeroute_field *to, const struct zeroute_field *from) {
    uint64_t *b = zeroute_keep(sum, ZEROUTE_BUCKETS * sizeof *b);
    if (!b)
        return false;
    for (unsigned i = 0; i < ZEROUTE_BUCKETS; i++)
        b[i] = to->buckets[i] + from->buckets[i];
    to->buckets = b;
    to->value += from->value;
    zeroute_derive(to, to[ZEROUTE_DERIVED].value > from[ZEROUTE_DERIVED].value ? to[ZEROUTE_DERIVED].value
                                                                               : from[ZEROUTE_DERIVED].value);
    return true;
}

static bool add_up(struct zeroute_snapshot *sum, const struct zeroute_snapshot *other) {
    for (size_t i = 0; i < other->field_count; i++) {
        const struct zeroute_field *from = &other->field[i];
        struct zeroute_field *to = (struct zeroute_field *)(uintptr_t)zeroute_find(sum, from->name);
        size_t group = from->type == ZEROUTE_HISTOGRAM ? 1 + ZEROUTE_DERIVED : 1;
        if (!to) {
            if (!add_missing(sum, from, group))
                return false;
        } else if (to->type != from->type) {
            continue;
        } else if (from->type == ZEROUTE_HISTOGRAM) {
            if (!add_to_histogram(sum, to, from))
                return false;
        } else if (from->type == ZEROUTE_TEXT) {
            if (strcmp(to->text, from->text) != 0)
                to->text = "differ";
        } else {
            to->value += from->value;
        }
        i += group - 1;
    }
    sum->processes += other->processes;
    sum->torn |= other->torn;
    if (other->last_activity_ns > sum->last_activity_ns)
        sum->last_activity_ns = other->last_activity_ns;
    return true;
}

/* Fields are looked up by name, one by one in what was added: names that no other process has take the longest. */
bool zeroute_snapshot_add(struct zeroute_snapshot *sum, const struct zeroute_snapshot *other) {
    struct zeroute_budget budget;
    bool good = zeroute_budget_begin(&budget, other->process.uid) && add_up(sum, other);
    zeroute_budget_end(&budget, 0);
    return good;
}
