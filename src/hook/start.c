/* Beginning and end: the table of modules, and what is said of a process that used a driver and never came our way. */
#include "hook/hook.h"
#include "policy/policy.h"
#include "record/record.h"
#include "sycl/sycl.h"

#include <sys/auxv.h>

/* Told in this order. A thread's counters go last: others count until then. */
static const struct zr_module modules[] = {
    {.fork_child = zr_config_fork_child},
    {.fork_child = zr_pages_fork_child},
    {.fork_child = zr_stats_fork_child},
    {.fork_child = zr_libraries_fork_child},
    {.fork_child = zr_fingerprint_fork_child},
    {.fork_child = zr_host_fork_child},
    {.fork_child = zr_record_fork_child, .process_end = zr_record_process_end},
    {.fork_child = zr_cache_fork_child, .thread_end = zr_cache_thread_end},
    {.fork_child = zr_pool_fork_child},
    {.fork_child = zr_device_fork_child},
    {.fork_child = zr_limit_fork_child},
    {.fork_child = zr_sycl_fork_child},
    {.fork_child = zr_tables_fork_child},
    {.thread_end = zr_stats_thread_end},
};

/* A program with rights its user has not: calls go straight down, as at its end. Costs every process two stores. */
__attribute__((constructor(101))) static void begin(void) {
    zr_exiting_now = getauxval(AT_SECURE) != 0;
    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
}

static bool is_driver(const struct zr_elf *elf, void *unused) {
    (void)unused;
    return zr_is_driver_name(elf->soname);
}

static void report_missed_calls(void) {
    if (zr_elf_each(is_driver, NULL) && zr_stats_open()) {
        zr_text(ZR_T_HOOKS, "not seen: the Level Zero loader was opened deep-bound (RTLD_DEEPBIND)");
        zr_warn(
            "Level Zero was used and not seen: its loader was opened deep-bound (RTLD_DEEPBIND), past every preload; "
            "with UR_ADAPTERS_DEEP_BIND unset, or the loader opened before, it is seen");
    } else if (zr_elf_elsewhere(zr_is_driver_name) && zr_stats_open()) {
        zr_text(ZR_T_HOOKS, "not seen: the Level Zero loader was opened in a namespace of its own (dlmopen)");
        zr_warn("Level Zero was used and not seen: its loader was opened in a namespace of its own (dlmopen), where "
                "there is no preload");
    }
}

/*
 * Runs when the libraries are taken down, early: a preload stands before what is loaded later. Until then nothing of
 * ours runs in a process that never came our way.
 */
__attribute__((destructor)) static void end(void) {
    zr_fork_check(); /* a child of raw clone ends with locks that threads of its parent may hold */
    if (!__atomic_load_n(&zr_touched, __ATOMIC_RELAXED) && !zr_exiting())
        report_missed_calls();
    zr_process_end();
}
