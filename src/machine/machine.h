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

enum { ZR_CGROUP_NAME = 256 };

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
/* Adds what a process has on the cards. About 2 us for each of its descriptors, at most 4096. */
void zr_drm_add(struct zr_drm *d, const char *pid);
/*
 * The same for this process. Which of its descriptors lead to a card may have been looked up this
 * long before: then only those are read, and the result is false.
 */
bool zr_drm_add_own(struct zr_drm *d, uint64_t now, uint64_t most_ns);
void zr_drm_fork_child(void);
/* The index of a device, or -1. */
int zr_drm_find(const struct zr_drm *d, unsigned device);
/* Notes the PCI address that the driver reports for a device. */
void zr_drm_name(unsigned device, uint64_t pci);
/* Parses "0000:03:00.0". */
uint64_t zr_drm_parse(const char *text);
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
/* What another process has announced. */
struct zr_announcement {
    int pid; /* as we number processes; 0: it is of a PID namespace that we do not see */
    const struct zeroute_segment_claim *claims;
    const struct zeroute_segment_group *group; /* all zero if it has none */
};
/*
 * Calls see() for each live segment but our own, with what its process has announced. Looks at live
 * segments alone as long as none was made or removed: some 10 us each. The caller holds a lock of
 * its own around all calls.
 */
void zr_others_each(void (*see)(const struct zr_announcement *a, void *arg), void *arg);
void zr_others_fork_child(void);

/* --- cgroup.c: dmem, the kernel's controller of device memory --------------------------------- */

/* A cgroup above a process that limits what all processes below it hold of a card. */
struct zr_cgroup {
    uint64_t most, current;    /* bytes: dmem.max, dmem.current */
    char name[ZR_CGROUP_NAME]; /* "/a/b"; empty for the root of what the process sees */
};
/*
 * Calls see() for each cgroup of this process that limits the memory of this card, the innermost
 * first. Nothing is remembered: a process can be moved, and a limit be changed. Some 5 us for each
 * level. The caller holds a lock of its own around all calls.
 */
void zr_cgroup_each(uint64_t pci, void (*see)(const struct zr_cgroup *c, void *arg), void *arg);
/* Whether a process is in a cgroup of this name or below it. */
bool zr_cgroup_holds(const char *name, int pid);

/* --- claim.c: what all processes have of a card ----------------------------------------------- */

/*
 * Announces that this process takes this many bytes of a device, or gives them back if negative.
 * Returns false, and has announced nothing, without a segment.
 */
bool zr_claim(unsigned device, int64_t bytes);

enum { ZR_HOLDERS = 3 };
struct zr_holder {
    int pid; /* 0: of another PID namespace */
    uint64_t bytes;
};

/* What stands between the blocks of this process and a whole card. All zero if nothing is known. */
struct zr_look {
    uint64_t leased; /* of others, group and cgroup_others at most: what they do not have yet */
    uint64_t unseen; /* what this process has of the card in none of its blocks */
    uint64_t others; /* what other processes hold or have announced, whichever is more */
    struct zr_holder holder[ZR_HOLDERS]; /* the largest of them, the largest first */
    /* What other processes of our group have announced, and the largest of them. */
    uint64_t group_others;
    struct zr_holder group_holder[ZR_HOLDERS];
    /* Of the cgroup that leaves least: it, and what others in it hold or have announced. */
    bool is_in_cgroup; /* false: none limits this card */
    struct zr_cgroup cgroup;
    uint64_t cgroup_others;
};
/*
 * Looks at a card, of which our blocks hold `blocks` bytes so far. The kernel is asked about other
 * processes once a second, or now if `fresh`: 2 us per descriptor of this user's processes.
 */
void zr_claims_look(unsigned device, uint64_t blocks, bool fresh, struct zr_look *look);
/* What this process holds of a card by the kernel's count; UINT64_MAX if that is not known. */
uint64_t zr_claims_own(unsigned device);
/* What others hold of a card, who has most of it, in words; "" if that is not known. */
void zr_claims_words(unsigned device, char *out, size_t size);
void zr_claim_fork_child(void);

/* --- sharing.c: which processes share a block through its IPC handle -------------------------- */

/* Whether what this process does with IPC handles is told to others: ipc:hold, or check:ipc. */
static inline bool zr_sharing(void) {
    return unlikely(zr_config.ipc == ZR_IPC_HOLD || zr_config.check == ZR_CHECK_IPC ||
                    zr_config.check == ZR_CHECK_ALL);
}
enum { ZR_HANDLE_BYTES = 64, ZR_IMPORTS = 1024 };
/*
 * Which IPC handle: hashes of all its bytes, and of the file behind its descriptor and the other
 * bytes. 0: none.
 */
