/* zeroute top: one process in detail, and the page of keys. */
#include "doctor/doctor.h"
#include "outside/outside.h"
#include "stat/stat.h"
#include "watch/top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GRAPH = 5, INDENT = 7 };

/* Memory in use over time, the newest at the right. */
static void graph(struct zr_lines *l, const struct zr_process_view *p, const struct zr_top_view *v) {
    size_t width = v->width > INDENT + 4 ? v->width - INDENT : 4;
    unsigned values = zr_graph_values(&p->used, width, v->utf8);
    uint64_t most = zr_graph_most(&p->used, width, v->utf8);
    char text[ZR_GRAPH_TEXT], size[ZR_TEXT_SIZE];

    for (size_t y = 0; y < GRAPH; y++) {
        zr_graph_line(text, &p->used, width, GRAPH, y, most, v->utf8);
        zr_lines_add(l, ZR_STYLE_OURS, "%*s %s", INDENT - 1, y ? "" : zr_short_bytes(size, most), text);
    }
    zr_text_age(size, (uint64_t)((values ? values - 1 : 0) * v->each * 1e9));
    zr_lines_add(l, ZR_STYLE_DIM, "%*sdevice memory in use, the last %s", INDENT, "", size);
}

/* --- by caller ------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const struct zr_caller_view *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->calls < y->calls) - (x->calls > y->calls);
}

static double rate(uint64_t now, uint64_t before, double seconds) {
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void find_rates(struct zr_caller_view *c, const struct zr_callers *before, double seconds) {
    for (unsigned i = 0; i < before->count; i++)
        if (strcmp(before->at[i].name, c->name) == 0) {
            c->calls_rate = rate(c->calls, before->at[i].calls, seconds);
            c->bytes_rate = rate(c->bytes, before->at[i].bytes, seconds);
        }
}

void zr_callers_take(struct zr_callers *c, const struct zeroute_snapshot *s, uint64_t now_ns) {
    struct zr_callers before = *c;
    char name[96];

    *c = (struct zr_callers){.seen_ns = now_ns, .nonce = s->process.nonce};
    for (size_t i = 0; i < s->field_count && c->count < ZR_CALLERS; i++) {
        const struct zeroute_field *f = &s->field[i];
        size_t length = strlen(f->name);
        struct zr_caller_view *to = &c->at[c->count];

        if (strncmp(f->name, "callers.", 8) != 0 || length < 15 || length - 14 >= sizeof to->name ||
            strcmp(f->name + length - 6, ".calls") != 0 || !f->value)
            continue;
        snprintf(to->name, sizeof to->name, "%.*s", (int)(length - 14), f->name + 8);
        snprintf(name, sizeof name, "callers.%.70s.bytes", to->name);
        to->calls = f->value;
        to->bytes = zeroute_value(s, name, 0);
        if (before.nonce == c->nonce)
            find_rates(to, &before, (double)(now_ns - before.seen_ns) / 1e9);
        c->count++;
    }
    if (c->count)
        qsort(c->at, c->count, sizeof *c->at, by_bytes);
}

static void callers(struct zr_lines *l, const struct zr_callers *c) {
    enum { SHOWN = 8 };
    char bytes[ZR_TEXT_SIZE], bytes_rate[ZR_TEXT_SIZE], calls[ZR_TEXT_SIZE];

    if (!c->count)
        return;
    zr_lines_add(l, ZR_STYLE_HEAD, "%10s %9s %10s %9s  %s", "ALLOCATED", "BYTES/S", "CALLS", "CALLS/S", "BY CALLER");
    for (unsigned i = 0; i < c->count && i < SHOWN; i++)
        zr_lines_add(l, ZR_STYLE_PLAIN, "%10s %9s %10s %9.0f  %s", zr_short_bytes(bytes, c->at[i].bytes),
                     zr_short_bytes(bytes_rate, (uint64_t)c->at[i].bytes_rate), zr_text_count(calls, c->at[i].calls),
                     c->at[i].calls_rate, zr_shown(c->at[i].name));
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s", "");
}

/* --- the page ------------------------------------------------------------------------------------- */

static void summary(struct zr_lines *l, struct zr_process_view *p, const struct zr_view *m,
                    struct zr_callers *by_caller) {
    char why[256], *text = NULL;
    size_t size = 0;
    struct zeroute_snapshot *s = zr_outside_snapshot(&p->process, why, sizeof why);
    struct zr_sheet page = {.snapshot = s, .view = m, .process = &p, .count = 1};
    FILE *f = s ? open_memstream(&text, &size) : NULL;
    if (f) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        zr_callers_take(by_caller, s, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        callers(l, by_caller);
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
                    struct zr_callers *by_caller) {
    const struct zr_identity *id = &p->id;
    int pid = p->process.pid ? p->process.pid : p->process.pid_inside;
    zr_lines_add(l, ZR_STYLE_TITLE, "%d  %s", pid, zr_shown(p->process.command));
    if (*id->job || *id->pod || *id->container)
        zr_lines_add(l, ZR_STYLE_DIM, "%s%s%s%s%s%s%s%s%s%s", *id->job ? "job " : "", zr_shown(id->job),
                     *id->rank ? " rank " : "", zr_shown(id->rank), *id->local_rank ? ", local rank " : "",
                     zr_shown(id->local_rank), *id->pod ? "  pod " : "", zr_shown(id->pod),
                     *id->container ? "  container " : "", zr_shown(id->container));
    graph(l, p, v);
    if (p->changes)
        zr_lines_add(l, ZR_STYLE_ALERT, "%llu setting%s changed by zeroute ctl while it ran",
                     (unsigned long long)p->changes, p->changes == 1 ? " was" : "s were");
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s", "");
    summary(l, p, m, by_caller);
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
                   "  c                                 graphs of the cards, or more processes\n"
                   "  F1, h, ?                          this page\n"
                   "  F10, q, Esc                       back, and quit\n"
                   "\n"
                   "  CARD      cards that hold memory of it, by their numbers above\n"
                   "  IN-USE    device memory that the program holds\n"
                   "  RESV      memory reserved from the driver, in use or cached\n"
                   "  HOST      host USM\n"
                   "  MIRROR    host memory behind device memory: an estimate from imports (GTT)\n"
                   "            of the process, at most what the machine has\n"
                   "  HIT       allocations that the cache served\n"
                   "  DRV/S     requests to the driver per second\n"
                   "  P99       99 of 100 allocation calls took no longer\n"
                   "  Bars of cards: | under zeroute, : others; graphs are as high as the card\n",
                   0);
}
