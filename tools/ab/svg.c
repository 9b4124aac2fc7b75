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

static void x_axis(FILE *f, struct axis x, bool whole, const char *name) {
    double step = round_step(x.high - x.low, ZR_AB_PLAIN);

    if (whole)
        step = fmax(1, round(step));
    for (long i = first_tick(x, step); i <= last_tick(x, step); i++)
        fprintf(f, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>",
                x_at(x, (double)i * step), HEIGHT - BOTTOM + 15, (double)i * step);
    fprintf(f,
            "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
            "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, name);
}

void zr_svg_runs(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric) {
    const struct zr_ab_metric *m = &ab->metric[metric];
    struct axis x = {INFINITY, -INFINITY}, y = {INFINITY, -INFINITY};
    char text[ZR_AB_WORD];

    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        if (!zr_ab_counts(run) || !isfinite(run->value[metric]))
            continue;
        x.low = fmin(x.low, (double)run->number - 0.5);
        x.high = fmax(x.high, (double)run->number + 0.5);
        y.low = fmin(y.low, run->value[metric]);
        y.high = fmax(y.high, run->value[metric]);
    }
    if (!(x.low < x.high))
        return;
    double room = y.high > y.low ? 0.12 * (y.high - y.low) : fmax(fabs(y.high) * 0.1, 1e-9);
    bool positive = y.low >= 0;
    y.low = positive && y.low - room < 0.35 * y.high ? 0 : y.low - room;
    y.high += room;
    open_drawing(f, m->name);
    y_axis(f, y, m->unit);
    x_axis(f, x, true, "run, in the order of time");
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if (isfinite(an->row[metric].arm[arm].median))
            fprintf(f, "<line class=\"median arm%zu\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", arm % 8, LEFT,
                    WIDTH - RIGHT, y_at(y, an->row[metric].arm[arm].median), y_at(y, an->row[metric].arm[arm].median));
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        if (!zr_ab_counts(run) || !isfinite(run->value[metric]))
            continue;
        fprintf(f,
                "<circle class=\"dot arm%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" data-run=\"%zu\" "
                "data-value=\"%.17g\"><title>",
                run->arm % 8, x_at(x, (double)run->number), y_at(y, run->value[metric]), run->number,
                run->value[metric]);
        zr_html_text(f, ab->arm[run->arm].name);
        fprintf(f, ", run %zu: %s</title></circle>", run->number, zr_ab_number(text, m->unit, run->value[metric]));
    }
    fputs("</svg>", f);
}

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
    x_axis(f, x, false, "seconds");
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
