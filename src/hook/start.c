/* Beginning and end: the table of modules, and what is said of a process that used a driver and never came our way. */
#include "check/check.h"
#include "hook/hook.h"
#include "policy/policy.h"
#include "record/record.h"
#include "sycl/sycl.h"

#include <sys/auxv.h>

/* Told in this order. A thread's counters go last: others count until then. */
static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child},
    {.fork_child = zr_libraries_fork_child},
    {.fork_child = zr_host_fork_child},
    {.fork_child = zr_claim_fork_child},
    {.fork_child = zr_record_fork_child, .thread_end = zr_record_thread_end, .process_end = zr_record_process_end},
    {.fork_child = zr_worker_fork_child, .process_end = zr_check_process_end},
    {.fork_child = zr_found_fork_child},
    {.fork_child = zr_imports_fork_child},
    {.fork_child = zr_cache_fork_child, .thread_end = zr_cache_thread_end},
    {.fork_child = zr_pool_fork_child},
    {.fork_child = zr_limit_fork_child},
    {.fork_child = zr_shortage_fork_child, .process_end = zr_shortage_process_end},
    {.fork_child = zr_sycl_fork_child},
    {.thread_end = zr_stats_thread_end},
};

/* A program with rights its user has not: calls go straight down, as at its end. Costs every process three stores. */
__attribute__((constructor(101))) static void begin(void) {
    zr_exiting_now = getauxval(AT_SECURE) != 0;
    zr_control_handler = zr_policy_request;
    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
}

static void report_missed_calls(void) {
    bool here = zr_elf_named(zr_is_driver_name);

    if (here || zr_elf_elsewhere(zr_is_driver_name))
        zr_missed("calls through the Level Zero loader, which was opened %s",
                  here ? "deep-bound (RTLD_DEEPBIND)" ZR_DEEP
                       : "in a namespace of its own (dlmopen), where there is no preload; open it by dlopen");
}

/*
 * Runs when the libraries are taken down, early: a preload stands before what is loaded later. Until then nothing of
 * ours runs in a process that never came our way, and no module of ours has anything to end there.
 */
__attribute__((destructor)) static void end(void) {
    if (__atomic_load_n(&zr_touched, __ATOMIC_RELAXED)) {
        zr_fork_check(); /* a child of raw clone ends with locks that threads of its parent may hold */
        zr_process_end();
    } else {
        if (!zr_exiting())
            report_missed_calls();
        zr_exiting_now = true;
    }
}
