/* Numbers, verdicts and names as texts: every report takes its words from here. */
#include "ab/ab.h"
#include "base/settings.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *scaled(char *out, double v, double step, const char *const *units, size_t n) {
    size_t i = 0;

    while (i + 1 < n && fabs(v) >= step * 0.99995) {
        v /= step;
        i++;
    }
    int decimals = i == 0 && step > 1000 ? 0 : fabs(v) < 10 ? 2 : fabs(v) < 100 ? 1 : 0;
    snprintf(out, ZR_AB_WORD, "%.*f%s%s", decimals, v, *units[i] ? " " : "", units[i]);
    return out;
}

static char *seconds_text(char *out, double v) {
    static const char *const small[] = {"ns", "us", "ms", "s"};

    if (v == 0)
        return memcpy(out, "0 s", sizeof "0 s");
    if (fabs(v) < 120)
        return scaled(out, v * 1e9, 1000, small, 4);
    snprintf(out, ZR_AB_WORD, "%.0f min %02.0f s", trunc(v / 60), fmod(fabs(v), 60));
    return out;
}

char *zr_ab_number(char *out, enum zr_ab_unit unit, double v) {
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};

    if (!isfinite(v))
        return memcpy(out, "-", sizeof "-");
    switch (unit) {
    case ZR_AB_SECONDS:
        return seconds_text(out, v);
    case ZR_AB_BYTES:
        return v == 0 ? memcpy(out, "0", sizeof "0") : scaled(out, v, 1024, bytes, 5);
    case ZR_AB_COUNT:
        snprintf(out, ZR_AB_WORD, "%.*f", v == trunc(v) ? 0 : 1, v);
        return out;
    case ZR_AB_RATIO:
        snprintf(out, ZR_AB_WORD, "%.3f", v);
        return out;
    case ZR_AB_PLAIN:
        break;
    }
    snprintf(out, ZR_AB_WORD, "%.4g", v);
    return out;
}

char *zr_ab_percent(char *out, double change) {
    double p = 100 * change;

    if (!isfinite(change))
        return memcpy(out, "-", sizeof "-");
    snprintf(out, ZR_AB_WORD, "%+.*f %%", fabs(p) < 0.995 ? 2 : fabs(p) < 99.95 ? 1 : 0, p);
    return out;
}

char *zr_ab_interval_text(char *out, enum zr_ab_unit unit, struct zr_interval i) {
    char low[ZR_AB_WORD], high[ZR_AB_WORD];

    if (!isfinite(i.low) || !isfinite(i.high))
        return memcpy(out, "-", sizeof "-");
    snprintf(out, ZR_AB_WORD, "%.70s to %.70s", zr_ab_number(low, unit, i.low), zr_ab_number(high, unit, i.high));
    return out;
}

char *zr_ab_p_text(char *out, double p) {
    if (!isfinite(p))
        return memcpy(out, "-", sizeof "-");
    if (p < 0.0001)
        return memcpy(out, "<0.0001", sizeof "<0.0001");
    snprintf(out, ZR_AB_WORD, p < 0.1 ? "%.4f" : "%.2f", p);
    return out;
}

/* With different outputs a shorter time is not called faster: the output may be wrong. */
const char *zr_ab_outcome_word(const struct zr_ab_metric *m, enum zr_ab_outcome o, bool same_output) {
    bool less = o == ZR_AB_LESS;

    if (o == ZR_AB_NOT_TESTED)
        return "not tested";
    if (o == ZR_AB_NO_DIFFERENCE)
        return "no difference beyond noise";
    if (o == ZR_AB_UNCLEAR)
        return "unclear, needs more runs";
    if (m->unit == ZR_AB_SECONDS && strcmp(m->name, "cpu"))
        return same_output ? (less ? "faster" : "slower") : (less ? "shorter" : "longer");
    if (m->unit == ZR_AB_PLAIN)
        return less ? "lower" : "higher";
    return less ? "less" : "more";
}

bool zr_ab_outputs_alike(const struct zr_ab_analysis *an) {
    for (size_t i = 0; i < an->differences.n; i++)
        if (!strncmp(an->differences.at[i].what, "output", 6))
            return false;
    return true;
}

static const char *goodness(const struct zr_ab_metric *m, enum zr_ab_outcome o) {
    if (m->better == ZR_AB_NEITHER)
        return "";
    return (m->better == ZR_AB_LOWER) == (o == ZR_AB_LESS) ? ", better" : ", worse";
}

static char *needs(const struct zr_ab_comparison *c) {
    const char *near = c->p_corrected < 0.05 ? ", a verdict needs less than 0.01" : "";

    if (!(c->needed > 0))
        return zr_ab_text("%s", near);
    return zr_ab_text("%s (would need about %.0f runs per arm to see %.3g %%)", near, c->needed, 100 * c->seen);
}

