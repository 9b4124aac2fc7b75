/* zeroute pause: how it is with the processes before and after, and who holds the cards. */
#include "outside/outside.h"
#include "pause/pausable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- before and after ------------------------------------------------------------------------------ */

static const struct zr_process_view *find_in(const struct zr_view *m, const struct zeroute_process *p) {
    for (size_t i = 0; i < m->process_count; i++)
        if (zr_is_same_process(&m->process[i]->process, p))
            return m->process[i];
    return NULL;
}

static int card_number(const struct zr_view *m, const char *pdev) {
    for (unsigned i = 0; i < m->card_count; i++)
        if (strcmp(m->card[i].pdev, pdev) == 0)
            return (int)i;
    return -1;
}

static void take_before(struct zr_pausable *p, const struct zr_view *m, const struct zr_process_view *v) {
    p->before = v->pause;
    snprintf(p->job, sizeof p->job, "%s", v->id.job);
    snprintf(p->rank, sizeof p->rank, "%s", v->id.rank);
    p->cards = v->accounts;
    for (unsigned i = 0; i < v->accounts; i++) {
        snprintf(p->card[i].pdev, sizeof p->card[i].pdev, "%s", v->account[i].pdev);
        p->card[i].at = card_number(m, v->account[i].pdev);
        p->card[i].before = p->card[i].after = v->account[i].vram;
        p->card[i].blocks = v->account[i].blocks;
    }
}

static void take_after(struct zr_pausable *p, const struct zr_process_view *v) {
    p->after = v->pause;
    for (unsigned i = 0; i < p->cards; i++)
        for (unsigned k = 0; k < v->accounts; k++)
            if (strcmp(p->card[i].pdev, v->account[k].pdev) == 0)
                p->card[i].after = v->account[k].vram;
}

bool zr_pausables_look(const char *command, struct zr_pausable *p, size_t count, bool before) {
    int pid = count == 1 ? zr_post_pid(p->post) : 0;
    struct zr_view *m = zr_view_new(&(struct zr_scope){.pid = pid, .all_at_once = true});

    if (!m || !zr_view_sample(m)) {
        zr_complain(command, "cannot look at the processes: %s", strerror(errno));
        zr_view_free(m);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct zr_process_view *v = find_in(m, &p[i].post->process);

        if (v && before)
            take_before(&p[i], m, v);
        else if (v)
            take_after(&p[i], v);
    }
    zr_view_free(m);
    return true;
}

/* --- who holds the cards --------------------------------------------------------------------------- */

enum { HOLDERS_SHOWN = 5 };

struct share {
    const struct zr_holder *holder;
    uint64_t bytes;
};

