/* The report as one self-contained page: with every run and memory over time drawn. */
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
    "overflow-wrap:anywhere}.soft,.other,.note,.advice{color:var(--soft)}.verdict{border-left:5px solid var(--good);"
    "background:var(--goodbg);padding:12px 16px;margin:18px 0;border-radius:4px}"
    ".verdict p.verdict{border:0;background:none;margin:6px 0;padding:0;font-weight:600}"
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
    "grid-template-columns:repeat(auto-fill,minmax(400px,1fr))}figure{margin:0;background:var(--"
    "card);"
    "border:1px solid var(--line);border-radius:6px;padding:8px "
    "10px}figcaption{font-size:13px;font-weight:600}"
    "svg{width:100%;height:auto;display:block}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}"
    ".tick{fill:var(--soft);font-size:11px}.dot{fill:currentColor;fill-opacity:.75}"
    ".interval line,.interval path{stroke:currentColor;stroke-width:1.6;fill:none}.interval .median{stroke-width:3}"
    ".tick.name{fill:currentColor;font-weight:600}.line{fill:none;stroke-width:2}"
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

static void arm_name(FILE *f, const struct zr_ab_report *r, size_t arm) {
    fprintf(f, "<span class=\"arm arm%zu\">", arm % 8);
    zr_html_text(f, r->arm[arm].name);
    fputs("</span>", f);
}

/* <TAG>text</TAG>, TAG with its attributes. */
static void element(FILE *f, const char *tag, const char *text) {
    fprintf(f, "<%s>", tag);
    zr_html_text(f, text);
    fprintf(f, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static void head(FILE *f, const struct zr_ab_report *r) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>zeroute ab: ",
          f);
    zr_html_text(f, r->command);
    fprintf(f, "</title><style>%s</style></head>\n<body><h1>zeroute ab</h1><p>", style);
    element(f, "code", r->command);
    fputs("</p><p class=\"soft\">", f);
    zr_html_text(f, r->started);
    fprintf(f,
            " &middot; %s</p><div class=\"wide\"><table><tr><th>arm</th><th>setting</th><th class=\"n\">runs</th></tr>",
            r->order);
    for (size_t a = 0; a < r->n_arms; a++) {
        fputs("<tr><td>", f);
        arm_name(f, r, a);
        fputs("</td>", f);
        element(f, "td class=\"mono\"", r->ab->arm[a].text);
        fprintf(f, "<td class=\"n\">%zu</td></tr>", r->arm[a].runs);
    }
    fputs("</table></div>\n", f);
}

static void verdict(FILE *f, const struct zr_ab_report *r) {
    fprintf(f, "<section class=\"verdict%s\" id=\"verdict\"><strong>%s</strong>", r->an->verdict ? "" : " none",
            r->headline);
    for (size_t i = 0; i < r->n_lines; i++) {
        fprintf(f, "<p class=\"%s\">%s", r->line[i].kind, zr_ab_report_prefix(&r->line[i]));
        zr_html_text(f, r->line[i].text);
        fputs("</p>", f);
    }
    fputs("</section>\n", f);
}

static void tag(FILE *f, const char *text, bool bad) {
    if (*text)
        element(f, bad ? "span class=\"tag bad\"" : "span class=\"tag\"", text);
}

static void row(FILE *f, bool bad) {
    fputs(bad ? "<tr class=\"refused\">" : "<tr>", f);
}

