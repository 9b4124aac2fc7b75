#include "mirror/mirror.h"

#include <math.h>
#include <string.h>

const char *const zr_share_names[] = {"peer", "ipc", "none"};
const char *const zr_verdict_names[] = {"not mirrored", "mirrored", "cannot tell"};

/* Less than a tenth of a byte per byte is the driver's own book-keeping; a slope must also stand out from its error. */
static enum zr_verdict verdict_of(const struct zr_line *line) {
    double error = isnan(line->error) ? 0 : line->error;

    if (line->slope > 0.1 && line->slope > 3 * error)
        return ZR_MIRRORED;
    return fabs(line->slope) + 2 * error < 0.1 ? ZR_NOT_MIRRORED : ZR_CANNOT_TELL;
}

static void fit(struct zr_mirror_result *r) {
    double x[ZR_STEPS_MAX + 1] = {0}, active[ZR_STEPS_MAX + 1] = {0}, drop[ZR_STEPS_MAX + 1] = {0};
    bool has_active = true, has_available = true;

    for (unsigned i = 0; i < r->count; i++) {
        const struct zr_meminfo *now = &r->step[i].host, *start = &r->step[0].host;

        x[i] = (double)r->step[i].device;
        has_active &= now->gpu_active != ZR_ABSENT;
        has_available &= now->available != ZR_ABSENT;
        active[i] = has_active ? (double)now->gpu_active - (double)start->gpu_active : 0;
        drop[i] = has_available ? (double)zr_meminfo_drop(start, now) : 0;
    }
    r->by_active = has_active && zr_line_fit(x, active, r->count, &r->active);
    r->by_available = has_available && zr_line_fit(x, drop, r->count, &r->available);
}

void zr_mirror_judge(struct zr_mirror_result *r) {
    const struct zr_line *line;
    double apart, allowed;

    fit(r);
    r->verdict = ZR_CANNOT_TELL;
    if (r->count < 3 || !(r->by_active || r->by_available)) {
        snprintf(r->why, sizeof r->why, "%s", *r->stopped ? r->stopped : "fewer than two steps were measured");
        return;
    }
    line = r->by_active ? &r->active : &r->available;
    r->verdict = verdict_of(line);
    apart = r->by_active && r->by_available ? fabs(r->active.slope - r->available.slope) : 0;
    allowed = 0.1 + (r->count > 2 ? 2 * (r->active.error + r->available.error) : 0);
    if (r->verdict == ZR_CANNOT_TELL)
        snprintf(r->why, sizeof r->why, "the slope does not stand out: other load, or too small steps");
    else if (!r->by_active)
        snprintf(r->why, sizeof r->why, "by MemAvailable alone: GPUActive is not available (needs kernel 7.1)");
    else if (r->by_available && apart > allowed)
        snprintf(r->why, sizeof r->why,
                 "by GPUActive; MemAvailable says %.2f: other load on the machine, or a loss that "
                 "GPUActive "
                 "does not show",
                 r->available.slope);
    else
        snprintf(r->why, sizeof r->why, "by GPUActive%s", r->by_available ? ", MemAvailable agrees" : "");
}
