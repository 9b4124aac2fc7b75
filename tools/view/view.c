/* A view: processes as they come and go, their figures and rates, and the sums that outlive them. */
#include "view/view.h"
#include "outside/outside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_AFTER = 5, IDLE_EVERY = 4, CROWD = 64 };

/* A process that has ended and was added to the sums of its group: not to be counted again. */
struct zr_ended {
    struct zeroute_process process;
    bool seen;
    struct zr_ended *next;
};

/* --- histories -------------------------------------------------------------------------------- */

void zr_history_note(struct zr_history *h, bool due, uint64_t value) {
    if (value > h->high)
        h->high = value;
    if (!due)
        return;
    h->value[h->at] = h->high;
    h->at = (h->at + 1) % ZR_HISTORY;
    h->count += h->count < ZR_HISTORY;
    h->high = 0;
}

/* One clock for all of them, so that what begins later stands at its time beside the others. */
static void tick_histories(struct zr_view *m, uint64_t now) {
    m->history_due = now >= m->history_next;
    if (m->history_due)
        m->history_next =
            now + m->scope.history_ns - m->scope.history_ns / 8; /* samples come a little early and late */
}

uint64_t zr_history_at(const struct zr_history *h, unsigned n) {
    return h->value[(h->at + ZR_HISTORY - h->count + n) % ZR_HISTORY];
}

/* --- groups of metrics ------------------------------------------------------------------------ */

static void group_labels(const struct zr_view *m, const struct zr_process_view *v, char *labels, size_t size) {
    char number[24];
    *labels = '\0';
    zr_label(labels, size, "job", v->id.job);
    zr_label(labels, size, "namespace", v->id.space);
    zr_label(labels, size, "pod", v->id.pod);
    zr_label(labels, size, "container", v->id.container);
    snprintf(number, sizeof number, "%u", v->process.uid);
    zr_label(labels, size, "uid", number);
    if (!m->scope.per_process)
        return;
    snprintf(number, sizeof number, "%d", v->process.pid ? v->process.pid : v->process.pid_inside);
    zr_label(labels, size, "pid", number);
    zr_label(labels, size, "command", v->process.command);
}

/* A group of which no process is left makes room: what it counted goes on under a name for all such. */
static struct zr_group *make_room(struct zr_view *m) {
    struct zr_group *others = &m->group[0];
    for (size_t i = 1; i < m->group_count; i++)
        if (!m->group[i].processes && !m->group[i].was_live) {
            zr_figures_add(&others->ended, &m->group[i].ended, false, ZR_USER_SERIES);
            zr_figures_free(&m->group[i].ended);
            zr_figures_free(&m->group[i].live);
            return &m->group[i];
        }
    return NULL;
}

static struct zr_group *group_of(struct zr_view *m, const char *labels) {
    struct zr_group *g;
    for (size_t i = 0; i < m->group_count; i++)
        if (strcmp(m->group[i].labels, labels) == 0)
            return &m->group[i];
    g = m->group_count < ZR_WATCH_KEPT ? NULL : make_room(m);
    if (!g && m->group_count < ZR_WATCH_GROUPS)
        g = &m->group[m->group_count++];
    if (!g)
        return &m->group[0];
    *g = (struct zr_group){0};
    snprintf(g->labels, sizeof g->labels, "%s", labels);
    return g;
}

static struct zr_group *group_of_process(struct zr_view *m, const struct zr_process_view *v) {
    char labels[sizeof m->group->labels];
    group_labels(m, v, labels, sizeof labels);
    struct zr_group *g = group_of(m, labels);
    if (g != &m->group[0])
        g->uid = v->process.uid;
    return g;
}

/* How many series a user may still have, in all groups. */
static size_t room_of_user(const struct zr_view *m, unsigned uid) {
    size_t used = 0;
    for (size_t i = 0; i < m->group_count; i++)
        if (m->group[i].uid == uid)
            used += m->group[i].live.count + m->group[i].ended.count;
    return used < ZR_USER_SERIES ? ZR_USER_SERIES - used : 0;
}

static void not_all_of(struct zr_view *m, unsigned uid) {
    m->unreadable++;
    snprintf(m->unreadable_why, sizeof m->unreadable_why, "user %u has more processes or metrics than can be shown",
             uid);
}

/* --- one process ------------------------------------------------------------------------------ */