/* The whole fingerprint of each arm, by its first run: what the findings do not name is the same. */
static void all_facts(FILE *f, const struct zr_ab_report *r) {
    const struct zr_ab_run *first[ZR_AB_ARMS] = {NULL};
    struct zr_pairs names = {0};

    for (size_t i = r->ab->n_runs; i-- > 0;)
        if (zr_ab_counts(&r->ab->run[i])) {
            first[r->ab->run[i].arm] = &r->ab->run[i];
            zr_pairs_copy(&names, &r->ab->run[i].fingerprint);
        }
    fputs("<details><summary>Every fact, by the first run of each arm</summary><div class=\"wide\"><table>"
          "<tr><th>name</th>",
          f);
    for (size_t a = 0; a < r->n_arms; a++) {
        fputs("<th>", f);
        arm_name(f, r, a);
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
    for (size_t i = 0; i < names.n; i++) {
        fputs("<tr>", f);
        element(f, "td class=\"mono\"", names.at[i].name);
        for (size_t a = 0; a < r->n_arms; a++) {
            const char *value = first[a] ? zr_pairs_get(&first[a]->fingerprint, names.at[i].name) : NULL;
            element(f, "td class=\"mono\"", value ? value : "-");
        }
        fputs("</tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
    zr_pairs_clear(&names);
}

static void fingerprint(FILE *f, const struct zr_ab_report *r) {
    fputs("<h2>Fingerprint</h2>", f);
    element(f, "p", r->fingerprint);
    fputs("<div class=\"wide\"><table>", f);
    for (size_t i = 0; i < r->n_findings; i++) {
        const struct zr_ab_report_finding *one = &r->finding[i];
        row(f, one->refused);
        fputs("<td>", f);
        tag(f, one->status, one->refused);
        fputs("</td>", f);
        element(f, "td class=\"mono\"", one->what);
        fputs("<td class=\"mono\">", f);
        for (size_t l = 0; l < ZR_AB_FINDING_LINES; l++)
            if (one->line[l]) {
                fputs(l ? "<br>" : "", f);
                zr_html_text(f, one->line[l]);
            }
        fputs("</td></tr>\n", f);
    }
    fputs("</table></div>\n", f);
    all_facts(f, r);
}

static void mechanisms(FILE *f, const struct zr_ab_report *r) {
    if (!r->n_mechanisms)
        return;
    fputs("<h2>Mechanism (median per run)</h2><div class=\"wide\"><table><tr><th></th>", f);
    for (size_t a = 0; a < r->n_arms; a++) {
        fputs("<th>", f);
        arm_name(f, r, a);
        fputs("</th>", f);
    }
    fputs("<th></th></tr>\n", f);
    for (size_t m = 0; m < r->n_mechanisms; m++) {
        const struct zr_ab_report_mechanism *one = &r->mechanism[m];
        row(f, one->refused);
        fprintf(f, "<td><span class=\"mono\">%s</span> <span class=\"soft\">%s</span></td>", one->name, one->help);
        for (size_t a = 0; a < r->n_arms; a++)
            fprintf(f, "<td data-mechanism=\"%s\" data-arm=\"%zu\" data-value=\"%.17g\">%s</td>", one->name, a,
                    one->value[a], one->median[a]);
        fputs("<td>", f);
        tag(f, one->note, one->refused);
        fputs("</td></tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

static void figure_row(FILE *f, const struct zr_ab_report *r, const struct zr_ab_report_metric *m, size_t arm) {
    const struct zr_ab_report_cell *c = &m->cell[arm];

    fprintf(f, "<tr%s><td>", arm ? "" : " class=\"first\"");
    if (!arm) {
        fputs("<span title=\"", f);
        zr_html_text(f, m->help);
        fputs("\">", f);
        zr_html_text(f, m->name);
        fputs("</span> ", f);
        tag(f, m->primary ? "primary" : "", false);
        tag(f, m->drifts ? "drifts" : "", true);
    }
    fputs("</td><td>", f);
    if (m->same)
        fputs("all", f);
    else
        arm_name(f, r, arm);
    fputs("</td><td class=\"n\" data-metric=\"", f);
    zr_html_text(f, m->name);
    fprintf(f, "\" data-arm=\"%zu\" data-value=\"%.17g\">%s</td>", arm, c->value, c->median);
    element(f, "td class=\"n soft\"", m->same ? ZR_AB_THE_SAME : c->interval);
    fprintf(f, "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td>%s</td></tr>\n", c->change,
            c->change_interval, c->p, c->outcome);
}

static void figure_rows(FILE *f, const struct zr_ab_report *r, bool folded) {
    for (size_t i = 0; i < r->n_metrics; i++)
        for (size_t a = 0; r->metric[i].folded == folded && a < (r->metric[i].same ? 1 : r->n_arms); a++)
            figure_row(f, r, &r->metric[i], a);
}

static size_t folded_metrics(const struct zr_ab_report *r) {
    size_t n = 0;

    for (size_t i = 0; i < r->n_metrics; i++)
        n += r->metric[i].folded;
    return n;
}

static void figures(FILE *f, const struct zr_ab_report *r) {
    static const char head[] = "<div class=\"wide\"><table><tr><th>metric</th><th>arm</th><th class=\"n\">median</th>"
                               "<th class=\"n\">95 % interval</th><th class=\"n\">change</th>"
                               "<th class=\"n\">95 % interval</th><th class=\"n\">p</th><th></th></tr>\n";

    fprintf(f, "<h2>Figures</h2>%s", head);
    figure_rows(f, r, false);
    fprintf(f, "</table></div><p class=\"soft\">%s</p>\n", r->footnote);
    if (folded_metrics(r)) {
        fprintf(f, "<details><summary>Other figures of the host: they change as host.mirror does</summary>%s", head);
        figure_rows(f, r, true);
        fputs("</table></div></details>\n", f);
    }
}

static void plot(FILE *f, const struct zr_ab_report *r, const struct zr_ab_report_metric *m) {
    fputs("<figure data-plot=\"", f);
    zr_html_text(f, m->name);
    fputs("\"><figcaption>", f);
    zr_html_text(f, m->name);
    fputc(' ', f);
    element(f, "span class=\"soft\"", m->help);
    fputs("</figcaption>", f);
    zr_svg_dots(f, r->ab, r->an, m->index);
    fputs("</figure>\n", f);
}

static void plots(FILE *f, const struct zr_ab_report *r) {
    fputs("<h2>Every run</h2><p class=\"soft\">A dot is a run, its number and value in the tip. The line below the "
          "dots is "
          "the 95 % interval of the median.</p><div class=\"plots\">",
          f);
    for (size_t i = 0; i < r->n_metrics; i++)
        if (!r->metric[i].same && !r->metric[i].folded)
            plot(f, r, &r->metric[i]);
    fputs("</div>\n", f);
    if (!folded_metrics(r))
        return;
    fputs("<details><summary>Other figures of the host</summary><div class=\"plots\">", f);
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metric[i].folded && !r->metric[i].same)
            plot(f, r, &r->metric[i]);
    fputs("</div></details>\n", f);
}

/* The run of an arm whose wall time is nearest to the median, among those that were sampled. */
static const struct zr_ab_run *typical(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm) {
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

static void memory(FILE *f, const struct zr_ab_report *r) {
    const struct zr_ab *ab = r->ab;
    const struct zr_ab_analysis *an = r->an;
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
    fputs("<h2>Memory over time</h2><p class=\"key\"><b class=\"active\">GPUActive over its baseline</b>"
          "<b class=\"drop\">drop of MemAvailable</b><b class=\"rss\">resident memory</b>"
          "<b class=\"vram\">device memory</b><b class=\"imports\">imports</b></p>"
          "<p class=\"soft\">One run per arm, the one nearest to the median wall time, sampled from outside. "
          "GPUActive and MemAvailable are those of the whole machine.</p><div class=\"plots\">",
          f);
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if ((run = typical(ab, an, arm))) {
            fprintf(f, "<figure data-memory=\"%zu\"><figcaption>", arm);
            arm_name(f, r, arm);
            fprintf(f, " <span class=\"soft\">run %zu</span></figcaption>", run->number);
            zr_svg_memory(f, run, run->sample->mem_available, run->sample->gpu_active, seconds, bytes);
            fputs("</figure>\n", f);
        }
    fputs("</div>\n", f);
}

void zr_ab_report_html(FILE *f, const struct zr_ab_report *r) {
    head(f, r);
    verdict(f, r);
    fingerprint(f, r);
    mechanisms(f, r);
    if (r->n_metrics) {
        figures(f, r);
        plots(f, r);
        memory(f, r);
    }
    fputs("<h2>Machine</h2>", f);
    element(f, "p", r->machine);
    fputs("<h2>Repeat</h2><p>", f);
    element(f, "code", r->repeat);
    fputs("</p><p class=\"soft\">zeroute " ZEROUTE_VERSION "</p></body></html>\n", f);
}
