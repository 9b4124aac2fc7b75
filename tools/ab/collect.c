/* What a run left behind: the segments of its processes, added up; and what the machine is. */
#include "ab/ab.h"
#include "outside/outside.h"
#include "stat/stat.h"
#include "view/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* --- fingerprint ------------------------------------------------------------------------------ */

/* Processes of one run may differ (a launcher and its workers): then every value is listed, in order. */
static void merge(struct zr_pairs *p, const char *name, const char *value) {
    const char *old = zr_pairs_get(p, name);
    char *both;

    if (!old) {
        zr_pairs_set(p, name, value);
        return;
    }
    size_t n = strlen(value);
    for (const char *at = old; (at = strstr(at, value)); at++)
        if ((at == old || at[-1] == ' ') && (at[n] == 0 || !strncmp(at + n, " | ", 3)))
            return;
    both = strcmp(old, value) < 0 ? zr_ab_text("%s | %s", old, value) : zr_ab_text("%s | %s", value, old);
    zr_pairs_set(p, name, both);
    free(both);
}

static void merge_settings(struct zr_pairs *p, const char *settings) {
    char *copy = zr_ab_text("%s", settings), *rest = copy, *one;

    while ((one = strsep(&rest, ","))) {
        char *colon = strchr(one, ':'), *name;
        if (!colon)
            continue;
        *colon = 0;
        name = zr_ab_text("setting.%s", one);
        merge(p, name, colon + 1);
        free(name);
    }
    free(copy);
}

/* "PATH build-id:ID" becomes two entries, so that a path alone can be told from another build. */
static void merge_library(struct zr_pairs *p, const char *key, const char *value) {
    const char *id = strstr(value, " build-id:");
    char *path = id ? strndup(value, (size_t)(id - value)) : strdup(value);
    char *name = zr_ab_text("%s.path", key);

    merge(p, name, path ? path : value);
    free(name);
    if (id) {
        name = zr_ab_text("%s.build_id", key);
        merge(p, name, id + strlen(" build-id:"));
        free(name);
    }
    /* "libze_loader.so.1.28.2": the file's name tells the version; "libsycl.so.9" does not. */
    const char *version = path ? strstr(path, ".so.") : NULL;
    if (version && strchr(version + 4, '.')) {
        name = zr_ab_text("%s.version", key);
        merge(p, name, version + 4);
        free(name);
        if (!strncmp(key, "library.libze_loader", 20))
            merge(p, "loader.version", version + 4);
    }
    if (!strncmp(key, "library.libur_adapter_", 22))
        merge(p, "adapter", key + 8);
    free(path);
}

void zr_ab_fact(struct zr_pairs *p, const char *key, const char *value) {
    if (!strcmp(key, "settings"))
        merge_settings(p, value);
    else if (!strncmp(key, "library.", 8) && strstr(value, " build-id:"))
        merge_library(p, key, value);
    else
        merge(p, key, value);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void keep_fields(struct zr_pairs *p, const struct zeroute_snapshot *s) {
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        char text[24];
        if (f->type == ZEROUTE_TEXT || f->type == ZEROUTE_HISTOGRAM || f->value == 0 || f->value == ZEROUTE_ABSENT)
            continue;
        snprintf(text, sizeof(text), "%llu", (unsigned long long)f->value);
        zr_pairs_set(p, f->name, text);
    }
}

static bool is_allocation(const char *name) {
    return !strncmp(name, "latency.zeMemAlloc", 18) || !strcmp(name, "latency.zePhysicalMemCreate");
}

/* The middle of the bucket that holds the q-th call, in seconds. */
static double bucket_quantile(const uint64_t *buckets, double q) {
    double all = 0, seen = 0;

    for (unsigned i = 0; i < ZEROUTE_BUCKETS; i++)
        all += (double)buckets[i];
    for (unsigned i = 0; all > 0 && i < ZEROUTE_BUCKETS; i++) {
        seen += (double)buckets[i];
        if (seen >= q * all) {
            double low = (double)zeroute_bucket_floor(i);
            double high = i + 1 < ZEROUTE_BUCKETS ? (double)zeroute_bucket_floor(i + 1) : low;
            return 0.5e-9 * (low + high);
        }
    }
    return NAN;
}

static void set_metric(struct zr_ab *ab, struct zr_ab_run *run, const char *name, double value) {
    size_t m = zr_ab_metric_index(ab, name);

    if (m < ab->n_metrics)
        run->value[m] = value;
}