static int by_bytes(const void *a, const void *b) {
    const struct share *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Who holds memory of a card, most first, without the processes that are asked themselves; to be freed. */
static struct share *shares_of(const struct zr_look *look, const char *pdev, const struct zr_pausable *p, size_t count,
                               size_t *shares) {
    struct share *all = calloc(look->holders + 1, sizeof *all);

    *shares = 0;
    for (size_t i = 0; all && i < look->holders; i++) {
        const struct zr_holder *h = &look->holder[i];
        bool is_asked = false;

        for (size_t k = 0; k < count; k++)
            is_asked |= p[k].post->process.pid == h->pid && p[k].outcome != ZR_OUTCOME_DONE;
        for (unsigned c = 0; c < h->memory.card_count && !is_asked; c++) {
            const struct zr_card_use *use = &h->memory.cards[c];
            if (strcmp(use->pdev, pdev) == 0 && use->vram.total && use->vram.total != ZR_ABSENT)
                all[(*shares)++] = (struct share){h, use->vram.total};
        }
    }
    if (*shares)
        qsort(all, *shares, sizeof *all, by_bytes);
    return all;
}

/* The command line of a process as one line, to be freed. */
static char *command_of(int pid) {
    size_t length;
    char *text = zr_outside_text(pid, ZR_FILE_CMDLINE, 4096, &length);

    for (size_t i = 0; text && i + 1 < length; i++)
        if (!text[i])
            text[i] = ' ';
    return text;
}

/* What is to come back to the card. */
static uint64_t needed_on(const struct zr_pausable *p, size_t count, const char *pdev) {
    uint64_t needed = 0;

    for (size_t i = 0; i < count; i++) {
        bool waits = p[i].outcome == ZR_OUTCOME_REFUSED || p[i].outcome == ZR_OUTCOME_WAITS;
        for (unsigned c = 0; c < p[i].cards && waits; c++)
            if (strcmp(p[i].card[c].pdev, pdev) == 0)
                needed += p[i].card[c].blocks;
    }
    return needed;
}

static void show_share(FILE *out, const struct share *s) {
    char bytes[ZR_TEXT_SIZE], *command = command_of(s->holder->pid);
    const char *shown = zr_shown(command && *command ? command : "?");
    char *text = malloc(strlen(shown) + 1); /* what is shown is longer than what was read */

    fprintf(out, "      %d  %s  %s\n", s->holder->pid, zr_text_bytes(bytes, s->bytes),
            text ? zr_text_command(text, shown, 48) : "?");
    free(text);
    free(command);
}

static void show_card(FILE *out, const struct zr_look *look, const struct zr_card_view *card, unsigned number,
                      const struct zr_pausable *p, size_t count) {
    char needed[ZR_TEXT_SIZE], used[ZR_TEXT_SIZE], all[ZR_TEXT_SIZE];
    size_t shares;
    struct share *share = shares_of(look, card->pdev, p, count, &shares);

    fprintf(out, "  card %u (%s): needs %s, %s of %s in use%s\n", number, card->pdev,
            zr_text_bytes(needed, needed_on(p, count, card->pdev)), zr_text_bytes(used, card->ours + card->others),
            zr_text_bytes(all, card->vram), shares ? ":" : "");
    for (size_t i = 0; i < shares && i < HOLDERS_SHOWN; i++)
        show_share(out, &share[i]);
    if (shares > HOLDERS_SHOWN)
        fprintf(out, "      and %zu more\n", shares - HOLDERS_SHOWN);
    free(share);
}

static void add_card(json_t *array, const struct zr_look *look, const struct zr_card_view *card,
                     const struct zr_pausable *p, size_t count) {
    json_t *one = zr_json_object(array, NULL), *list;
    size_t shares;
    struct share *share = shares_of(look, card->pdev, p, count, &shares);

    zr_json_text(one, "device", card->pdev);
    zr_json_count(one, "needed_bytes", needed_on(p, count, card->pdev));
    zr_json_count(one, "used_bytes", card->ours + card->others);
    zr_json_amount(one, "vram_bytes", card->vram);
    list = zr_json_array(one, "held_by");
    for (size_t i = 0; i < shares; i++) {
        json_t *holder = zr_json_object(list, NULL);
        char *command = command_of(share[i].holder->pid);

        zr_json_count(holder, "pid", (uint64_t)share[i].holder->pid);
        zr_json_count(holder, "uid", share[i].holder->uid);
        zr_json_count(holder, "vram_bytes", share[i].bytes);
        if (command)
            zr_json_text(holder, "command", command);
        free(command);
    }
    free(share);
}

/* On `out`, or else as members of an array. */
static void each_card(FILE *out, json_t *array, const struct zr_pausable *p, size_t count) {
    struct zr_view *m = zr_view_new(&(struct zr_scope){.all_at_once = true});
    struct zr_look look;

    if (!m || !zr_view_sample(m) || !zr_outside_look(&look, ZR_LOOK_NOW)) {
        zr_view_free(m);
        return;
    }
    for (unsigned i = 0; i < m->card_count; i++) {
        if (!needed_on(p, count, m->card[i].pdev))
            continue;
        if (out)
            show_card(out, &look, &m->card[i], i, p, count);
        else
            add_card(array, &look, &m->card[i], p, count);
    }
    zr_look_free(&look);
    zr_view_free(m);
}

void zr_pausables_holders(FILE *out, const struct zr_pausable *p, size_t count) {
    each_card(out, NULL, p, count);
}

void zr_pausables_holders_json(json_t *document, const struct zr_pausable *p, size_t count) {
    each_card(NULL, zr_json_array(document, "cards"), p, count);
}
