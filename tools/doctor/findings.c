#include "doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const zr_severity_names[] = {"note", "warning", "error"};

static char *text_of(const char *format, va_list args) {
    char *text = NULL;

    if (vasprintf(&text, format, args) < 0)
        abort();
    return text;
}

struct zr_finding *zr_finding_add(struct zr_findings *to, enum zr_severity severity, const char *id, const char *what,
                                  ...) {
    struct zr_finding *more = realloc(to->list, (to->count + 1) * sizeof *more);
    va_list args;

    if (!more)
        abort();
    to->list = more;
    more += to->count++;
    *more = (struct zr_finding){.severity = severity, .id = id};
    va_start(args, what);
    more->what = text_of(what, args);
    va_end(args);
    return more;
}

void zr_finding_says(char **text, const char *format, ...) {
    va_list args;

    free(*text);
    va_start(args, format);
    *text = text_of(format, args);
    va_end(args);
}

/* An insertion sort: few, and equals keep their order. */
void zr_findings_sort(struct zr_findings *findings) {
    for (size_t i = 1; i < findings->count; i++) {
        struct zr_finding moved = findings->list[i];
        size_t j = i;

        for (; j && findings->list[j - 1].severity < moved.severity; j--)
            findings->list[j] = findings->list[j - 1];
        findings->list[j] = moved;
    }
}

void zr_findings_free(struct zr_findings *findings) {
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->list[i].what);
        free(findings->list[i].seen);
        free(findings->list[i].todo);
        free(findings->list[i].price);
    }
    free(findings->list);
    *findings = (struct zr_findings){NULL, 0};
}

void zr_findings_join(struct zr_findings *to, struct zr_findings *more) {
    for (size_t i = 0; i < more->count; i++) {
        struct zr_finding *f = zr_finding_add(to, ZR_NOTE, "", "%s", "");

        free(f->what);
        *f = more->list[i];
    }
    free(more->list);
    *more = (struct zr_findings){0};
    zr_findings_sort(to);
}
