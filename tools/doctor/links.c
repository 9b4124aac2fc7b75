/* The three links of the host mirror, and whether there is one. */
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const zr_answer_names[] = {"no", "yes", "unknown"};
const char *const zr_link_names[ZR_LINKS] = {"deferred backing", "export to other cards", "kernel fills exports"};
const char *const zr_mirror_names[] = {"none", "there", "unexplained", "unknown", "too little to tell"};

/* Device bytes of the process on all cards; the preload's count where the kernel tells none. */
static uint64_t vram_of(const struct zr_case *c) {
    uint64_t sum = 0;
    bool told = false;

    for (unsigned i = 0; i < c->memory.card_count; i++) {
        if (c->memory.cards[i].vram.total != ZR_ABSENT) {
            sum += c->memory.cards[i].vram.total;
            told = true;
        }
    }
    if (told)
        return sum;
    return c->counted.found ? c->counted.allocated : ZR_ABSENT;
}

unsigned zr_case_cards(const struct zr_case *c) {
    if (c->pid || !c->card_count) /* a simulated machine has no /sys: its processes hold the cards */
        return c->memory.card_count;
    return c->card_count;
}

bool zr_case_env_on(const struct zr_case *c, const char *name) {
    const char *value = zr_environ_get(&c->stack.environ, name);

    return value && *value && strcmp(value, "0") && strcasecmp(value, "false") && strcasecmp(value, "off");
}

static void say(struct zr_link *link, enum zr_answer answer, const char *why) {
    link->answer = answer;
    snprintf(link->why, sizeof link->why, "%s", why);
}

static bool any_battlemage(const struct zr_case *c, bool *known) {
    *known = c->card_count > 0;
    for (unsigned i = 0; i < c->card_count; i++) {
        if (c->cards[i].family == ZR_FAMILY_BATTLEMAGE)
            return true;
    }
    return false;
}

static void find_backing(const struct zr_case *c, struct zr_link *link) {
    char name[64];
    const char *key = zr_environ_key(&c->stack.environ, "EnableDeferBacking", name, sizeof name);
    const char *version = c->stack.parts[ZR_PART_DRIVER].version;
    bool read = zr_case_env_on(c, "NEOReadDebugKeys"), cards_known, battlemage;

    battlemage = any_battlemage(c, &cards_known);
    if (c->counted.found && !strncmp(c->counted.backing, "eager", 5)) {
        say(link, ZR_NO, "zeroute set EnableDeferBacking=0 (backing:eager)");
        return;
    }
    if (read && key) {
        link->answer = strtoll(key, NULL, 10) ? ZR_YES : ZR_NO;
        snprintf(link->why, sizeof link->why, "%s=%s", name, key);
        return;
    }
    if (c->stack.parts[ZR_PART_SIMGPU].there && !c->stack.parts[ZR_PART_DRIVER].there) {
        say(link, ZR_YES, "the simulated GPU defers backing");
        return;
    }
    if (!c->stack.driver.count) {
        say(link, ZR_UNKNOWN, "no Intel driver is loaded, or its version is unknown");
        return;
    }
    if (!zr_fact_holds(ZR_FACT_DEFERS_BACKING, c->stack.driver)) {
        link->answer = ZR_NO;
        snprintf(link->why, sizeof link->why, "driver %s does not defer backing, 26.09 was the first", version);
    } else if (battlemage) {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "driver %s on Battlemage, EnableDeferBacking not set", version);
    } else if (cards_known) {
        link->answer = ZR_NO;
        snprintf(link->why, sizeof link->why, "driver %s defers backing on Battlemage only", version);
    } else {
        link->answer = ZR_UNKNOWN;
        snprintf(link->why, sizeof link->why, "driver %s defers backing on Battlemage; the card is not shown in /sys",
                 version);
    }
}

static uint64_t imports_of(const struct zr_case *c) {
    uint64_t sum = 0;

    for (unsigned i = 0; i < c->memory.card_count; i++) {
        if (c->memory.cards[i].gtt.total != ZR_ABSENT)
            sum += c->memory.cards[i].gtt.total;
    }
    return sum;
}

static const char *times_text(char *out, size_t size, uint64_t times) {
    snprintf(out, size, times == 1 ? "once" : "%llu times", (unsigned long long)times);
    return out;
}

static void find_export(const struct zr_case *c, struct zr_link *link) {
    const struct zr_counted *counted = &c->counted;
    unsigned cards = zr_case_cards(c);
    char imports[32], times[40];

    zr_text_bytes(imports, imports_of(c));
    if (counted->found && counted->ipc_exports) {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "%llu IPC handle%s taken", (unsigned long long)counted->ipc_exports,
                 counted->ipc_exports == 1 ? " was" : "s were");
    } else if (counted->found && counted->peer_requested_calls > counted->peer_skipped_calls) {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "residency on other cards was requested %s and granted",
                 times_text(times, sizeof times, counted->peer_requested_calls - counted->peer_skipped_calls));
    } else if (counted->found && counted->peer_skipped_calls) {
        link->answer = ZR_NO;
        snprintf(link->why, sizeof link->why, "residency on other cards was requested %s and skipped (residency:owner)",
                 times_text(times, sizeof times, counted->peer_skipped_calls));
    } else if (c->memory.dmabuf_fds) {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "%u shared buffers are open", c->memory.dmabuf_fds);
    } else if (cards == 1) {
        say(link, ZR_NO, "one card only");
    } else if (cards == 0) {
        say(link, ZR_UNKNOWN, c->pid ? "no card of this process can be seen" : "no card is shown in /sys");
    } else if (c->stack.adapter == 2 && zr_case_env_on(c, "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P")) {
        say(link, ZR_NO, "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1, until peer access is enabled");
    } else if (c->pid && imports_of(c) >= (UINT64_C(64) << 20)) {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "%u cards, and they import %s", cards, imports);
    } else if (c->pid && c->memory.card_count && imports_of(c) < (UINT64_C(64) << 20) && vram_of(c) != ZR_ABSENT &&
               vram_of(c) >= (UINT64_C(1) << 30)) {
        link->answer = ZR_NO;
        snprintf(link->why, sizeof link->why, "%u cards, but they import only %s", cards, imports);
    } else {
        link->answer = ZR_YES;
        snprintf(link->why, sizeof link->why, "%u cards: the runtime makes memory resident on every peer it can reach",
                 cards);
    }
}

