/* What people ask about a machine: the mirror, the cost of an allocation, free memory, and what lies beyond a card. */
#include "mirror/mirror.h"
#include "selftest/selftest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- host memory per byte of device memory: mirror-test's own measurement ------------------------- */

static const struct zr_mirror_plan mirror_rows[] = {
#define ZR_SETTING(l, r, d, b, s, v)                                                                                   \
    {.label = l, .route = r, .residency = d, .backing = b, .share = ZR_SHARE_##s, .variables = v},
#include "mirror/rows.def"
#undef ZR_SETTING
};

/* With one card there are no peers, but IPC handles; SYCL's rows need a runtime. */
static bool fits(const struct zr_selftest *t, const struct zr_mirror_plan *row) {
    enum zr_share alone = t->options.quick ? ZR_SHARE_IPC : row->share;

    if (strcmp(row->route, "native") != 0)
        return *t->runtime_folder && t->cards > 1 && strcmp(row->route, "runtime") == 0 &&
               strstr(row->label, "SYCL v2") != NULL;
    if (t->cards > 1)
        return row->share == ZR_SHARE_PEER;
    return row->share != ZR_SHARE_PEER && row->share == alone;
}

static void measure_mirror_row(struct zr_selftest *t, const struct zr_mirror_plan *row) {
    enum { STEPS = 4, SECONDS = 30 };
    const uint64_t unit = UINT64_C(2) << 20;
    struct zr_selftest_mirror *m = &t->mirror[t->mirror_count++];
    struct zr_mirror_result *result = calloc(1, sizeof *result);
    struct zr_mirror_plan plan = *row;
    char variables[320];

    m->label = row->label;
    snprintf(variables, sizeof variables, "%s%s%s%s", *t->mask ? "ZE_AFFINITY_MASK=" : "", t->mask,
             *t->mask && row->variables ? " " : "", row->variables ? row->variables : "");
    plan.variables = *variables ? variables : NULL;
    plan.cards = t->cards;
    plan.count = STEPS;
    plan.step = t->budget / 2 / STEPS / unit * unit;
    plan.step = plan.step ? plan.step : unit;
    plan.keep = t->host == ZR_ABSENT ? UINT64_C(1) << 30 : t->host / 8;
    plan.seconds = SECONDS;
    plan.runtime = t->runtime_folder;
    if (result) {
        zr_mirror_measure(&plan, result);
        m->measured = result->verdict != ZR_CANNOT_TELL;
        m->slope = result->by_active ? result->active.slope : result->by_available ? result->available.slope : 0;
        zr_without_paths(m->why, sizeof m->why, *result->stopped ? result->stopped : zr_verdict_names[result->verdict]);
        t->interrupted |= zr_mirror_interrupted != 0;
        if (strcmp(result->data, "damaged") == 0) {
            struct zr_child c = zr_selftest_child(t, "mirror", NULL);

            zr_selftest_finds(t, &c, NULL, "%s: data was damaged while host memory was measured", row->label);
        }
    }
    free(result);
}

static void measure_mirror(struct zr_selftest *t) {
    for (size_t i = 0; i < sizeof mirror_rows / sizeof *mirror_rows; i++) {
        if (!fits(t, &mirror_rows[i]) || t->mirror_count == ZR_MIRROR_ROWS || zr_selftest_late(t))
            continue;
        measure_mirror_row(t, &mirror_rows[i]);
        if (t->options.quick)
            return;
    }
}

/* --- the cost of an allocation ---------------------------------------------------------------- */

static const char *const cost_settings[ZR_COST_SETTINGS] = {"", "observe", "mitigate", "reroute", "safe"};

static const char *conf_of(const char *name) {
    for (unsigned i = 0; i < zr_selftest_setting_count; i++) {
        if (strcmp(zr_selftest_settings[i].name, name) == 0)
            return zr_selftest_settings[i].conf;
    }
    return NULL;
}

static void take_cost(struct zr_selftest *t, unsigned column, const char *line) {
    uint64_t size;
    double ns;

    if (sscanf(line, "cost %" SCNu64 " %lf", &size, &ns) != 2)
        return;
    for (unsigned i = 0; i < ZR_COST_SIZES; i++) {
        if (t->cost[i].size && t->cost[i].size != size)
            continue;
        t->cost[i].size = size;
        t->cost[i].ns[column] = ns;
        return;
    }
}

static void measure_cost(struct zr_selftest *t) {
    for (unsigned k = 0; k < ZR_COST_SETTINGS && !zr_selftest_late(t); k++) {
        struct zr_child c = zr_selftest_child(t, "cost", conf_of(cost_settings[k]));

        zr_child_run(&c);
        t->interrupted |= c.ending == ZR_INTERRUPTED;
        for (size_t i = 0; i < c.count; i++)
            take_cost(t, t->cost_count, c.line[i]);
        if (c.ending == ZR_ENDED)
            t->cost_setting[t->cost_count++] = cost_settings[k];
        else if (c.ending != ZR_INTERRUPTED && c.ending != ZR_CANNOT)
            zr_selftest_finds(t, &c, cost_settings[k], "what an allocation costs: %s", c.why);
        zr_child_free(&c);
    }
}

/* --- free memory ------------------------------------------------------------------------------ */

static struct zr_selftest_answer *answer(struct zr_selftest *t, const char *setting) {
    static struct zr_selftest_answer none;

    if (t->answer_count == sizeof t->answer / sizeof *t->answer)
        return &none;
    t->answer[t->answer_count] = (struct zr_selftest_answer){.setting = setting};
    return &t->answer[t->answer_count++];
}

/* What the answers of one card say. False: they are plausible. */
static bool lies(uint64_t total, uint64_t before, uint64_t bytes, uint64_t after, char *out, size_t size) {
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (before == 0)
        snprintf(out, size, "0 is told to be free on an idle card");
    else if (before > total || after > total)
        snprintf(out, size, "more is told to be free than the card has (%s)", zr_text_bytes(a, total));
    else if (after == before)
        snprintf(out, size, "with %s more in use as much is told to be free as before: %s", zr_text_bytes(a, bytes),
                 zr_text_bytes(b, after));
    else if (after > before || before - after > 4 * bytes + (total >> 4))
        snprintf(out, size, "with %s more in use %s less is told to be free", zr_text_bytes(a, bytes),
                 after > before ? "nothing" : zr_text_bytes(b, before - after));
    else
        return false;
    return true;
}

/* The driver alone is told about; under safe, which is to correct it, a lie is a finding. */
static void measure_free(struct zr_selftest *t, const char *setting) {
    struct zr_child c = zr_selftest_child(t, "free", conf_of(setting));
    struct zr_selftest_answer *a;
    bool told = false, lie = false;
    char text[160] = "";

    zr_child_run(&c);
    t->interrupted |= c.ending == ZR_INTERRUPTED;
    for (size_t i = 0; i < c.count && !lie; i++) {
        uint64_t total, before, bytes, after;
        unsigned card;

        if (sscanf(c.line[i], "free %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &card, &total, &before, &bytes,
                   &after) != 5)
            continue;
        if (before == ZR_ABSENT || after == ZR_ABSENT)
            continue;
        told = true;
        lie = lies(total, before, bytes, after, text, sizeof text);
    }
    if (c.ending == ZR_INTERRUPTED) {
        zr_child_free(&c);
        return;
    }
    a = answer(t, setting);
    if (c.ending != ZR_ENDED)
        snprintf(a->text, sizeof a->text, "free memory: %.150s", c.why);
    else
        snprintf(a->text, sizeof a->text, "free memory: %.150s",
                 lie    ? text
                 : told ? "told truly"
                        : "this driver does not tell");
    if (lie || (c.ending != ZR_ENDED && c.ending != ZR_CANNOT))
        zr_selftest_finds(t, &c, setting, "%s%s", *setting ? "" : "the driver alone: ", a->text);
    zr_child_free(&c);
}

/* --- beyond the card --------------------------------------------------------------------------- */

static void measure_beyond(struct zr_selftest *t, const char *setting) {
    struct zr_child c = zr_selftest_child(t, "beyond", conf_of(setting));
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    uint64_t given, whole;
    struct zr_selftest_answer *said;
    unsigned code, use;

    c.program.budget = t->options.beyond;
    c.deadline_ms = 120000;
    zr_child_run(&c);
    t->interrupted |= c.ending == ZR_INTERRUPTED;
    said = answer(t, setting);
    snprintf(said->text, sizeof said->text, "beyond the card: %.150s", c.why);
    for (size_t i = 0; i < c.count; i++) {
        if (sscanf(c.line[i], "beyond %" SCNu64 " %" SCNu64 " %x %x", &given, &whole, &code, &use) != 4)
            continue;
        if (use) {
            snprintf(said->text, sizeof said->text,
                     "beyond the card: the card carries out no command any more (0x%x) after %s of %s", use,
                     zr_text_bytes(a, given), zr_text_bytes(b, whole));
            zr_selftest_finds(t, &c, setting, "%s%s", *setting ? "" : "the driver alone: ", said->text);
        } else if (code)
            snprintf(said->text, sizeof said->text, "beyond the card: refused with 0x%x after %s of %s", code,
                     zr_text_bytes(a, given), zr_text_bytes(b, whole));
        else if (given > whole)
            snprintf(said->text, sizeof said->text,
                     "beyond the card: it spills: %s were given of a card of %s, the rest is host memory",
                     zr_text_bytes(a, given), zr_text_bytes(b, whole));
    }
    if (c.ending != ZR_ENDED && c.ending != ZR_CANNOT && c.ending != ZR_INTERRUPTED)
        zr_selftest_finds(t, &c, setting, "%s", said->text);
    zr_child_free(&c);
}

/* --- all -------------------------------------------------------------------------------------- */

void zr_selftest_measure(struct zr_selftest *t) {
    static const char *const free_settings[] = {"", "safe"};

    for (size_t i = 0; i < 2 && !zr_selftest_late(t); i++)
        measure_free(t, free_settings[i]);
    if (!zr_selftest_late(t))
        measure_mirror(t);
    if (!t->options.quick)
        measure_cost(t);
    for (size_t i = 0; i < 2 && t->options.beyond && !zr_selftest_late(t); i++)
        measure_beyond(t, free_settings[i]);
}
