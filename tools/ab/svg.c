/* Drawings of the HTML report. */
#include "ab/ab.h"
#include "common/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 460, HEIGHT = 220, LEFT = 74, RIGHT = 12, TOP = 12, BOTTOM = 34 };

void zr_html_text(FILE *f, const char *s) {
    char *harmless = zr_harmless(s, ZR_FOR_HTML);
    fputs(harmless, f);
    free(harmless);
}

struct axis {
    double low, high;
};

static double x_at(struct axis a, double v) {
    return LEFT + (v - a.low) / (a.high - a.low) * (WIDTH - LEFT - RIGHT);
}

static double y_at(struct axis a, double v) {
    return HEIGHT - BOTTOM - (v - a.low) / (a.high - a.low) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten; for bytes, of a unit that people read. */
static double round_step(double range, enum zr_ab_unit unit) {
    double step = range / 4, scale = 1;

    while (unit == ZR_AB_BYTES && step / scale >= 1024)
        scale *= 1024;
    step /= scale;
    double ten = pow(10, floor(log10(step))), m = step / ten;
    return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * ten * scale;
}

static void open_drawing(FILE *f, const char *label) {
    fprintf(f, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    zr_html_text(f, label);
    fputs("\">", f);
}

/* Ticks are at multiples of the step; one that a rounding error puts outside counts as inside. */
static long first_tick(struct axis a, double step) {
    return lround(ceil(a.low / step - 1e-9));
}

static long last_tick(struct axis a, double step) {
    return lround(floor(a.high / step + 1e-6));
}

static void y_axis(FILE *f, struct axis y, enum zr_ab_unit unit) {
    double step = round_step(y.high - y.low, unit);
    char text[ZR_AB_WORD];

    for (long i = first_tick(y, step); i <= last_tick(y, step); i++) {
        double at = y_at(y, (double)i * step);
        zr_ab_number(text, unit, (double)i * step);
        fprintf(f,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4, text);
    }
}

static void x_axis(FILE *f, struct axis x, const char *name) {
    double step = round_step(x.high - x.low, ZR_AB_PLAIN);

    for (long i = first_tick(x, step); i <= last_tick(x, step); i++)
        fprintf(f, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>",
                x_at(x, (double)i * step), HEIGHT - BOTTOM + 15, (double)i * step);
    fprintf(f,
            "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
            "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, name);
}

/* --- dot plots ---------------------------------------------------------------------------------- */

enum { ROW = 46, DOT = 7, BINS = (WIDTH - LEFT - RIGHT) / DOT + 2, STACK_MOST = 5 };

/* Where all runs and intervals of a metric lie. False if nothing was measured. */
static bool dots_axis(const struct zr_ab *ab, const struct zr_ab_row *row, size_t metric, struct axis *x) {
    *x = (struct axis){INFINITY, -INFINITY};
    for (size_t r = 0; r < ab->n_runs; r++)
        if (zr_ab_counts(&ab->run[r]) && isfinite(ab->run[r].value[metric])) {
            x->low = fmin(x->low, ab->run[r].value[metric]);
            x->high = fmax(x->high, ab->run[r].value[metric]);
        }
    if (!(x->low <= x->high))
        return false;
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if (isfinite(row->arm[arm].median_interval.low) && isfinite(row->arm[arm].median_interval.high)) {
            x->low = fmin(x->low, row->arm[arm].median_interval.low);
            x->high = fmax(x->high, row->arm[arm].median_interval.high);
        }
    double room = x->high > x->low ? 0.06 * (x->high - x->low) : fmax(fabs(x->high) * 0.1, 1e-9);
    bool from_zero = x->low >= 0 && x->low < 0.35 * x->high;
    x->low = from_zero ? 0 : x->low - room;
    x->high += room;
    return true;
}

static void value_axis(FILE *f, struct axis x, enum zr_ab_unit unit, int bottom) {
    double step = round_step(x.high - x.low, unit);
    char text[ZR_AB_WORD];

    for (long i = first_tick(x, step); i <= last_tick(x, step); i++) {
        double at = x_at(x, (double)i * step);
        zr_ab_number(text, unit, (double)i * step);
        fprintf(f,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                at, at, TOP, bottom, at, bottom + 15, text);
    }
}

/* The median and its interval, on the line that the dots of the arm stand on. */
static void interval(FILE *f, const struct zr_ab_metric *m, const struct zr_ab_comparison *c, size_t arm, struct axis x,
                     int base) {
    char median[ZR_AB_WORD], range[2 * ZR_AB_WORD];

    if (!isfinite(c->median))
        return;
    double middle = x_at(x, c->median), low = middle, high = middle;
    if (isfinite(c->median_interval.low) && isfinite(c->median_interval.high)) {
        low = x_at(x, c->median_interval.low);
        high = x_at(x, c->median_interval.high);
    }
    fprintf(f,
            "<g class=\"interval arm%zu\" data-arm=\"%zu\" data-median=\"%.17g\" data-low=\"%.17g\" "
            "data-high=\"%.17g\"><title>median %s, 95 %% interval %s</title>"
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><path d=\"M%.1f,%dv8M%.1f,%dv8\"/>"
            "<line class=\"median\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/></g>",
            arm % 8, arm, c->median, c->median_interval.low, c->median_interval.high,
            zr_ab_number(median, m->unit, c->median), zr_ab_interval_text(range, m->unit, c->median_interval), low,
            high, base + 6, base + 6, low, base + 2, high, base + 2, middle, middle, base, base + 12);
}

/* Dots of one value stand on each other. */
static void dots(FILE *f, const struct zr_ab *ab, size_t metric, size_t arm, struct axis x, int base) {
    unsigned stacked[BINS] = {0};
    char text[ZR_AB_WORD];

    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];

        if (run->arm != arm || !zr_ab_counts(run) || !isfinite(run->value[metric]))
            continue;
        double at = x_at(x, run->value[metric]);
        size_t bin = (size_t)fmax(0, fmin(BINS - 1, (at - LEFT) / DOT));
        unsigned level = stacked[bin]++;
        double up = level < STACK_MOST ? level * 6.5 : (STACK_MOST - 1) * 6.5 + (level - STACK_MOST) * 0.4;
        fprintf(f,
                "<circle class=\"dot arm%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.3\" data-run=\"%zu\" "
                "data-value=\"%.17g\"><title>",
                arm % 8, at, base - 4 - up, run->number, run->value[metric]);
        zr_html_text(f, ab->arm[arm].name);
        fprintf(f, ", run %zu: %s</title></circle>", run->number,
                zr_ab_number(text, ab->metric[metric].unit, run->value[metric]));
    }
}

void zr_svg_dots(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric) {
    const struct zr_ab_row *row = &an->row[metric];
    int bottom = TOP + (int)ab->n_arms * ROW + 4;
    struct axis x;

    if (!dots_axis(ab, row, metric, &x))
        return;
    fprintf(f, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, bottom + 20);
    zr_html_text(f, ab->metric[metric].name);
    fputs("\">", f);
    value_axis(f, x, ab->metric[metric].unit, bottom);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        int base = TOP + (int)(arm + 1) * ROW - 12;

        fprintf(f, "<text class=\"tick name arm%zu\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", arm % 8, LEFT - 8,
                base + 2);
        char *name = zr_ab_text("%.10s", ab->arm[arm].name);
        zr_html_text(f, name);
        free(name);
        fputs("</text>", f);
        dots(f, ab, metric, arm, x, base);
        interval(f, &ab->metric[metric], &row->arm[arm], arm, x, base);
    }
    fputs("</svg>", f);
}

