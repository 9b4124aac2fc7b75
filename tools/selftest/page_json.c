/* The result as JSON. */
#include "selftest/selftest.h"

#include <string.h>

enum { FORMAT = 1 };

static void add_machine(json_t *document, const struct zr_selftest *t) {
    json_t *machine = zr_json_object(document, "machine"), *cards;

    zr_json_text(machine, "kernel", t->kernel);
    zr_json_text(machine, "driver", t->driver);
    zr_json_text(machine, "loader", t->loader);
    zr_json_text(machine, "runtime", t->runtime);
    zr_json_amount(machine, "host_bytes", t->host);
    cards = zr_json_array(machine, "cards");
    for (unsigned i = 0; i < t->card_count; i++) {
        json_t *card = zr_json_object(cards, NULL);

        zr_json_text(card, "name", t->card[i].name);
        zr_json_text(card, "address", t->card[i].pdev);
        zr_json_count(card, "bytes", t->card[i].vram);
        zr_json_flag(card, "used_by_others", t->card[i].used);
    }
}

static void add_rows(json_t *document, const struct zr_selftest *t) {
    json_t *rows = zr_json_array(document, "settings");
    char verdict[160];

    for (unsigned i = 0; i < t->row_count; i++) {
        const struct zr_selftest_row *r = &t->row[i];
        json_t *row = zr_json_object(rows, NULL);

        zr_json_text(row, "program", r->program);
        zr_json_text(row, "setting", r->setting->name);
        zr_json_text(row, "conf", r->setting->conf);
        zr_json_count(row, "runs", r->runs);
        zr_json_count(row, "same", r->same);
        zr_json_count(row, "known", r->known);
        zr_json_count(row, "differing", r->differing);
        zr_json_count(row, "ended_badly", r->ended_badly);
        zr_json_text(row, "verdict", zr_selftest_verdict(verdict, sizeof verdict, r));
    }
}

static void add_findings(json_t *document, const struct zr_selftest *t) {
    json_t *findings = zr_json_array(document, "findings");

    for (unsigned i = 0; i < t->finding_count; i++) {
        const struct zr_selftest_finding *f = &t->finding[i];
        json_t *finding = zr_json_object(findings, NULL);

        zr_json_text(finding, "what", f->what);
        zr_json_text(finding, "program", f->program);
        zr_json_text(finding, "setting", *f->setting ? f->setting : NULL);
        zr_json_count(finding, "seed", f->seed);
        zr_json_count(finding, "runs", f->runs);
        zr_json_count(finding, "of", f->of);
        zr_json_text(finding, "alone", *f->alone ? f->alone : NULL);
        zr_json_text(finding, "under", *f->under ? f->under : NULL);
        zr_json_text(finding, "again", f->again);
    }
}

static void add_figures(json_t *document, const struct zr_selftest *t) {
    json_t *mirror = zr_json_array(document, "mirror"), *cost = zr_json_array(document, "cost");
    json_t *answers = zr_json_array(document, "answers");

    for (unsigned i = 0; i < t->mirror_count; i++) {
        json_t *row = zr_json_object(mirror, NULL);

        zr_json_text(row, "setting", t->mirror[i].label);
        if (t->mirror[i].measured)
            zr_json_real(row, "bytes", t->mirror[i].slope);
        zr_json_text(row, "verdict", t->mirror[i].why);
    }
    for (unsigned i = 0; i < ZR_COST_SIZES; i++) {
        for (unsigned k = 0; k < t->cost_count && t->cost[i].size; k++) {
            json_t *row = zr_json_object(cost, NULL);

            zr_json_count(row, "size", t->cost[i].size);
            zr_json_text(row, "setting", *t->cost_setting[k] ? t->cost_setting[k] : NULL);
            zr_json_real(row, "ns", t->cost[i].ns[k]);
        }
    }
    for (unsigned i = 0; i < t->answer_count; i++) {
        json_t *row = zr_json_object(answers, NULL);

        zr_json_text(row, "setting", *t->answer[i].setting ? t->answer[i].setting : NULL);
        zr_json_text(row, "text", t->answer[i].text);
    }
}

bool zr_selftest_json(FILE *to, const struct zr_selftest *t) {
    json_t *document = zr_json_document(FORMAT), *notes;

    zr_json_text(document, "zeroute", ZEROUTE_VERSION);
    zr_json_text(document, "date", t->when);
    zr_json_real(document, "seconds", t->seconds);
    zr_json_flag(document, "agrees", zr_selftest_agrees(t));
    zr_json_flag(document, "interrupted", t->interrupted);
    zr_json_flag(document, "time_over", t->time_over);
    zr_json_count(document, "first_seed", t->first_seed);
    zr_json_count(document, "seeds", t->seeds_done[0]);
    zr_json_count(document, "operations", t->options.count);
    zr_json_count(document, "budget_bytes", t->budget);
    add_machine(document, t);
    add_rows(document, t);
    add_findings(document, t);
    add_figures(document, t);
    notes = zr_json_array(document, "notes");
    for (unsigned i = 0; i < t->note_count; i++)
        zr_json_text(notes, NULL, t->note[i]);
    zr_json_text(document, "contains", zr_selftest_contains);
    return zr_json_write(to, document, ZR_JSON_DIGITS, false);
}