static uint64_t value(const struct zeroute_snapshot *s, const char *name) {
    return zeroute_value(s, name, 0);
}

static void copy_text(char *out, size_t size, const struct zeroute_snapshot *s, const char *name) {
    const struct zeroute_field *f = zeroute_find(s, name);
    snprintf(out, size, "%s", f && f->text ? f->text : "");
}

/* Two cards of one address, as a driver without sysfs tells them, are known by their numbers. */
static bool is_alone(const struct zeroute_snapshot *s, const char *pci, unsigned number) {
    char key[48];
    for (unsigned n = 0; n < ZR_CARDS_MAX; n++) {
        snprintf(key, sizeof key, "card.%u.pci", n);
        const char *other = zeroute_fact(s, key);
        if (other && n != number && strcmp(other, pci) == 0)
            return false;
    }
    return true;
}

/* The name in "Intel(R) Arc(TM) B580 Graphics 8086:e20b, 2850 MHz". */
static const char *model_of(char *out, size_t size, const char *fact) {
    const char *comma = fact ? strrchr(fact, ',') : NULL;

    if (!comma || comma - fact < 11)
        return NULL;
    snprintf(out, size, "%.*s", (int)(comma - fact - 10), fact);
    return out;
}

static void device_names(struct zr_view *m, const struct zeroute_snapshot *s, struct zr_device_names *out) {
    char key[48], model[64];
    uint64_t memory;
    out->count = sizeof out->name / sizeof *out->name;
    for (unsigned n = 0; n < out->count; n++) {
        snprintf(key, sizeof key, "card.%u.pci", n);
        const char *pci = zeroute_fact(s, key);
        if (!pci || !is_alone(s, pci, n)) {
            snprintf(out->name[n], sizeof out->name[n], "%u", n);
            continue;
        }
        snprintf(out->name[n], sizeof out->name[n], "%.31s", pci);
        snprintf(key, sizeof key, "card.%u.memory", n);
        const char *text = zeroute_fact(s, key);
        if (!text || !zr_text_parse_bytes(text, &memory))
            memory = ZR_ABSENT;
        snprintf(key, sizeof key, "card.%u", n);
        zr_view_card(m, pci, memory, model_of(model, sizeof model, zeroute_fact(s, key)));
    }
}

/* The slowest kind of allocation call. */
static uint64_t p99_of(const struct zeroute_snapshot *s) {
    uint64_t most = 0;
    for (size_t i = 0; i + 4 < s->field_count; i++)
        if (s->field[i].type == ZEROUTE_HISTOGRAM && s->field[i + 1].value &&
            strncmp(s->field[i].name, "latency.zeMemAlloc", 18) == 0 && s->field[i + 4].value > most)
            most = s->field[i + 4].value;
    return most;
}

