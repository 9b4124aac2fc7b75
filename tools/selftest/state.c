/*
 * Which driver, kernel, loader and runtime the last selftest had: a small file of the user's own. What changes after it
 * is what doctor points to.
 */
#include "doctor/doctor.h"
#include "selftest/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { STATE_MOST = 4096 };

static const struct {
    const char *key, *what;
    size_t offset, size;
} parts[] = {
#define PART(field, what)                                                                                              \
    { #field, what, offsetof(struct zr_selftest_state, field), sizeof(((struct zr_selftest_state *)NULL)->field) }
    PART(driver, "the driver"),
    PART(kernel, "the kernel"),
    PART(loader, "the loader"),
    PART(runtime, "the SYCL runtime"),
#undef PART
};
enum { PARTS = sizeof parts / sizeof *parts };

static char *part_of(struct zr_selftest_state *s, unsigned i) {
    return (char *)s + parts[i].offset;
}

/* $XDG_STATE_HOME/zeroute/selftest. Returns false where there is no home. */
static bool state_path(char *out, size_t size, bool make) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char folder[1024];

    if (state && *state == '/')
        snprintf(folder, sizeof folder, "%s/zeroute", state);
    else if (home && *home == '/')
        snprintf(folder, sizeof folder, "%s/.local/state/zeroute", home);
    else
        return false;
    for (char *slash = folder + 1; make && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return false;
    return (size_t)snprintf(out, size, "%s/selftest", folder) < size;
}

void zr_selftest_state_now(struct zr_selftest_state *out) {
    struct zr_stack *stack = calloc(1, sizeof *stack);
    struct utsname name;

    *out = (struct zr_selftest_state){.driver = ""};
    if (uname(&name) == 0)
        snprintf(out->kernel, sizeof out->kernel, "%s", zr_shown(name.release));
    if (!stack)
        return;
    zr_stack_of_machine(stack);
    snprintf(out->driver, sizeof out->driver, "%s", zr_shown(stack->parts[ZR_PART_DRIVER].version));
    snprintf(out->loader, sizeof out->loader, "%s", zr_shown(stack->parts[ZR_PART_LOADER].version));
    snprintf(out->runtime, sizeof out->runtime, "%s", zr_shown(stack->parts[ZR_PART_SYCL].version));
    zr_stack_free(stack);
    free(stack);
}

static void take_part(struct zr_selftest_state *s, const char *line) {
    for (unsigned i = 0; i < PARTS; i++) {
        size_t n = strlen(parts[i].key);

        if (strncmp(line, parts[i].key, n) == 0 && line[n] == ' ')
            snprintf(part_of(s, i), parts[i].size, "%s", zr_shown(line + n + 1));
    }
}

bool zr_selftest_state_read(struct zr_selftest_state *out) {
    char path[1200], text[STATE_MOST], *rest = text, *line;
    struct stat st;
    ssize_t n = -1;
    int fd;

    *out = (struct zr_selftest_state){.driver = ""};
    if (!state_path(path, sizeof path, false))
        return false;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (strncmp(text, "zeroute selftest 1\n", 19) != 0)
        return false;
    while ((line = strsep(&rest, "\n")))
        take_part(out, line);
    return true;
}

void zr_selftest_state_write(const struct zr_selftest_state *state) {
    struct zr_selftest_state copy = *state;
    char path[1200];
    struct zr_publish p;
    FILE *to;

    if (!state_path(path, sizeof path, true))
        return;
    to = zr_publish_open(&p, "selftest", path);
    if (!to)
        return;
    fputs("zeroute selftest 1\n", to);
    for (unsigned i = 0; i < PARTS; i++)
        fprintf(to, "%s %s\n", parts[i].key, part_of(&copy, i));
    zr_publish_close(&p, true);
}

bool zr_selftest_changed(char *out, size_t size) {
    struct zr_selftest_state then, now;
    size_t used = 0;

    *out = '\0';
    if (!zr_selftest_state_read(&then))
        return false;
    zr_selftest_state_now(&now);
    for (unsigned i = 0; i < PARTS; i++) {
        const char *a = part_of(&then, i), *b = part_of(&now, i);

        /* What cannot be told now has not changed. */
        if (!*a || !*b || strcmp(a, b) == 0 || used >= size)
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s (%s, now %s)", used ? ", " : "", parts[i].what, a, b);
    }
    return used > 0;
}