void zr_ab_change_text(const struct zr_ab_metric *m, const struct zr_ab_comparison *c, char *change, char *interval) {
    char low[ZR_AB_WORD], high[ZR_AB_WORD];

    if (isfinite(c->change)) {
        zr_ab_percent(change, c->change);
        if (isfinite(c->change_interval.low) || isfinite(c->change_interval.high))
            snprintf(interval, 2 * ZR_AB_WORD, "%s to %s", zr_ab_percent(low, c->change_interval.low),
                     zr_ab_percent(high, c->change_interval.high));
        else
            snprintf(interval, 2 * ZR_AB_WORD, "-");
    } else {
        snprintf(change, ZR_AB_WORD, "%s%.100s", c->difference > 0 ? "+" : "",
                 zr_ab_number(low, m->unit, c->difference));
        zr_ab_interval_text(interval, m->unit, c->difference_interval);
    }
}

char *zr_ab_sentence(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric, size_t arm) {
    const struct zr_ab_metric *m = &ab->metric[metric];
    const struct zr_ab_comparison *c = &an->row[metric].arm[arm];
    const char *base = ab->arm[0].name, *name = ab->arm[arm].name;
    char change[ZR_AB_WORD], from[ZR_AB_WORD], to[ZR_AB_WORD], interval[2 * ZR_AB_WORD], p[ZR_AB_WORD];
    bool alike = zr_ab_outputs_alike(an);
    char *out;

    zr_ab_number(from, m->unit, an->row[metric].arm[0].median);
    zr_ab_number(to, m->unit, c->median);
    zr_ab_p_text(p, c->p_corrected);
    zr_ab_change_text(m, c, change, interval);
    if (an->row[metric].constant)
        return zr_ab_text("%s: the same in every run of %s and %s (%s)", m->name, base, name, to);
    switch (c->outcome) {
    case ZR_AB_NOT_TESTED:
        return zr_ab_text("%s: %s %s, %s %s", m->name, base, from, name, to);
    case ZR_AB_UNCLEAR:
        return zr_ab_text("%s: probably %s in %s than in %s: %s to %s, %s, 95 %% interval %s, p = %s, a verdict "
                          "needs less than 0.01: more runs will tell",
                          m->name, c->delta < 0 ? "less" : "more", name, base, from, to, change, interval, p);
    case ZR_AB_NO_DIFFERENCE: {
        char *more = needs(c);
        out = zr_ab_text("%s: no difference beyond noise between %s and %s: %s to %s, %s, 95 %% interval "
                         "%s, p = %s%s",
                         m->name, base, name, from, to, change, interval, p, more);
        free(more);
        return out;
    }
    default:
        break;
    }
    return zr_ab_text("%s: %s in %s than in %s%s: %s to %s, %s, 95 %% interval %s, p = %s, effect %s (%+.2f)", m->name,
                      zr_ab_outcome_word(m, c->outcome, alike), name, base,
                      alike ? goodness(m, c->outcome) : "; the outputs differ, so it is not called better", from, to,
                      change, interval, p, zr_cliff_word(c->delta), c->delta);
}

/* --- the verdict in plain words --------------------------------------------------------------- */

