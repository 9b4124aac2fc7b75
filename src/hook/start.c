/*
 * Start and end: the table of modules, and the report on a process that used a driver but never
 * called us.
 */
#include "check/check.h"
#include "hook/hook.h"
#include "machine/machine.h"
#include "pause/pause.h"
#include "policy/policy.h"
#include "record/record.h"
#include "sycl/sycl.h"
#include "work/work.h"

#include <string.h>
#include <sys/auxv.h>

/* Called in this order. Counters come last: the other modules still count. */
static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child},
    {.fork_child = zr_libraries_fork_child},
    {.fork_child = zr_claim_fork_child},
    {.fork_child = zr_record_fork_child,
     .thread_end = zr_record_thread_end,
     .process_end = zr_record_process_end},
    {.fork_child = zr_worker_fork_child, .process_end = zr_check_process_end},
    {.fork_child = zr_pause_fork_child, .thread_end = zr_gate_thread_end},
    {.fork_child = zr_found_fork_child},
    {.fork_child = zr_sharing_fork_child},
    {.fork_child = zr_cache_fork_child, .thread_end = zr_cache_thread_end},
    {.fork_child = zr_pool_fork_child},
    {.fork_child = zr_limit_fork_child},
    {.fork_child = zr_pending_fork_child},
    {.fork_child = zr_hold_fork_child},
    {.fork_child = zr_work_fork_child},
    {.fork_child = zr_object_fork_child},
    {.fork_child = zr_remap_fork_child},
    {.fork_child = zr_alloc_fork_child},
    {.fork_child = zr_free_fork_child},
    {.fork_child = zr_shortage_fork_child, .process_end = zr_shortage_process_end},
    {.fork_child = zr_sycl_fork_child},
    {.thread_end = zr_stats_thread_end, .process_end = zr_stats_process_end},
};

/*
 * In a setuid program calls go straight down, as at the end of a process. Costs every process three
 * stores.
 */
__attribute__((constructor(101))) static void begin(void) {
    zr_exiting_now = getauxval(AT_SECURE) != 0;
    zr_control_handler = zr_policy_request;
    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
}

static void report_missed_calls(void) {
    bool here = zr_elf_named(zr_is_driver_name) == ZR_LIST_FOUND;

    if (here || zr_elf_elsewhere(zr_is_driver_name) == ZR_LIST_FOUND)
        zr_missed("calls through the Level Zero loader, which was opened %s",
                  here ? "deep-bound (RTLD_DEEPBIND)" ZR_DEEP
                       : "in a namespace of its own (dlmopen), where there is no preload; open it "
                         "by dlopen");
}

/*
 * Runs early in the teardown of the libraries, because a preload comes before what is loaded later.
 * In a process that never called us nothing else of ours has run, and no module has anything to
 * end.
 */
__attribute__((destructor)) static void end(void) {
    bool touched = __atomic_load_n(&zr_touched, __ATOMIC_RELAXED);

    if (!zr_exiting() && zr_opencl_at_end(touched))
        touched = true;
    if (touched) {
        zr_fork_check(); /* in a child of raw clone, threads of the parent may have held locks */
        zr_process_end();
    } else {
        if (!zr_exiting())
            report_missed_calls();
        zr_exiting_now = true;
    }
}
