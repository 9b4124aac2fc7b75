/* ZE_SIMGPU="devices:2,vram:16GiB,...": one table of settings, one warning for each bad one. */
#include "check.h"
#include "simgpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim_config sim_config;
#pragma weak sim_is_function /* the command has the parser alone */

struct setting {
    const char *name;
    enum sim_setting_kind kind;
    uint64_t lowest, highest;
    const char *preset;
    void *value;
};

static const struct setting settings[] = {
#define SIM_SETTING(name, kind, lowest, highest, preset, help) {#name, kind, lowest, highest, preset, &sim_config.name},
#include "bed/simgpu/settings.def"
#undef SIM_SETTING
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

void sim_say(const char *format, ...) {
    char line[512] = "simgpu: ";
    size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
    va_end(arguments);
    used += n < 0 ? 0 : (size_t)n;
    if (used > sizeof(line) - 2)
        used = sizeof(line) - 2;
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}

uint64_t sim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sim_spend(uint64_t ns) {
    if (ns == 0)
        return;
    uint64_t until = sim_now() + ns;
    if (ns >= 100000) {
        struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
            continue;
        return;
    }
    while (sim_now() < until)
        __builtin_ia32_pause();
}

int sim_second(void) {
    Dl_info info;
    if (!dladdr((void *)&sim_config, &info) || !info.dli_fname)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *name = slash ? slash : info.dli_fname;
    return strstr(name, "simgpu2") || strstr(name, "simtwo");
}

struct unit {
    const char *name;
    double factor;
};
static const struct unit byte_units[] = {
    {"", 1},       {"B", 1},        {"K", 0x1p10}, {"KiB", 0x1p10},   {"M", 0x1p20},     {"MiB", 0x1p20},
    {"G", 0x1p30}, {"GiB", 0x1p30}, {"T", 0x1p40}, {"TiB", 0x1p40},   {"KB", 1e3},       {"MB", 1e6},
    {"GB", 1e9},   {"TB", 1e12},    {"B/s", 1},    {"KiB/s", 0x1p10}, {"MiB/s", 0x1p20}, {"GiB/s", 0x1p30},
    {"MB/s", 1e6}, {"GB/s", 1e9},   {NULL, 0}};
static const struct unit time_units[] = {{"", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static bool parse_number(const char *text, const struct unit *units, double *out) {
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double value = strtod(text, &end);
    for (const struct unit *u = units; u->name; u++) {
        if (strcmp(end, u->name) == 0) {
            *out = value * u->factor;
            return true;
        }
    }
    return false;
}

static bool parse_flag(const char *text, bool *out) {
    *out = strcmp(text, "on") == 0;
    return *out || strcmp(text, "off") == 0;
}

static bool parse_kernel(const char *text, unsigned *out) {
    char *dot, *end;
    unsigned long major = strtoul(text, &dot, 10);
    if (dot == text || *dot != '.')
        return false;
    unsigned long minor = strtoul(dot + 1, &end, 10);
    if (end == dot + 1 || major > 999 || minor > 99)
        return false;
    *out = (unsigned)(major * 100 + minor);
    return true;
}

static bool parse_one_fault(char *text, struct sim_fault *fault) {
    char *code = strchr(text, '='), *end;
    if (!code || code == text)
        return false;
    *code++ = '\0';
    char *nth = strchr(text, '@');
    fault->nth = 0;
    if (nth) {
        *nth++ = '\0';
        fault->nth = strtoull(nth, &end, 10);
        if (*end || end == nth || fault->nth == 0)
            return false;
    }
    bool hangs = strcmp(code, "hang") == 0;
    fault->code = hangs ? SIM_HANGS : (uint32_t)strtoull(code, &end, 0);
    if (hangs)
        end = code + strlen(code);
    if (*end || end == code || fault->code == 0 || (sim_is_function && !sim_is_function(text)))
        return false;
    snprintf(fault->function, sizeof(fault->function), "%s", text);
    return true;
}

/* FUNCTION@N=CODE[+FUNCTION@N=CODE]... */
static bool parse_faults(const char *text, struct sim_fault *faults) {
    char copy[1024];
    unsigned used = 0;
    memset(faults, 0, sizeof(*faults) * SIM_FAULTS);
    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return false;
    char *rest = copy, *item;
    while ((item = strsep(&rest, "+")) != NULL) {
        if (*item == '\0' && !rest)
            break;
        if (used == SIM_FAULTS || !parse_one_fault(item, &faults[used++])) {
            memset(faults, 0, sizeof(*faults) * SIM_FAULTS);
            return false;
        }
    }
    return true;
}

static bool parse(const struct setting *setting, const char *text) {
    double number;
    const struct unit *units = setting->kind == SIM_BYTES  ? byte_units
                               : setting->kind == SIM_TIME ? time_units
                                                           : no_units;
    switch (setting->kind) {
    case SIM_FLAG:
        return parse_flag(text, setting->value);
    case SIM_KERNEL:
        return parse_kernel(text, setting->value);
    case SIM_FAIL:
        return parse_faults(text, setting->value);
    case SIM_TEXT:
        if (strlen(text) >= sizeof(sim_config.name))
            return false;
        memcpy(setting->value, text, strlen(text) + 1);
        return *text != '\0';
    default:
        if (!parse_number(text, units, &number) || number < (double)setting->lowest ||
            number > (double)setting->highest)
            return false;
        *(uint64_t *)setting->value = (uint64_t)number;
        return true;
    }
}

static void expected(const struct setting *setting, char *out, size_t size) {
    static const char *const words[] = {
        [SIM_BYTES] = "a size in its range, such as 16GiB",
        [SIM_TIME] = "a time, such as 20us",
        [SIM_FLAG] = "on or off",
        [SIM_KERNEL] = "MAJOR.MINOR",
        [SIM_TEXT] = "a short text",
        [SIM_FAIL] = "FUNCTION@N=CODE[+...]",
    };
    if (setting->kind == SIM_NUMBER)
        snprintf(out, size, "%llu to %llu", (unsigned long long)setting->lowest, (unsigned long long)setting->highest);
    else
        snprintf(out, size, "%s", words[setting->kind]);
}

static void known_names(char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < SETTINGS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", settings[i].name);
}

/* One `name:value`; false, with the reason, when it is no good. The default is in force then. */
static bool set(const char *name, const char *text, char *why, size_t size) {
    char words[320];
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].name, name) != 0)
            continue;
        if (parse(&settings[i], text))
            return true;
        expected(&settings[i], words, sizeof(words));
        snprintf(why, size, "bad value '%.60s' of %s: expected %s (default %s)", text, name, words,
                 *settings[i].preset ? settings[i].preset : "none");
        parse(&settings[i], settings[i].preset);
        return false;
    }
    known_names(words, sizeof(words));
    snprintf(why, size, "unknown setting '%.60s': expected one of %s", name, words);
    return false;
}

/* Parses the whole text; reports every bad item, or stops at the first if there is no callback. */
static bool load(const char *text, const char *variable, char *why, size_t size) {
    char *copy = text ? strdup(text) : NULL, *rest = copy, *item;
    bool good = true;
    for (size_t i = 0; i < SETTINGS; i++)
        parse(&settings[i], settings[i].preset);
    while ((variable || good) && (item = strsep(&rest, ",")) != NULL) {
        char *value = strchr(item, ':');
        if (*item == '\0')
            continue;
        if (value)
            *value++ = '\0';
        if (set(item, value ? value : "", why, size))
            continue;
        good = false;
        if (variable)
            sim_say("%s: %s", variable, why);
    }
    free(copy);
    return good;
}

void sim_config_load(void) {
    char why[480];
    const char *variable = sim_second() && getenv("ZE_SIMGPU2") ? "ZE_SIMGPU2" : "ZE_SIMGPU";
    load(getenv(variable), variable, why, sizeof(why));
}

bool sim_config_check(const char *spec, char *why, size_t size) {
    return load(spec, NULL, why, size);
}
