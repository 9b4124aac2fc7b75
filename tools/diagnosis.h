/*
 * From what was read to what it means: the three links of the host mirror, whether there is one
 * now, which remedies this stack offers, and known trouble. Pure: reads a zr_case, prints nothing.
 */
#ifndef ZEROUTE_TOOLS_DIAGNOSIS_H
#define ZEROUTE_TOOLS_DIAGNOSIS_H

#include "cards.h"
#include "findings.h"
#include "host.h"
#include "stack.h"

/* What the preload in the process counted, by way of its segment. */
struct zr_counted {
    bool found;
    const char *why_not; /* the segment could not be used */
    uint64_t calls;
    uint64_t allocated; /* device bytes the process holds, mapped physical memory included */
    uint64_t peer_requested_calls, peer_skipped_calls, ipc_exports;
    uint64_t too_large_calls; /* failed with UNSUPPORTED_SIZE */
    uint64_t gpu_active_start, mem_available_start;
    char settings[512];
    char hooks[256];
    char guard[512]; /* functions that the loader lacks and that were called, answered by the guard */
    char backing[256]; /* what became of backing:eager: "eager: ..." when it is in force */
};

/* Everything that was read, of one process or (pid 0) of the machine. */
struct zr_case {
    pid_t pid;
    bool alive;
    unsigned holders; /* of the machine: processes that have a card open */
    char command[256];
    struct zr_stack stack;
    bool meminfo_there;
    struct zr_meminfo meminfo;
    struct zr_process_memory memory;
    struct zr_card cards[ZR_CARDS_MAX];
    unsigned card_count;
    struct zr_version kernel;
    struct zr_counted counted;
};

enum zr_answer { ZR_NO, ZR_YES, ZR_UNKNOWN };
extern const char *const zr_answer_names[];

struct zr_link {
    enum zr_answer answer;
    char why[256];
};

enum { ZR_LINK_BACKING, ZR_LINK_EXPORT, ZR_LINK_KERNEL, ZR_LINKS };
extern const char *const zr_link_names[ZR_LINKS];

enum zr_mirror_state {
    ZR_MIRROR_NONE,
    ZR_MIRROR_THERE,       /* and the three links explain it */
    ZR_MIRROR_UNEXPLAINED, /* host memory is lost, and a link is missing */
    ZR_MIRROR_UNKNOWN
};
extern const char *const zr_mirror_names[];

struct zr_mirror {
    enum zr_mirror_state state;
    uint64_t bytes; /* ZR_ABSENT: not known */
    char why[256];
};

struct zr_remedy {
    const char *id;
    const char *setting;
    const char *breaks; /* which link */
    const char *price;
    bool needs_zeroute;
    bool offered; /* by this stack */
    bool in_force;
    bool smallest; /* the one to take, when something is to be done */
};
enum { ZR_REMEDIES = 6 };

struct zr_diagnosis {
    struct zr_link links[ZR_LINKS];
    struct zr_mirror mirror;
    struct zr_remedy remedies[ZR_REMEDIES];
    struct zr_findings findings;
    bool cannot_tell; /* something that the answer hangs on could not be read */
};

void zr_diagnose(const struct zr_case *c, struct zr_diagnosis *out);
/* 0 nothing to do, 1 something to do, 2 cannot tell. */
int zr_diagnosis_code(const struct zr_diagnosis *d);

/* The parts of zr_diagnose, in this order. */
void zr_links_find(const struct zr_case *c, struct zr_link links[ZR_LINKS]);
void zr_mirror_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS],
                    struct zr_mirror *out);
void zr_remedies_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS],
                      struct zr_remedy remedies[ZR_REMEDIES]);
void zr_troubles_find(const struct zr_case *c, struct zr_findings *to);

/* Device bytes of the process on all cards; the preload's count where the kernel tells none. */
uint64_t zr_case_vram(const struct zr_case *c);
/* Cards that the process has open; those of the machine for pid 0. */
unsigned zr_case_cards(const struct zr_case *c);
/* A switch of the driver or the runtime in the process's environment: set and not zero. */
bool zr_case_env_on(const struct zr_case *c, const char *name);

#endif
