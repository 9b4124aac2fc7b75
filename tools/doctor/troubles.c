/* Known trouble on a stack, each with the one thing to do. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the preload and its hooks --------------------------------------------------------------- */

/* Why calls may pass us by, from what is loaded. */
static const char *likely_bypass(const struct zr_case *c, const char **todo) {
    *todo = "run the program from its start under zeroute run";
    if (zr_case_env_on(c, "UR_ADAPTERS_DEEP_BIND")) {
        *todo = "unset UR_ADAPTERS_DEEP_BIND";
        return "UR_ADAPTERS_DEEP_BIND=1 binds the adapters past every preload";
    }
    if (!c->stack.parts[ZR_PART_LOADER].there) {
        *todo = "nothing: zeroute sees Level Zero only, and limits hold for that alone";
        return "no Level Zero loader is loaded: the memory belongs to another interface, as Vulkan";
    }
    return "the memory was allocated before zeroute saw the loader, or by another interface";
}

static bool has_driver(const struct zr_case *c) {
    return c->stack.parts[ZR_PART_DRIVER].there || c->stack.parts[ZR_PART_DRIVER_LEGACY].there ||
           c->stack.parts[ZR_PART_SIMGPU].there;
}

static void check_preload(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_counted *counted = &c->counted;
    uint64_t vram = ZR_ABSENT;
    struct zr_finding *f;
    const char *todo, *why;
    char a[32], b[32];

    if (!c->pid || !c->stack.parts[ZR_PART_PRELOAD].there)
        return;
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        if (c->memory.cards[i].vram.total != ZR_ABSENT)
            vram = (vram == ZR_ABSENT ? 0 : vram) + c->memory.cards[i].vram.total;
    }
    if (!counted->found && counted->why_not) {
        f = zr_finding_add(to, ZR_WARNING, "preload-silent", "zeroute is loaded but publishes nothing");
        zr_finding_says(&f->seen, "%s%s", counted->why_not,
                        has_driver(c) ? "; a driver is loaded, so its calls are missed: a loader that dlmopen opened "
                                        "has no preload"
                                      : "");
        zr_finding_says(&f->todo, "remove stats:off, open the loader by dlopen, or run zeroute as the same user");
        return;
    }
    if (zr_case_uses_opencl(c))
        return; /* a finding of its own */
    if (*counted->hooks) {
        const char *remedy = strrchr(counted->hooks, ';');

        f = zr_finding_add(to, ZR_ERROR, "preload-bypassed", "zeroute is loaded but does not see every call");
        zr_finding_says(&f->seen, "%.*s", (int)strcspn(counted->hooks, ";"), counted->hooks);
        zr_finding_says(&f->todo, "%s", remedy && remedy[1] ? remedy + 2 : "treat its figures as a part of the whole");
        return;
    }
    /* The runtime's own queues and heaps are a few hundred MiB at most. */
    if (vram == ZR_ABSENT || vram < counted->allocated + (UINT64_C(512) << 20) || vram < 2 * counted->allocated)
        return;
    why = likely_bypass(c, &todo);
    f = zr_finding_add(to, ZR_ERROR, "preload-bypassed", "zeroute is loaded but does not see the allocations");
    zr_finding_says(&f->seen, "the cards hold %s for this process, zeroute counted %s in %" PRIu64 " calls; likely: %s",
                    zr_text_bytes(a, vram), zr_text_bytes(b, counted->allocated), counted->calls, why);
    zr_finding_says(&f->todo, "%s", todo);
}

/* --- versions that do not go together -------------------------------------------------------- */

static void loader_finding(const struct zr_case *c, struct zr_findings *to, enum zr_fact_id fact) {
    bool guarded = c->stack.parts[ZR_PART_PRELOAD].there && !strstr(c->counted.settings, "guard:off") &&
                   zr_version_from(c->stack.loader, "1.16");
    struct zr_finding *f = zr_finding_add(to, guarded ? ZR_NOTE : ZR_ERROR, "loader-gap",
                                          "the Level Zero loader %s is too old for runtime %s",
                                          c->stack.parts[ZR_PART_LOADER].version, c->stack.parts[ZR_PART_SYCL].version);

    zr_finding_says(&f->seen, "%s%s%s", zr_facts[fact].what,
                    c->counted.guard[0] ? "; zeroute's guard has answered for: "
                    : guarded           ? "; zeroute's guard stands in for it, and was not needed so far"
                                        : "",
                    c->counted.guard);
    zr_finding_says(&f->todo, "install loader %s or later%s", zr_loader_for(c->stack.runtime),
                    zr_version_from(c->stack.loader, "1.16") ? ", or run under zeroute (guard:on)" : "");
    f->source = zr_facts[fact].source;
}

