/* One self-contained page: verdict, fingerprint and mechanism side by side, every run, memory over time. */
#include "ab/ab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light "
    "dark;--bg:#fff;--ink:#1d2430;--soft:#5d6776;--line:#dfe3ea;--card:#f7f8fa;"
    "--good:#0b6b3a;--goodbg:#e5f5ec;--bad:#93340b;--badbg:#fdeee3;"
    "--c0:#3561c9;--c1:#d9661a;--c2:#2c8f45;--c3:#8b46d6;--c4:#b3903a;--c5:#c2327b;--c6:#0f8fa3;--"
    "c7:#7a7a7a}"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171c;--ink:#e6e9ee;--soft:#9aa4b2;--line:#"
    "2f3642;"
    "--card:#1c2128;--good:#7fd6a3;--goodbg:#15301f;--bad:#f3aa7d;--badbg:#3a2213;"
    "--c0:#7ea2f5;--c1:#f3985a;--c2:#6ccf85;--c3:#bd8df5;--c4:#dcbd6d;--c5:#ef7fb4;--c6:#5ccbdc;--"
    "c7:#b0b0b0}}"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1080px;padding:24px 20px "
    "60px;background:var(--bg);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}h1{font-size:22px;margin:0 0 4px}"
    "h2{font-size:17px;margin:34px 0 8px}p{margin:6px 0}code,.mono{font:13px/1.5 "
    "ui-monospace,monospace;"
    "overflow-wrap:anywhere}.soft{color:var(--soft)}.verdict{border-left:5px solid var(--good);"
    "background:var(--goodbg);padding:12px 16px;margin:18px 0;border-radius:4px}"
    ".verdict.none{border-color:var(--bad);background:var(--badbg)}.verdict strong{font-size:17px}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-"
    "nums}"
    "th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid "
    "var(--line);vertical-align:top}"
    "th{font-weight:600;color:var(--soft);font-size:13px}td.n,th.n{text-align:right;white-space:"
    "nowrap}"
    "td.mono{max-width:360px}tr.refused td{background:var(--badbg)}tr.first td{border-top:2px "
    "solid var(--line)}"
    ".tag{font-size:12px;padding:1px 7px;border-radius:9px;background:var(--card);border:1px solid "
    "var(--line)}"
    ".tag.bad{color:var(--bad);border-color:var(--bad)}.plots{display:grid;gap:14px;"
    "grid-template-columns:repeat(auto-fill,minmax(320px,1fr))}figure{margin:0;background:var(--"
    "card);"
    "border:1px solid var(--line);border-radius:6px;padding:8px "
    "10px}figcaption{font-size:13px;font-weight:600}"
    "svg{width:100%;height:auto;display:block}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}"
    ".tick{fill:var(--soft);font-size:11px}.dot{fill:currentColor;fill-opacity:.75}"
    ".median{stroke:currentColor;stroke-dasharray:5 "
    "4;stroke-width:1.4}.line{fill:none;stroke-width:2}"
    ".arm0{color:var(--c0)}.arm1{color:var(--c1)}.arm2{color:var(--c2)}.arm3{color:var(--c3)}"
    ".arm4{color:var(--c4)}.arm5{color:var(--c5)}.arm6{color:var(--c6)}.arm7{color:var(--c7)}"
    ".active{stroke:var(--c1);color:var(--c1)}.drop{stroke:var(--c3);color:var(--c3)}"
    ".rss{stroke:var(--c7);color:var(--c7)}.vram{stroke:var(--c0);color:var(--c0)}"
    ".imports{stroke:var(--c2);color:var(--c2)}.key{font-size:13px}.key "
    "b{margin-right:14px;font-weight:400}"
    ".key "
    "b::before,.arm::before{content:'';display:inline-block;width:10px;height:10px;border-radius:"
    "3px;"
    "background:currentColor;margin-right:5px}.arm{font-weight:600}details{margin:8px "
    "0}summary{cursor:pointer}"
    "@media print{body{max-width:none}figure{break-inside:avoid}}";

