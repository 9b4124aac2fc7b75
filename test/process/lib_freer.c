/* Frees for somebody else, so that a free and an allocation come from different libraries. */
#include <level_zero/ze_api.h>

ze_result_t free_it(ze_context_handle_t context, void *p);

ze_result_t free_it(ze_context_handle_t context, void *p) {
    volatile ze_result_t result = zeMemFree(context, p); /* no tail call: the caller is to be this library */

    return result;
}
