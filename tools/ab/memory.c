/* Memory for `zeroute ab`: growing arrays and texts, without which it cannot go on. */
#include "ab/ab.h"

#include <stdarg.h>
#include <stdlib.h>

static _Noreturn void out_of_memory(void) {
    fputs("zeroute ab: out of memory\n", stderr);
    abort();
}

void *zr_ab_more(void *old, size_t count, size_t size) {
    void *p = reallocarray(old, count ? count : 1, size);

    if (!p)
        out_of_memory();
    return p;
}

char *zr_ab_text(const char *format, ...) {
    va_list ap;
    char *out;

    va_start(ap, format);
    int n = vasprintf(&out, format, ap);
    va_end(ap);
    if (n < 0)
        out_of_memory();
    return out;
}
