/* The machine as lines of text: title, host memory, a line for each card, and their graphs side by side. */
#include "watch/top.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GRAPH_LEAST = 36, GRAPH_HIGH = 6, GRAPH_LOW = 2, NAME = 64 };

/* --- names ------------------------------------------------------------------------------------- */

/* "Intel(R) Arc(TM) B580 Graphics" without what all of them have: "Arc B580". */
static const char *short_model(char out[NAME], const char *model) {
    static const char *const noise[] = {"(R)", "(TM)", "Intel ", " Graphics"};

    snprintf(out, NAME, "%s", model);
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        char *at = strstr(out, noise[i]);
        if (at)
            memmove(at, at + strlen(noise[i]), strlen(at + strlen(noise[i])) + 1);
    }
    return out;
}

/* --- a line for each card ---------------------------------------------------------------------- */

static void bar(char *out, size_t width, double ours, double others) {
    size_t a = (size_t)((double)width * (ours > 1 ? 1 : ours) + 0.5);
    size_t b = (size_t)((double)width * (ours + others > 1 ? 1 : ours + others) + 0.5);

    for (size_t i = 0; i < width; i++)
        out[i] = i < a ? '|' : i < b ? ':' : ' ';
    out[width] = '\0';
}

static void draw_card(struct zr_lines *l, const struct zr_view *m, unsigned number, const struct zr_top_view *v,
                      bool with_history) {
    const struct zr_card_view *c = &m->card[number];
    char total[ZR_TEXT_SIZE], used[ZR_TEXT_SIZE], others[ZR_TEXT_SIZE], gtt[ZR_TEXT_SIZE];
    char line[64], history[1024] = "", head[256], model[NAME];
    bool full = zr_card_is_full(c), wide = v->width >= 100;
    const char *label = wide ? "" : c->pdev;
    int name = wide ? 24 : 16;
    size_t width = wide ? 24 : 14;
    double all = c->vram == ZR_ABSENT || !c->vram ? (double)(c->ours + c->others + 1) : (double)c->vram;

    if (v->width < 72)
        width = 6;
    if (*c->model)
        label = short_model(model, c->model);
    bar(line, width, (double)c->ours / all, (double)c->others / all);
    size_t n = (size_t)snprintf(head, sizeof head, "%-2u ", number);
    if (wide)
        n += (size_t)snprintf(head + n, sizeof head - n, "%-12s ", zr_shown(c->pdev));
    n += (size_t)snprintf(head + n, sizeof head - n, "%-*.*s ", name, name, zr_shown(label));
    size_t from = zr_text_width(head) + 1;
    n += (size_t)snprintf(head + n, sizeof head - n, "[%s] %5s/%-5s", line, zr_short_bytes(used, c->ours + c->others),
                          zr_short_bytes(total, c->vram));
    if (v->width >= n + 13 + (full ? 5 : 0))
        n += (size_t)snprintf(head + n, sizeof head - n, " others %5s", zr_short_bytes(others, c->others));
    if (v->width >= n + 10 + (full ? 5 : 0))
        n += (size_t)snprintf(head + n, sizeof head - n, " GTT %5s", zr_short_bytes(gtt, c->gtt));
    n += (size_t)snprintf(head + n, sizeof head - n, "%s", full ? " FULL" : "");
    if (with_history)
        zr_sparkline(history, sizeof history, &c->used, v->width > n + 1 ? v->width - n - 1 : 0,
                     c->vram == ZR_ABSENT ? 0 : c->vram, v->utf8);
    zr_lines_add(l, full ? ZR_STYLE_ALERT : ZR_STYLE_PLAIN, "%s%s%s", head, *history ? " " : "", history);
    if (full)
        return;
    zr_lines_mark(l, from, from + strcspn(line, ": "), ZR_STYLE_OURS);
    zr_lines_mark(l, from + strcspn(line, ": "), from + width, ZR_STYLE_OTHERS);
}

/* --- graphs ------------------------------------------------------------------------------------ */

/* Side by side, as many as fit. */
struct grid {
    unsigned across;
    size_t width, height; /* of each; height 0: there is no room */
};

/* Half of the screen at most is theirs. */
static struct grid grid_of(const struct zr_view *m, const struct zr_top_view *v) {
    struct grid g = {0};

    if (!v->height || !m->card_count || v->no_graphs)
        return g;
    g.across = (unsigned)((v->width + 2) / (GRAPH_LEAST + 2));
    if (!g.across)
        return g;
    if (g.across > m->card_count)
        g.across = m->card_count;
    g.width = (v->width + 2) / g.across - 2;
    if (g.width > ZR_GRAPH_COLUMNS)
        g.width = ZR_GRAPH_COLUMNS;
    size_t rows = (m->card_count + g.across - 1) / g.across, lines = m->card_count + 4;
    size_t room = v->height / 2 > lines ? v->height / 2 - lines + 2 : 0;
    g.height = room / rows > GRAPH_LOW ? room / rows - 1 : 0;
    if (g.height > GRAPH_HIGH)
        g.height = GRAPH_HIGH;
    return g;
}

