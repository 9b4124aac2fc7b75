/* Figures that several commands take from a segment or from the kernel. */
#include "view/view.h"

#include <stdio.h>
#include <string.h>

uint64_t zr_total(const struct zeroute_snapshot *s, const char *prefix) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->field_count; i++)
        if (strncmp(s->field[i].name, prefix, strlen(prefix)) == 0 &&
            strncmp(s->field[i].name, "failures.code.", 14) != 0)
            sum += s->field[i].value;
    return sum;
}

uint64_t zr_host_side_peak(const struct zeroute_snapshot *s) {
    return zeroute_value(s, "reserved_bytes.host.peak", 0) + zeroute_value(s, "allocated_bytes.shared.peak", 0);
}

uint64_t zr_host_side(const struct zeroute_snapshot *s) {
    return zeroute_value(s, "reserved_bytes.host.current", 0) + zeroute_value(s, "allocated_bytes.shared.current", 0);
}

bool zr_missed_text(char *out, size_t size, const struct zr_process_view *v) {
    int pid = v->process.pid ? v->process.pid : v->process.pid_inside;
    char held[ZR_TEXT_SIZE], tail[96] = "";

    if (!*v->hooks)
        return false;
    if (v->process.state != ZEROUTE_FINISHED && v->vram != ZR_ABSENT)
        snprintf(tail, sizeof tail, "; its cards hold %s for it", zr_text_bytes(held, v->vram));
    snprintf(out, size, "%d: %s%s", pid, v->hooks, tail);
    return true;
}
