/* Figures that several commands take from a segment or from the kernel. */
#include "common/common.h"

#include <string.h>

uint64_t zr_total(const struct zeroute_snapshot *s, const char *prefix) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->field_count; i++)
        if (strncmp(s->field[i].name, prefix, strlen(prefix)) == 0 &&
            strncmp(s->field[i].name, "failures.code.", 14) != 0)
            sum += s->field[i].value;
    return sum;
}

uint64_t zr_host_side(const struct zeroute_snapshot *s) {
    return zeroute_value(s, "reserved_bytes.host.current", 0) + zeroute_value(s, "allocated_bytes.shared.current", 0);
}

void zr_json_card_use(json_t *object, const struct zr_card_use *use) {
    zr_json_amount(object, "vram_total_bytes", use->vram.total);
    zr_json_amount(object, "vram_resident_bytes", use->vram.resident);
    zr_json_amount(object, "gtt_total_bytes", use->gtt.total);
    zr_json_amount(object, "gtt_resident_bytes", use->gtt.resident);
    zr_json_amount(object, "system_total_bytes", use->system.total);
    zr_json_amount(object, "system_resident_bytes", use->system.resident);
}
