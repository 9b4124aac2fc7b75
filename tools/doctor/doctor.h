/*
 * The map of `zeroute doctor`: what is read of a process or the machine, what follows from it, and how it is shown.
 */
#ifndef ZEROUTE_TOOLS_DOCTOR_H
#define ZEROUTE_TOOLS_DOCTOR_H

#include "common/common.h"
#include "view/view.h"

/* What doctor finds about a process, in short, for other pages; nothing if there is nothing. */
void zr_doctor_findings(FILE *to, pid_t pid);

/* --- facts.c ---------------------------------------------------------------------------------- */

/* Versions of the parts of a stack, and what is known about them (facts.def). */

/* "26.27.39122" as numbers; count 0: not known. */
struct zr_version {
    unsigned count;
    unsigned n[4];
};

enum zr_fact_id {
#define ZR_FACT(id, part, from, before, what, source) ZR_FACT_##id,
#include "doctor/facts.def"
#undef ZR_FACT
    ZR_FACTS
};

struct zr_fact {
    const char *part;
    const char *from;
    const char *before;
    const char *what;
    const char *source;
};

extern const struct zr_fact zr_facts[ZR_FACTS];

/* Reads the leading "1.2.3" of a text; count 0 when it does not start with a digit. */
struct zr_version zr_version_of(const char *text);
/* Missing places count as zero: 1.8 equals 1.8.0. */
int zr_version_compare(struct zr_version a, struct zr_version b);
/* False when the version is not known. */
bool zr_version_from(struct zr_version version, const char *least);

/* Whether a fact holds for a version. False when the version is not known. */
bool zr_fact_holds(enum zr_fact_id id, struct zr_version version);

/* The fact that makes this loader fail with this runtime; ZR_FACTS: they work together, or one is not known. */
enum zr_fact_id zr_loader_fails(struct zr_version runtime, struct zr_version loader);
/* The loader to install for this runtime: one that was tried with it. */
const char *zr_loader_for(struct zr_version runtime);

/* --- package.c -------------------------------------------------------------------------------- */
/* The version of the package that installed the Level Zero loader at this path; "" if none is known to have. */
void zr_package_version(const char *path, char *out, size_t size);

/* --- machine.c: why a program finds no GPU ---------------------------------------------------- */
struct zr_case;
struct zr_findings;
/* Intel display devices on the PCI bus that no kernel driver has taken; the first of them. */
unsigned zr_driverless_cards(char *first, size_t size);
/* 0 if a render node may be opened; else why the last one may not, ENOENT: there is none. */
int zr_render_node_error(char *node, size_t size);
void zr_machine_find(const struct zr_case *c, struct zr_findings *to);

/* --- stack.c ---------------------------------------------------------------------------------- */

/*
 * The runtime stack of a process (from its maps) or of the machine (from where libraries live):
 * which libraries, of which version, and how they bind to each other. Nothing is loaded or run.
 */

enum zr_part {
#define ZR_PART(id, file, what) ZR_PART_##id,
#include "doctor/parts.def"
#undef ZR_PART
    ZR_PARTS
};

extern const char *const zr_part_names[ZR_PARTS];

enum zr_loader_binding {
    ZR_LOADER_UNKNOWN, /* no adapter, or its file cannot be read */
    ZR_LOADER_SHARED,  /* the adapter imports ze* from libze_loader */
    ZR_LOADER_STATIC   /* the adapter carries a loader and finds the shared one by dlopen */
};

struct zr_library {
    bool there;
    char path[512];                 /* as the process sees it */
    char file[1024];                /* where we can read it, below its own root; "" when we cannot */
    char version[48];               /* "" when the file does not tell */
    char build_id[72];              /* "" when it has none */
    enum zr_loader_binding binding; /* of an adapter */
    bool unversioned;               /* of the loader: libze_loader.so stands beside it */
    bool inside;                    /* an adapter that is no file of its own: the others are its holder's */
    pid_t pid;                      /* whose path it is; 0: this machine's */
};

struct zr_environ {
    char *text; /* NAME=VALUE strings, each ended by zero; NULL when it could not be read */
    size_t length;
    int error;
};

