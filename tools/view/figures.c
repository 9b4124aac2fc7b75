/* Figures that several commands take from a segment or from the kernel. */
#include "view/view.h"

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
