/* What to do about what was measured: one recommendation behind the verdict. */
#include "mirror/mirror.h"

#include <string.h>

static bool is_default(const struct zr_mirror_plan *p) {
    return !strcmp(p->residency, "default") && !strcmp(p->backing, "default") && !p->variables;
}

static const char *advice_for(const struct zr_mirror_result *r) {
    const struct zr_mirror_plan *p = &r->plan;

    if (!r->count)
        return "'zeroute doctor' looks at what is missing: driver, loader, permissions";
    if (r->verdict == ZR_CANNOT_TELL && *r->stopped)
        return "end what stopped the measurement, and measure again";
    if (r->verdict == ZR_CANNOT_TELL)
        return "measure again with more and larger steps (--count, --step) while the machine is quiet";
    if (r->verdict == ZR_NOT_MIRRORED)
        return is_default(p) ? "nothing to do: device memory costs no host memory here"
                             : "keep this setting: it holds here";
    if (p->share == ZR_SHARE_IPC)
        return "zeroute run --preset eager, which covers exports by IPC handle; try it with --backing eager";
    if (!strcmp(p->residency, "owner"))
        return "residency:owner does not end it here: try --backing eager, and 'zeroute doctor' for the stack";
    return "zeroute run --preset mitigate (residency:owner); try it with --residency owner. Where a plain variable "
           "does it, 'zeroute doctor' names that";
}

static void say(FILE *to, const char *head, const char *text) {
    char whole[768];

    snprintf(whole, sizeof whole, "%s%s", head, text);
    zr_text_wrap(to, 0, 80, whole);
}

void zr_mirror_advise(FILE *to, const struct zr_mirror_result *r) {
    say(to, "recommendation: ", advice_for(r));
}

/* What it comes to on this machine when the cards are full. */
void zr_mirror_cost(FILE *to, const struct zr_mirror_result *r) {
    const struct zr_line *line = r->by_active ? &r->active : &r->available;
    char vram[ZR_TEXT_SIZE], ram[ZR_TEXT_SIZE + 8], text[256];

    if (r->verdict == ZR_CANNOT_TELL || r->vram == ZR_ABSENT || !r->vram)
        return;
    uint64_t all = r->vram * r->plan.cards;
    double cost = r->verdict == ZR_MIRRORED ? line->slope * (double)all : 0;
    char costs[ZR_TEXT_SIZE];
    snprintf(ram, sizeof ram, cost < 1 ? "no RAM" : "%s of RAM", zr_text_bytes(costs, (uint64_t)cost));
    snprintf(text, sizeof text, "at %s of VRAM (%u card%s in full) this costs %s here", zr_text_bytes(vram, all),
             r->plan.cards, r->plan.cards == 1 ? "" : "s", ram);
    zr_text_wrap(to, 0, 80, text);
}

/* "verdict: mirrored with 2 and 4 cards, as requested": all numbers of cards that show what the most do. */
static void say_verdict(FILE *to, const struct zr_mirror_result *results, unsigned count,
                        const struct zr_mirror_result *base) {
    char cards[64] = "";
    size_t used = 0;

    for (unsigned i = 0; i < count && used < sizeof cards; i++) {
        const struct zr_mirror_result *r = &results[i];
        bool alike = !strcmp(r->plan.label, base->plan.label) && r->count >= 3 && r->verdict == base->verdict;

        if (alike)
            used += (size_t)snprintf(cards + used, sizeof cards - used, "%s%u",
                                     !used       ? ""
                                     : r == base ? " and "
                                                 : ", ",
                                     r->plan.cards);
    }
    fprintf(to, "verdict: %s with %s card%s, as requested\n", zr_verdict_names[base->verdict], cards,
            strcmp(cards, "1") == 0 ? "" : "s");
}

/* Of the settings tried with most cards, those that end what the first row shows. */
void zr_mirror_advise_all(FILE *to, const struct zr_mirror_result *results, unsigned count) {
    const struct zr_mirror_result *base = NULL;
    char ends[512] = "";
    size_t used = 0;

    for (unsigned i = 0; i < count; i++)
        if (!strcmp(results[i].plan.label, results[0].plan.label) && results[i].count >= 3 &&
            (!base || results[i].plan.cards > base->plan.cards))
            base = &results[i];
    if (!base) {
        say(to, "verdict: ", "cannot tell: nothing could be measured as requested");
        return;
    }
    say_verdict(to, results, count, base);
    for (unsigned i = 0; i < count && base->verdict == ZR_MIRRORED && used < sizeof ends; i++)
        if (results[i].plan.cards == base->plan.cards && results[i].count >= 3 &&
            results[i].plan.share == base->plan.share && !strcmp(results[i].plan.route, base->plan.route) &&
            results[i].verdict == ZR_NOT_MIRRORED && strcmp(results[i].data, "damaged") != 0)
            used +=
                (size_t)snprintf(ends + used, sizeof ends - used, "%s%s", used ? ", or " : "", results[i].plan.label);
    if (used)
        say(to, "recommendation: ", ends);
    else
        zr_mirror_advise(to, base);
    zr_mirror_cost(to, base);
}
