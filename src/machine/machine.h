/*
 * The map of machine/: what the kernel and other processes say of cards and memory. Read on demand,
 * for limit:auto, free_memory:checked, host_floor and the explanation of a shortage, and never for
 * the statistics. Without malloc: the caller may be inside the program's allocator. Grouped by the
 * file that defines it.
 */
#ifndef ZEROUTE_MACHINE_H
#define ZEROUTE_MACHINE_H

#include "stats/stats.h"

#pragma GCC visibility push(hidden)

/* --- drm.c: what the kernel counts on the cards, per process ---------------------------------- */

struct zr_drm {
    unsigned cards, clients;
    struct {
        uint64_t pci, vram; /* domain << 16 | bus << 8 | device << 3 | function; bytes */
    } card[ZR_DEVICES];
    char folder[40];
    /* That were counted: one with several descriptors, or in several processes, counts once. */
    uint64_t client[256];
};
/*
 * Adds what a process has on the cards, NULL for our own. About 2 us for each of its descriptors,
 * at most 4096.
 */
void zr_drm_add(struct zr_drm *d, const char *pid);
/* The index of a device, or -1. */
int zr_drm_find(const struct zr_drm *d, unsigned device);
/* Notes the PCI address that the driver reports for a device. */
void zr_drm_name(unsigned device, uint64_t pci);
/*
 * The PCI address of a device; ZR_NO_ADDRESS if it was not told, or was told of another device too.
 */
#define ZR_NO_ADDRESS UINT64_MAX
uint64_t zr_drm_address(unsigned device);

/* --- others.c: segments of this user's other processes ---------------------------------------- */

/*
 * Describes a process of this user in words: id, command line, segment. Opens every segment there
 * is.
 */
void zr_process_words(int pid, char *out, size_t size);
/*
 * Calls see() for each live segment but our own, with what its process has announced. Looks at live
 * segments alone as long as none was made or removed: some 10 us each. The caller holds a lock of
 * its own around all calls.
 */
void zr_others_each(void (*see)(const struct zeroute_segment_header *h,
                                const struct zeroute_segment_claim *claims, void *arg),
                    void *arg);
void zr_others_fork_child(void);

/* --- claim.c: what all processes have of a card ----------------------------------------------- */

/*
 * Announces that this process takes this many bytes of a device, or gives them back if negative.
 * Returns false, and has announced nothing, without a segment.
 */
bool zr_claim(unsigned device, int64_t bytes);
/*
 * How much of the card is not available to our blocks, which hold `blocks` bytes so far: other
 * memory of this process, and what other processes hold or have announced, whichever is more. The
 * kernel is asked about those once a second, or now if `fresh`: 2 us per descriptor of this user's
 * processes. 0 if unknown.
 */
uint64_t zr_claims_look(unsigned device, uint64_t blocks, bool fresh);
void zr_claim_fork_child(void);

/* --- floor.c: host_floor ---------------------------------------------------------------------- */

bool zr_host_refuses_slow(uint64_t bytes);
/* Whether a device allocation must fail with OUT_OF_HOST_MEMORY now; counted. */
static inline bool zr_host_refuses(uint64_t bytes) {
    return unlikely(zr_config.host_floor.set) && zr_host_refuses_slow(bytes);
}

#pragma GCC visibility pop

#endif