static void arm_name(FILE *f, const struct zr_ab *ab, size_t arm)
{
    fprintf(f, "<span class=\"arm arm%zu\">", arm % 8);
    zr_html_text(f, ab->arm[arm].name);
    fputs("</span>", f);
}

static void head(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    char *command = zr_ab_quoted(ab->command);

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>zeroute "
          "ab: ",
          f);
    zr_html_text(f, command);
    fprintf(f, "</title><style>%s</style></head>\n<body><h1>zeroute ab</h1><p><code>", style);
    zr_html_text(f, command);
    fputs("</code></p><p class=\"soft\">", f);
    zr_html_text(f, ab->started ? ab->started : "");
    fprintf(f,
            " &middot; order %s &middot; seed %llu</p><div class=\"wide\"><table><tr><th>arm</th>"
            "<th>setting</th><th class=\"n\">runs</th></tr>",
            ab->random_order ? "random" : "ABBA", (unsigned long long)ab->seed);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        fputs("<tr><td>", f);
        arm_name(f, ab, arm);
        fputs("</td><td class=\"mono\">", f);
        zr_html_text(f, ab->arm[arm].text);
        fprintf(f, "</td><td class=\"n\">%zu</td></tr>", an->counted[arm]);
    }
    fputs("</table></div>\n", f);
    free(command);
}

static void paragraph(FILE *f, const char *text, const char *css)
{
    fprintf(f, "<p class=\"%s\">", css);
    zr_html_text(f, text);
    fputs("</p>", f);
}

static void verdict(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fprintf(f, "<section class=\"verdict%s\" id=\"verdict\"><strong>%s</strong>", an->verdict ? "" : " none",
            an->verdict ? "Verdict" : "No verdict");
    for (size_t i = 0; i < an->n_reasons; i++)
        paragraph(f, an->reason[i], "reason");
    for (size_t arm = 1; an->verdict && !ab->n_factors && arm < ab->n_arms; arm++) {
        char *sentence = zr_ab_sentence(ab, an, an->primary, arm), *others = zr_ab_others(ab, an, arm);
        paragraph(f, sentence, "primary");
        if (others)
            paragraph(f, others, "soft");
        free(sentence);
        free(others);
    }
    for (size_t e = 0; an->verdict && e < an->n_effects; e++) {
        char *sentence = zr_ab_effect_sentence(ab, an, e);
        char *whole = zr_ab_text("%s: %s", ab->metric[an->primary].name, sentence);
        paragraph(f, whole, "primary");
        free(sentence);
        free(whole);
    }
    for (size_t i = 0; i < an->n_remarks; i++)
        paragraph(f, an->remark[i], "soft");
    fputs("</section>\n", f);
}

static const struct zr_ab_run *first_run(const struct zr_ab *ab, size_t arm)
{
    for (size_t r = 0; r < ab->n_runs; r++)
        if (ab->run[r].arm == arm && zr_ab_counts(&ab->run[r]))
            return &ab->run[r];
    return NULL;
}

static const struct zr_ab_difference *difference_in(const struct zr_ab_analysis *an, const char *what)
{
    const struct zr_ab_difference *found = NULL;

    for (size_t i = 0; i < an->differences.n; i++)
        if (!strcmp(an->differences.at[i].what, what) && (!found || an->differences.at[i].status > found->status))
            found = &an->differences.at[i];
    return found;
}

