/* The settings that programs run under. `make check` takes the first eight. */
#include "program.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)

const struct setting settings[] = {
    {"cache", "cache:on", REFUSES | HAS_CACHE, 0},
    {"observe", "route:native,cache:off", 0, 0},
    {"small", "cache_limit:1MiB,cache_host:on", REFUSES | HAS_CACHE, 0},
    {"idle", "cache_idle:1ms", REFUSES | HAS_CACHE, 0},
    {"owner", "residency:owner", REFUSES | HAS_CACHE, 0},
    {"limit", "limit:5MiB", REFUSES | HAS_CACHE | LIMITED, 5 * MIB},
    {"auto", "limit:auto,free_memory:checked", REFUSES | HAS_CACHE | AUTO | FDINFO, 0},
    {"record", "record:%R.%p,stacks:off", REFUSES | HAS_CACHE | RECORDED, 0},
    {"proven", "reuse:proven", REFUSES | HAS_CACHE, 0},
    {"runtime", "reuse:runtime", REFUSES | HAS_CACHE, 0},
    {"always", "reuse:always,cache_idle:2ms", REFUSES | HAS_CACHE, 0},
    {"hurry", "reuse:proven,cache_idle:1ms,cache_limit:2MiB,cache_host:on", REFUSES | HAS_CACHE, 0},
    {"sycl", "route:sycl,reuse:runtime", REFUSES | HAS_CACHE | SYCL, 0},
    {"pool", "route:pool,reuse:runtime", REFUSES | HAS_CACHE | SYCL, 0},
    {"sycl-p", "route:sycl,reuse:proven,cache_idle:5ms", REFUSES | HAS_CACHE | SYCL, 0},
    {"pool-p", "route:pool,reuse:proven,cache_idle:5ms", REFUSES | HAS_CACHE | SYCL, 0},
    {"sycl-a", "route:sycl,reuse:always", REFUSES | HAS_CACHE | SYCL | VOUCHES, 0},
    {"pool-a", "route:pool,reuse:always", REFUSES | HAS_CACHE | SYCL | VOUCHES, 0},
    {"check", "cache:off,check:all,check_wait:1ms", REFUSES | CHECKED, 0},
    {"safe", "route:native,cache:off,limit:auto,free_memory:checked,host_floor:auto", AUTO | FDINFO, 0},
    {"several", "limit:auto", REFUSES | HAS_CACHE | AUTO | FDINFO | SEVERAL, 0},
    {"group", "group_limit:4MiB,group:turnstile", REFUSES | HAS_CACHE | AUTO | FDINFO | SEVERAL | GROUP, 4 * MIB},
    {"blind", "limit:auto", REFUSES | HAS_CACHE | AUTO, 0},
    {"flaky", "limit:auto", REFUSES | HAS_CACHE | AUTO | FDINFO | FLAKY, 0},
};
const unsigned setting_count = sizeof settings / sizeof *settings;

const struct setting *setting_named(const char *name) {
    for (unsigned i = 0; i < setting_count; i++)
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    return NULL;
}