static const char *plain_name(const char *metric) {
    static const char *const names[][2] = {{"wall", "wall time"},
                                           {"cpu", "processor time"},
                                           {"host.mirror", "host RAM"},
                                           {"driver.calls", "driver calls"},
                                           {"failures", "failed calls"},
                                           {"device.live.peak", "peak device memory"},
                                           {"device.reserved.peak", "peak reserved memory"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(names[i][0], metric))
            return names[i][1];
    return metric;
}

static const char *rounded(char *out, double change) {
    double p = 100 * change;
    snprintf(out, ZR_AB_WORD, fabs(p) < 0.95 && p != 0 ? "%+.1f %%" : "%+.0f %%", p);
    return out;
}

static char *clause(const struct zr_ab_metric *m, const struct zr_ab_row *row, size_t arm) {
    const struct zr_ab_comparison *c = &row->arm[arm];
    char low[ZR_AB_WORD], high[ZR_AB_WORD], range[2 * ZR_AB_WORD + 8] = "", size[ZR_AB_WORD];
    const char *name = plain_name(m->name);
    bool less = c->delta < 0;

    if (row->constant)
        return zr_ab_text("%s the same (%s)", name, zr_ab_number(low, m->unit, c->median));
    if (isfinite(c->change_interval.low) && isfinite(c->change_interval.high))
        snprintf(range, sizeof(range), "%s .. %s", rounded(low, c->change_interval.low),
                 rounded(high, c->change_interval.high));
    else
        zr_ab_interval_text(range, m->unit, c->difference_interval);
    if (isfinite(c->change))
        snprintf(size, sizeof(size), fabs(c->change) < 0.0095 ? "%.1f %%" : "%.0f %%", 100 * fabs(c->change));
    else
        zr_ab_number(size, m->unit, fabs(c->difference));
    switch (c->outcome) {
    case ZR_AB_NOT_TESTED:
        return zr_ab_text("%s %s to %s", name, zr_ab_number(low, m->unit, row->arm[0].median),
                          zr_ab_number(high, m->unit, c->median));
    case ZR_AB_NO_DIFFERENCE:
        /* A wide interval does not show that nothing has changed. */
        return zr_ab_text(c->change_interval.high - c->change_interval.low > 0.2 ? "%s not clearly different (%s)"
                                                                                 : "%s unchanged (%s)",
                          name, range);
    case ZR_AB_UNCLEAR:
        return zr_ab_text("%s probably %s %s (%s; more runs will tell)", name, size, less ? "lower" : "higher", range);
    default:
        return zr_ab_text("%s %s %s", name, size, less ? "lower" : "higher");
    }
}

/* "residency:owner" where one setting differs, else the arm as it was given. */
static char *what_differs(const struct zr_ab_arm *a, const struct zr_ab_arm *b) {
    char *found = NULL;
    size_t n = b->none || a->none ? 2 : 0;

    for (size_t i = 0; i < zr_setting_count && n < 2; i++) {
        char *x = zr_ab_setting_value(a, zr_settings[i].name), *y = zr_ab_setting_value(b, zr_settings[i].name);
        if (x && y && strcmp(x, y)) {
            n++;
            free(found);
            found = zr_ab_text("%s:%s", zr_settings[i].name, y);
        }
        free(x);
        free(y);
    }
    for (size_t i = 0; i < b->n_items; i++)
        n += b->items[i].kind != ZR_AB_SETTING && b->items[i].kind != ZR_AB_PRESET;
    if (n == 1 && found)
        return found;
    free(found);
    return zr_ab_text("%s", b->text);
}

char *zr_ab_plain_sentence(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm) {
    char *with = what_differs(&ab->arm[0], &ab->arm[arm]), *out = NULL;

    for (int pass = 0; pass < 3; pass++)
        for (size_t m = 0; m < ab->n_metrics; m++) {
            bool first = m == an->primary, wall = !strcmp(ab->metric[m].name, "wall");
            const struct zr_ab_row *row = &an->row[m];
            if (pass == 0 ? !first : pass == 1 ? first || !row->primary : row->primary || !wall)
                continue;
            if (!row->measured || row->arm[arm].n == 0)
                continue;
            char *one = clause(&ab->metric[m], row, arm);
            char *longer = out ? zr_ab_text("%s; %s", out, one) : zr_ab_text("%s with %s", one, with);
            free(one);
            free(out);
            out = longer;
        }
    free(with);
    if (out && an->primary < ab->n_metrics &&
        strcmp(plain_name(ab->metric[an->primary].name), ab->metric[an->primary].name) != 0)
        *out = (char)toupper((unsigned char)*out);
    return out;
}

char *zr_ab_others(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm) {
    char *out = NULL;

    for (size_t m = 0; m < ab->n_metrics; m++) {
        const struct zr_ab_comparison *c = &an->row[m].arm[arm];
        char change[ZR_AB_WORD];
        if (an->row[m].primary || (c->outcome != ZR_AB_LESS && c->outcome != ZR_AB_MORE))
            continue;
        if (isfinite(c->change))
            zr_ab_percent(change, c->change);
        else
            zr_ab_number(change, ab->metric[m].unit, c->difference);
        char *longer = zr_ab_text("%s%s%s %s (%s)", out ? out : "", out ? ", " : "", ab->metric[m].name,
                                  zr_ab_outcome_word(&ab->metric[m], c->outcome, zr_ab_outputs_alike(an)), change);
        free(out);
        out = longer;
    }
    if (!out)
        return NULL;
    char *whole = zr_ab_text("also, in %s compared with %s: %s", ab->arm[arm].name, ab->arm[0].name, out);
    free(out);
    return whole;
}

/* --- names of enumerations, as they stand in the JSON ----------------------------------------- */

const char *zr_ab_unit_name(enum zr_ab_unit u) {
    static const char *const names[] = {"seconds", "bytes", "count", "ratio", ""};

    return names[u];
}

const char *zr_ab_better_name(enum zr_ab_better b) {
    static const char *const names[] = {"lower", "higher", "neither"};

    return names[b];
}

const char *zr_ab_status_name(enum zr_ab_status s) {
    static const char *const names[] = {"declared", "consequence", "allowed", "undeclared", "unlike"};

    return names[s];
}

const char *zr_ab_outcome_name(enum zr_ab_outcome o) {
    static const char *const names[] = {"not tested", "no difference", "unclear", "less", "more"};

    return names[o];
}

char *zr_ab_quoted(char *const *argv) {
    char *out = zr_ab_text("%s", "");

    for (; argv && *argv; argv++) {
        const char *safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=/.,:@%";
        char *longer, *word = zr_ab_more(NULL, 4 * strlen(*argv) + 3, 1), *w = word;
        if (**argv && (*argv)[strspn(*argv, safe)] == 0) {
            memcpy(word, *argv, strlen(*argv) + 1);
        } else {
            *w++ = '\'';
            for (const char *s = *argv; *s; s++)
                w = *s == '\'' ? stpcpy(w, "'\\''") : (*w = *s, w + 1);
            memcpy(w, "'", sizeof "'");
        }
        longer = zr_ab_text("%s%s%s", out, *out ? " " : "", word);
        free(out);
        free(word);
        out = longer;
    }
    return out;
}
