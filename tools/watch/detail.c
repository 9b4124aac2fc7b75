/* zeroute top: one process in detail, and the page of keys. */
#include "doctor/doctor.h"
#include "outside/outside.h"
#include "stat/stat.h"
#include "watch/top.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPH = 5 };

/* Memory in use over time: GRAPH lines of bars, the newest at the right. */
static void graph(struct zr_lines *l, const struct zr_process_view *p, const struct zr_top_view *v, double each) {
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char ascii[] = " .::-=+*#";
    const struct zr_history *h = &p->used;
    unsigned width = v->width > 12 ? (unsigned)v->width - 8 : 4, first = h->count > width ? h->count - width : 0;
    uint64_t most = 1;
    char text[2048], size[ZR_TEXT_SIZE];
    for (unsigned i = first; i < h->count; i++)
        most = zr_history_at(h, i) > most ? zr_history_at(h, i) : most;
    for (int y = GRAPH - 1; y >= 0; y--) {
        size_t used = (size_t)snprintf(text, sizeof text, "%6s ", y == GRAPH - 1 ? zr_short_bytes(size, most) : "");
        for (unsigned i = first; i < h->count && used + 4 < sizeof text; i++) {
            double level = (double)zr_history_at(h, i) / (double)most * GRAPH - y;
            unsigned eighth = level <= 0 ? 0 : level >= 1 ? 8 : 1 + (unsigned)(level * 7);
            used += (size_t)snprintf(text + used, sizeof text - used, v->utf8 ? "%s" : "%.1s",
                                     v->utf8 ? bars[eighth] : &ascii[eighth]);
        }
        zr_lines_add(l, ZR_STYLE_PLAIN, "%s", text);
    }
    zr_lines_add(l, ZR_STYLE_DIM, "       device memory in use, the last %.0f s", (h->count - first) * each);
}

static void summary(struct zr_lines *l, struct zr_process_view *p, const struct zr_view *m) {
    char why[256], *text = NULL;
    size_t size = 0;
    struct zeroute_snapshot *s = zr_outside_snapshot(&p->process, why, sizeof why);
    struct zr_sheet page = {.snapshot = s, .view = m, .process = &p, .count = 1};
    FILE *f = s ? open_memstream(&text, &size) : NULL;
    if (f) {
        zr_summary(f, &page, false, true);
        fclose(f);
        zr_lines_split(l, ZR_STYLE_PLAIN, text, 0);
    } else {
        zr_lines_add(l, ZR_STYLE_ALERT, "its statistics cannot be read: %s", *why ? zr_shown(why) : "it has ended");
    }
    free(text);
    zeroute_snapshot_free(s);
}

static void findings(struct zr_lines *l, const struct zr_process_view *p, size_t width) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    zr_doctor_findings(f, p->process.pid);
    fclose(f);
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s", "");
    zr_lines_add(l, ZR_STYLE_HEAD, "doctor");
    zr_lines_split(l, ZR_STYLE_PLAIN, *text ? text : "nothing to report\n", width);
    free(text);
}

void zr_draw_detail(struct zr_lines *l, struct zr_process_view *p, const struct zr_view *m, const struct zr_top_view *v,
                    double seconds_each) {
    const struct zr_identity *id = &p->id;
    int pid = p->process.pid ? p->process.pid : p->process.pid_inside;
    zr_lines_add(l, ZR_STYLE_TITLE, "%d  %s", pid, zr_shown(p->process.command));
    if (*id->job || *id->pod || *id->container)
        zr_lines_add(l, ZR_STYLE_DIM, "%s%s%s%s%s%s%s%s%s%s", *id->job ? "job " : "", zr_shown(id->job),
                     *id->rank ? " rank " : "", zr_shown(id->rank), *id->local_rank ? ", local rank " : "",
                     zr_shown(id->local_rank), *id->pod ? "  pod " : "", zr_shown(id->pod),
                     *id->container ? "  container " : "", zr_shown(id->container));
    graph(l, p, v, seconds_each);
    if (p->changes)
        zr_lines_add(l, ZR_STYLE_ALERT, "%llu setting%s changed by zeroute ctl while it ran",
                     (unsigned long long)p->changes, p->changes == 1 ? " was" : "s were");
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s", "");
    summary(l, p, m);
    if (p->process.pid)
        findings(l, p, v->width);
}

void zr_draw_help(struct zr_lines *l) {
    zr_lines_add(l, ZR_STYLE_TITLE, "zeroute top: keys");
    zr_lines_split(l, ZR_STYLE_PLAIN,
                   "\n"
                   "  Up Down PgUp PgDn Home End, j k   move\n"
                   "  Left Right                        columns that the screen has no room for\n"
                   "  Enter, d                          a process in detail; fold or unfold a job\n"
                   "  Space, + -                        fold or unfold a job\n"
                   "  F5, t                             jobs as one line each, or all processes\n"
                   "  F6, s, < >                        sort by the next column, or the one before\n"
                   "  F7, I                             the other way round\n"
                   "  P M                               sort by PID, by memory in use\n"
                   "  F4, / or \\                        filter: command, job, pod, container, PID\n"
                   "  F1, h, ?                          this page\n"
                   "  F10, q, Esc                       back, and quit\n"
                   "\n"
                   "  IN-USE    device memory that the program holds\n"
                   "  RESV      what is reserved from the driver: in use and cached\n"
                   "  HOST      host USM\n"
                   "  MIRROR    host memory behind device memory: an estimate from imports (GTT)\n"
                   "            of the process, at most what the machine has\n"
                   "  HIT       allocations that the cache served\n"
                   "  DRV/S     requests to the driver per second\n"
                   "  P99       99 of 100 allocation calls took no longer\n"
                   "  Bars of cards: | ours, : others\n",
                   0);
}