/* Since the last sample; of the first one since the process began. A torn reading may step back: no rate. */
static double rate(uint64_t now, uint64_t before, double seconds) {
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void rates(struct zr_process_view *v, const struct zr_process_view *before, double seconds) {
    v->allocations_rate = rate(v->allocations, before->allocations, seconds);
    v->driver_rate = rate(v->driver_calls, before->driver_calls, seconds);
    v->failures_rate = rate(v->failures, before->failures, seconds);
    v->hits_lately = v->hits - before->hits;
    v->asked_lately = v->hits_lately + v->misses - before->misses;
    if (v->hits < before->hits || v->misses < before->misses || !v->asked_lately) {
        v->hits_lately = v->hits; /* of the whole time, where there was nothing lately */
        v->asked_lately = v->hits + v->misses;
    }
    v->hit_rate = v->asked_lately ? (double)v->hits_lately / (double)v->asked_lately : -1;
}

static void take_numbers(struct zr_process_view *v, const struct zeroute_snapshot *s) {
    v->allocated = value(s, "allocated_bytes.all.current");
    v->reserved = value(s, "reserved_bytes.all.current");
    v->reserved_peak = value(s, "reserved_bytes.all.peak");
    v->peak = value(s, "allocated_bytes.all.peak");
    v->host_usm = value(s, "allocated_bytes.host.current");
    v->host_side = zr_host_side(s);
    v->blocks = value(s, "allocation.all.current");
    v->hits = value(s, "cache.hits");
    v->misses = value(s, "cache.misses");
    v->allocations = value(s, "allocation.all.allocated");
    v->driver_calls = value(s, "driver.alloc_calls") + value(s, "driver.free_calls");
    v->calls = zr_total(s, "calls.");
    v->failures = zr_total(s, "failures.");
    v->refused = 0;
#define ZR_BY_SETTING(id, setting, ...) v->refused += value(s, setting ".refused_calls");
#include "base/refusals.def"
    v->changes = value(s, "ctl.changes");
    v->ipc_open = value(s, "ipc.open");
    v->left_bytes = zeroute_value(s, "left.bytes", ZR_ABSENT);
    v->last_activity_ns = s->last_activity_ns;
    v->p99_ns = p99_of(s);
    zr_pause_take(&v->pause, s);
    copy_text(v->settings, sizeof v->settings, s, "settings");
    copy_text(v->route, sizeof v->route, s, "route.in_force");
    copy_text(v->hooks, sizeof v->hooks, s, "hooks");
}

/* What the program holds, less what it has given back until it is resumed. */
static uint64_t on_the_card(const struct zr_process_view *v) {
    uint64_t given_back = v->pause.state == ZR_PAUSE_PAUSED ? v->pause.bytes : 0;

    return v->allocated > given_back ? v->allocated - given_back : 0;
}

static bool read_process(struct zr_view *m, struct zr_process_view *v, const struct zr_look *look, uint64_t now,
                         char *why, size_t why_size) {
    struct zeroute_snapshot *s = zr_outside_snapshot(&v->process, why, why_size);
    struct zr_process_view before = {.sampled_ns = v->sampled_ns,
                                     .hits = v->hits,
                                     .misses = v->misses,
                                     .allocations = v->allocations,
                                     .driver_calls = v->driver_calls,
                                     .failures = v->failures};
    struct zr_device_names devices;
    uint64_t age = m->wall_ns > v->process.created_ns ? m->wall_ns - v->process.created_ns : 0;
    if (!s)
        return false;
    take_numbers(v, s);
    v->sampled_ns = now;
    rates(v, &before, (double)(before.sampled_ns ? now - before.sampled_ns : age) / 1e9);
    device_names(m, s, &devices);
    zr_view_memory(v, look);
    zr_view_account(v, s, &devices);
    zr_figures_free(&v->figures);
    if (m->scope.metrics)
        zr_figures_take(&v->figures, s, &devices, v->id.rank);
    zr_history_note(&v->used, m->history_due, on_the_card(v));
    zeroute_snapshot_free(v->snapshot);
    v->snapshot = m->scope.fields ? s : NULL;
    if (!m->scope.fields)
        zeroute_snapshot_free(s);
    return true;
}

/* --- coming and going ------------------------------------------------------------------------- */

/* A file may have several names, and is exchanged for a small one of the same name when its process ends. */
bool zr_is_same_process(const struct zeroute_process *a, const struct zeroute_process *b) {
    const char *one = strrchr(a->path, '/'), *other = strrchr(b->path, '/');
    bool same_file = a->device == b->device && a->inode == b->inode;
    bool same_name = one && other && strcmp(one, other) == 0;

    return a->nonce == b->nonce && a->uid == b->uid && a->pid_inside == b->pid_inside && (same_file || same_name);
}

static struct zr_process_view *find_same(const struct zr_view *m, const struct zeroute_process *p) {
    for (size_t i = 0; i < m->process_count; i++)
        if (zr_is_same_process(&m->process[i]->process, p))
            return m->process[i];
    return NULL;
}

static struct zr_process_view *new_process(const struct zr_view *m, const struct zeroute_process *p) {
    size_t of_user = 0;
    struct zr_process_view *v;

    for (size_t i = 0; i < m->process_count; i++)
        of_user += m->process[i]->process.uid == p->uid;
    v = of_user < ZR_USER_PROCESSES || p->uid == geteuid() ? calloc(1, sizeof *v) : NULL;
    if (!v)
        return NULL;
    v->process = *p;
    v->vram = v->gtt = v->mirror = v->left_bytes = ZR_ABSENT;
    v->hit_rate = -1;
    v->memory.rss = v->memory.cgroup_current = v->memory.cgroup_limit = ZR_ABSENT;
    zr_identify(p, &v->id);
    return v;
}

/* The view of a process that runs: as it was, or a new one. NULL: there are too many. */
static struct zr_process_view *view_of(struct zr_view *m, const struct zeroute_process *p) {
    struct zr_process_view *v = find_same(m, p);

    if (v) {
        v->process = *p;
        return v;
    }
    if (m->process_count == m->process_room) {
        size_t room = m->process_room ? 2 * m->process_room : 64;
        struct zr_process_view **more =
            room <= ZR_WATCH_PROCESSES ? realloc(m->process, room * sizeof(struct zr_process_view *)) : NULL;
        if (!more)
            return NULL;
        m->process = more;
        m->process_room = room;
    }
    v = new_process(m, p);
    if (v)
        m->process[m->process_count++] = v;
    return v;
}

static void forget(struct zr_process_view *v) {
    zr_figures_free(&v->figures);
    zeroute_snapshot_free(v->snapshot);
    free(v);
}

/* Its counters stay, its memory is free. */
static void retire(struct zr_view *m, const struct zr_process_view *v) {
    struct zr_figures *ended = &group_of_process(m, v)->ended;
    zr_figures_add(ended, &v->figures, false, ended->count + room_of_user(m, v->process.uid));
}

static bool was_counted(struct zr_view *m, const struct zeroute_process *p) {
    for (struct zr_ended *e = m->counted; e; e = e->next)
        if (zr_is_same_process(&e->process, p))
            return e->seen = true;
    return false;
}

static void note_unread(struct zr_view *m, const struct zeroute_process *p, const char *why) {
    struct zr_unread *more = realloc(m->unread, (m->unread_count + 1) * sizeof *more);
    struct zr_unread *one;

    m->unreadable++;
    snprintf(m->unreadable_why, sizeof m->unreadable_why, "%.127s", why);
    if (!more)
        return;
    m->unread = more;
    one = &more[m->unread_count++];
    *one = (struct zr_unread){.pid = p->pid_inside, .uid = p->uid};
    snprintf(one->path, sizeof one->path, "%s", p->path);
    snprintf(one->why, sizeof one->why, "%.127s", why);
}

/* Moves a process out of those that run; its figures stay what they were. */
static struct zr_process_view *take_out(struct zr_view *m, const struct zeroute_process *p) {
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_process_view *v = m->process[i];
        if (!zr_is_same_process(&v->process, p))
            continue;
        m->process[i] = m->process[--m->process_count];
        v->process = *p;
        return v;
    }
    return NULL;
}

