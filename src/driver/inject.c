/*
 * inject: fails the n-th driver call of a kind, for tests of the program above.
 */
#include "driver/driver.h"

ze_result_t zr_inject(enum zr_entry entry) {
    static uint64_t calls[ZR_INJECT_MAX];
    ze_result_t code = ZE_RESULT_SUCCESS;

    for (unsigned i = 0; i < zr_config.inject.count; i++) {
        const struct zr_inject *rule = &zr_config.inject.rule[i];

        if (rule->call == zr_entry_name[entry] && __atomic_add_fetch(&calls[i], 1, __ATOMIC_RELAXED) == rule->nth)
            code = (ze_result_t)rule->code;
    }
    if (code != ZE_RESULT_SUCCESS)
        zr_count(ZR_F_INJECTED_CALLS, 1);
    return code;
}
