/* A process and its fields as JSON. */
#include "stat/stat.h"

/* The raw buckets: [lowest ns, calls] for each that is not empty. */
static void histogram(json_t *fields, const struct zeroute_field *f) {
    char name[160];
    snprintf(name, sizeof name, "%s.buckets", f->name);
    json_t *buckets = zr_json_array(fields, name);
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++) {
        if (!f->buckets[b])
            continue;
        json_t *bucket = zr_json_array(buckets, NULL);
        zr_json_count(bucket, NULL, zeroute_bucket_floor(b));
        zr_json_count(bucket, NULL, f->buckets[b]);
    }
}

void zr_json_fields(json_t *object, const struct zeroute_snapshot *s) {
    json_t *fields = zr_json_object(object, "fields");
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (f->type == ZEROUTE_TEXT)
            zr_json_text(fields, f->name, f->text);
        else if (f->type != ZEROUTE_HISTOGRAM)
            zr_json_count(fields, f->name, f->value);
        else if (f[1].value)
            histogram(fields, f);
    }
    json_t *fingerprint = zr_json_object(object, "fingerprint");
    for (size_t i = 0; i < s->fact_count; i++)
        zr_json_text(fingerprint, s->fact[i].key, s->fact[i].value);
}

void zr_json_process(json_t *array, const struct zeroute_snapshot *s) {
    static const char *const state[] = {"live", "finished", "unknown"};
    const struct zeroute_process *p = &s->process;
    json_t *o = zr_json_object(array, NULL);
    zr_json_count(o, "pid", (uint64_t)(p->pid ? p->pid : p->pid_inside));
    zr_json_text(o, "command", p->command);
    zr_json_text(o, "state", state[p->state]);
    zr_json_count(o, "uid", p->uid);
    zr_json_count(o, "pid_inside", (uint64_t)p->pid_inside);
    zr_json_text(o, "run", p->run_id);
    zr_json_text(o, "job", p->job_id);
    zr_json_text(o, "rank", p->rank);
    zr_json_text(o, "version", p->version);
    zr_json_count(o, "created_ns", p->created_ns);
    zr_json_host(o, s);
    zr_json_fields(o, s);
}
