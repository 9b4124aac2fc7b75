/* What is known of versions, where it concerns this stack: one finding for each fact that holds. */
#include "doctor/doctor.h"
#include "selftest/selftest.h"

#include <string.h>

static void add_known(struct zr_findings *to, enum zr_fact_id fact, const char *id, const char *version,
                      const char *todo) {
    struct zr_finding *f = zr_finding_add(to, ZR_NOTE, id, "%s", zr_facts[fact].what);

    zr_finding_says(&f->seen, "%s", version);
    zr_finding_says(&f->todo, "%s", todo);
    f->source = zr_facts[fact].source;
}

static bool has_alchemist(const struct zr_case *c) {
    for (unsigned i = 0; i < c->card_count; i++)
        if (c->cards[i].family == ZR_FAMILY_ALCHEMIST)
            return true;
    return false;
}

static bool expands_segments(const struct zr_case *c) {
    static const char *const names[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = zr_environ_get(&c->stack.environ, names[i]);

        if (value && strstr(value, "expandable_segments:True"))
            return true;
    }
    return false;
}

static void check_expandable(const struct zr_case *c, struct zr_findings *to) {
    char seen[128];

    if (!expands_segments(c) || zr_case_cards(c) < 2)
        return;
    if (zr_fact_holds(ZR_FACT_EXPANDABLE_HANGS, c->stack.runtime)) {
        snprintf(seen, sizeof seen, "runtime %s, several cards, expandable_segments:True",
                 c->stack.parts[ZR_PART_SYCL].version);
        add_known(to, ZR_FACT_EXPANDABLE_HANGS, "expandable-hangs", seen,
                  "set expandable_segments:False, or use one card per process");
    }
    if (zr_fact_holds(ZR_FACT_REMAP_UNDER_PEER, c->stack.driver) && !c->counted.remapped) {
        snprintf(seen, sizeof seen, "driver %s, several cards, expandable_segments:True",
                 c->stack.parts[ZR_PART_DRIVER].version);
        add_known(to, ZR_FACT_REMAP_UNDER_PEER, "remap-ahead", seen,
                  "set expandable_segments:False, or use one card per process");
    }
}

/* What was proven on this machine was proven with another stack. */
static void check_selftest(struct zr_findings *to) {
    struct zr_finding *f;
    char changed[400];

    if (!zr_selftest_changed(changed, sizeof changed))
        return;
    f = zr_finding_add(to, ZR_NOTE, "selftest", "the stack has changed since the last selftest");
    zr_finding_says(&f->seen, "%s", changed);
    zr_finding_says(&f->todo, "zeroute selftest");
}

void zr_known_find(const struct zr_case *c, struct zr_findings *to) {
    char seen[128];

    /* A process that runs has shown it by now. */
    if (!c->pid && zr_case_cards(c) > 1 && zr_fact_holds(ZR_FACT_PEER_BINDS, c->kernel)) {
        snprintf(seen, sizeof seen, "kernel %u.%u, %u cards", c->kernel.n[0], c->kernel.n[1], zr_case_cards(c));
        add_known(to, ZR_FACT_PEER_BINDS, "peer-binds", seen,
                  "if programs on several cards fail at start or at their first copy: kernel 7.1 "
                  "or later");
    }
    if (has_alchemist(c) && zr_fact_holds(ZR_FACT_A770_RESULTS, c->stack.driver)) {
        snprintf(seen, sizeof seen, "driver %s, an Alchemist card", c->stack.parts[ZR_PART_DRIVER].version);
        add_known(to, ZR_FACT_A770_RESULTS, "a770-results", seen, "install driver 26.31 or later");
    }
    check_expandable(c, to);
    if (!c->pid)
        check_selftest(to);
}
