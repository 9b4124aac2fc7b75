/* A call in progress: what every call does when it comes in, and around the driver's part of it. */
#include "driver/driver.h"

/*
 * A call below one of ours passes down, unless that one lets the program's calls in or has them
 * watched.
 */
ZR_COLD bool zr_op_passes_down(void) {
    const struct zr_op *above = zr_op_innermost();

    return above && !above->admits;
}

zr_function zr_op_passes(uint32_t hook, unsigned entry) {
    const struct zr_op *above = zr_op_innermost();

    if (!above || above->admits || above->watcher)
        return NULL;
    return __atomic_load_n(&zr_original[hook][entry], __ATOMIC_ACQUIRE);
}

bool zr_op_enter(struct zr_op *op, struct zr_arrival from, enum zr_entry entry) {
    op->entered = false;
    if (zr_exiting() || (unlikely(zr_thread.op) && zr_op_passes_down()))
        return false;
    *op = (struct zr_op){.caller = from.caller,
                         .hook = from.hook,
                         .entry = (uint16_t)entry,
                         .via = (uint8_t)ZR_VIA_OF(from.hook)};
    zr_op_begin(op);
    zr_fork_check();
    zr_config_load();
    zr_control_check();
    zr_count_call(entry, ZR_VIA_OF(from.hook));
    op->library = zr_library_of(from.caller);
    zr_count_caller(op->library, ZR_CALLER_CALLS, 1);
    return true;
}

/* Counts the calls of each rule of `inject`. */
ZR_COLD ze_result_t zr_descend(enum zr_entry entry, uint64_t *start) {
    static uint64_t calls[ZR_INJECT_MAX];
    ze_result_t code = ZE_RESULT_SUCCESS;

    for (unsigned i = 0; i < zr_config.inject.count; i++) {
        const struct zr_inject *rule = &zr_config.inject.rule[i];

        if (rule->call == zr_entry_name[entry] &&
            __atomic_add_fetch(&calls[i], 1, __ATOMIC_RELAXED) == rule->nth)
            code = (ze_result_t)rule->code;
    }
    if (code != ZE_RESULT_SUCCESS)
        zr_count(ZR_F_INJECTED_CALLS, 1);
    *start = zr_now();
    return code;
}

ZR_COLD void zr_ascend(enum zr_entry entry, size_t bytes, uint64_t start, uint32_t weight,
                       ze_result_t result) {
    if (weight)
        zr_time_call(entry, bytes, start, weight);
    if (result != ZE_RESULT_SUCCESS)
        zr_count_failure(entry, (uint32_t)result);
}