static void fingerprint_row(FILE *f, const struct zr_ab *ab, const char *what, const struct zr_ab_difference *d)
{
    bool bad = d && (d->status == ZR_AB_UNDECLARED || d->status == ZR_AB_UNLIKE);

    fprintf(f, "<tr%s><td class=\"mono\">", bad ? " class=\"refused\"" : "");
    zr_html_text(f, what);
    fputs("</td>", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        const struct zr_ab_run *run = first_run(ab, arm);
        const char *value = run ? zr_pairs_get(&run->fingerprint, what) : NULL;
        fputs("<td class=\"mono\">", f);
        zr_html_text(f, value ? value : "-");
        fputs("</td>", f);
    }
    fprintf(f, "<td>%s%s%s", d ? bad ? "<span class=\"tag bad\">" : "<span class=\"tag\">" : "",
            d ? zr_ab_status_name(d->status) : "", d ? "</span>" : "");
    if (d && *d->why) {
        fputs(" <span class=\"soft\">", f);
        zr_html_text(f, d->why);
        fputs("</span>", f);
    }
    if (d && d->status == ZR_AB_UNLIKE)
        fprintf(f, " <span class=\"soft\">run %zu against run %zu</span>", d->run, d->other_run);
    fputs("</td></tr>\n", f);
}

static void table_of_arms(FILE *f, const struct zr_ab *ab, const char *first)
{
    fprintf(f, "<div class=\"wide\"><table><tr><th>%s</th>", first);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        fputs("<th>", f);
        arm_name(f, ab, arm);
        fputs("</th>", f);
    }
    fputs("<th></th></tr>\n", f);
}

static void fingerprints(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    struct zr_pairs names = {0};

    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        const struct zr_ab_run *run = first_run(ab, arm);
        if (run)
            zr_pairs_copy(&names, &run->fingerprint);
    }
    for (size_t i = 0; i < an->differences.n; i++)
        zr_pairs_set(&names, an->differences.at[i].what, "");
    fputs("<h2>Fingerprint</h2>", f);
    if (an->differences.n) {
        table_of_arms(f, ab, "what differs");
        for (size_t i = 0; i < names.n; i++) {
            const struct zr_ab_difference *d = difference_in(an, names.at[i].name);
            if (d)
                fingerprint_row(f, ab, names.at[i].name, d);
        }
        fputs("</table></div>\n", f);
    } else {
        fputs("<p>Nothing differs.</p>", f);
    }
    fputs("<details><summary>What is the same in all arms</summary>", f);
    table_of_arms(f, ab, "name");
    for (size_t i = 0; i < names.n; i++)
        if (!difference_in(an, names.at[i].name))
            fingerprint_row(f, ab, names.at[i].name, NULL);
    fputs("</table></div></details>\n", f);
    zr_pairs_clear(&names);
}

static void mechanisms(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    if (!an->n_mechanisms)
        return;
    fputs("<h2>Mechanism</h2><p class=\"soft\">Median per run.</p>", f);
    table_of_arms(f, ab, "what happened");
    for (size_t m = 0; m < an->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &an->mechanism[m];
        bool moved = false, own = true;
        for (size_t arm = 1; arm < ab->n_arms; arm++) {
            moved |= one->arm[arm].moved;
            own &= !one->arm[arm].moved || one->arm[arm].expected || one->arm[arm].allowed;
        }
        fprintf(f, "<tr%s><td><span class=\"mono\">%s</span> <span class=\"soft\">%s</span></td>",
                own ? "" : " class=\"refused\"", one->name, one->help);
        for (size_t arm = 0; arm < ab->n_arms; arm++)
            if (isnan(one->median[arm]))
                fputs("<td>-</td>", f);
            else
                fprintf(f, "<td data-mechanism=\"%s\" data-arm=\"%zu\" data-value=\"%.17g\">%.6g</td>", one->name, arm,
                        one->median[arm], one->median[arm]);
        fprintf(f, "<td>%s</td></tr>\n",
                !moved ? ""
                : own  ? "<span class=\"tag\">moved</span>"
                       : "<span class=\"tag bad\">moved, not by declaration</span>");
    }
    fputs("</table></div>\n", f);
}