static void check_loader(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_stack *s = &c->stack;
    enum zr_fact_id fact = zr_loader_fails(s->runtime, s->loader);

    /* A loader that has the function after all, whatever its number. */
    if (fact == ZR_FACT_LOADER_GRAPH &&
        zr_library_mentions(&s->parts[ZR_PART_LOADER], "zeCommandListIsGraphCaptureEnabledExt"))
        return;
    if (fact != ZR_FACTS)
        loader_finding(c, to, fact);
}

/* Adapter v2 with an old UMF needs a link that is missing beside many a loader. */
static void check_umf(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_library *umf = &c->stack.parts[ZR_PART_UMF], *loader = &c->stack.parts[ZR_PART_LOADER];
    struct zr_finding *f;

    if (c->stack.adapter != 2 || !umf->there || !*loader->file || loader->unversioned ||
        !zr_fact_holds(ZR_FACT_UMF_UNVERSIONED, zr_version_of(umf->version)))
        return;
    f = zr_finding_add(to, ZR_ERROR, "umf-loader-link", "UMF %s cannot open the Level Zero loader", umf->version);
    zr_finding_says(&f->seen, "%s; it is missing beside %s", zr_facts[ZR_FACT_UMF_UNVERSIONED].what, loader->path);
    zr_finding_says(&f->todo, "install the loader's development package, or a runtime from 2025.3 on");
    f->source = zr_facts[ZR_FACT_UMF_UNVERSIONED].source;
}

static bool list_has(const char *list, const char *version) {
    size_t length = strlen(version);

    for (const char *at = list; at && (at = strstr(at, version)); at++) {
        if ((at == list || strchr(",; ", at[-1])) && (!at[length] || strchr(",; ", at[length])))
            return *version != '\0';
    }
    return false;
}

static void check_skiplists(const struct zr_case *c, struct zr_findings *to) {
    static const struct {
        const char *variable;
        enum zr_part part;
    } lists[] = {{"SYCL_UR_L0_LOADER_SKIPLIST", ZR_PART_LOADER}, {"SYCL_UR_L0_DRIVER_SKIPLIST", ZR_PART_DRIVER}};

    for (size_t i = 0; i < 2; i++) {
        const char *list = zr_environ_get(&c->stack.environ, lists[i].variable);
        const char *version = c->stack.parts[lists[i].part].version;
        struct zr_finding *f;

        if (!list_has(list, version))
            continue;
        f = zr_finding_add(to, ZR_ERROR, "skip-list", "the runtime skips this %s", zr_part_names[lists[i].part]);
        zr_finding_says(&f->seen, "%s=%s names %s", lists[i].variable, list, version);
        zr_finding_says(&f->todo, "unset %s, or install another version", lists[i].variable);
        f->source = zr_facts[ZR_FACT_HAS_SKIPLIST].source;
    }
}

/* --- cards ----------------------------------------------------------------------------------- */

static void check_cards(const struct zr_case *c, struct zr_findings *to) {
    struct zr_finding *f;
    char a[32], b[32];
    bool alchemist = false;

    for (unsigned i = 0; i < c->card_count; i++) {
        const struct zr_card *card = &c->cards[i];

        alchemist |= card->family == ZR_FAMILY_ALCHEMIST;
        if (!zr_card_has_small_bar(card))
            continue;
        f = zr_finding_add(to, strcmp(card->driver, "xe") ? ZR_WARNING : ZR_ERROR, "small-bar",
                           "card %s has no Resizable BAR", card->pdev);
        zr_finding_says(&f->seen, "the CPU sees %s of its %s", zr_text_bytes(a, card->bar),
                        card->vram == ZR_ABSENT ? "memory" : zr_text_bytes(b, card->vram));
        zr_finding_says(&f->todo, "turn on Resizable BAR and Above 4G Decoding in the firmware's setup");
        if (!strcmp(card->driver, "xe"))
            f->source = zr_facts[ZR_FACT_SMALL_BAR_REFUSED].source;
    }
    if (c->counted.found && c->counted.too_large_calls) {
        f = zr_finding_add(to, ZR_WARNING, "single-allocation",
                           "single allocations were larger than the device allows");
        zr_finding_says(&f->seen, "%" PRIu64 " calls failed with UNSUPPORTED_SIZE", c->counted.too_large_calls);
        zr_finding_says(&f->todo, "set UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1, or allocate in parts (PyTorch: "
                                  "PYTORCH_ALLOC_CONF=expandable_segments:True)");
        zr_finding_says(&f->price, "oneCCL refuses memory of expandable segments (reported)");
        f->source = zr_facts[ZR_FACT_SINGLE_ALLOCATION].source;
    } else if (alchemist && !zr_case_env_on(c, "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS")) {
        f = zr_finding_add(to, ZR_NOTE, "single-allocation",
                           "one allocation of more than 4 GiB fails on this card by default");
        zr_finding_says(&f->seen, "an Alchemist card, UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS not set");
        zr_finding_says(&f->todo, "set UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 if you need it");
        zr_finding_says(&f->price, "kernels must be built for buffers over 4 GiB");
        f->source = zr_facts[ZR_FACT_SINGLE_ALLOCATION].source;
    }
}

