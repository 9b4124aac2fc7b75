/* Messages of the command on stderr. */
#include "common/common.h"

#include <stdarg.h>

static char last[1024];

void zr_complain(const char *command, const char *fmt, ...)
{
    va_list ap;
    fflush(stdout);
    va_start(ap, fmt);
    vsnprintf(last, sizeof last, fmt, ap);
    va_end(ap);
    fprintf(stderr, "zeroute%s%s: ", *command ? " " : "", command);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

const char *zr_last_complaint(void)
{
    return last;
}
