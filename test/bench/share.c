/*
 * What zeMemAllocDevice takes, as the mean over many, near or far from the end of a card:
 *   share far MIB PAIRS     pairs of allocation and free on a card that is empty
 *   share near MIB PAIRS    the same with as much held as can be had, less four blocks
 * Prints the mean ns of an allocation, and the largest.
 */
#include "bench_ze.h"

#include <string.h>

enum { MOST = 4096 };

static void *held[MOST];

static unsigned fill(size_t size) {
    unsigned n = 0;

    while (n < MOST && zeMemAllocDevice(context, &plain_desc, size, 0, cards[0], &held[n]) == ZE_RESULT_SUCCESS)
        n++;
    return n;
}

int main(int argc, char **argv) {
    double sum = 0, most = 0;
    unsigned pairs, n;
    size_t size;

    if (argc != 4)
        return 2;
    size = strtoull(argv[2], NULL, 10) << 20;
    pairs = (unsigned)strtoul(argv[3], NULL, 10);
    open_cards();
    give(take(size));
    n = strcmp(argv[1], "near") == 0 ? fill(size) : 0;
    for (unsigned i = 0; i < 4 && n > 0; i++)
        give(held[--n]);
    for (unsigned i = 0; i < pairs; i++) {
        double start = now_ns(), took;
        void *p = take(size);

        took = now_ns() - start;
        sum += took;
        most = took > most ? took : most;
        give(p);
    }
    printf("%.0f %.0f\n", sum / pairs, most);
    return 0;
}
