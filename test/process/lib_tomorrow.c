/* A Level Zero loader of tomorrow, as far as names and tables go. */
#include <level_zero/ze_api.h>

ze_result_t zeInit(ze_init_flags_t flags) {
    (void)flags;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t event, uint32_t count,
                                       ze_event_handle_t *events) {
    (void)list, (void)event, (void)count, (void)events;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeCommandListAppendTomorrow(ze_command_list_handle_t list);
ze_result_t zeCommandListAppendTomorrow(ze_command_list_handle_t list) {
    (void)list;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetCommandListProcAddrTable(ze_api_version_t version, void **table);
ze_result_t zeGetCommandListProcAddrTable(ze_api_version_t version, void **table) {
    (void)version, (void)table;
    return ZE_RESULT_SUCCESS;
}