static void caption(char *out, size_t size, const struct zr_card_view *c, unsigned number, const struct grid *g,
                    const struct zr_top_view *v) {
    char top[ZR_TEXT_SIZE], model[NAME], age[ZR_TEXT_SIZE];
    uint64_t most = c->vram == ZR_ABSENT ? zr_graph_most(&c->used, g->width, v->utf8) : c->vram;
    unsigned values = zr_graph_values(&c->used, g->width, v->utf8);

    zr_text_age(age, (uint64_t)((values ? values - 1 : 0) * v->each * 1e9));
    snprintf(out, size, "%u %s: %s%s%slast %s", number, zr_shown(*c->model ? short_model(model, c->model) : c->pdev),
             most ? "top " : "", most ? zr_short_bytes(top, most) : "", most ? ", " : "", age);
}

/* One row of the grid: cards `first` and the next ones. */
static void draw_graphs(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v, const struct grid *g,
                        unsigned first) {
    unsigned last = first + g->across < m->card_count ? first + g->across : m->card_count;
    char text[2048], part[ZR_GRAPH_TEXT];

    for (size_t y = 0; y <= g->height; y++) {
        size_t used = 0;
        for (unsigned i = first; i < last && used < sizeof text; i++) {
            const struct zr_card_view *c = &m->card[i];
            uint64_t most = c->vram == ZR_ABSENT ? zr_graph_most(&c->used, g->width, v->utf8) : c->vram;
            if (y == 0)
                caption(part, sizeof part, c, i, g, v);
            else
                zr_graph_line(part, &c->used, g->width, g->height, y - 1, most, v->utf8);
            size_t wide = zr_text_width(part), pad = i + 1 < last && wide < g->width + 2 ? g->width + 2 - wide : 0;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%*s", part, (int)pad, "");
        }
        zr_lines_add(l, y ? ZR_STYLE_PLAIN : ZR_STYLE_DIM, "%s", text);
        for (unsigned i = first; y && i < last; i++) {
            size_t from = (i - first) * (g->width + 2);
            zr_lines_mark(l, from, from + g->width, zr_card_is_full(&m->card[i]) ? ZR_STYLE_ALERT : ZR_STYLE_OURS);
        }
    }
}

/* --- all together ------------------------------------------------------------------------------- */

static void draw_title(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v) {
    char name[65] = "", when[16] = "";
    time_t seconds = (time_t)(m->wall_ns / 1000000000u);
    struct tm local;

    gethostname(name, sizeof name - 1);
    if (localtime_r(&seconds, &local))
        strftime(when, sizeof when, "%H:%M:%S", &local);
    zr_lines_add(l, ZR_STYLE_TITLE, "zeroute top  %s  %s  %zu process%s%s%s%s", zr_shown(name), when, m->process_count,
                 m->process_count == 1 ? "" : "es", *v->filter ? ", only those with '" : "", zr_shown(v->filter),
                 *v->filter ? "'" : "");
}

static void draw_host(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v) {
    char available[ZR_TEXT_SIZE], total[ZR_TEXT_SIZE], mirror[ZR_TEXT_SIZE], head[192], history[1024];
    bool warns = m->mirror != ZR_ABSENT && m->mirror >= ZR_MIRROR_WARNS;

    size_t from = (size_t)snprintf(head, sizeof head, "host  %s available of %s, ",
                                   zr_short_bytes(available, m->host.available), zr_short_bytes(total, m->host.total));
    size_t to =
        from + (size_t)snprintf(head + from, sizeof head - from, "mirror %s", zr_short_bytes(mirror, m->mirror));
    snprintf(head + to, sizeof head - to, "%s", m->mirror == ZR_ABSENT ? " (this kernel has no GPUActive) " : " ");
    zr_sparkline(history, sizeof history, &m->mirror_history, v->width > strlen(head) ? v->width - strlen(head) : 0, 0,
                 v->utf8);
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s%s", head, history);
    if (warns)
        zr_lines_mark(l, from, v->width, ZR_STYLE_WARNING);
}

/* Processes with memory that zeroute does not see: the first ones. */
static void draw_missed(struct zr_lines *l, const struct zr_view *m) {
    char text[ZR_MISSED_TEXT];
    unsigned shown = 0;

    for (size_t i = 0; i < m->process_count && shown < ZR_MISSED_SHOWN; i++)
        if (zr_missed_text(text, sizeof text, m->process[i])) {
            zr_lines_add(l, ZR_STYLE_ALERT, "%s", zr_shown(text));
            shown++;
        }
}

void zr_draw_machine(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v) {
    struct grid g = grid_of(m, v);

    draw_title(l, m, v);
    draw_host(l, m, v);
    for (unsigned i = 0; i < m->card_count; i++)
        draw_card(l, m, i, v, !g.height);
    for (unsigned i = 0; g.height && i < m->card_count; i += g.across)
        draw_graphs(l, m, v, &g, i);
    if (m->unreadable)
        zr_lines_add(l, ZR_STYLE_ALERT, "%u process%s cannot be read: %s", m->unreadable,
                     m->unreadable == 1 ? "" : "es", zr_shown(m->unreadable_why));
    draw_missed(l, m);
    zr_lines_add(l, ZR_STYLE_PLAIN, "%s", "");
}
