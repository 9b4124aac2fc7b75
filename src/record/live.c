/*
 * What is live, by the library that allocated it and by size: the answer to "who holds all that
 * memory?".
 */
#include "record/record.h"

#include "stats/stats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5, BYTES = 16 };

/* "16.0 MiB"; returns out, which has room for BYTES. */
static const char *text_of(char *out, uint64_t bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double n = (double)bytes;
    unsigned u = 0;

    for (; n >= 1023.95 && u < 5; u++)
        n /= 1024;
    snprintf(out, BYTES, u && n < 99.95 ? "%.1f %s" : "%.0f %s", n, unit[u]);
    return bytes ? out : "nothing";
}

/* Appends to a text of the segment; what does not fit is cut. */
static __attribute__((format(printf, 2, 3))) void text_put(char *out, const char *format, ...) {
    size_t used = strlen(out);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(out + used, ZR_TEXT_ROOM - used, format, arguments);
    va_end(arguments);
}

/* If all groups are taken, the rest is counted with the last one. */
void zr_live_add(struct zr_live *l, const struct zr_library *caller, uint64_t bytes) {
    unsigned power = bytes ? 63u - (unsigned)__builtin_clzll(bytes) : 0, i = 0;

    while (i < l->groups &&
           (l->group[i].caller->counters != caller->counters || l->group[i].power != power))
        i++;
    if (i == ZR_LIVE_GROUPS)
        i--;
    if (i == l->groups)
        l->group[l->groups++] = (struct zr_live_group){.caller = caller, .power = power};
    l->group[i].blocks++;
    l->group[i].bytes += bytes;
    l->blocks++;
    l->bytes += bytes;
}

static int by_bytes(const void *a, const void *b) {
    const struct zr_live_group *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Appends the largest groups, each on a line of its own, and the sum of the others. */
static void put_groups(struct zr_live *l, char *out) {
    uint64_t shown = 0;
    char a[BYTES], b[BYTES], c[BYTES];

    qsort(l->group, l->groups, sizeof *l->group, by_bytes);
    for (unsigned i = 0; i < l->groups && i < SHOWN; i++) {
        const struct zr_live_group *g = &l->group[i];

        text_put(out, "\n    %-24.24s %7llu x %8s to %8s %10s", g->caller->name,
                 (unsigned long long)g->blocks, text_of(a, UINT64_C(1) << g->power),
                 text_of(b, UINT64_C(2) << g->power), text_of(c, g->bytes));
        shown += g->bytes;
    }
    if (shown < l->bytes)
        text_put(out, "\n    %-24s %41s", "others", text_of(a, l->bytes - shown));
}

void zr_live_left(struct zr_live *l) {
    char text[ZR_TEXT_ROOM] = "";

    zr_gauge(ZR_G_LEFT_BLOCKS, l->blocks);
    zr_gauge(ZR_G_LEFT_BYTES, l->bytes);
    put_groups(l, text);
    zr_text(ZR_T_LEFT, *text ? text + 1 : "");
}

static const struct {
    const char *who, *try;
    enum zr_text text;
} causes[] = {
    [ZR_CAUSE_LIMIT] = {"the setting limit",
                        "raise limit (auto: what the card has left), or use smaller batches",
                        ZR_T_OOM_LIMIT},
    [ZR_CAUSE_INJECT] = {"the setting inject", "nothing: the failure was asked for", ZR_T_OOM_DRIVER},
    [ZR_CAUSE_FLOOR] = {"the setting host_floor",
                        "free host memory; 'zeroute doctor' says whether it is a mirror",
                        ZR_T_OOM_HOST_FLOOR},
    [ZR_CAUSE_DRIVER] = {"the driver", "'zeroute stat' shows who holds memory; use smaller batches",
                         ZR_T_OOM_DRIVER},
};

static const char *what_to_try(enum zr_cause cause) {
    if (cause == ZR_CAUSE_LIMIT && zr_config.limit.is_auto)
        return causes[ZR_CAUSE_DRIVER].try; /* the card is full: a higher limit gives nothing */
    return causes[cause].try;
}

void zr_live_explain(enum zr_cause cause, const struct zr_shortage *s, struct zr_live *live) {
    char text[ZR_TEXT_ROOM] = "", a[BYTES], b[BYTES], card[24] = "";

    if (s->card >= 0)
        snprintf(card, sizeof card, " on card %d", s->card);
    text_put(text, "out of memory: %s refused %s%s", causes[cause].who, text_of(a, s->bytes), card);
    text_put(text, "\n  asked by  %.40s with %s",
             s->caller ? s->caller->name : "the SYCL runtime's pool", zr_entry_name[s->entry]);
    text_put(text, "\n  answer    0x%x (%s)", s->code,
             s->code == 0x70000002 ? "out of host memory" : "out of device memory");
    text_put(text, "\n  held      %s by the process, %s in the cache", text_of(a, live->bytes),
             text_of(b, s->cached));
    if (s->limit)
        text_put(text, "\n  limit     %s%s", text_of(a, s->limit),
                 zr_config.limit.is_auto ? " (auto: what other processes leave to it of the card)"
                                         : "");
    if (s->total)
        text_put(text, "\n  card      %s", text_of(a, s->total));
    if (s->total && s->others)
        text_put(text, ", %s of it with other processes and the driver", text_of(a, s->others));
    if (live->groups)
        text_put(text, "\n  largest groups by caller and size of block:");
    put_groups(live, text);
    text_put(text, "\n  try       %s", what_to_try(cause));
    if (zr_recording())
        text_put(text, "\n  record    'zeroute report %.60s' shows what was live, by call stack",
                 zr_record_path());
    zr_text(causes[cause].text, text);
    zr_warn("%s", text);
}
