/*
 * The runtime stack of a process (from its maps) or of the machine (from where libraries live):
 * which libraries, of which version, and how they bind to each other. Nothing is loaded or run.
 */
#ifndef ZEROUTE_TOOLS_STACK_H
#define ZEROUTE_TOOLS_STACK_H

#include "facts.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum zr_part {
#define ZR_PART(id, file, what) ZR_PART_##id,
#include "parts.def"
#undef ZR_PART
    ZR_PARTS
};

extern const char *const zr_part_names[ZR_PARTS];

struct zr_library {
    bool there;
    char path[512];    /* as the process sees it */
    char file[1024];   /* where we can read it, below its own root; "" when we cannot */
    char version[48];  /* "" when the file does not tell */
    char build_id[72]; /* "" when it has none */
};

enum zr_loader_binding {
    ZR_LOADER_UNKNOWN, /* no adapter, or its file cannot be read */
    ZR_LOADER_SHARED,  /* the adapter imports ze* from libze_loader */
    ZR_LOADER_STATIC   /* the adapter carries a loader and finds the shared one by dlopen */
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
const char *zr_environ_key(const struct zr_environ *environ, const char *key, char *name,
                           size_t size);

/* Whether a library of the stack carries this string; false when its file cannot be read. */
bool zr_library_mentions(const struct zr_library *library, const char *string);

/* Kernel release as a version. */
struct zr_version zr_kernel_version(void);

#endif
