/* The result as one HTML file: nothing is loaded, and nothing in it runs. */
#include "selftest/selftest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put(FILE *to, const char *text) {
    char *safe = zr_harmless(text, ZR_FOR_HTML);

    fputs(safe ? safe : "", to);
    free(safe);
}

/* Cells, NULL last. */
static void put_row(FILE *to, const char *tag, const char *const *cell) {
    fputs("<tr>", to);
    for (; *cell; cell++) {
        fprintf(to, "<%s>", tag);
        put(to, *cell);
        fprintf(to, "</%s>", tag);
    }
    fputs("</tr>\n", to);
}
#define ROW(to, tag, ...) put_row(to, tag, (const char *const[]){__VA_ARGS__, NULL})

static void begin(FILE *to, const char *title) {
    fprintf(to, "<h2>%s</h2>\n<table>\n", title);
}

static void end(FILE *to) {
    fputs("</table>\n", to);
}

static void show_machine(FILE *to, const struct zr_selftest *t) {
    char a[ZR_TEXT_SIZE], name[16];

    begin(to, "Machine");
    ROW(to, "td", "zeroute", ZEROUTE_VERSION);
    ROW(to, "td", "kernel", t->kernel);
    ROW(to, "td", "driver", t->driver);
    ROW(to, "td", "loader", t->loader);
    ROW(to, "td", "SYCL runtime", *t->runtime ? t->runtime : "none was found");
    ROW(to, "td", "host memory", zr_text_bytes(a, t->host));
    for (unsigned i = 0; i < t->card_count; i++) {
        snprintf(name, sizeof name, "card %u", i);
        ROW(to, "td", name, t->card[i].name, zr_text_bytes(a, t->card[i].vram), t->card[i].pdev,
            t->card[i].used ? "in use" : "");
    }
    ROW(to, "td", "budget of a process", zr_text_bytes(a, t->budget));
    end(to);
}

static void show_rows(FILE *to, const struct zr_selftest *t) {
    char runs[16], verdict[160];

    begin(to, "Answers and data, compared with the driver alone");
    ROW(to, "th", "program", "setting", "runs", "verdict");
    for (unsigned i = 0; i < t->row_count; i++) {
        snprintf(runs, sizeof runs, "%u", t->row[i].runs);
        ROW(to, "td", strcmp(t->row[i].program, "sycl") ? "Level Zero" : "SYCL", t->row[i].setting->name, runs,
            zr_selftest_verdict(verdict, sizeof verdict, &t->row[i]));
    }
    end(to);
}

static void show_findings(FILE *to, const struct zr_selftest *t) {
    if (!t->finding_count)
        return;
    begin(to, "Found");
    ROW(to, "th", "what", "without", "with", "again");
    for (unsigned i = 0; i < t->finding_count; i++) {
        const struct zr_selftest_finding *f = &t->finding[i];

        ROW(to, "td", f->what, f->alone, f->under, f->again);
    }
    end(to);
}

static void show_mirror(FILE *to, const struct zr_selftest *t) {
    char slope[32];

    if (!t->mirror_count)
        return;
    begin(to, "Host memory for a byte of device memory");
    ROW(to, "th", "setting", "bytes", "verdict");
    for (unsigned i = 0; i < t->mirror_count; i++) {
        snprintf(slope, sizeof slope, "%.2f", t->mirror[i].slope);
        ROW(to, "td", t->mirror[i].label, t->mirror[i].measured ? slope : "-", t->mirror[i].why);
    }
    end(to);
}

static void show_cost(FILE *to, const struct zr_selftest *t) {
    char text[ZR_TEXT_SIZE], size[ZR_TEXT_SIZE];

    if (!t->cost_count)
        return;
    begin(to, "An allocation with its free");
    ROW(to, "th", "size", "setting", "time");
    for (unsigned i = 0; i < ZR_COST_SIZES && t->cost[i].size; i++) {
        for (unsigned k = 0; k < t->cost_count; k++)
            ROW(to, "td", zr_text_bytes(size, t->cost[i].size),
                *t->cost_setting[k] ? t->cost_setting[k] : "driver alone",
                zr_text_time(text, (uint64_t)t->cost[i].ns[k]));
    }
    end(to);
}

void zr_selftest_html(FILE *to, const struct zr_selftest *t) {
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>zeroute selftest</title>\n"
          "<style>body{font:15px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}"
          "td,th{border:1px solid #bbb;padding:.2em .6em;text-align:left;vertical-align:top}</style></head><body>\n"
          "<h1>zeroute selftest</h1>\n<p>",
          to);
    put(to, t->when);
    fprintf(to, ", %.0f s: %s</p>\n", t->seconds,
            !zr_selftest_agrees(t) ? "something differs or is wrong"
            : t->row_count         ? "every answer and every byte is as without zeroute"
                                   : "nothing could be compared");
    show_machine(to, t);
    show_findings(to, t);
    show_rows(to, t);
    show_mirror(to, t);
    show_cost(to, t);
    if (t->answer_count) {
        begin(to, "Free memory");
        for (unsigned i = 0; i < t->answer_count; i++)
            ROW(to, "td", *t->answer[i].setting ? t->answer[i].setting : "driver alone", t->answer[i].text);
        end(to);
    }
    for (unsigned i = 0; i < t->note_count; i++) {
        fputs("<p>", to);
        put(to, t->note[i]);
        fputs("</p>\n", to);
    }
    fputs("<p>", to);
    put(to, zr_selftest_contains);
    fputs("</p>\n</body></html>\n", to);
}
