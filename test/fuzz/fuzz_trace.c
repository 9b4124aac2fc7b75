/* Bytes as a trace for `zeroute replay`. */
#include "fuzz.h"

#include "replay/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct zr_trace t = {0};
    char why[256] = "";
    FILE *in = fmemopen((void *)(uintptr_t)data, size ? size : 1, "r");

    must(in != NULL);
    if (zr_trace_read(&t, in, why, sizeof why)) {
        must(t.allocations >= t.frees && t.left == t.allocations - t.frees && t.events == t.allocations + t.frees);
        for (size_t i = 0; i < t.events; i++)
            must(t.event[i].slot < t.slots);
    } else {
        must(*why);
    }
    fclose(in);
    zr_trace_free(&t);
    return 0;
}
