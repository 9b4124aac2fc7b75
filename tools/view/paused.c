/* Processes whose device memory has been given back (zeroute pause), as every command shows them. */
#include "view/view.h"

#include <string.h>

static const char *const names[] = {"off", "running", "pausing", "paused", "resuming"};

void zr_pause_take(struct zr_pause_view *out, const struct zeroute_snapshot *s) {
    uint64_t state = zeroute_value(s, "pause.state", ZR_ABSENT);
    const struct zeroute_field *reason = zeroute_find(s, "pause.reason");

    *out = (struct zr_pause_view){0};
    if (state > ZR_PAUSE_RESUMING - ZR_PAUSE_RUNNING)
        return;
    out->state = ZR_PAUSE_RUNNING + (unsigned)state;
    out->since_ns = zeroute_value(s, "pause.since_ns", 0);
    out->bytes = zeroute_value(s, "pause.bytes", 0);
    out->host_bytes = zeroute_value(s, "pause.host_bytes", 0);
    out->kept = zeroute_value(s, "pause.kept_bytes", 0);
    out->waiting = zeroute_value(s, "pause.waiting", 0);
    if (reason && reason->text)
        snprintf(out->reason, sizeof out->reason, "%s", reason->text);
}

const char *zr_pause_name(enum zr_pause_state state) {
    return names[state];
}

bool zr_is_paused(const struct zr_process_view *v) {
    return v->pause.state > ZR_PAUSE_RUNNING && v->process.state != ZEROUTE_FINISHED;
}

const char *zr_pause_text(char *out, const struct zr_process_view *v, uint64_t wall_ns) {
    char age[ZR_TEXT_SIZE];
    uint64_t since = v->pause.since_ns;

    *out = '\0';
    if (!zr_is_paused(v))
        return out;
    if (v->pause.state != ZR_PAUSE_PAUSED || !since || since > wall_ns)
        snprintf(out, ZR_TEXT_SIZE, "%s", names[v->pause.state]);
    else
        snprintf(out, ZR_TEXT_SIZE, "paused %.16s", zr_text_age(age, wall_ns - since));
    return out;
}

void zr_pause_json(json_t *object, const struct zr_process_view *v) {
    const struct zr_pause_view *p = &v->pause;

    if (p->state == ZR_PAUSE_OFF || v->process.state == ZEROUTE_FINISHED)
        return;
    json_t *one = zr_json_object(object, "pause");
    zr_json_text(one, "state", names[p->state]);
    if (p->since_ns)
        zr_json_count(one, "since_ns", p->since_ns);
    zr_json_count(one, "given_back_bytes", p->bytes);
    zr_json_count(one, "host_bytes", p->host_bytes);
    zr_json_count(one, "kept_bytes", p->kept);
    zr_json_count(one, "waiting_threads", p->waiting);
    if (*p->reason)
        zr_json_text(one, "reason", p->reason);
}
