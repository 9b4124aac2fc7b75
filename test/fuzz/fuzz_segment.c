/*
 * Bytes as a segment: whatever they say, the reader is quick, and what it makes of them can be looked at, added up and
 * freed.
 */
#include "fuzz.h"
#include "zeroute/reader.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char why[256] = "";
    double start = fuzz_seconds();
    struct zeroute_snapshot *s = zeroute_snapshot_of_fd(fuzz_file(data, size), why, sizeof why);
    struct zeroute_snapshot *again = s ? zeroute_snapshot_of_fd(fuzz_file(data, size), why, sizeof why) : NULL;

    must(s || (*why && memchr(why, '\0', sizeof why)));
    for (size_t i = 0; s && i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];

        must(f->name && f->unit && f->help && strlen(f->name) < 96 && zeroute_find(s, f->name) != NULL);
        must(f->type != ZEROUTE_HISTOGRAM || f->buckets);
    }
    for (size_t i = 0; s && i < s->fact_count; i++)
        must(zeroute_fact(s, s->fact[i].key) != NULL);
    if (s && again)
        must(zeroute_snapshot_add(s, again) && s->processes == 2);
    zeroute_snapshot_free(again);
    zeroute_snapshot_free(s);
    must(fuzz_seconds() - start < 4); /* 0.1 s each; the sanitizers take their time */
    return 0;
}