/* --- memory over time ----------------------------------------------------------------------------- */

enum series { ACTIVE, DROP, RSS, VRAM, IMPORTS, SERIES };

static const struct {
    const char *css, *label;
} series_style[SERIES] = {{"active", "GPUActive over its baseline"},
                          {"drop", "drop of MemAvailable"},
                          {"rss", "resident memory of the processes"},
                          {"vram", "device memory (fdinfo)"},
                          {"imports", "imports (fdinfo)"}};

static double series_value(const struct zr_ab_sample *s, enum series which, double available, double active) {
    switch (which) {
    case ACTIVE:
        return s->gpu_active - active;
    case DROP:
        return available - s->mem_available;
    case RSS:
        return s->rss;
    case VRAM:
        return s->vram;
    default:
        return s->imports;
    }
}

double zr_svg_memory_most(const struct zr_ab_run *run, double base_available, double base_active) {
    double most = 0;

    for (size_t i = 0; i < run->n_samples; i++)
        for (int s = 0; s < SERIES; s++) {
            double v = series_value(&run->sample[i], (enum series)s, base_available, base_active);
            most = isfinite(v) && v > most ? v : most;
        }
    return most;
}

void zr_svg_memory(FILE *f, const struct zr_ab_run *run, double base_available, double base_active, double most_seconds,
                   double most_bytes) {
    struct axis x = {0, most_seconds > 0 ? most_seconds : 1}, y = {0, most_bytes > 0 ? most_bytes * 1.08 : 1};

    open_drawing(f, "memory over time");
    y_axis(f, y, ZR_AB_BYTES);
    x_axis(f, x, "seconds");
    for (int s = 0; s < SERIES; s++) {
        bool drawn = false;
        for (size_t i = 0; i < run->n_samples; i++) {
            double v = series_value(&run->sample[i], (enum series)s, base_available, base_active);
            if (!isfinite(v))
                continue;
            if (!drawn)
                fprintf(f, "<polyline class=\"line %s\" points=\"", series_style[s].css);
            fprintf(f, "%.1f,%.1f ", x_at(x, run->sample[i].t), y_at(y, fmax(v, 0)));
            drawn = true;
        }
        if (drawn)
            fprintf(f, "\"><title>%s</title></polyline>", series_style[s].label);
    }
    fputs("</svg>", f);
}