static const struct zr_card *card_named(const struct zr_case *c, const char *pdev) {
    for (unsigned i = 0; i < c->card_count; i++) {
        if (!strcmp(c->cards[i].pdev, pdev))
            return &c->cards[i];
    }
    return NULL;
}

static void check_spill(const struct zr_case *c, struct zr_findings *to) {
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        const struct zr_card_use *use = &c->memory.cards[i];
        const struct zr_card *card = card_named(c, use->pdev);
        struct zr_finding *f;
        char a[32], b[32];

        if (!card || card->vram == ZR_ABSENT || use->vram.total == ZR_ABSENT || use->vram.total <= card->vram)
            continue;
        f = zr_finding_add(to, ZR_ERROR, "beyond-vram", "more is allocated on card %s than it has", use->pdev);
        zr_finding_says(&f->seen, "%s of %s: the rest spills into host memory that cannot be swapped",
                        zr_text_bytes(a, use->vram.total), zr_text_bytes(b, card->vram));
        zr_finding_says(&f->todo, "zeroute run --preset safe makes the allocation fail in time");
        zr_finding_says(&f->price, "the program must handle OUT_OF_DEVICE_MEMORY");
        f->source = zr_facts[ZR_FACT_SPILLS].source;
    }
}

/* A program that seems to hang may be paused. */
static void check_pause(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_pause_view *p = &c->counted.pause;
    struct zr_finding *f;
    char given[32], age[32];
    uint64_t now = zr_wall_ns();

    if (!c->alive || p->state <= ZR_PAUSE_RUNNING)
        return;
    f = zr_finding_add(to, ZR_WARNING, "paused", "the program is %s: it waits at its next submission",
                       zr_pause_name(p->state));
    zr_finding_says(&f->seen, "%s of device memory given back, for %s; %" PRIu64 " threads wait",
                    zr_text_bytes(given, p->bytes),
                    zr_text_age(age, p->since_ns && now > p->since_ns ? now - p->since_ns : 0), p->waiting);
    zr_finding_says(&f->todo, "zeroute resume %d", (int)c->pid);
}

/* A card that is nearly full, or worse: what comes next may not be an error that a program can handle. */
static void check_safe(const struct zr_case *c, struct zr_findings *to) {
    char why[200];
    enum zr_safe answer = zr_safe_for(&c->safe, why, sizeof why);
    struct zr_finding *f;

    if (answer == ZR_SAFE_NOT_NEEDED || (answer == ZR_SAFE_IS_ON && !c->safe.lost))
        return;
    f = zr_finding_add(to, c->safe.lost ? ZR_ERROR : ZR_WARNING, "out-of-memory",
                       c->safe.lost ? "the card was lost" : "the next allocation may cost the card");
    zr_finding_says(&f->seen, "%s", why);
    if (answer == ZR_SAFE_IS_ON) {
        zr_finding_says(&f->todo, "run every process on this card with zeroute run --preset safe");
    } else {
        zr_finding_says(&f->todo, "zeroute run --preset safe (limit:auto): the program gets an error in time");
        zr_finding_says(&f->price, "the program must handle OUT_OF_DEVICE_MEMORY");
    }
    f->source = zr_facts[ZR_FACT_SPILLS].source;
}

/* --- virtual memory -------------------------------------------------------------------------- */

