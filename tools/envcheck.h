/*
 * Environment variables of the stack that do not do what their user hopes: misspelt ones, and ones
 * that nothing in this process reads. The names come from envnames.def, the readers from the
 * libraries' own files.
 */
#ifndef ZEROUTE_TOOLS_ENVCHECK_H
#define ZEROUTE_TOOLS_ENVCHECK_H

#include "stack.h"

enum zr_env_trouble {
    ZR_ENV_MISSPELT, /* near a known name, which is told */
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
void zr_env_check(const struct zr_stack *stack,
                  void (*report)(void *to, const struct zr_env_report *what), void *to);

/* Edits (insert, delete, replace, swap of neighbours) between two names, at most limit + 1. */
unsigned zr_env_distance(const char *a, const char *b, unsigned limit);

/* The known name that is nearest, or NULL when none is near enough to be meant. */
const char *zr_env_nearest(const char *name);

#endif
