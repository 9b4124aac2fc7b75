/*
 * XE_STANDIN="cards:2,vram:12GiB,kernel:6.18,...": what the made-up machine is. A bad key or value
 * is said once on stderr and the default is used. README.md of this folder lists the keys.
 */
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct xs_config xs_config = {
    .cards = 1,
    .vram = 12ull << 30,
    .kernel = {6, 18},
    .faults = true,
    .copy_floor = 1 << 20,
    .device_id = 0xe20b,
};

void xs_say(const char *format, ...) {
    char line[512];
    va_list args;
    int length = snprintf(line, sizeof(line), "xe stand-in: ");
    va_start(args, format);
    length += vsnprintf(line + length, sizeof(line) - 1 - (size_t)length, format, args);
    va_end(args);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    ssize_t ignored = write(2, line, (size_t)length);
    (void)ignored;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* A number with one of the units behind it; false when anything else follows. */
static bool parse(const char *text, const struct unit *units, uint64_t *out) {
    uint64_t value = 0;
    const char *p = text;
    if (p[0] == '0' && p[1] == 'x') {
        char *end;
        *out = strtoull(p, &end, 16);
        return !*end && end > p + 2;
    }
    while (*p >= '0' && *p <= '9')
        value = value * 10 + (uint64_t)(*p++ - '0');
    if (p == text)
        return false;
    for (; units->name; units++) {
        if (!strcmp(p, units->name)) {
            *out = value * units->factor;
            return true;
        }
    }
    return false;
}

static const struct unit sizes[] = {
    {"", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}, {NULL, 0}};
static const struct unit times[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}};
static const struct unit plain[] = {{"", 1}, {NULL, 0}};

static bool parse_switch(const char *text, bool *out) {
    *out = !strcmp(text, "on");
    return *out || !strcmp(text, "off");
}

static bool set(const char *key, char *value, bool *mirror_set) {
    struct xs_config *c = &xs_config;
    uint64_t n = 0;
    if (!strcmp(key, "cards")) {
        if (!parse(value, plain, &n) || n < 1 || n > XS_CARDS)
            return false;
        c->cards = (unsigned)n;
    } else if (!strcmp(key, "vram")) {
        if (!parse(value, sizes, &n) || n < (64 << 20))
            return false;
        c->vram = n & ~(uint64_t)(XS_VRAM_PAGE - 1);
    } else if (!strcmp(key, "kernel")) {
        return sscanf(value, "%u.%u", &c->kernel[0], &c->kernel[1]) == 2;
    } else if (!strcmp(key, "mirror")) {
        *mirror_set = true;
        return parse_switch(value, &c->mirror);
    } else if (!strcmp(key, "touch")) {
        return parse_switch(value, &c->touch);
    } else if (!strcmp(key, "says_used")) {
        static const char *const answers[] = {"truth", "none", "all"};
        for (c->says_used = 0; c->says_used < 3 && strcmp(value, answers[c->says_used]) != 0;)
            c->says_used++;
        return c->says_used < 3;
    } else if (!strcmp(key, "spill")) {
        return parse_switch(value, &c->spill);
    } else if (!strcmp(key, "gtt")) {
        return parse(value, sizes, &c->gtt);
    } else if (!strcmp(key, "faults")) {
        return parse_switch(value, &c->faults);
    } else if (!strcmp(key, "log")) {
        return parse_switch(value, &c->log);
    } else if (!strcmp(key, "copy_cost")) {
        return parse(value, times, &c->copy_cost);
    } else if (!strcmp(key, "copy_loses")) {
        return parse(value, plain, &c->copy_loses);
    } else if (!strcmp(key, "copy_hangs")) {
        return parse(value, plain, &c->copy_hangs);
    } else if (!strcmp(key, "copy_floor")) {
        return parse(value, sizes, &c->copy_floor);
    } else if (!strcmp(key, "device")) {
        if (!parse(value, plain, &n) || n > 0xffff)
            return false;
        c->device_id = (uint32_t)n;
    } else if (!strcmp(key, "machine")) {
        snprintf(c->machine, sizeof(c->machine), "%s", value);
    } else {
        return false;
    }
    return true;
}

static void expand_pid(const char *text, char *out, size_t size) {
    const char *mark = strstr(text, "%p");
    if (mark)
        snprintf(out, size, "%.*s%d%s", (int)(mark - text), text, (int)getpid(), mark + 2);
    else
        snprintf(out, size, "%s", text);
}

void xs_config_load(void) {
    bool mirror_set = false;
    const char *text = getenv("XE_STANDIN");
    const char *root = getenv("ZEROUTE_ROOT");
    const char *counts = getenv("XE_STANDIN_COUNTS");
    if (root)
        snprintf(xs_config.root, sizeof(xs_config.root), "%s", root);
    snprintf(xs_config.machine, sizeof(xs_config.machine), "%s", xs_config.root);
    if (counts)
        expand_pid(counts, xs_config.counts, sizeof(xs_config.counts));
    char copy[1024];
    snprintf(copy, sizeof(copy), "%s", text ? text : "");
    char *rest = copy;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        if (!*item)
            continue;
        char *value = strchr(item, ':');
        if (value)
            *value++ = 0;
        if (!value || !set(item, value, &mirror_set))
            xs_say("XE_STANDIN: '%s:%s' not understood, default used", item, value ? value : "");
    }
    if (!mirror_set)
        xs_config.mirror = xs_config.kernel[0] > 6 || (xs_config.kernel[0] == 6 && xs_config.kernel[1] >= 18);
}
