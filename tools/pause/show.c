/* zeroute pause: what came of each process, as a line or as JSON. */
#include "pause/pausable.h"

#include <string.h>

static const char *const outcomes[] = {"done",  "already", "refused", "waits", "undone",
                                       "ended", "silent",  "begun",   "failed"};

/* What the kernel counts less on a card than before, or more once it is returned. 0: it is not told. */
static uint64_t moved_on(const struct zr_pausable *p, unsigned card, bool resume) {
    uint64_t from = resume ? p->card[card].after : p->card[card].before;
    uint64_t to = resume ? p->card[card].before : p->card[card].after;

    return from == ZR_ABSENT || to == ZR_ABSENT || from < to ? 0 : from - to;
}

/* " (card 0: 4.00 GiB, card 1: 4.00 GiB)", as the kernel counts; "" of one card. */
static void cards_text(char *out, size_t size, const struct zr_pausable *p, bool resume) {
    size_t used = 0;
    char bytes[ZR_TEXT_SIZE];

    *out = '\0';
    for (unsigned i = 0; i < p->cards && used < size; i++) {
        if (p->card[i].at < 0 || !moved_on(p, i, resume))
            continue;
        used += (size_t)snprintf(out + used, size - used, "%scard %d: %s", used ? ", " : " (", p->card[i].at,
                                 zr_text_bytes(bytes, moved_on(p, i, resume)));
    }
    if (used && used < size)
        snprintf(out + used, size - used, ")");
}

static void paused_text(char *out, size_t size, const struct zr_pausable *p) {
    char cards[512], given[ZR_TEXT_SIZE], kept[ZR_TEXT_SIZE], host[ZR_TEXT_SIZE], took[ZR_TEXT_SIZE], where[640];

    cards_text(cards, sizeof cards, p, false);
    if (strcmp(p->to, "host") == 0)
        snprintf(where, sizeof where, "%s of contents in its host memory", zr_text_bytes(host, p->after.host_bytes));
    else if (strcmp(p->to, "nothing") == 0)
        snprintf(where, sizeof where, "contents lost");
    else
        snprintf(where, sizeof where, "contents in %s", p->to);
    snprintf(out, size, "paused in %s: %s given back%s, %s%s%s", zr_text_time(took, p->took_ns),
             zr_text_bytes(given, p->after.bytes), cards, where, p->after.kept ? "; stays on its cards: " : "",
             p->after.kept ? zr_text_bytes(kept, p->after.kept) : "");
}

static void resumed_text(char *out, size_t size, const struct zr_pausable *p) {
    char cards[512], given[ZR_TEXT_SIZE], took[ZR_TEXT_SIZE];

    cards_text(cards, sizeof cards, p, true);
    snprintf(out, size, "resumed in %s: %s returned%s", zr_text_time(took, p->took_ns),
             zr_text_bytes(given, p->before.bytes), cards);
}

static void text_of(char *out, size_t size, const struct zr_pausable *p, bool resume) {
    const char *why = p->why;

    switch (p->outcome) {
    case ZR_OUTCOME_DONE:
        if (resume)
            resumed_text(out, size, p);
        else
            paused_text(out, size, p);
        return;
    case ZR_OUTCOME_ALREADY:
        snprintf(out, size, "%s", resume ? "was not paused" : "was paused already");
        return;
    case ZR_OUTCOME_REFUSED:
        snprintf(out, size, "%s: %s", resume ? "stays paused" : "refused, and runs on", why);
        return;
    case ZR_OUTCOME_WAITS:
        snprintf(out, size, "stays paused, and is resumed as soon as it can be: %s", why);
        return;
    case ZR_OUTCOME_UNDONE:
        snprintf(out, size, "was paused, and is resumed%s%s", *why ? " " : " again", why);
        return;
    case ZR_OUTCOME_ENDED:
        snprintf(out, size, "has ended");
        return;
    case ZR_OUTCOME_SILENT:
        snprintf(out, size, "no answer: it has not begun, and the request was withdrawn");
        return;
    case ZR_OUTCOME_BEGUN:
        snprintf(out, size, "has begun; 'zeroute stat %d' shows when it is done", zr_post_pid(p->post));
        return;
    default:
        snprintf(out, size, "not asked: %s", why);
    }
}

void zr_pausables_show(FILE *out, const struct zr_pausable *p, size_t count, bool resume) {
    char text[2048];

    for (size_t i = 0; i < count; i++) {
        int indent = fprintf(out, "%d  ", zr_post_pid(p[i].post));
        if (count > 1 && *p[i].rank)
            indent += fprintf(out, "rank %s  ", zr_shown(p[i].rank));
        text_of(text, sizeof text, &p[i], resume);
        zr_text_wrap(out, indent, 80, zr_shown(text));
    }
}

static void add_cards(json_t *object, const struct zr_pausable *p) {
    json_t *cards = zr_json_array(object, "cards");

    for (unsigned i = 0; i < p->cards; i++) {
        json_t *one = zr_json_object(cards, NULL);

        zr_json_text(one, "device", p->card[i].pdev);
        zr_json_amount(one, "vram_before_bytes", p->card[i].before);
        zr_json_amount(one, "vram_after_bytes", p->card[i].after);
    }
}

void zr_pausables_json(FILE *out, const struct zr_pausable *p, size_t count, bool resume, const char *to) {
    json_t *document = zr_json_document(1), *list;
    bool short_of_room = false;

    zr_json_text(document, "request", resume ? "resume" : "pause");
    zr_json_text(document, "to", to);
    list = zr_json_array(document, "processes");
    for (size_t i = 0; i < count; i++) {
        json_t *one = zr_json_object(list, NULL);

        zr_json_count(one, "pid", (uint64_t)zr_post_pid(p[i].post));
        zr_json_text(one, "command", p[i].post->process.command);
        zr_json_text(one, "job", p[i].job);
        zr_json_text(one, "rank", p[i].rank);
        zr_json_text(one, "outcome", outcomes[p[i].outcome]);
        if (*p[i].why)
            zr_json_text(one, "why", p[i].why);
        zr_json_text(one, "state", zr_pause_name(p[i].after.state));
        zr_json_real(one, "seconds", (double)p[i].took_ns / 1e9);
        zr_json_count(one, "given_back_bytes", resume ? p[i].before.bytes : p[i].after.bytes);
        zr_json_count(one, "host_bytes", p[i].after.host_bytes);
        zr_json_count(one, "kept_bytes", p[i].after.kept);
        add_cards(one, &p[i]);
        short_of_room |= resume && (p[i].outcome == ZR_OUTCOME_REFUSED || p[i].outcome == ZR_OUTCOME_WAITS);
    }
    if (short_of_room)
        zr_pausables_holders_json(document, p, count);
    zr_json_write(out, document, ZR_JSON_DIGITS, false);
}
