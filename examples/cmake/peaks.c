/* Prints the peak of device memory of each process that runs, or ran, under zeroute. */
#include <inttypes.h>
#include <stdio.h>
#include <zeroute/reader.h>

int main(void) {
    struct zeroute_list *list = zeroute_list_new();

    for (size_t i = 0; list && i < list->count; i++) {
        char why[256];
        struct zeroute_snapshot *s = zeroute_snapshot_new(&list->process[i], why, sizeof why);

        if (s)
            printf("%d %" PRIu64 "\n", list->process[i].pid, zeroute_value(s, "allocated_bytes.all.peak", 0));
        else
            fprintf(stderr, "%s: %s\n", list->process[i].path, why);
        zeroute_snapshot_free(s);
    }
    zeroute_list_free(list);
    return 0;
}
