/*
 * Cards, host memory, and who has how much of them, as the kernel tells it: one answer for every command.
 *
 * What a process holds is told by the kernel (fdinfo); what of it are blocks, images and imports by the process. The
 * rest is unseen. A card is full where all processes together hold nearly all of it, and only there can what was
 * allocated have gone elsewhere.
 */
#include "outside/outside.h"
#include "view/view.h"

#include <string.h>

enum { FULL_PERCENT = 95 };

static uint64_t told(uint64_t n) {
    return n == ZR_ABSENT ? 0 : n;
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* --- host memory and mirror ------------------------------------------------------------------- */

void zr_lost_find(const struct zr_meminfo *before, const struct zr_meminfo *now, uint64_t host_side, uint64_t rss,
                  struct zr_lost *out) {
    uint64_t start = before && before->gpu_active != ZR_ABSENT ? before->gpu_active : 0;

    *out = (struct zr_lost){.bytes = ZR_ABSENT, .by = ZR_LOST_UNKNOWN, .host_side = host_side, .start = start};
    if (now->gpu_active != ZR_ABSENT) {
        out->by = ZR_LOST_GPU_ACTIVE;
        out->bytes = less(less(now->gpu_active, start), host_side);
    } else if (before && before->available != ZR_ABSENT && now->available != ZR_ABSENT) {
        int64_t drop = zr_meminfo_drop(before, now);
        out->by = ZR_LOST_AVAILABLE;
        out->bytes = less(drop > 0 ? (uint64_t)drop : 0, told(rss) + host_side);
    } else if (now->unaccounted != ZR_ABSENT) {
        out->by = ZR_LOST_UNACCOUNTED;
        out->bytes = now->unaccounted;
    }
}

const char *zr_lost_text(char *out, size_t size, const struct zr_lost *lost) {
    static const char *const by[] = {
        [ZR_LOST_UNKNOWN] = "not known: the kernel tells neither GPUActive nor what is in use",
        [ZR_LOST_GPU_ACTIVE] = "GPUActive",
        [ZR_LOST_AVAILABLE] = "the drop of MemAvailable less resident memory",
        [ZR_LOST_UNACCOUNTED] = "memory not attributed to any process (GPUActive is not available: needs kernel 7.1)",
    };
    char a[ZR_TEXT_SIZE];
    int used = snprintf(out, size, "%s%s", by[lost->by], lost->start ? " since before the program" : "");

    if (lost->host_side && lost->by != ZR_LOST_UNACCOUNTED && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, ", less %s of host and shared USM",
                 zr_text_bytes(a, lost->host_side));
    return out;
}

uint64_t zr_mirror_of(const struct zr_process_memory *memory, const struct zr_lost *lost) {
    uint64_t imports = 0;

    if (lost->bytes == ZR_ABSENT || lost->by == ZR_LOST_UNACCOUNTED || !memory->card_count)
        return ZR_ABSENT;
    for (unsigned i = 0; i < memory->card_count; i++) {
        if (memory->cards[i].gtt.total == ZR_ABSENT)
            return ZR_ABSENT;
        imports += memory->cards[i].gtt.total;
    }
    if (memory->card_count > 1)
        imports /= memory->card_count - 1;
    return imports < lost->bytes ? imports : lost->bytes;
}

/* --- cards ------------------------------------------------------------------------------------ */

/* NULL: there are too many. */
static struct zr_card_view *card_of(struct zr_view *m, const char *pdev) {
    for (unsigned i = 0; i < m->card_count; i++)
        if (strcmp(m->card[i].pdev, pdev) == 0)
            return &m->card[i];
    if (m->card_count == ZR_CARDS_MAX || !*pdev)
        return NULL;
    unsigned at = m->card_count++; /* in the order of their addresses */
    for (; at && strcmp(m->card[at - 1].pdev, pdev) > 0; at--)
        m->card[at] = m->card[at - 1];
    struct zr_card_view *c = &m->card[at];
    *c = (struct zr_card_view){.vram = ZR_ABSENT};
    snprintf(c->pdev, sizeof c->pdev, "%s", pdev);
    return c;
}

void zr_view_card(struct zr_view *m, const char *pdev, uint64_t vram, const char *model) {
    struct zr_card_view *c = card_of(m, pdev);

    if (c && c->vram == ZR_ABSENT)
        c->vram = vram;
    if (c && model && !*c->model)
        snprintf(c->model, sizeof c->model, "%s", model);
}

static void list_cards(struct zr_view *m) {
    struct zr_card cards[ZR_CARDS_MAX];
    unsigned count = zr_cards_list(cards, ZR_CARDS_MAX);

    for (unsigned i = 0; i < count; i++) {
        struct zr_card_view *c = card_of(m, cards[i].pdev);
        if (!c)
            continue;
        if (cards[i].vram != ZR_ABSENT)
            c->vram = cards[i].vram;
        snprintf(c->driver, sizeof c->driver, "%s", cards[i].driver);
    }
}

bool zr_card_is_full(const struct zr_card_view *c) {
    return c->vram != ZR_ABSENT && c->vram && c->ours + c->others >= c->vram / 100 * FULL_PERCENT;
}

/* Whether the process is one of ours: all that have a segment are, those beyond the scope included. */
static bool is_published(const struct zr_look *look, int pid) {
    for (size_t i = 0; i < look->count; i++)
        if (look->process[i].pid == pid && look->process[i].state == ZEROUTE_LIVE)
            return true;
    return false;
}

static void add_holder(struct zr_view *m, const struct zr_holder *h, bool ours) {
    for (unsigned i = 0; i < h->memory.card_count; i++) {
        const struct zr_card_use *use = &h->memory.cards[i];
        struct zr_card_view *c = card_of(m, use->pdev);

        if (!c)
            continue;
        if (!*c->driver)
            snprintf(c->driver, sizeof c->driver, "%s", use->driver);
        if (ours) {
            c->ours += told(use->vram.total);
            c->gtt += told(use->gtt.total);
        } else {
            c->others += told(use->vram.total);
        }
    }
}

/* --- processes -------------------------------------------------------------------------------- */

static uint64_t of_device(const struct zeroute_snapshot *s, unsigned n, const char *figure) {
    char name[64];

    snprintf(name, sizeof name, "device.%u.%s", n, figure);
    return told(zeroute_value(s, name, 0));
}

/* The account of one card: what the kernel counts for the process, and what it is. */
static void find_account(struct zr_account *a, const struct zeroute_snapshot *s,
                         const struct zr_process_memory *memory) {
    const struct zr_card_use *use = NULL;
    uint64_t held;

    a->vram = a->unseen = ZR_ABSENT;
    a->blocks = of_device(s, a->number, "reserved_bytes.all.current");
    held = of_device(s, a->number, "allocated_bytes.all.current") + of_device(s, a->number, "ipc.held_bytes");
    if (a->blocks < held) /* without a cache nothing is booked as reserved, and what ipc:hold keeps is not allocated */
        a->blocks = held;
    a->images = of_device(s, a->number, "image_bytes");
    a->imported = of_device(s, a->number, "imported_bytes");
    for (unsigned i = 0; i < memory->card_count; i++)
        if (strcmp(memory->cards[i].pdev, a->pdev) == 0)
            use = &memory->cards[i];
    if (!use || use->vram.total == ZR_ABSENT)
        return;
    a->vram = use->vram.total;
    a->unseen = less(a->vram, a->blocks + a->images + a->imported);
}

void zr_view_account(struct zr_process_view *v, const struct zeroute_snapshot *s, const struct zr_device_names *names) {
    v->accounts = 0;
    for (unsigned n = 0; n < names->count && v->accounts < ZR_CARDS_MAX; n++) {
        struct zr_account *a = &v->account[v->accounts];

        if (!strchr(names->name[n], ':')) /* without an address the kernel's figures are not found */
            continue;
        *a = (struct zr_account){.number = n};
        snprintf(a->pdev, sizeof a->pdev, "%s", names->name[n]);
        find_account(a, s, &v->memory);
        v->accounts++;
    }
}

/* The kernel's count decides; without one, the process's own. */
static void find_cards(const struct zr_view *m, struct zr_process_view *v) {
    v->on_cards = 0;
    for (unsigned i = 0; i < m->card_count; i++)
        for (unsigned k = 0; k < v->accounts; k++) {
            const struct zr_account *a = &v->account[k];
            if (strcmp(a->pdev, m->card[i].pdev) == 0 && (told(a->vram) || a->blocks))
                v->on_cards |= UINT32_C(1) << i;
        }
}

const char *zr_cards_text(char *out, size_t size, uint32_t cards) {
    size_t used = 0;

    snprintf(out, size, "-");
    for (unsigned i = 0; i < 32 && used < size; i++) {
        unsigned last = i;
        if (!(cards & UINT32_C(1) << i))
            continue;
        while (last < 31 && cards & UINT32_C(1) << (last + 1))
            last++;
        used += (size_t)snprintf(out + used, size - used, "%s%u", used ? "," : "", i);
        if (last > i && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%u", last > i + 1 ? "-" : ",", last);
        i = last;
    }
    return out;
}

static void find_spill(struct zr_view *m, struct zr_process_view *v) {
    v->spilled = v->unseen = 0;
    for (unsigned i = 0; i < v->accounts; i++) {
        struct zr_account *a = &v->account[i];
        const struct zr_card_view *c = card_of(m, a->pdev);

        bool knows = c && a->vram != ZR_ABSENT && !zr_is_paused(v); /* what is given back is nowhere */

        a->spilled = knows && zr_card_is_full(c) ? less(a->blocks, a->vram) : 0;
        v->spilled += a->spilled;
        v->unseen += told(a->unseen);
    }
}

void zr_view_memory(struct zr_process_view *v, const struct zr_look *look) {
    const struct zr_holder *h = v->process.pid ? zr_look_holder(look, v->process.pid) : NULL;

    v->vram = v->gtt = v->mirror = ZR_ABSENT;
    v->memory = (struct zr_process_memory){.rss = ZR_ABSENT, .cgroup_current = ZR_ABSENT, .cgroup_limit = ZR_ABSENT};
    if (!h || v->process.state == ZEROUTE_FINISHED)
        return;
    v->memory = h->memory;
    if (v->memory.card_count)
        v->vram = v->gtt = 0;
    for (unsigned i = 0; i < v->memory.card_count; i++) {
        v->vram += told(v->memory.cards[i].vram.total);
        v->gtt += told(v->memory.cards[i].gtt.total);
    }
}

/* --- all together ----------------------------------------------------------------------------- */

static void add_holders(struct zr_view *m, const struct zr_look *look) {
    for (unsigned i = 0; i < m->card_count; i++)
        m->card[i].ours = m->card[i].others = m->card[i].gtt = 0;
    m->holders = 0;
    for (size_t i = 0; i < look->holders; i++) {
        const struct zr_holder *h = &look->holder[i];
        add_holder(m, h, is_published(look, h->pid));
        m->holders += h->memory.card_count > 0;
    }
}

void zr_view_cards(struct zr_view *m, const struct zr_look *look) {
    uint64_t rss = 0;

    list_cards(m);
    add_holders(m, look);
    m->host_side = m->host_side_beyond;
    for (size_t i = 0; i < m->process_count; i++) {
        m->host_side += m->process[i]->host_side;
        rss += told(m->process[i]->memory.rss);
    }
    zr_lost_find(m->scope.before, &m->host, m->host_side, rss, &m->lost);
    m->mirror = m->lost.by == ZR_LOST_UNACCOUNTED ? ZR_ABSENT : m->lost.bytes;
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_process_view *v = m->process[i];
        v->mirror = zr_mirror_of(&v->memory, &m->lost);
        find_spill(m, v);
        find_cards(m, v);
    }
    for (unsigned i = 0; i < m->card_count; i++)
        zr_history_note(&m->card[i].used, m->history_due, m->card[i].ours + m->card[i].others);
    if (m->mirror != ZR_ABSENT)
        zr_history_note(&m->mirror_history, m->history_due, m->mirror);
}
