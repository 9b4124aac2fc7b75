/* The one place that prints: a line on stderr, each message once. */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static _Atomic uint64_t said[64];

static bool said_before(const char *line) {
    uint64_t hash = zr_hash(line) | 1;
    for (size_t i = 0; i < 64; i++) {
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong(&said[i], &seen, hash))
            return false;
        if (seen == hash)
            return true;
    }
    return true; /* 64 different complaints are enough */
}

/*
 * Silent in setuid programs (AT_SECURE). Whatever could steer a terminal becomes '?'; a message may
 * continue in indented lines.
 */
void zr_warn(const char *fmt, ...) {
    char line[1100] = "zeroute: ";
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + 9, sizeof line - 10, fmt, ap);
    va_end(ap);
    for (char *p = line + 9; *p; p++)
        if ((*p < ' ' && !(p[0] == '\n' && p[1] == ' ')) ||
            *p == 127) /* chars are signed: what is not ASCII, too */
            *p = '?';
    size_t length = strlen(line);
    if (!getauxval(AT_SECURE) && !said_before(line)) {
        line[length] = '\n';
        ssize_t told = write(2, line, length + 1);
        (void)told; /* if it fails, there is nobody to tell */
    }
    errno = saved;
}