struct zr_handle_id {
    uint64_t bytes, file;
};
/* CLOSED: but not as often as opened. */
enum zr_import_state { ZR_IMPORT_NONE, ZR_IMPORT_OPEN, ZR_IMPORT_CLOSED };
struct zr_import {
    enum zr_import_state state;
    bool quiet; /* not watched, reported as freed by its exporter, or closed by the program */
    struct zr_handle_id id;
    const void *at;
};
/* This process has exported a handle: from now on others can tell. About 5 us. */
struct zr_handle_id zr_share_exported(const void *handle);
/* It has freed the block. Returns another process that has it open, 0 if that is in another PID
 * namespace; -1: none. */
int zr_share_freed(const struct zr_handle_id *id);
/* Another process that has the handle open, as above. One system call. */
int zr_share_open_in(const struct zr_handle_id *id);
/* Whether that process has closed it, but not as often as it has opened it. */
bool zr_share_half_closed(const struct zr_handle_id *id, int pid);
/* The block of a handle is gone, and nobody needs to know. */
void zr_share_forget(const struct zr_handle_id *id);
/* This process has opened a handle. Returns the index of the import; -1: there are too many. */
int zr_share_opened(const void *ptr, const void *handle);
/* From now on zr_share_stale() looks at it. */
void zr_share_watch(int import);
void zr_share_closed(const void *ptr);
/* The runtime keeps it open although the program has closed it; or the program uses it again. */
void zr_share_kept_open(const void *ptr, bool kept);
/* Returns who has freed the block behind an import that is watched and open; -1: there is none.
 * Each once. */
int zr_share_stale(struct zr_import *out, unsigned *index);
/* A handle that was closed, but not as often as it was opened. Its imports are forgotten. */
struct zr_unclosed {
    unsigned index, opens, closes; /* of one of the imports */
    int exporter;
};
bool zr_share_unclosed(struct zr_unclosed *out);
void zr_sharing_fork_child(void);

/* --- lease.c: what may be taken without a look ------------------------------------------------ */

enum { ZR_LEASE_NS = 10000000 };
/*
 * Takes from the lease what the caller has announced already. Returns false if it does not suffice
 * or has ended. A few atomic operations, and a look at the clock.
 */
bool zr_lease_use(unsigned device, uint64_t bytes);
/* Gives back to the lease, as far as it was announced, what was freed and is announced no more. */
void zr_lease_return(unsigned device, uint64_t bytes);
/*
 * Ends the lease and announces a new one, of which nothing can be used before zr_lease_grant(). The
 * caller looks at others in between. Returns false if another thread does so.
 */
bool zr_lease_ask(unsigned device, uint64_t bytes);
void zr_lease_grant(unsigned device, bool granted);
/* Ends the lease, unless a thread is about to make one. */
void zr_lease_end(unsigned device);
/* What is announced beyond the blocks. */
uint64_t zr_lease_announced(unsigned device);
void zr_lease_fork_child(void);

/* --- group.c: who shares a limit (group_limit) ------------------------------------------------ */

/* The name of this process's group: of the setting, the job or the container. */
void zr_group_name(char *out, size_t size);
/* A hash of it, announced in the segment; 0 without one. The first call takes some 20 us. */
uint64_t zr_group_id(void);
void zr_group_fork_child(void);

/* --- floor.c: host_floor ---------------------------------------------------------------------- */

/*
 * How much host memory can be taken now: MemAvailable, or what a limit of its control groups
 * leaves, whichever is less. UINT64_MAX if it is not known. Some 50 us.
 */
uint64_t zr_host_available(void);
bool zr_host_refuses_slow(uint64_t bytes, bool is_mirrored);
/*
 * Whether a device allocation must fail with OUT_OF_HOST_MEMORY now. With host_floor:auto only if
 * its backing needs host pages: a block that will be mirrored, where the kernel does that, and one
 * that is too large to do without.
 */
static inline bool zr_host_refuses(uint64_t bytes, bool is_mirrored) {
    return unlikely(zr_config.host_floor.set) && zr_host_refuses_slow(bytes, is_mirrored);
}
/* The floor in bytes, and MemAvailable as it was seen last. */
void zr_host_room(uint64_t *floor, uint64_t *left);

#pragma GCC visibility pop

#endif
