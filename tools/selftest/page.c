/* The result as a page of text, at most 80 columns wide. */
#include "selftest/selftest.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 78 };

const char zr_selftest_contains[] =
    "This page holds names and PCI addresses of cards, versions of kernel, driver, loader and SYCL runtime, sizes of "
    "memory, verdicts, seeds and timings. It names no host, no user and no folder.";

const char *zr_selftest_verdict(char *out, size_t size, const struct zr_selftest_row *row) {
    if (row->ended_badly)
        snprintf(out, size, "ended badly in %u of %u runs", row->ended_badly, row->runs);
    else if (row->differing)
        snprintf(out, size, "differs in %u of %u runs", row->differing, row->runs);
    else if (!row->runs)
        snprintf(out, size, "not compared");
    else if (row->known)
        snprintf(out, size, "as meant: %s", row->reason);
    else
        snprintf(out, size, "same answers, same data");
    return out;
}

/* "cards      Arc B580, 12.0 GiB (0000:03:00.0)" */
static void pair(FILE *to, const char *name, const char *text) {
    if (!*text)
        return;
    fprintf(to, "%-10s ", name);
    zr_text_wrap(to, 11, WIDTH, text);
}

static void show_machine(FILE *to, const struct zr_selftest *t) {
    char a[ZR_TEXT_SIZE], text[320];

    pair(to, "zeroute", ZEROUTE_VERSION);
    pair(to, "kernel", t->kernel);
    pair(to, "driver", t->driver);
    pair(to, "loader", t->loader);
    pair(to, "runtime", *t->runtime ? t->runtime : "no SYCL runtime was found");
    pair(to, "host", zr_text_bytes(a, t->host));
    for (unsigned i = 0; i < t->card_count; i++) {
        const struct zr_selftest_card *card = &t->card[i];

        snprintf(text, sizeof text, "%s, %s (%s)", card->name, zr_text_bytes(a, card->vram), card->pdev);
        snprintf(text + strlen(text), 40, "%s", card->used ? ", in use" : "");
        char name[16];
        snprintf(name, sizeof name, "card %u", i);
        pair(to, name, text);
    }
    if (t->cards) {
        snprintf(text, sizeof text, "%s for a process", zr_text_bytes(a, t->budget));
        pair(to, "budget", text);
    }
}

static void show_rows(FILE *to, const struct zr_selftest *t) {
    struct zr_table *table = zr_table_new("PROGRAM", "SETTING", ">RUNS", "~VERDICT", (char *)NULL);
    char runs[16], verdict[160];

    fprintf(to, "\nAnswers and data, compared with the driver alone\n");
    for (unsigned i = 0; i < t->row_count; i++) {
        const struct zr_selftest_row *row = &t->row[i];

        snprintf(runs, sizeof runs, "%u", row->runs);
        zr_table_row(table, strcmp(row->program, "sycl") ? "Level Zero" : "SYCL", row->setting->name, runs,
                     zr_selftest_verdict(verdict, sizeof verdict, row));
    }
    zr_table_print(table, to, false);
    fprintf(to, "seeds %" PRIu64 " to %" PRIu64 ", %u operations each%s\n", t->first_seed,
            t->first_seed + (t->seeds_done[0] ? t->seeds_done[0] : 1) - 1, t->options.count,
            t->seeds_done[0] < t->seeds_asked ? "; the time was over before all seeds were tried" : "");
}

static void show_findings(FILE *to, const struct zr_selftest *t) {
    for (unsigned i = 0; i < t->finding_count; i++) {
        const struct zr_selftest_finding *f = &t->finding[i];

        fputc('\n', to);
        fprintf(to, "FOUND      ");
        zr_text_wrap(to, 11, WIDTH, f->what);
        if (f->of > 1)
            fprintf(to, "           in %u of %u runs of this seed\n", f->runs, f->of);
        pair(to, *f->under ? "  without" : "  line", f->alone);
        pair(to, "  with", f->under);
        pair(to, "  again", f->again);
    }
    if (t->findings_left_out)
        fprintf(to, "and %u more\n", t->findings_left_out);
}

static void show_mirror(FILE *to, const struct zr_selftest *t) {
    struct zr_table *table;
    char slope[32];

    if (!t->mirror_count)
        return;
    table = zr_table_new("~SETTING", ">BYTES", "VERDICT", (char *)NULL);
    fprintf(to, "\nHost memory for a byte of device memory\n");
    for (unsigned i = 0; i < t->mirror_count; i++) {
        const struct zr_selftest_mirror *m = &t->mirror[i];

        snprintf(slope, sizeof slope, "%.2f", m->slope);
        zr_table_row(table, m->label, m->measured ? slope : "-", m->why);
    }
    zr_table_print(table, to, false);
}

static void show_cost(FILE *to, const struct zr_selftest *t) {
    const char *head[ZR_COST_SETTINGS + 2] = {"SIZE"}, *cell[ZR_COST_SETTINGS + 1];
    char text[ZR_COST_SETTINGS + 1][ZR_TEXT_SIZE], names[ZR_COST_SETTINGS][40];
    struct zr_table *table;

    if (!t->cost_count)
        return;
    for (unsigned k = 0; k < t->cost_count; k++) {
        snprintf(names[k], sizeof names[k], ">%s", *t->cost_setting[k] ? t->cost_setting[k] : "driver alone");
        head[k + 1] = names[k];
    }
    table = zr_table_of(head);
    for (unsigned i = 0; i < ZR_COST_SIZES && t->cost[i].size; i++) {
        cell[0] = zr_text_bytes(text[0], t->cost[i].size);
        for (unsigned k = 0; k < t->cost_count; k++)
            cell[k + 1] = zr_text_time(text[k + 1], (uint64_t)t->cost[i].ns[k]);
        zr_table_cells(table, cell);
    }
    fprintf(to, "\nAn allocation with its free\n");
    zr_table_print(table, to, false);
}

static void show_answers(FILE *to, const struct zr_selftest *t) {
    if (t->answer_count)
        fputc('\n', to);
    for (unsigned i = 0; i < t->answer_count; i++)
        pair(to, *t->answer[i].setting ? t->answer[i].setting : "alone", t->answer[i].text);
}

static const char *summary(const struct zr_selftest *t) {
    if (!zr_selftest_agrees(t))
        return "Something differs or is wrong: see FOUND below.";
    if (!t->row_count)
        return "Nothing could be compared.";
    return "Every answer and every byte is as without zeroute.";
}

void zr_selftest_page(FILE *to, const struct zr_selftest *t) {
    fprintf(to, "zeroute selftest, %s, %.0f s\n%s\n\n", t->when, t->seconds,
            t->interrupted ? "It was interrupted: this is what there was by then." : summary(t));
    show_machine(to, t);
    if (t->row_count)
        show_rows(to, t);
    show_findings(to, t);
    show_mirror(to, t);
    show_cost(to, t);
    show_answers(to, t);
    if (t->note_count)
        fputc('\n', to);
    for (unsigned i = 0; i < t->note_count; i++)
        zr_text_wrap(to, 0, WIDTH, t->note[i]);
    if (t->time_over)
        fprintf(to, "The time (%u s) was over before everything was done; --long has more.\n", t->options.seconds);
    fputc('\n', to);
    zr_text_wrap(to, 0, WIDTH, zr_selftest_contains);
}
