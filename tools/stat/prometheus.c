/*
 * Prometheus text format: base units, _total on what only grows. The labels tell processes apart even
 * where a number is used again, as after exec: pid, when it began to use a device, state and command.
 */
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>

static void outside(FILE *out, const char *text) {
    char *harmless = zr_harmless(text, ZR_FOR_METRIC);
    fputs(harmless, out);
    free(harmless);
}

/* zeroute_ in front, dots as underscores, nanoseconds as seconds, _total behind counters. */
static void metric_name(char *out, size_t size, const struct zeroute_field *f) {
    size_t length = strlen(f->name), ns = 0;
    if (length > 3 && strcmp(f->name + length - 3, "_ns") == 0)
        ns = 3;
    snprintf(out, size, "zeroute_%.*s%s%s", (int)(length - ns), f->name, ns ? "_seconds" : "",
             f->type == ZEROUTE_COUNTER ? "_total" : "");
    for (char *p = out; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_'))
            *p = '_';
}

static void sample(FILE *out, const char *metric, const struct zeroute_process *p, const struct zeroute_field *f) {
    static const char *const state[] = {"live", "finished", "unknown"};
    size_t length = strlen(f->name);
    fprintf(out, "%s{pid=\"%d\",since=\"%llu.%03llu\",state=\"%s\",command=\"", metric, p->pid ? p->pid : p->pid_inside,
            (unsigned long long)(p->created_ns / 1000000000u), (unsigned long long)(p->created_ns / 1000000u % 1000u),
            state[p->state]);
    outside(out, p->command);
    if (*p->rank) {
        fputs("\",rank=\"", out);
        outside(out, p->rank);
    }
    if (length > 3 && strcmp(f->name + length - 3, "_ns") == 0)
        fprintf(out, "\"} %.9f\n", (double)f->value / 1e9);
    else
        fprintf(out, "\"} %llu\n", (unsigned long long)f->value);
}

static bool is_number(const struct zeroute_field *f) {
    return f->type == ZEROUTE_COUNTER || f->type == ZEROUTE_GAUGE || f->type == ZEROUTE_PEAK;
}

static bool seen_before(struct zeroute_snapshot *const *s, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (zeroute_find(s[i], name))
            return true;
    return false;
}

void zr_prometheus(FILE *out, struct zeroute_snapshot *const *s, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t f = 0; f < s[i]->field_count; f++) {
            const struct zeroute_field *field = &s[i]->field[f];
            char metric[160];
            /*
             * All samples of one metric must stand together: the first process that has it prints
             * them.
             */
            if (!is_number(field) || zeroute_find(s[i], field->name) != field || seen_before(s, i, field->name))
                continue;
            metric_name(metric, sizeof metric, field);
            fprintf(out, "# HELP %s ", metric);
            outside(out, field->help);
            fprintf(out, "\n# TYPE %s %s\n", metric, field->type == ZEROUTE_COUNTER ? "counter" : "gauge");
            for (size_t o = i; o < count; o++) {
                const struct zeroute_field *same = zeroute_find(s[o], field->name);
                if (same)
                    sample(out, metric, &s[o]->process, same);
            }
        }
    }
}
