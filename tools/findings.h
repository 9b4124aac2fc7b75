/* What doctor found: each with how grave it is, what is seen, the one thing to do, and its price. */
#ifndef ZEROUTE_TOOLS_FINDINGS_H
#define ZEROUTE_TOOLS_FINDINGS_H

#include <stddef.h>

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
struct zr_finding *zr_finding_add(struct zr_findings *to, enum zr_severity severity, const char *id,
                                  const char *what, ...) __attribute__((format(printf, 4, 5)));

/* Sets one of the texts. */
void zr_finding_says(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gravest first. */
void zr_findings_sort(struct zr_findings *findings);
void zr_findings_free(struct zr_findings *findings);

extern const char *const zr_severity_names[];

#endif
