/* A call in progress: what every call does when it comes in, and around the driver's part of it. */
#include "driver/driver.h"

bool zr_enter(struct zr_call *call, enum zr_entry entry) {
    struct zr_thread *t = &zr_thread;

    call->caller = t->hook.caller;
    call->hook = t->hook.number;
    call->entered = false;
    if (unlikely(t->inside) || zr_exiting())
        return false;
    t->inside = call->entered = true;
    zr_fork_check();
    zr_config_load();
    zr_control_check();
    zr_count_call(entry, ZR_VIA_OF(t->hook.number));
    call->library = zr_library_of(call->caller);
    zr_count_caller(call->library, ZR_CALLER_CALLS, 1);
    return true;
}

/* Counts the calls of each rule of `inject`. */
ZR_COLD ze_result_t zr_descend(enum zr_entry entry, uint64_t *start) {
    static uint64_t calls[ZR_INJECT_MAX];
    ze_result_t code = ZE_RESULT_SUCCESS;

    for (unsigned i = 0; i < zr_config.inject.count; i++) {
        const struct zr_inject *rule = &zr_config.inject.rule[i];

        if (rule->call == zr_entry_name[entry] && __atomic_add_fetch(&calls[i], 1, __ATOMIC_RELAXED) == rule->nth)
            code = (ze_result_t)rule->code;
    }
    if (code != ZE_RESULT_SUCCESS)
        zr_count(ZR_F_INJECTED_CALLS, 1);
    *start = zr_now();
    return code;
}

ZR_COLD void zr_ascend(enum zr_entry entry, size_t bytes, uint64_t start, uint32_t weight, ze_result_t result) {
    if (weight)
        zr_time_call(entry, bytes, start, weight);
    if (result != ZE_RESULT_SUCCESS)
        zr_count_failure(entry, (uint32_t)result);
}
