/* A process and its fields as JSON. */
#include "stat/stat.h"

#include <stdio.h>

/* The raw buckets, [lowest ns, calls] for each that is not empty, on one line. */
static void histogram(struct zr_json *j, const struct zeroute_field *f)
{
    char name[160];
    snprintf(name, sizeof name, "%s.buckets", f->name);
    zr_json_begin(j, name, '[');
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++) {
        if (!f->buckets[b])
            continue;
        zr_json_open(j, '[');
        zr_json_number(j, zeroute_bucket_floor(b));
        zr_json_number(j, f->buckets[b]);
        zr_json_close(j, ']');
    }
    zr_json_close(j, ']');
}

void zr_json_fields(struct zr_json *j, const struct zeroute_snapshot *s)
{
    zr_json_begin(j, "fields", '{');
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (f->type == ZEROUTE_HISTOGRAM) {
            if (f[1].value)
                histogram(j, f);
            continue;
        }
        zr_json_key(j, f->name);
        if (f->type == ZEROUTE_TEXT)
            zr_json_string(j, f->text);
        else
            zr_json_number(j, f->value);
    }
    zr_json_close(j, '}');
    zr_json_begin(j, "fingerprint", '{');
    for (size_t i = 0; i < s->fact_count; i++)
        zr_json_text(j, s->fact[i].key, s->fact[i].value);
    zr_json_close(j, '}');
}

void zr_json_process(struct zr_json *j, const struct zeroute_snapshot *s)
{
    static const char *const state[] = {"live", "finished", "unknown"};
    const struct zeroute_process *p = &s->process;
    zr_json_open(j, '{');
    zr_json_count(j, "pid", (uint64_t)(p->pid ? p->pid : p->pid_inside));
    zr_json_text(j, "command", p->command);
    zr_json_text(j, "state", state[p->state]);
    zr_json_count(j, "uid", p->uid);
    zr_json_count(j, "pid_inside", (uint64_t)p->pid_inside);
    zr_json_text(j, "run", p->run_id);
    zr_json_text(j, "job", p->job_id);
    zr_json_text(j, "rank", p->rank);
    zr_json_text(j, "version", p->version);
    zr_json_count(j, "created_ns", p->created_ns);
    zr_json_host(j, s);
    zr_json_fields(j, s);
    zr_json_close(j, '}');
}
