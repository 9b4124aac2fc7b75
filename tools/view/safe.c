/* Whether limit:auto (the preset safe) would have helped a process: the one answer of doctor and the summary. */
#include "view/view.h"

#include <stdio.h>
#include <string.h>

enum { NEARLY_FULL = 85 };

unsigned zr_card_percent(const struct zr_card_view *c) {
    uint64_t used = c->ours + c->others;

    return c->vram == ZR_ABSENT || !c->vram ? 0 : (unsigned)((double)used * 100.0 / (double)c->vram);
}

struct zr_safe_signs zr_safe_signs_of(const struct zeroute_snapshot *s) {
    const struct zeroute_field *settings = zeroute_find(s, "settings"), *refused = zeroute_find(s, "oom.driver");

    return (struct zr_safe_signs){.is_on = settings && settings->text && strstr(settings->text, "limit:auto"),
                                  .lost = zeroute_value(s, "device_lost.calls", 0),
                                  .refused = refused && refused->text && *refused->text};
}

enum zr_safe zr_safe_for(const struct zr_safe_signs *signs, char *why, size_t size) {
    enum zr_safe answer = signs->is_on ? ZR_SAFE_IS_ON : ZR_SAFE_HELPS;
    char bytes[ZR_TEXT_SIZE];

    if (signs->lost)
        snprintf(why, size, "%llu call%s answered DEVICE_LOST, as happens when a card runs out of memory",
                 (unsigned long long)signs->lost, signs->lost == 1 ? " was" : "s were");
    else if (signs->spilled)
        snprintf(why, size, "%s spilled into host memory, and beyond that the card is lost",
                 zr_text_bytes(bytes, signs->spilled));
    else if (signs->refused)
        snprintf(why, size, "the driver ran out of device memory");
    else if (signs->percent > NEARLY_FULL)
        snprintf(why, size, "a card %s %u %% full, and what is allocated beyond it spills or costs the card",
                 signs->was ? "was" : "is", signs->percent);
    else {
        answer = ZR_SAFE_NOT_NEEDED;
        snprintf(why, size, "nothing was lost, spilled or refused, and the fullest card %s at %u %%",
                 signs->was ? "was" : "is", signs->percent);
    }
    return answer;
}
