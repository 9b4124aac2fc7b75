/* What grows in a process while its own allocations do not, as the process itself has noted it (src/stats/host.c). */
#include "common/common.h"

#include <string.h>
#include <time.h>

enum { STEPS = 3, SECONDS = 5, STILL = 60 };

const struct zr_growth_kind zr_growth_kinds[ZR_GROWTHS] = {
    [ZR_GROWTH_UNSEEN] = {"unseen", "device memory that no allocation call shows",
                          "look at images, modules and command lists in 'zeroute stat PID': what is made and never "
                          "destroyed",
                          UINT64_C(16) << 20},
    [ZR_GROWTH_HOST] = {"host_usm", "host USM",
                        "look at who allocates pinned memory: 'zeroute record' has the call stacks",
                        UINT64_C(16) << 20},
    [ZR_GROWTH_GTT] = {"gtt", "host memory of the cards (GTT)",
                       "a card is full, or buffers are imported and never closed", UINT64_C(16) << 20},
    [ZR_GROWTH_IPC] = {"ipc", "open IPC handles",
                       "the program opens handles that it never closes (zeMemCloseIpcHandle)", 0},
};

static uint64_t noted(const struct zeroute_snapshot *s, unsigned k, const char *what) {
    char name[64];

    snprintf(name, sizeof name, "growth.%s.%s", zr_growth_kinds[k].name, what);
    return zeroute_value(s, name, ZR_ABSENT);
}

/* A figure of each card, added up; absent ones count as 0. */
static uint64_t of_cards(const struct zeroute_snapshot *s, const char *figure) {
    uint64_t sum = 0;

    for (unsigned n = 0; n < ZR_CARDS_MAX; n++) {
        char name[64];

        snprintf(name, sizeof name, "device.%u.%s", n, figure);
        sum += zeroute_value(s, name, 0);
    }
    return sum;
}

static uint64_t level(const struct zeroute_snapshot *s, unsigned k) {
    switch (k) {
    case ZR_GROWTH_UNSEEN:
        return of_cards(s, "unseen_bytes") + of_cards(s, "image_bytes");
    case ZR_GROWTH_HOST:
        return zeroute_value(s, "reserved_bytes.host.current", 0);
    case ZR_GROWTH_GTT:
        return of_cards(s, "gtt_bytes");
    default:
        return zeroute_value(s, "ipc.open", 0);
    }
}

bool zr_growth_of(const struct zeroute_snapshot *s, unsigned k, struct zr_growth *out) {
    uint64_t from = noted(s, k, "from"), since = noted(s, k, "since"), rose = noted(s, k, "rose");
    uint64_t steps = noted(s, k, "steps"), now = (uint64_t)time(NULL), at = level(s, k), grew = rose - since;

    if (s->processes > 1 || s->process.state != ZEROUTE_LIVE || steps == ZR_ABSENT || steps < STEPS || rose < since ||
        grew < SECONDS || now < rose || now - rose > (grew > STILL ? grew : STILL))
        return false;
    out->by = at > from ? at - from : 0;
    out->since = (time_t)since;
    out->seconds = (double)grew;
    return out->by >= (zr_growth_kinds[k].least ? zr_growth_kinds[k].least : STEPS);
}

const char *zr_growth_text(char *out, unsigned k, const struct zr_growth *g) {
    char clock[32], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    double a_minute = (double)g->by / g->seconds * 60;
    struct tm t;

    localtime_r(&g->since, &t);
    strftime(clock, sizeof clock, time(NULL) - g->since < 20 * 3600 ? "%H:%M" : "%Y-%m-%d %H:%M", &t);
    if (zr_growth_kinds[k].least)
        snprintf(out, ZR_GROWTH_TEXT, "+%s since %s (%s a minute)", zr_text_bytes(a, g->by), clock,
                 zr_text_bytes(b, (uint64_t)a_minute));
    else
        snprintf(out, ZR_GROWTH_TEXT, "+%s since %s (%.*f a minute)", zr_text_count(a, g->by), clock, a_minute < 100,
                 a_minute);
    return out;
}