static void latencies(struct zr_ab *ab, struct zr_ab_run *run, const struct zeroute_snapshot *s) {
    uint64_t buckets[ZEROUTE_BUCKETS] = {0}, longest = 0;

    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (f->type == ZEROUTE_HISTOGRAM && f->buckets && is_allocation(f->name)) {
            char *name = zr_ab_text("%s.max_ns", f->name);
            uint64_t max = zeroute_value(s, name, 0);
            longest = max > longest ? max : longest;
            for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++)
                buckets[b] += f->buckets[b];
            free(name);
        }
    }
    if (longest) {
        set_metric(ab, run, "latency.p50", fmin(bucket_quantile(buckets, 0.5), 1e-9 * (double)longest));
        set_metric(ab, run, "latency.p99", fmin(bucket_quantile(buckets, 0.99), 1e-9 * (double)longest));
        set_metric(ab, run, "latency.max", 1e-9 * (double)longest);
    }
}

static void field_metrics(struct zr_ab *ab, struct zr_ab_run *run) {
    static const struct {
        const char *name, *fields;
    } from_fields[] = {
#define ZR_METRIC(id, name, unit, better, fields, help) {name, fields},
#include "ab/metrics.def"
#undef ZR_METRIC
    };

    for (size_t i = 0; i < sizeof(from_fields) / sizeof(*from_fields); i++)
        if (from_fields[i].fields)
            set_metric(ab, run, from_fields[i].name, zr_ab_field_sum(&run->fields, from_fields[i].fields));
}

bool zr_ab_collect(struct zr_ab *ab, struct zr_ab_run *run, const char *name) {
    struct zr_look look;
    struct zeroute_snapshot *sum;
    uint64_t calls = 0;
    size_t count = 0;
    char why[256];

    zr_outside_look(&look, ZR_LOOK_SEGMENTS);
    struct zeroute_snapshot **s = zr_ab_more(NULL, look.count, sizeof(struct zeroute_snapshot *));
    for (size_t i = 0; i < look.count; i++) {
        if (!zr_run_owns(&look.process[i], name))
            continue;
        s[count] = zr_outside_snapshot(&look.process[i], why, sizeof(why));
        if (!s[count])
            continue;
        for (size_t f = 0; f < s[count]->fact_count; f++)
            zr_ab_fact(&run->fingerprint, s[count]->fact[f].key, s[count]->fact[f].value);
        count++;
        zr_gc_remove(&look.process[i], false);
    }
    sum = zr_sum(s, count);
    if (sum) {
        calls = zr_total(sum, "calls.");
        keep_fields(&run->fields, sum);
        latencies(ab, run, sum);
        field_metrics(ab, run);
    }
    zeroute_snapshot_free(sum);
    while (count)
        zeroute_snapshot_free(s[--count]);
    free(s);
    zr_look_free(&look);
    return calls > 0;
}

/* --- the machine ------------------------------------------------------------------------------ */

void zr_ab_machine(struct zr_ab *ab) {
    struct utsname u;
    struct zr_meminfo m;
    char path[512], text[64], *cpu = NULL, *whole;

    if (!uname(&u))
        zr_pairs_set(&ab->machine, "system", u.sysname);
    zr_root_path(path, sizeof(path), "/proc/sys/kernel/osrelease");
    whole = zr_read_whole(path, NULL);
    if (whole)
        whole[strcspn(whole, "\n")] = 0;
    zr_pairs_set(&ab->machine, "kernel", whole ? whole : u.release);
    free(whole);
    if (zr_meminfo_read(&m))
        zr_pairs_set(&ab->machine, "memory", zr_text_bytes(text, m.total));
    whole = zr_read_whole("/proc/cpuinfo", NULL);
    cpu = whole ? strstr(whole, "model name") : NULL;
    cpu = cpu ? strchr(cpu, ':') : NULL;
    if (cpu) {
        cpu += 1 + strspn(cpu + 1, " \t");
        cpu[strcspn(cpu, "\n")] = 0;
        zr_pairs_set(&ab->machine, "processor", cpu);
    }
    free(whole);
    snprintf(text, sizeof(text), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    zr_pairs_set(&ab->machine, "processors", text);
    for (size_t r = 0; r < ab->n_runs; r++) { /* of the first run that tells: the arms may differ in it */
        const struct zr_pairs *p = &ab->run[r].fingerprint;
        for (size_t i = 0; i < p->n; i++)
            if ((!strncmp(p->at[i].name, "card.", 5) || !strncmp(p->at[i].name, "driver.", 7) ||
                 !strncmp(p->at[i].name, "loader.", 7) || !strcmp(p->at[i].name, "adapter")) &&
                !zr_pairs_get(&ab->machine, p->at[i].name))
                zr_pairs_set(&ab->machine, p->at[i].name, p->at[i].value);
    }
}