static void keep_ended(struct zr_view *m, struct zr_process_view *v) {
    if (m->ended_count == m->ended_room) {
        size_t room = m->ended_room ? 2 * m->ended_room : 64;
        struct zr_process_view **more = realloc(m->ended, room * sizeof(struct zr_process_view *));
        if (!more) {
            forget(v);
            return;
        }
        m->ended = more;
        m->ended_room = room;
    }
    m->ended[m->ended_count++] = v;
    /* Segments are listed oldest first: all fields are kept of the newest. */
    if (m->ended_count > ZR_ENDED_FIELDS) {
        struct zr_process_view *old = m->ended[m->ended_count - 1 - ZR_ENDED_FIELDS];
        zeroute_snapshot_free(old->snapshot);
        old->snapshot = NULL;
    }
}

/* One that has ended: its last figures count once, whether or not it was seen alive. `keep` leaves it in the view. */
static void take_ended(struct zr_view *m, const struct zeroute_process *p, const struct zr_look *look, uint64_t now,
                       bool keep) {
    char why[256];
    struct zr_process_view *v;
    struct zr_ended *e;

    m->finished++;
    if (was_counted(m, p) || (!keep && !m->scope.metrics && !find_same(m, p)))
        return;
    e = malloc(sizeof *e);
    v = take_out(m, p);
    if (!v)
        v = new_process(m, p);
    if (!e || !v) {
        free(e);
        return;
    }
    *e = (struct zr_ended){*p, true, m->counted};
    m->counted = e;
    if (!read_process(m, v, look, now, why, sizeof why) && *why && !v->sampled_ns) {
        note_unread(m, p, why);
        forget(v);
        return;
    }
    v->accounts = 0;
    v->host_side = v->unseen = v->spilled = 0;
    zr_view_memory(v, look);
    retire(m, v);
    if (keep)
        keep_ended(m, v);
    else
        forget(v);
}

