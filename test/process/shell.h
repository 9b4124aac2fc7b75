/*
 * Lines of shell for suites of the command: in a folder of the test's own, with what they said. B is the build
 * folder, Z the command, W the suite's program, named by WORK before this is included.
 */
#ifndef SHELL_H
#define SHELL_H

#include <check.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char build[PATH_MAX], folder[64];
static char out[1 << 20], err[1 << 16];

static void read_all(const char *name, char *to, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, size - 1, f) : 0;
    to[n] = '\0';
    if (f)
        fclose(f);
}

/* Returns the exit code; what was said is in out and err. */
__attribute__((format(printf, 1, 2))) static int sh(const char *fmt, ...) {
    char line[4096], whole[4 * PATH_MAX + 8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    snprintf(whole, sizeof whole,
             "cd %s && B=%s Z=%s/zeroute W=%s/test/process/" WORK " && { %s\n} >out 2>err </dev/null", folder, build,
             build, build, line);
    int status = system(whole);
    read_all("out", out, sizeof out);
    read_all("err", err, sizeof err);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Before each test: a folder, and no setting that came from outside. */
static void shell_setup(void) {
    static const char *const from_outside[] = {"ZEROUTE_CONF", "ZEROUTE_CONF_FILE", "ZEROUTE_RUN", "ZEROUTE_ROOT"};
    const char *b = getenv("B");
    ck_assert_ptr_nonnull(realpath(b && *b ? b : "build", build));
    snprintf(folder, sizeof folder, "/tmp/zeroute-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t i = 0; i < sizeof from_outside / sizeof *from_outside; i++)
        unsetenv(from_outside[i]);
}

static void shell_teardown(void) {
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    ck_assert_int_eq(system(line), 0);
}

#endif