struct zr_stack {
    int error; /* errno of the maps; 0: they were read */
    struct zr_library parts[ZR_PARTS];
    struct zr_environ environ;
    /* 2 or 1; 0: no UR adapter for Level Zero, or both are loaded and nothing tells which is used */
    int adapter;
    const char *adapter_why;
    enum zr_loader_binding binding;
    struct zr_version runtime, loader, driver, ccl;
};

/* What a process has mapped. Always fills in what could be read; error tells why maps could not. */
void zr_stack_of_process(struct zr_stack *out, pid_t pid);
/* What a program started from this environment would find. */
void zr_stack_of_machine(struct zr_stack *out);
void zr_stack_free(struct zr_stack *stack);

/* The value of a variable, or NULL. */
const char *zr_environ_get(const struct zr_environ *environ, const char *name);
/* The variables in turn: start with NULL, NULL at the end. */
const char *zr_environ_next(const struct zr_environ *environ, const char *last);
/* A debug key of the driver under any of the three names it may have, in the driver's own order;
 * name tells which. NULL when it is not set. Says nothing about NEOReadDebugKeys. */
const char *zr_environ_key(const struct zr_environ *environ, const char *key, char *name, size_t size);

/* Whether a library of the stack carries this string; false when its file cannot be read. */
bool zr_library_mentions(const struct zr_library *library, const char *string);

/* Kernel release as a version. */
struct zr_version zr_kernel_version(void);

/* --- envcheck.c ------------------------------------------------------------------------------- */

/*
 * Environment variables of the stack that do not do what their user hopes: misspelt ones, and ones
 * that nothing in this process reads. The names come from envnames.def, the readers from the
 * libraries' own files.
 */

enum zr_env_trouble {
    ZR_ENV_MISSPELT, /* near a known name, which is suggested */
    ZR_ENV_INERT     /* known, but nothing here reads it */
};

struct zr_env_report {
    enum zr_env_trouble trouble;
    char name[128];
    const char *nearest; /* of a misspelt one */
    const char *why;     /* of an inert one */
    const char *todo;    /* of an inert one */
};

/* Calls back for every variable in trouble. */
void zr_env_check(const struct zr_stack *stack, void (*report)(void *to, const struct zr_env_report *what), void *to);

/* --- findings.c ------------------------------------------------------------------------------- */

/* What doctor found: each with how grave it is, what is seen, the one thing to do, and its price. */

enum zr_severity { ZR_NOTE, ZR_WARNING, ZR_ERROR };

struct zr_finding {
    enum zr_severity severity;
    const char *id;
    char *what;
    char *seen;
    char *todo;
    char *price;
    const char *source; /* of a fact about versions; NULL: seen here */
};

struct zr_findings {
    struct zr_finding *list;
    size_t count;
};

/* A new finding; fill it in with zr_finding_says. Never fails: without memory the process ends. */
struct zr_finding *zr_finding_add(struct zr_findings *to, enum zr_severity severity, const char *id, const char *what,
                                  ...) __attribute__((format(printf, 4, 5)));