/* One that did nothing for some samples is read less often; those of a crowd take turns, unless metrics are wanted. */
static bool may_wait(const struct zr_view *m, const struct zr_process_view *v) {
    unsigned turns = v->idle >= IDLE_AFTER ? IDLE_EVERY : m->scope.metrics ? 1 : 1 + (unsigned)m->process_count / CROWD;
    return v->sampled_ns && (m->samples + (unsigned)v->process.pid_inside) % turns != 0;
}

static void take_live(struct zr_view *m, const struct zeroute_process *p, const struct zr_look *look, uint64_t now) {
    struct zr_process_view *v = view_of(m, p);
    char why[256] = "";
    uint64_t before;

    if (!v) {
        not_all_of(m, p->uid);
        return;
    }
    if (may_wait(m, v)) {
        v->seen = true;
        zr_history_note(&v->used, m->history_due, v->allocated);
        zr_view_memory(v, look);
    } else {
        before = v->calls;
        v->seen = read_process(m, v, look, now, why, sizeof why) || v->sampled_ns;
        v->idle = v->calls == before ? v->idle + 1 : 0;
        if (!v->seen && *why)
            note_unread(m, p, why);
    }
    m->unhooked += *v->hooks != '\0';
}

/* Segments that are gone: removed between two samples. */
static void sweep(struct zr_view *m) {
    size_t kept = 0;
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_process_view *v = m->process[i];
        if (v->seen) {
            v->seen = false;
            m->process[kept++] = v;
        } else {
            retire(m, v);
            forget(v);
        }
    }
    m->process_count = kept;
    for (struct zr_ended **at = &m->counted; *at;) {
        struct zr_ended *e = *at;
        if (e->seen) {
            e->seen = false;
            at = &e->next;
        } else {
            *at = e->next;
            free(e);
        }
    }
}

static void add_up(struct zr_view *m) {
    for (size_t i = 0; i < m->group_count; i++) {
        zr_figures_free(&m->group[i].live);
        m->group[i].was_live = m->group[i].processes > 0;
        m->group[i].processes = 0;
    }
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_group *g = group_of_process(m, m->process[i]);
        unsigned uid = m->process[i]->process.uid;
        m->process[i]->group = (size_t)(g - m->group);
        if (!zr_figures_add(&g->live, &m->process[i]->figures, true, g->live.count + room_of_user(m, uid)))
            not_all_of(m, uid);
        g->processes++;
    }
}

/* --- a look ----------------------------------------------------------------------------------- */

static bool is_in_scope(const struct zr_scope *scope, const struct zeroute_process *p) {
    if (scope->run && !zr_run_owns(p, scope->run))
        return false;
    bool directory = !p->readable && !p->pid_inside; /* of a user: what is in it is not known */
    return !scope->pid || directory || p->pid == scope->pid || p->pid_inside == scope->pid;
}

/*
 * A process on the simulated GPU tells of its cards and of host memory below a folder of its own, and so does whatever
 * runs beside it. The first that is found is followed.
 */
static bool follow_simulation(const struct zr_view *m, const struct zr_look *look) {
    char root[512];

    if (getenv("ZEROUTE_ROOT"))
        return false;
    for (size_t i = 0; i < look->count; i++) {
        const struct zeroute_process *p = &look->process[i];
        if (p->pid && p->state == ZEROUTE_LIVE && p->readable && p->uid == geteuid() && is_in_scope(&m->scope, p) &&
            zr_outside_simulation(p->pid, root, sizeof root)) {
            setenv("ZEROUTE_ROOT", root, 1);
            return true;
        }
    }
    return false;
}

static bool look_around(const struct zr_view *m, struct zr_look *look) {
    enum zr_thoroughness how = m->scope.all_at_once || !m->samples ? ZR_LOOK_NOW : ZR_LOOK_AGAIN;

    if (!zr_outside_look(look, how))
        return false;
    if (m->samples || !follow_simulation(m, look))
        return true;
    zr_look_free(look);
    return zr_outside_look(look, how);
}

/* What a segment alone tells of the job must do: the environment of a process ends with it. */
static bool is_of_one_that_runs(const struct zr_view *m, const struct zeroute_process *p) {
    for (size_t i = 0; i < m->process_count; i++) {
        const struct zeroute_process *live = &m->process[i]->process;
        bool job = *p->job_id && strcmp(p->job_id, live->job_id) == 0;
        bool run = !*p->job_id && *p->run_id && strcmp(p->run_id, live->run_id) == 0;
        if (live->uid == p->uid && (job || run))
            return true;
    }
    return false;
}