static void find_kernel(const struct zr_case *c, struct zr_link *link) {
    if (!c->kernel.count) {
        say(link, ZR_UNKNOWN, "the kernel's release cannot be read");
        return;
    }
    link->answer = zr_fact_holds(ZR_FACT_KERNEL_FILLS, c->kernel) ? ZR_YES : ZR_NO;
    snprintf(link->why, sizeof link->why, "kernel %u.%u (reported from 6.18 on)", c->kernel.n[0], c->kernel.n[1]);
}

void zr_links_find(const struct zr_case *c, struct zr_link links[ZR_LINKS]) {
    find_backing(c, &links[ZR_LINK_BACKING]);
    find_export(c, &links[ZR_LINK_EXPORT]);
    find_kernel(c, &links[ZR_LINK_KERNEL]);
}

/* Below this host memory behind the cards is the drivers' own. */
static const uint64_t noise = UINT64_C(256) << 20;

/*
 * The part of the machine's loss that is this process's. Its imports tell, as in every command. If there are none, what
 * others import is not its own, unless it exported memory to them, and beside others it cannot have lost more than it
 * holds: theirs may be on its way to be counted.
 */
static uint64_t share_of(const struct zr_case *c, uint64_t vram) {
    uint64_t rest = c->lost.bytes, others = c->mirror_of_others;
    bool exported = c->counted.ipc_exports || c->memory.dmabuf_fds;

    if (!c->pid || rest == ZR_ABSENT)
        return rest;
    if (c->mirror != ZR_ABSENT && c->mirror)
        return c->mirror < rest ? c->mirror : rest;
    if (!exported)
        rest = rest > others ? rest - others : 0;
    return others && vram < rest ? vram : rest;
}

void zr_mirror_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS], struct zr_mirror *out) {
    uint64_t vram = vram_of(c), lost;
    bool precise = c->meminfo.gpu_active != ZR_ABSENT, all = true, missing = false;
    char a[32], b[32], whole[32], by[128];

    for (unsigned i = 0; i < ZR_LINKS; i++) {
        all &= links[i].answer == ZR_YES;
        missing |= links[i].answer == ZR_NO;
    }
    lost = c->meminfo_there ? share_of(c, vram) : ZR_ABSENT;
    zr_lost_text(by, sizeof by, &c->lost);
    out->bytes = lost;
    /* Other owners of memory that /proc does not tell, as file systems with caches of their own, are not our matter. */
    if (!c->memory.card_count && !(c->pid ? c->counted.found || c->memory.fdinfo_error : zr_case_cards(c) > 0)) {
        out->state = ZR_MIRROR_NONE;
        out->bytes = 0;
        snprintf(out->why, sizeof out->why, c->pid ? "the process has no card open" : "there is no Intel card");
        return;
    }
    if (lost == ZR_ABSENT) {
        out->state = ZR_MIRROR_UNKNOWN;
        snprintf(out->why, sizeof out->why, "/proc/meminfo has neither GPUActive nor the figures to estimate it");
        return;
    }
    zr_text_bytes(a, lost);
    zr_text_bytes(b, vram);
    zr_text_bytes(whole, c->lost.bytes);
    if (strcmp(a, whole) == 0)
        snprintf(out->why, sizeof out->why, "%s: %s; device memory of %s: %s", by, a,
                 c->pid ? "the process" : "readable processes", b);
    else
        snprintf(out->why, sizeof out->why, "%s of the machine's %s (%s); device memory of the process: %s", a, whole,
                 by, b);
    /* Without GPUActive the figure is rough: ask for more before calling it a loss. */
    if (c->pid && precise && lost && lost < noise && vram != ZR_ABSENT && vram <= 2 * noise && lost >= vram / 10)
        out->state = ZR_MIRROR_TOO_LITTLE;
    else if (lost < noise * (precise ? 1 : 4) || (vram != ZR_ABSENT && lost < vram / (precise ? 10 : 2)))
        out->state = precise || !all ? ZR_MIRROR_NONE : ZR_MIRROR_UNKNOWN;
    else if (vram == ZR_ABSENT || vram < noise)
        out->state = precise ? ZR_MIRROR_UNEXPLAINED : ZR_MIRROR_UNKNOWN;
    else if (all || !missing)
        out->state = ZR_MIRROR_THERE;
    else
        out->state = ZR_MIRROR_UNEXPLAINED;
    if (out->state == ZR_MIRROR_NONE)
        out->bytes = precise ? lost : 0;
}
