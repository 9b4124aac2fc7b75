/* Which metrics a comparison is about, and which metrics are one quantity. */
#include "ab/ab.h"
#include "common/common.h"

#include <fnmatch.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *what, *metrics;
} about[] = {
#define ZR_PRIMARY(what, metrics) {what, metrics},
#include "ab/primary.def"
#undef ZR_PRIMARY
};

static const char *variable_of(const struct zr_ab_arm *arm, const char *name) {
    const char *value = "";
    for (size_t i = 0; i < arm->n_items; i++)
        if (arm->items[i].kind == ZR_AB_ENV && !strcmp(arm->items[i].key, name))
            value = arm->items[i].value;
    return value;
}

static bool differ(const struct zr_ab_arm *a, const struct zr_ab_arm *b, const char *what) {
    if (!strncmp(what, "env.", 4))
        return strcmp(variable_of(a, what + 4), variable_of(b, what + 4)) != 0;
    if (a->none || b->none)
        return false;
    char *x = zr_ab_setting_value(a, what), *y = zr_ab_setting_value(b, what);
    bool differs = x && y && strcmp(x, y);
    free(x);
    free(y);
    return differs;
}

const char *zr_ab_primary_names(const struct zr_ab *ab) {
    if (ab->primary && *ab->primary)
        return ab->primary;
    for (size_t i = 0; i < sizeof(about) / sizeof(*about); i++)
        for (size_t arm = 1; arm < ab->n_arms; arm++)
            if (differ(&ab->arm[0], &ab->arm[arm], about[i].what))
                return about[i].metrics;
    return "wall";
}

bool zr_ab_is_primary(const struct zr_ab *ab, const char *metric) {
    size_t n = strlen(metric);
    for (const char *s = zr_ab_primary_names(ab); *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ','))
        if (strcspn(s, ",") == n && !strncmp(s, metric, n))
            return true;
    return false;
}

static bool could_be_printed(const char *name, const char *const *regex, size_t n) {
    for (size_t i = 0; i < n; i++) {
        regex_t re;
        if (regcomp(&re, regex[i], REG_EXTENDED | REG_NOSUB))
            continue;
        bool found = regexec(&re, name, 0, NULL, 0) == 0 || strpbrk(regex[i], "(") != NULL;
        regfree(&re);
        if (found)
            return true;
    }
    return false;
}

char *zr_ab_unknown_metric(const struct zr_ab *ab, const char *names, const char *const *regex, size_t n_regex) {
    char *wrong = NULL;
    for (const char *s = names; *s && !wrong; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ',')) {
        char *name = strndup(s, strcspn(s, ","));
        if (!name)
            break;
        struct zr_nearest near = {.word = name, .length = strlen(name)};
        for (size_t m = 0; m < ab->n_metrics; m++)
            zr_nearest_try(&near, ab->metric[m].name, strlen(ab->metric[m].name));
        if (zr_ab_metric_index(ab, name) < ab->n_metrics || could_be_printed(name, regex, n_regex))
            ;
        else if (near.best)
            wrong = zr_ab_text("unknown metric '%s': did you mean '%s'?", name, near.best);
        else
            wrong = zr_ab_text("unknown metric '%s': expected one that 'man zeroute-ab' lists, or one that --metric "
                               "finds in the output",
                               name);
        free(name);
    }
    return wrong;
}

/* --- quantities ------------------------------------------------------------------------------- */

const char *zr_ab_quantity(const char *metric) {
    static const char *const same[][2] = {{"host.mirror", "host memory"},
                                          {"host.per_device_byte", "host memory"},
                                          {"host.gpu_active", "host memory"},
                                          {"host.available*", "host memory"},
                                          {"host.imports*", "host memory"},

                                          {"device.*", "device memory"},
                                          {"latency.*", "latency"},
                                          {"wall", "time"},
                                          {"cpu", "time"},
                                          {"driver.calls", "driver calls"}};
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
        if (!fnmatch(same[i][0], metric, 0))
            return same[i][1];
    return metric;
}
