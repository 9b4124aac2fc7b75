/* What grows in a process while its own allocations do not, as whoever watches it sees it. */
#include "view/view.h"

#include <string.h>
#include <time.h>

enum { STEPS = 3 };
#define WATCHED_NS UINT64_C(30000000000)
#define STILL_NS UINT64_C(60000000000)

const struct zr_growth_kind zr_growth_kinds[ZR_GROWTHS] = {
    [ZR_GROWTH_UNSEEN] = {"unseen", "device memory that no allocation call shows",
                          "look at images, modules and command lists in 'zeroute stat PID': what is made and never "
                          "destroyed",
                          UINT64_C(16) << 20},
    [ZR_GROWTH_HOST] = {"host_usm", "host USM",
                        "look at who allocates pinned memory: 'zeroute record' has the call stacks",
                        UINT64_C(16) << 20},
    [ZR_GROWTH_GTT] = {"gtt", "host memory of the cards (GTT)",
                       "a card is full, or buffers are imported and never closed", UINT64_C(16) << 20},
    [ZR_GROWTH_IPC] = {"ipc", "open IPC handles",
                       "the program opens handles that it never closes (zeMemCloseIpcHandle)", 0},
};

/* --- what a process does ---------------------------------------------------------------------- */

static uint64_t level_of(const struct zr_process_view *v, unsigned k) {
    uint64_t images = 0;

    switch (k) {
    case ZR_GROWTH_UNSEEN:
        for (unsigned i = 0; i < v->accounts; i++)
            images += v->account[i].images;
        return v->unseen + images;
    case ZR_GROWTH_HOST:
        return v->host_usm;
    case ZR_GROWTH_GTT:
        return v->gtt == ZR_ABSENT ? 0 : v->gtt;
    default:
        return v->ipc_open;
    }
}

/*
 * From which level, and since when, a quantity grows while the program's own allocations do not. Begins again when it
 * falls back, when the program has allocated half as much itself, and when it rises after a standstill that was longer
 * than its growth and at least a minute.
 */
static void note(struct zr_trend *t, uint64_t level, uint64_t own, uint64_t now) {
    uint64_t grew = t->rose_ns - t->since_ns;
    bool rises = level > t->last, late = now - t->rose_ns > (grew > STILL_NS ? grew : STILL_NS);

    if (!t->began_ns)
        *t = (struct zr_trend){.began_ns = now, .since_ns = now, .rose_ns = now, .from = level, .own = own};
    t->samples++;
    t->seen_ns = now;
    if (level <= t->from || own > t->own + (level - t->from) / 2 || (rises && late)) {
        t->from = level;
        t->since_ns = t->rose_ns = now;
        t->steps = 0;
        t->own = own;
    } else if (rises) {
        t->rose_ns = now;
        t->steps++;
    }
    t->last = level;
}

void zr_trends_note(struct zr_process_view *v, uint64_t now_ns) {
    for (unsigned k = 0; k < ZR_GROWTHS; k++)
        note(&v->trend[k], level_of(v, k), k == ZR_GROWTH_IPC ? 0 : v->reserved, now_ns);
}

/* A constant quantity has no rising step, and a short look proves nothing. */
bool zr_grows(const struct zr_process_view *v, unsigned k, uint64_t now_ns, struct zr_growth *out) {
    const struct zr_trend *t = &v->trend[k];
    uint64_t grew = t->rose_ns - t->since_ns, least = zr_growth_kinds[k].least;
    struct timespec wall;

    if (t->samples < STEPS || t->steps < STEPS || now_ns - t->began_ns < WATCHED_NS || grew < WATCHED_NS / 6 ||
        now_ns - t->rose_ns > (grew > STILL_NS ? grew : STILL_NS))
        return false;
    clock_gettime(CLOCK_REALTIME, &wall);
    out->by = t->last > t->from ? t->last - t->from : 0;
    out->since = wall.tv_sec - (time_t)((now_ns - t->since_ns) / 1000000000u);
    out->seconds = (double)grew / 1e9;
    return out->by >= (least ? least : STEPS);
}

const char *zr_growth_text(char *out, unsigned k, const struct zr_growth *g) {
    char clock[32], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    double a_minute = (double)g->by / g->seconds * 60;
    struct tm t;

    localtime_r(&g->since, &t);
    strftime(clock, sizeof clock, time(NULL) - g->since < 20 * 3600 ? "%H:%M" : "%Y-%m-%d %H:%M", &t);
    if (zr_growth_kinds[k].least)
        snprintf(out, ZR_GROWTH_TEXT, "+%s since %s (%s a minute)", zr_text_bytes(a, g->by), clock,
                 zr_text_bytes(b, (uint64_t)a_minute));
    else
        snprintf(out, ZR_GROWTH_TEXT, "+%s since %s (%.*f a minute)", zr_text_count(a, g->by), clock, a_minute < 100,
                 a_minute);
    return out;
}
