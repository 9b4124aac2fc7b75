/*
 * What the kernel tells about host and device memory, read from a reader's side.
 * Everything is looked up below $ZEROUTE_ROOT, so that a test can lay out a machine in a folder.
 * What the kernel does not offer is ZR_ABSENT, never zero.
 */
#ifndef ZEROUTE_TOOLS_HOST_H
#define ZEROUTE_TOOLS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ZR_ABSENT UINT64_MAX

enum { ZR_CARDS_MAX = 16 };

/* /proc/meminfo. gpu_active and gpu_reclaim exist on recent kernels only; MemAvailable does not
 * credit gpu_reclaim although the kernel can take it back. */
struct zr_meminfo {
    uint64_t total;
    uint64_t available;
    uint64_t gpu_active;
    uint64_t gpu_reclaim;
    /* in use, and not told as anything: what drivers hold shows here on kernels without gpu_active */
    uint64_t unaccounted;
};

/* A region of a card's memory as fdinfo counts it. */
struct zr_region {
    uint64_t total;
    uint64_t resident;
};

/* What one process holds on one card, every DRM client counted once. gtt is what the card imports
 * or maps of host memory: it shows sharing, not cost. */
struct zr_card_use {
    char pdev[32];
    char driver[16];
    unsigned clients;
    struct zr_region vram;
    struct zr_region gtt;
    struct zr_region system;
};

struct zr_process_memory {
    uint64_t rss;
    uint64_t cgroup_current;
    uint64_t cgroup_limit; /* absent: no limit, or the kernel offers none */
    unsigned card_count;
    struct zr_card_use cards[ZR_CARDS_MAX];
    unsigned dmabuf_fds; /* descriptors of shared buffers that are open */
    int fdinfo_error;    /* errno of the listing; 0: it was read */
};

/* "$ZEROUTE_ROOT" followed by the formatted path; returns out. */
char *zr_root_path(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A whole file as a string with a terminating zero, to be freed; NULL with errno set. Made for
 * /proc, whose files tell no size. length may be NULL. */
char *zr_read_whole(const char *path, size_t *length);

/* False with errno set when there is no meminfo at all. */
bool zr_meminfo_read(struct zr_meminfo *out);

/* False with errno set when the process is not there. A listing of descriptors that may not be read
 * is told in fdinfo_error, with everything else filled in. */
bool zr_process_memory_read(pid_t pid, struct zr_process_memory *out);

/* How much less memory is available than at the baseline, with what the kernel's GPU page pool
 * could give back credited: the fall-back truth where GPUActive is missing. Negative: more. */
int64_t zr_meminfo_drop(const struct zr_meminfo *baseline, const struct zr_meminfo *now);

/* Straight line through n points by least squares. error is the standard error of the slope; with
 * two points it is not known and NAN. False when fewer than two different x are there. */
struct zr_line {
    double slope;
    double error;
    double intercept;
};
bool zr_line_fit(const double *x, const double *y, unsigned n, struct zr_line *out);

/* "1.50 GiB", "64.0 KiB", "0"; "-" when absent. */
char *zr_bytes_text(char *out, size_t size, uint64_t bytes);

/* A size as the settings have it, "2GiB", "512M". False when it is none. */
bool zr_bytes_parse(const char *text, uint64_t *out);

#endif