static void figure_cells(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric, size_t arm)
{
    const struct zr_ab_metric *m = &ab->metric[metric];
    const struct zr_ab_row *row = &an->row[metric];
    const struct zr_ab_comparison *c = &row->arm[arm];
    char text[ZR_AB_WORD], low[ZR_AB_WORD], high[ZR_AB_WORD];

    fprintf(f, "<td class=\"n\" data-metric=\"");
    zr_html_text(f, m->name);
    fprintf(f, "\" data-arm=\"%zu\" data-value=\"%.17g\">%s</td>", arm, c->median,
            zr_ab_number(text, m->unit, c->median));
    if (row->constant && !row->primary) {
        fputs("<td class=\"n soft\">the same in every "
              "run</td><td></td><td></td><td></td><td></td></tr>\n",
              f);
        return;
    }
    fprintf(f, "<td class=\"n soft\">%s</td>", zr_ab_interval_text(low, m->unit, c->median_interval));
    if (arm == 0 || ab->n_factors || isnan(c->difference)) {
        fputs("<td></td><td></td><td></td><td></td></tr>\n", f);
        return;
    }
    if (isfinite(c->change)) {
        fprintf(f, "<td class=\"n\">%s</td>", zr_ab_percent(text, c->change));
        fprintf(f, "<td class=\"n\">%s to %s</td>", zr_ab_percent(low, c->change_interval.low),
                zr_ab_percent(high, c->change_interval.high));
    } else {
        fprintf(f, "<td class=\"n\">%s%s</td>", c->difference > 0 ? "+" : "",
                zr_ab_number(text, m->unit, c->difference));
        fprintf(f, "<td class=\"n\">%s</td>", zr_ab_interval_text(text, m->unit, c->difference_interval));
    }
    fprintf(f, "<td class=\"n\">%s</td><td>%s</td></tr>\n", zr_ab_p_text(text, c->p_corrected),
            !an->verdict || c->outcome == ZR_AB_NOT_TESTED ? "" : zr_ab_outcome_word(m, c->outcome, true));
}

static void figures(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fprintf(f,
            "<h2>Figures</h2>%s<div class=\"wide\"><table><tr><th>metric</th><th>arm</th>"
            "<th class=\"n\">median</th><th class=\"n\">95 %% interval</th><th class=\"n\">change</th>"
            "<th class=\"n\">95 %% interval</th><th class=\"n\">p</th><th></th></tr>\n",
            an->verdict ? "" : "<p class=\"soft\">Without a verdict: these figures do not tell a cause.</p>");
    for (int pass = 0; pass < 2; pass++)
        for (size_t m = 0; m < ab->n_metrics; m++) {
            const struct zr_ab_row *row = &an->row[m];
            if (row->primary != (pass == 0) || zr_ab_dull(ab, row))
                continue;
            bool same = row->constant && !row->primary;
            for (size_t arm = 0; arm < (same ? 1 : ab->n_arms); arm++) {
                fprintf(f, "<tr%s><td>", arm ? "" : " class=\"first\"");
                if (!arm) {
                    fputs("<span title=\"", f);
                    zr_html_text(f, ab->metric[m].help);
                    fputs("\">", f);
                    zr_html_text(f, ab->metric[m].name);
                    fprintf(f, "</span>%s%s", row->primary ? " <span class=\"tag\">primary</span>" : "",
                            row->drifts ? " <span class=\"tag bad\">drifts</span>" : "");
                }
                fputs("</td><td>", f);
                if (same)
                    fputs("all", f);
                else
                    arm_name(f, ab, arm);
                fputs("</td>", f);
                figure_cells(f, ab, an, m, arm);
            }
        }
    fputs("</table></div><p class=\"soft\">p: Mann-Whitney U; of metrics other than the primary, "
          "corrected for "
          "their number (Holm). A verdict needs p below 0.01.</p>\n",
          f);
}

