/* Memory that grows beside a program's own allocations. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <time.h>

enum { LOOKS = 10, STEPS = 3 };

static struct zr_finding *add_growth(struct zr_findings *to, unsigned k) {
    static const char *const ids[ZR_GROWTHS] = {"growth-unseen", "growth-host-usm", "growth-gtt", "growth-ipc"};
    const struct zr_growth_kind *kind = &zr_growth_kinds[k];
    struct zr_finding *f = zr_finding_add(to, ZR_WARNING, ids[k], "%s grow%s, and the allocations do not", kind->what,
                                          kind->least ? "s" : "");

    zr_finding_says(&f->todo, "%s", kind->todo);
    return f;
}

/* --- accounts that are worth a word ----------------------------------------------------------- */

void zr_accounts_find(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_counted *counted = &c->counted;
    struct zr_finding *f;
    char a[32], b[32];

    if (counted->replaced) {
        f = zr_finding_add(to, ZR_NOTE, "free-memory", "the driver's answers about free memory cannot be right");
        zr_finding_says(&f->seen, "%" PRIu64 " answers were replaced by what the kernel says", counted->replaced);
        zr_finding_says(&f->todo, "keep free_memory:checked, or update the driver");
    }
    if (counted->host_rounded >= UINT64_C(64) << 20 && counted->host_rounded >= counted->host_usm / 4 * 3) {
        f = zr_finding_add(to, ZR_WARNING, "pinned-rounding", "pinned memory is rounded up to powers of two");
        zr_finding_says(&f->seen, "%s of %s of host USM are in blocks of an exact power of two above 1 MiB",
                        zr_text_bytes(a, counted->host_rounded), zr_text_bytes(b, counted->host_usm));
        zr_finding_says(&f->todo, "PyTorch: PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1,"
                                  "pinned_max_cached_size_mb:1");
        zr_finding_says(&f->price, "larger pinned blocks are not kept for reuse");
    }
}

/* --- growth ----------------------------------------------------------------------------------- */

static void levels(const struct zr_case *c, uint64_t out[ZR_GROWTHS]) {
    uint64_t vram = 0, seen = c->counted.reserved + c->counted.imported;

    out[ZR_GROWTH_GTT] = 0;
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        vram += c->memory.cards[i].vram.total == ZR_ABSENT ? 0 : c->memory.cards[i].vram.total;
        out[ZR_GROWTH_GTT] += c->memory.cards[i].gtt.total == ZR_ABSENT ? 0 : c->memory.cards[i].gtt.total;
    }
    out[ZR_GROWTH_UNSEEN] = vram > seen ? vram - seen : 0;
    out[ZR_GROWTH_HOST] = c->counted.host_usm;
    out[ZR_GROWTH_IPC] = c->counted.ipc_open;
}

static void say_growth(struct zr_findings *to, unsigned k, uint64_t grown, double seconds) {
    struct zr_finding *f = add_growth(to, k);
    char a[32], b[32];

    if (zr_growth_kinds[k].least)
        zr_finding_says(&f->seen, "%s more in %.0f s, %s a second", zr_text_bytes(a, grown), seconds,
                        zr_text_bytes(b, (uint64_t)((double)grown / seconds)));
    else
        zr_finding_says(&f->seen, "%" PRIu64 " more in %.0f s, %.1f a second", grown, seconds, (double)grown / seconds);
}

/* For a process without zeroute only the kernel's figures are known: growth there may be its own allocations. */
bool zr_growth_watch(struct zr_case *c, double seconds, struct zr_findings *to) {
    uint64_t first[ZR_GROWTHS], last[ZR_GROWTHS], now[ZR_GROWTHS], reserved = c->counted.reserved;
    unsigned steps[ZR_GROWTHS] = {0};
    double pause = seconds / LOOKS;
    struct timespec t = {.tv_sec = (time_t)pause, .tv_nsec = (long)((pause - (double)(time_t)pause) * 1e9)};

    levels(c, first);
    levels(c, last);
    for (int i = 0; i < LOOKS; i++) {
        pid_t pid = c->pid;

        nanosleep(&t, NULL);
        zr_stack_free(&c->stack);
        if (!zr_doctor_gather(c, pid)) {
            zr_complain("doctor", "process %d ended after %.1f s", (int)pid, pause * (i + 1));
            return false;
        }
        levels(c, now);
        for (unsigned k = 0; k < ZR_GROWTHS; k++) {
            steps[k] += now[k] > last[k];
            last[k] = now[k];
        }
    }
    for (unsigned k = 0; k < ZR_GROWTHS; k++) {
        uint64_t grown = last[k] > first[k] ? last[k] - first[k] : 0, least = zr_growth_kinds[k].least;
        uint64_t own = c->counted.reserved > reserved ? c->counted.reserved - reserved : 0;

        if (steps[k] >= STEPS && (least ? grown >= least && own < grown / 2 : grown >= STEPS) &&
            (c->counted.found || k == ZR_GROWTH_GTT))
            say_growth(to, k, grown, seconds);
    }
    return true;
}