static void check_remapped(const struct zr_case *c, struct zr_findings *to) {
    struct zr_finding *f;

    if (!c->counted.found || !c->counted.remapped)
        return;
    f = zr_finding_add(to, ZR_ERROR, "remapped-under-peer", "a card may read memory that is gone");
    zr_finding_says(
        &f->seen, "%" PRIu64 " mappings at addresses where other memory was mapped before, with several cards at work",
        c->counted.remapped);
    zr_finding_says(&f->todo, "set expandable_segments:False, or use one card per process");
    f->source = zr_facts[ZR_FACT_REMAP_UNDER_PEER].source;
}

/* --- reuse ----------------------------------------------------------------------------------- */

static void check_reuse(const struct zr_case *c, struct zr_findings *to) {
    struct zr_finding *f;

    if (!c->counted.found || !*c->counted.reuse_lost)
        return;
    f = zr_finding_add(to, ZR_NOTE, "reuse-lost", "large blocks are not reused any more");
    zr_finding_says(&f->seen, "reuse:proven fell back to reuse:runtime: %s", c->counted.reuse_lost);
    zr_finding_says(&f->todo, "nothing is wrong; set reuse:always only if the program frees what no command uses");
}

/* --- IPC ------------------------------------------------------------------------------------- */

static void check_ipc(const struct zr_case *c, struct zr_findings *to) {
    const char *cache = zr_environ_get(&c->stack.environ, "CCL_ZE_CACHE_OPEN_IPC_HANDLES");
    struct zr_finding *f;

    if (c->stack.parts[ZR_PART_CCL].there && !(cache && !strcmp(cache, "0")) &&
        (c->memory.dmabuf_fds || zr_case_cards(c) > 1)) {
        f = zr_finding_add(to, c->memory.dmabuf_fds ? ZR_WARNING : ZR_NOTE, "ccl-stale-handles",
                           "oneCCL may use IPC handles of buffers that are gone");
        zr_finding_says(&f->seen, "oneCCL %s, CCL_ZE_CACHE_OPEN_IPC_HANDLES not 0, %u shared buffers open",
                        c->stack.parts[ZR_PART_CCL].version, c->memory.dmabuf_fds);
        zr_finding_says(&f->todo, "if collectives hang or fault: CCL_ZE_CACHE_OPEN_IPC_HANDLES=0");
        zr_finding_says(&f->price, "about 3 %% of throughput (reported); oneCCL 2021.15 does not start with it");
        f->source = zr_facts[ZR_FACT_CCL_STALE_HANDLES].source;
    }
    if (c->memory.dmabuf_fds >= 512) {
        f = zr_finding_add(to, ZR_WARNING, "ipc-descriptors", "shared buffers pile up");
        zr_finding_says(&f->seen, "%u descriptors of shared buffers are open%s", c->memory.dmabuf_fds,
                        zr_fact_holds(ZR_FACT_IPC_DESCRIPTOR_LEAK, c->stack.driver)
                            ? "; this driver loses one at every zeMemOpenIpcHandle"
                            : "");
        zr_finding_says(&f->todo, "raise the limit of open files (ulimit -n) and update the driver");
        f->source = zr_facts[ZR_FACT_IPC_DESCRIPTOR_LEAK].source;
    }
}

/* --- the environment ------------------------------------------------------------------------- */

static void add_variable(void *to, const struct zr_env_report *what) {
    struct zr_finding *f;

    if (what->trouble == ZR_ENV_MISSPELT) {
        f = zr_finding_add(to, ZR_WARNING, "misspelt", "nothing reads the variable %s", what->name);
        zr_finding_says(&f->seen, "the nearest known name is %s", what->nearest);
        zr_finding_says(&f->todo, "set %s instead, or unset it", what->nearest);
    } else {
        f = zr_finding_add(to, ZR_WARNING, "inert", "%s does nothing here", what->name);
        zr_finding_says(&f->seen, "%s", what->why);
        zr_finding_says(&f->todo, "%s", what->todo);
    }
}

void zr_troubles_find(const struct zr_case *c, struct zr_findings *to) {
    zr_machine_find(c, to);
    check_preload(c, to);
    zr_interfaces_find(c, to);
    check_loader(c, to);
    check_umf(c, to);
    check_skiplists(c, to);
    check_cards(c, to);
    check_spill(c, to);
    check_pause(c, to);
    check_safe(c, to);
    check_remapped(c, to);
    zr_known_find(c, to);
    check_reuse(c, to);
    check_ipc(c, to);
    zr_accounts_find(c, to);
    zr_env_check(&c->stack, add_variable, to);
}
