/* Versions of the parts of a stack, and what is known about them (facts.def). */
#ifndef ZEROUTE_TOOLS_FACTS_H
#define ZEROUTE_TOOLS_FACTS_H

#include <stdbool.h>
#include <stddef.h>

/* "26.27.39122" as numbers; count 0: not known. */
struct zr_version {
    unsigned count;
    unsigned n[4];
};

enum zr_fact_id {
#define ZR_FACT(id, part, from, before, what, source) ZR_FACT_##id,
#include "facts.def"
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

#endif
