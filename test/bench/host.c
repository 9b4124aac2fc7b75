/*
 * What an allocation costs on a bed. Prints plain lines; test/bench/bench_host makes the tables.
 *
 *   host calls            "SIZE NAME COUNT ALLOCATIONS": kernel calls below that many allocations
 *   host pages            "gpu_active BYTES" and "gtt BYTES" while 1 GiB is resident on all cards
 *
 * `calls` reads the stand-in's counters (XE_STANDIN_COUNTS), `pages` its files under ZEROUTE_ROOT.
 */
#include "bench_ze.h"

#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {512, 64 * KIB, MIB, 2 * MIB, 20 * MIB, 256 * MIB};
static const char *const counters[] = {"gem_create", "vm_bind_map", "prime_export", "prime_import"};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), COUNTERS = sizeof(counters) / sizeof(counters[0]) };

static long long counter(const char *name) {
    const char *path = getenv("XE_STANDIN_COUNTS");
    FILE *f = path ? fopen(path, "r") : NULL;
    char word[64];
    long long value, found = -1;

    while (f && fscanf(f, "%63s %lld", word, &value) == 2) {
        if (strcmp(word, name) == 0)
            found = value;
    }
    if (f)
        fclose(f);
    return found;
}

static void calls(void) {
    for (unsigned i = 0; i < SIZES; i++) {
        enum { MOST = 64 };
        unsigned n = sizes[i] > 64 * MIB ? 8 : MOST;
        long long before[COUNTERS];
        void *p[MOST];

        for (unsigned c = 0; c < COUNTERS; c++)
            before[c] = counter(counters[c]);
        for (unsigned k = 0; k < n; k++) {
            p[k] = take(sizes[i]);
            spread(p[k], sizes[i]);
        }
        for (unsigned c = 0; c < COUNTERS; c++)
            printf("%zu %s %lld %u\n", sizes[i], counters[c], counter(counters[c]) - before[c], n);
        for (unsigned k = 0; k < n; k++)
            give(p[k]);
    }
}

/* The sum of a field "NAME: N UNIT" in a file under the root. */
static long long field(const char *file, const char *name) {
    char path[4096], line[256], unit[16];
    long long value, sum = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", getenv("ZEROUTE_ROOT") ? getenv("ZEROUTE_ROOT") : "", file);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        size_t n = strlen(name);

        unit[0] = '\0';
        if (strncmp(line, name, n) == 0 && line[n] == ':' && sscanf(line + n + 1, "%lld %15s", &value, unit) >= 1)
            sum += value * (unit[0] == 'M' ? (long long)MIB : unit[0] ? 1024 : 1);
    }
    if (f)
        fclose(f);
    return sum;
}

static long long imported(void) {
    const char *root = getenv("ZEROUTE_ROOT");
    char path[4096];
    long long sum = 0;
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo", root ? root : "", getpid());
    d = opendir(path);
    while (d && (e = readdir(d))) {
        snprintf(path, sizeof(path), "proc/%d/fdinfo/%s", getpid(), e->d_name);
        sum += field(path, "drm-total-gtt");
    }
    if (d)
        closedir(d);
    return sum;
}

static void pages(void) {
    enum { BLOCKS = 4 };
    long long before = field("proc/meminfo", "GPUActive"), gtt = imported();
    void *p[BLOCKS];

    for (unsigned i = 0; i < BLOCKS; i++) {
        p[i] = take(256 * MIB);
        spread(p[i], 256 * MIB);
    }
    printf("gpu_active %lld\ngtt %lld\n", field("proc/meminfo", "GPUActive") - before, imported() - gtt);
    for (unsigned i = 0; i < BLOCKS; i++)
        give(p[i]);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "calls") && strcmp(what, "pages")) {
        fprintf(stderr, "usage: host calls|pages\n");
        return 2;
    }
    open_cards();
    if (!strcmp(what, "calls"))
        calls();
    else
        pages();
    MUST(zeContextDestroy(context));
    return 0;
}
