/* Messages of the command on stderr. */
#include "common/common.h"

#include <stdarg.h>
#include <stdlib.h>

static char *last;

void zr_complain(const char *command, const char *fmt, ...) {
    va_list ap;
    char *text;
    fflush(stdout);
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    free(last);
    last = zr_harmless(text, ZR_FOR_TERMINAL);
    free(text);
    fprintf(stderr, "zeroute%s%s: %s\n", *command ? " " : "", command, last);
}

const char *zr_last_complaint(void) {
    return last ? last : "";
}
