/* Objects that take memory without an allocation call: registered by handle, with their size where
 * it is known. */
#include "policy/policy.h"
#include "work/work.h"

static void object_made(struct zr_op *op, enum zr_kind kind, ze_context_handle_t context,
                        ze_device_handle_t device, const void *desc, const void *handle,
                        uint64_t bytes) {
    unsigned number = device ? zr_device_number(op, device) : 0;

    if (kind == ZR_KIND_LIST || kind == ZR_KIND_QUEUE)
        zr_remap_at_work(number);
    zr_submit_made(op, device, desc, handle);
    zr_object_add(op, kind, number, context, handle, bytes);
}

static uint64_t image_bytes(struct zr_op *op, ze_image_handle_t image) {
    typedef ze_result_t (*get_memory)(ze_image_handle_t, ze_image_memory_properties_exp_t *);
    get_memory get =
        (get_memory)zr_function_below(op->hook, op->caller, "zeImageGetMemoryPropertiesExp");
    ze_image_memory_properties_exp_t p = {.stype = ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES};

    return get && get(image, &p) == ZE_RESULT_SUCCESS ? p.size : 0;
}

#define ZR_ENTRY(...)
#define ZR_MADE(name, table, index, minor, parameters, arguments, kind, device, bytes)             \
    ze_result_t zr_on_##name ZR_ARRIVES(parameters) {                                              \
        ZR_ENTER_OR_RETURN(name, arguments);                                                       \
        ze_result_t result = ZR_DOWN(&op, name, 0, arguments);                                     \
        if (result == ZE_RESULT_SUCCESS)                                                           \
            object_made(&op, ZR_KIND_##kind, context, device, desc, *out, bytes);                  \
        return result;                                                                             \
    }
#define ZR_GONE(name, table, index, minor, parameters, arguments)                                  \
    ze_result_t zr_on_##name ZR_ARRIVES(parameters) {                                              \
        ZR_ENTER_OR_RETURN(name, arguments);                                                       \
        struct zr_object *o = zr_object_take(object);                                              \
        struct zr_submission last = zr_work_going(object);                                         \
        ze_result_t result = ZR_DOWN(&op, name, o ? o->bytes : 0, arguments);                      \
        zr_work_gone(object, &last, result == ZE_RESULT_SUCCESS);                                  \
        return zr_object_answered(o, result);                                                      \
    }
#include "base/entries.def"
