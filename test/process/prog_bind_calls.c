/* Linked against the loader and called directly, not by a pointer: the other kind of relocation. */
#include "way.h"

#define CALL(name, parameters, arguments)                                                                              \
    static ze_result_t call_##name parameters {                                                                        \
        return name arguments;                                                                                         \
    }
CALL(zeMemAllocDevice,
     (ze_context_handle_t c, const ze_device_mem_alloc_desc_t *d, size_t s, size_t a, ze_device_handle_t v, void **o),
     (c, d, s, a, v, o))
CALL(zeMemFree, (ze_context_handle_t c, void *p), (c, p))

int main(void) {
#define F(name) .name = name,
    struct way way = {WAY_FUNCTIONS(F)};
    way.zeMemAllocDevice = call_zeMemAllocDevice;
    way.zeMemFree = call_zeMemFree;
    return way_run(&way);
}
