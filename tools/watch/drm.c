/*
 * Cards, and who has how much of them, as the kernel tells it (sysfs, fdinfo). Looking at a process means reading each
 * of its descriptors, so each sample looks at some of them and keeps what it knows of the others.
 */
#include "outside/outside.h"
#include "watch/watch.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16, OTHERS = 512, CARDS_EVERY = 32 };

/* Processes that are not ours and hold memory of a card. */
struct zr_others {
    int next; /* the pid to go on with */
    unsigned count;
    struct {
        int pid;
        unsigned cards;
        struct {
            char pdev[32];
            uint64_t vram;
        } card[ZR_CARDS_MAX];
    } at[OTHERS];
};

static uint64_t amount(uint64_t n) {
    return n == ZR_ABSENT ? 0 : n;
}

/* NULL: there are too many. */
static struct zr_card_view *card_of(struct zr_model *m, const char *pdev) {
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

void zr_model_card(struct zr_model *m, const char *pdev, uint64_t vram) {
    struct zr_card_view *c = card_of(m, pdev);
    if (c && c->vram == ZR_ABSENT)
        c->vram = vram;
}

static void list_cards(struct zr_model *m) {
    struct zr_card cards[ZR_CARDS_MAX];
    unsigned count = zr_cards_list(cards, ZR_CARDS_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct zr_card_view *c = card_of(m, cards[i].pdev);
        if (!c)
            continue;
        c->vram = cards[i].vram;
        snprintf(c->driver, sizeof c->driver, "%s", cards[i].driver);
    }
}

/* --- ours -------------------------------------------------------------------------------------------------- */

/*
 * What a process makes the host hold: imports are charged to each importing card, so those of all cards are divided by
 * the number of others. An estimate; never more than the machine says there is.
 */
static uint64_t mirror_of(const struct zr_model *m, const struct zr_process_view *v) {
    uint64_t estimate = v->cards > 1 ? v->gtt / (v->cards - 1) : 0;
    if (v->gtt == ZR_ABSENT || m->mirror == ZR_ABSENT)
        return ZR_ABSENT;
    return estimate < m->mirror ? estimate : m->mirror;
}

static void ask_kernel(const struct zr_model *m, struct zr_process_view *v, uint64_t now) {
    struct zr_process_memory memory;
    v->kernel_ns = now;
    if (!v->process.pid || !zr_outside_memory(v->process.pid, &memory) || memory.fdinfo_error)
        return;
    v->cards = memory.card_count;
    memcpy(v->card, memory.cards, sizeof v->card);
    if (v->cards)
        v->vram = v->gtt = 0;
    for (unsigned i = 0; i < v->cards; i++) {
        v->vram += amount(v->card[i].vram.total);
        v->gtt += amount(v->card[i].gtt.total);
    }
    v->mirror = mirror_of(m, v);
}

/* Those that were looked at longest ago. */
static void refresh(struct zr_model *m, uint64_t now) {
    for (size_t n = 0; n < (m->options.all_at_once ? m->process_count : AT_ONCE); n++) {
        struct zr_process_view *oldest = NULL;
        for (size_t i = 0; i < m->process_count; i++)
            if (!oldest || m->process[i]->kernel_ns < oldest->kernel_ns)
                oldest = m->process[i];
        if (!oldest || oldest->kernel_ns == now)
            return;
        ask_kernel(m, oldest, now);
    }
}

/* --- others -------------------------------------------------------------------------------------------------- */

static bool is_ours(const struct zr_model *m, int pid) {
    for (size_t i = 0; i < m->process_count; i++)
        if (m->process[i]->process.pid == pid)
            return true;
    return false;
}

static void note_other(struct zr_others *o, int pid, const struct zr_process_memory *memory) {
    unsigned i = 0, cards = 0;
    while (i < o->count && o->at[i].pid != pid)
        i++;
    if (i == OTHERS)
        return;
    for (unsigned c = 0; memory && c < memory->card_count; c++)
        if (amount(memory->cards[c].vram.total)) {
            snprintf(o->at[i].card[cards].pdev, sizeof o->at[i].card->pdev, "%s", memory->cards[c].pdev);
            o->at[i].card[cards++].vram = memory->cards[c].vram.total;
        }
    o->at[i].pid = pid;
    o->at[i].cards = cards;
    if (i == o->count && cards)
        o->count++;
    else if (i < o->count && !cards)
        o->at[i] = o->at[--o->count];
}

static int by_number(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static size_t list_pids(int *pid, size_t most) {
    char path[4096];
    size_t count = 0;
    struct dirent *e;
    DIR *d = opendir(zr_root_path(path, sizeof path, "/proc"));
    while (d && count < most && (e = readdir(d)))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            pid[count++] = (int)strtol(e->d_name, NULL, 10);
    if (d)
        closedir(d);
    qsort(pid, count, sizeof *pid, by_number);
    return count;
}

static void look_at_others(struct zr_model *m) {
    static int pid[16384];
    struct zr_process_memory memory;
    struct zr_others *o = m->others;
    size_t count = list_pids(pid, sizeof pid / sizeof *pid), first = 0,
           budget = m->options.all_at_once ? 4096 : AT_ONCE;
    if (!count)
        return;
    while (first < count && pid[first] < o->next)
        first++;
    for (size_t i = 0; i < count && budget; i++) {
        int one = pid[(first + i) % count];
        o->next = one + 1;
        if (is_ours(m, one)) {
            note_other(o, one, NULL);
            continue;
        }
        budget--;
        note_other(o, one, zr_outside_memory(one, &memory) ? &memory : NULL);
    }
    if (first + AT_ONCE >= count)
        o->next = 0;
    for (unsigned i = o->count; i-- > 0;) /* those that have gone */
        if (!bsearch(&o->at[i].pid, pid, count, sizeof *pid, by_number))
            o->at[i] = o->at[--o->count];
}

/* --- all together ---------------------------------------------------------------------------------------------- */

void zr_model_cards(struct zr_model *m, uint64_t now) {
    if (!m->others && !(m->others = calloc(1, sizeof *m->others)))
        return;
    if (m->samples % CARDS_EVERY == 0)
        list_cards(m);
    refresh(m, now);
    look_at_others(m);
    for (unsigned i = 0; i < m->card_count; i++)
        m->card[i].ours = m->card[i].others = m->card[i].gtt = 0;
    for (size_t i = 0; i < m->process_count; i++)
        for (unsigned c = 0; c < m->process[i]->cards; c++) {
            const struct zr_card_use *use = &m->process[i]->card[c];
            struct zr_card_view *card = card_of(m, use->pdev);
            if (!card)
                continue;
            if (!*card->driver)
                snprintf(card->driver, sizeof card->driver, "%s", use->driver);
            card->ours += amount(use->vram.total);
            card->gtt += amount(use->gtt.total);
        }
    for (unsigned i = 0; i < m->others->count; i++)
        for (unsigned c = 0; c < m->others->at[i].cards; c++) {
            struct zr_card_view *card = card_of(m, m->others->at[i].card[c].pdev);
            if (card)
                card->others += m->others->at[i].card[c].vram;
        }
    for (unsigned i = 0; i < m->card_count; i++)
        zr_history_note(&m->card[i].used, now, m->options.history_ns, m->card[i].ours + m->card[i].others);
}
