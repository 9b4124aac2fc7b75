/* Libraries that reach a card otherwise than through Level Zero's loader as it is installed. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- OpenCL ---------------------------------------------------------------------------------- */

/* A SYCL runtime loads OpenCL's driver to list its devices: that alone is no use of it. */
static const uint64_t used_from = UINT64_C(256) << 20;

/* What the kernel counts for the process and the preload does not; all of it without the preload. */
static uint64_t past_level_zero(const struct zr_case *c) {
    uint64_t vram = 0;

    for (unsigned i = 0; i < c->memory.card_count; i++)
        if (c->memory.cards[i].vram.total != ZR_ABSENT)
            vram += c->memory.cards[i].vram.total;
    return vram > c->counted.allocated ? vram - c->counted.allocated : 0;
}

bool zr_case_uses_opencl(const struct zr_case *c) {
    const struct zr_library *parts = c->stack.parts;
    bool sycl = parts[ZR_PART_SYCL].there || parts[ZR_PART_UR].there || parts[ZR_PART_PI].there;

    if (!c->pid)
        return false;
    if (strstr(c->counted.hooks, "uses OpenCL"))
        return true;
    if (!parts[ZR_PART_OPENCL_DRIVER].there)
        return false;
    return !sycl || (parts[ZR_PART_PRELOAD].there && past_level_zero(c) >= used_from);
}

static void check_opencl(const struct zr_case *c, struct zr_findings *to) {
    bool under_zeroute = c->stack.parts[ZR_PART_PRELOAD].there;
    struct zr_finding *f;
    char a[32], b[32];

    if (!zr_case_uses_opencl(c))
        return;
    f = zr_finding_add(to, under_zeroute ? ZR_WARNING : ZR_NOTE, "opencl",
                       "this program uses OpenCL: zeroute does not see its memory, and limits do "
                       "not hold for it");
    zr_finding_says(&f->seen,
                    "OpenCL is loaded; the cards hold %s for this process, of which %s "
                    "were allocated through Level Zero as zeroute counts",
                    zr_text_bytes(a, past_level_zero(c) + c->counted.allocated),
                    zr_text_bytes(b, c->counted.allocated));
    zr_finding_says(&f->todo, "trust the kernel's figures of the card alone; dmem.max of a control "
                              "group limits every program");
}

/* --- libze_loader.so ------------------------------------------------------------------------- */

static const char *who_opens_unversioned(const struct zr_case *c) {
    static const enum zr_part parts[] = {ZR_PART_TORCH, ZR_PART_CCL};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (zr_library_mentions(&c->stack.parts[parts[i]], "libze_loader.so"))
            return zr_part_names[parts[i]];
    return NULL;
}

static void check_unversioned(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_library *loader = &c->stack.parts[ZR_PART_LOADER];
    bool answered = c->counted.guard_loaders > 0;
    const char *who = answered ? c->counted.guard_loader : NULL;
    struct zr_finding *f;

    if (!answered && (!*loader->file || loader->unversioned))
        return;
    who = who && *who ? who : who_opens_unversioned(c);
    if (!who && !answered)
        return;
    f = zr_finding_add(to, answered ? ZR_NOTE : ZR_WARNING, "unversioned-loader",
                       "%s opens libze_loader.so, which is not installed", who ? who : "a library");
    if (answered)
        zr_finding_says(&f->seen, "zeroute opened libze_loader.so.1 instead, %" PRIu64 " time%s",
                        c->counted.guard_loaders, c->counted.guard_loaders == 1 ? "" : "s");
    else
        zr_finding_says(&f->seen, "it is missing beside %s", loader->path);
    zr_finding_says(&f->todo, "install the loader's development package (libze-dev)%s",
                    answered ? "" : ", or run under zeroute (guard:on)");
    f->source = zr_facts[ZR_FACT_OPENS_UNVERSIONED].source;
}

void zr_interfaces_find(const struct zr_case *c, struct zr_findings *to) {
    check_opencl(c, to);
    check_unversioned(c, to);
}