/* Sets one of the texts. */
void zr_finding_says(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gravest first. */
void zr_findings_sort(struct zr_findings *findings);
/* Moves them, in the order of gravity. */
void zr_findings_join(struct zr_findings *to, struct zr_findings *more);
void zr_findings_free(struct zr_findings *findings);

extern const char *const zr_severity_names[];

/* --- growth.c --------------------------------------------------------------------------------- */

/* Accounts that are worth a word: rounded pinned memory, and wrong answers. */
void zr_accounts_find(const struct zr_case *c, struct zr_findings *to);
/*
 * Samples a process ten times over this many seconds, and adds what grew while its own allocations did not, with its
 * rate. Returns false when the process ended meanwhile. *c is the last look.
 */
bool zr_growth_watch(struct zr_case *c, double seconds, struct zr_findings *to);

/* --- diagnosis.c ------------------------------------------------------------------------------ */

/*
 * From what was read to what it means: the three links of the host mirror, whether there is one
 * now, which remedies this stack offers, and known trouble. Pure: reads a zr_case, prints nothing.
 */

/* What the preload in the process counted, by way of its segment. */
struct zr_counted {
    bool found;
    struct zr_pause_view pause;
    const char *why_not; /* the segment could not be used */
    uint64_t calls;
    uint64_t allocated; /* device bytes the process holds, mapped physical memory included */
    uint64_t peer_requested_calls, peer_skipped_calls, ipc_exports;
    uint64_t remapped;                                   /* mappings that another card may not see */
    uint64_t too_large_calls;                            /* failed with UNSUPPORTED_SIZE */
    uint64_t reserved, host_usm, host_rounded, ipc_open; /* device and host USM held from the driver; of it rounded */
    uint64_t imported;                                   /* device bytes of other processes */
    uint64_t replaced;                                   /* answers about free memory */
    char settings[512];
    char hooks[256];
    uint64_t guard_loaders; /* times that libze_loader.so was missing and libze_loader.so.1 opened */
    char guard_loader[128]; /* for which library at first */
    char guard[512];        /* functions that the loader lacks and that were called, answered by the guard */
    char reuse_lost[200];   /* why reuse:proven fell back; "" if it did not */
    char backing[256];      /* what came of backing:eager: "eager: ..." if it is in force */
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
    struct zr_lost lost; /* of the machine */
    /* The mirror of this process, and of the other processes under zeroute together; ZR_ABSENT: not told. */
    uint64_t mirror, mirror_of_others;
    struct zr_process_memory memory;
    struct zr_card cards[ZR_CARDS_MAX];
    unsigned card_count;
    unsigned driverless; /* display devices without a kernel driver */
    char driverless_card[32];
    int node_error; /* of the machine: why no render node may be opened; 0: one may */
    char node[64];
    struct zr_version kernel;
    struct zr_counted counted;
    struct zr_safe_signs safe; /* of the machine: of its fullest card */
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
    ZR_MIRROR_UNKNOWN,
    ZR_MIRROR_TOO_LITTLE /* what a mirror of this process would take is within the noise */
};
extern const char *const zr_mirror_names[];

struct zr_mirror {
    enum zr_mirror_state state;
    uint64_t bytes; /* of the process, if it is about one; ZR_ABSENT: not known */
    char why[320];
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
/* The exit code: ZR_EXIT_DONE nothing to do, ZR_EXIT_FINDING something to do, ZR_EXIT_NO_VERDICT cannot tell. */
int zr_diagnosis_code(const struct zr_diagnosis *d);

/* The parts of zr_diagnose, in this order. */
void zr_links_find(const struct zr_case *c, struct zr_link links[ZR_LINKS]);
void zr_mirror_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS], struct zr_mirror *out);
void zr_remedies_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS],
                      struct zr_remedy remedies[ZR_REMEDIES]);
void zr_troubles_find(const struct zr_case *c, struct zr_findings *to);

/* Cards that the process has open; those of the machine for pid 0. */
unsigned zr_case_cards(const struct zr_case *c);
/* Whether memory of it is OpenCL's, which the preload does not see. */
bool zr_case_uses_opencl(const struct zr_case *c);
/* interfaces.c and known.c */
void zr_interfaces_find(const struct zr_case *c, struct zr_findings *to);
void zr_known_find(const struct zr_case *c, struct zr_findings *to);
/* A switch of the driver or the runtime in the process's environment: set and not zero. */
bool zr_case_env_on(const struct zr_case *c, const char *name);

/* --- doctor.c, trial.c ------------------------------------------------------------------------ */
/* Reads everything about a process, or (pid 0) the machine. Returns false with errno set if there is no process. */
bool zr_doctor_gather(struct zr_case *c, pid_t pid);
/*
 * Runs a command for this many seconds and diagnoses it when it holds most. Reports a failure and returns false.
 * *signal is the signal that ended it early, sent to us; 0: none.
 */
bool zr_doctor_trial(struct zr_case *c, struct zr_diagnosis *d, char **argv, double seconds, int *signal);

/* --- page.c ----------------------------------------------------------------------------------- */

/* How doctor shows what it found. */

/*
 * The answer and what to do, then the evidence; with `verbose` everything that was found. Colours and width are those
 * of the terminal.
 */
void zr_doctor_page(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d, bool verbose);
void zr_doctor_json(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d);

#endif