static void plots(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fputs("<h2>Run by run</h2><p class=\"key\">", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        fprintf(f, "<b class=\"arm%zu\">", arm % 8);
        zr_html_text(f, ab->arm[arm].name);
        fputs("</b>", f);
    }
    fputs("dashed: median</p><div class=\"plots\">", f);
    for (int pass = 0; pass < 2; pass++)
        for (size_t m = 0; m < ab->n_metrics; m++) {
            if (an->row[m].primary != (pass == 0) || zr_ab_dull(ab, &an->row[m]))
                continue;
            fputs("<figure data-plot=\"", f);
            zr_html_text(f, ab->metric[m].name);
            fputs("\"><figcaption>", f);
            zr_html_text(f, ab->metric[m].name);
            fputs(" <span class=\"soft\">", f);
            zr_html_text(f, ab->metric[m].help);
            fputs("</span></figcaption>", f);
            zr_svg_runs(f, ab, an, m);
            fputs("</figure>\n", f);
        }
    fputs("</div>\n", f);
}

/* The run of an arm whose wall time is nearest to the median, among those that were sampled. */
static const struct zr_ab_run *typical(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm)
{
    size_t wall = zr_ab_metric_index(ab, "wall");
    const struct zr_ab_run *best = NULL;

    for (size_t r = 0; r < ab->n_runs && wall < ab->n_metrics; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        double middle = an->row[wall].arm[arm].median;
        if (run->arm == arm && zr_ab_counts(run) && run->n_samples > 1 &&
            (!best || fabs(run->value[wall] - middle) < fabs(best->value[wall] - middle)))
            best = run;
    }
    return best;
}

static void memory(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    double seconds = 0, bytes = 0;
    const struct zr_ab_run *run;

    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if ((run = typical(ab, an, arm))) {
            const struct zr_ab_sample *s = run->sample;
            seconds = fmax(seconds, s[run->n_samples - 1].t);
            bytes = fmax(bytes, zr_svg_memory_most(run, s->mem_available, s->gpu_active));
        }
    if (!(seconds > 0))
        return;
    fputs("<h2>Memory over time</h2><p class=\"key\"><b class=\"active\">GPUActive over its "
          "baseline</b>"
          "<b class=\"drop\">drop of MemAvailable</b><b class=\"rss\">resident memory</b>"
          "<b class=\"vram\">device memory</b><b class=\"imports\">imports</b></p>"
          "<p class=\"soft\">One run per arm, the one nearest to the median wall time, sampled "
          "from outside. "
          "GPUActive and MemAvailable are the whole machine's.</p><div class=\"plots\">",
          f);
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if ((run = typical(ab, an, arm))) {
            fprintf(f, "<figure data-memory=\"%zu\"><figcaption>", arm);
            arm_name(f, ab, arm);
            fprintf(f, " <span class=\"soft\">run %zu</span></figcaption>", run->number);
            zr_svg_memory(f, run, run->sample->mem_available, run->sample->gpu_active, seconds, bytes);
            fputs("</figure>\n", f);
        }
    fputs("</div>\n", f);
}

static void foot(FILE *f, const struct zr_ab *ab)
{
    fputs("<h2>The machine</h2><div class=\"wide\"><table>", f);
    for (size_t i = 0; i < ab->machine.n; i++) {
        fputs("<tr><td>", f);
        zr_html_text(f, ab->machine.at[i].name);
        fputs("</td><td class=\"mono\">", f);
        zr_html_text(f, ab->machine.at[i].value);
        fputs("</td></tr>", f);
    }
    fputs("</table></div><h2>To repeat it</h2><p><code>", f);
    zr_html_text(f, ab->repeat ? ab->repeat : "");
    fputs("</code></p><p class=\"soft\">zeroute " ZEROUTE_VERSION "</p></body></html>\n", f);
}

void zr_ab_report_html(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    head(f, ab, an);
    verdict(f, ab, an);
    fingerprints(f, ab, an);
    mechanisms(f, ab, an);
    figures(f, ab, an);
    plots(f, ab, an);
    memory(f, ab, an);
    foot(f, ab);
}