/* Host and shared USM of a process that the view does not show: GPUActive counts it all the same. */
static uint64_t host_side_of(const struct zeroute_process *p) {
    char why[256];
    struct zeroute_snapshot *s =
        p->readable && p->state != ZEROUTE_FINISHED ? zr_outside_snapshot(p, why, sizeof why) : NULL;
    uint64_t bytes = s ? zr_host_side(s) : 0;

    zeroute_snapshot_free(s);
    return bytes;
}

static void take_all(struct zr_view *m, const struct zr_look *look, uint64_t now) {
    m->unreadable = m->unhooked = 0;
    m->unread_count = m->finished = 0;
    m->host_side_beyond = 0;
    for (size_t i = 0; i < look->count; i++) {
        const struct zeroute_process *p = &look->process[i];
        if (!is_in_scope(&m->scope, p)) {
            m->host_side_beyond += m->scope.before ? 0 : host_side_of(p);
            continue;
        }
        if (!p->readable)
            note_unread(m, p, p->why);
        else if (p->state != ZEROUTE_FINISHED)
            take_live(m, p, look, now);
    }
    for (size_t i = 0; i < look->count; i++) {
        const struct zeroute_process *p = &look->process[i];
        if (is_in_scope(&m->scope, p) && p->readable && p->state == ZEROUTE_FINISHED)
            take_ended(m, p, look, now, m->scope.finished || (m->scope.jobs && is_of_one_that_runs(m, p)));
    }
}

bool zr_view_sample(struct zr_view *m) {
    uint64_t now = zr_clock_ns();
    struct zr_look look;

    if (!look_around(m, &look))
        return false;
    m->wall_ns = zr_wall_ns();
    tick_histories(m, now);
    take_all(m, &look, now);
    sweep(m);
    add_up(m);
    if (!zr_meminfo_read(&m->host))
        m->host = (struct zr_meminfo){ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT};
    zr_view_cards(m, &look);
    for (size_t i = 0; i < m->process_count; i++)
        zr_trends_note(m->process[i], now);
    zr_joint_note(m);
    zr_look_free(&look);
    m->samples++;
    m->sample_ns = zr_clock_ns() - now;
    return true;
}

struct zr_process_view *zr_view_find(const struct zr_view *m, int pid) {
    struct zr_process_view *best = NULL;

    for (int inside = 0; !best && inside < 2; inside++) {
        for (size_t i = 0; i < m->process_count; i++)
            if ((inside ? m->process[i]->process.pid_inside : m->process[i]->process.pid) == pid)
                best = m->process[i];
        for (size_t i = 0; i < m->ended_count && (!best || best->process.state == ZEROUTE_FINISHED); i++)
            if ((inside ? m->ended[i]->process.pid_inside : m->ended[i]->process.pid) == pid)
                best = m->ended[i];
    }
    return best;
}

bool zr_view_keep(struct zr_view *m, int pid) {
    struct zr_process_view *kept = zr_view_find(m, pid);
    bool ended = kept && kept->process.state == ZEROUTE_FINISHED;

    if (!kept)
        return false;
    for (size_t i = 0; i < m->process_count; i++)
        if (m->process[i] != kept)
            forget(m->process[i]);
    for (size_t i = 0; i < m->ended_count; i++)
        if (m->ended[i] != kept)
            forget(m->ended[i]);
    m->process_count = !ended;
    m->ended_count = ended;
    if (ended)
        m->ended[0] = kept;
    else
        m->process[0] = kept;
    return true;
}

struct zr_view *zr_view_new(const struct zr_scope *scope) {
    struct zr_view *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->scope = *scope;
    m->group_count = 1;
    zr_label(m->group[0].labels, sizeof m->group[0].labels, "job", "(others)");
    m->group[0].uid = UINT_MAX;
    return m;
}

void zr_view_free(struct zr_view *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->process_count; i++)
        forget(m->process[i]);
    for (size_t i = 0; i < m->group_count; i++) {
        zr_figures_free(&m->group[i].live);
        zr_figures_free(&m->group[i].ended);
    }
    for (struct zr_ended *e = m->counted, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    for (size_t i = 0; i < m->ended_count; i++)
        forget(m->ended[i]);
    free(m->ended);
    free(m->joint);
    free(m->unread);
    free(m->process);
    free(m);
}
