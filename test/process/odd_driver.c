/*
 * The simulated GPU with other tables behind its handles, as ODD_DRIVER says: what drivers may have, and what no driver
 * should. Linked with --wrap=sim_object_init.
 */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TABLES = 48, MEM = 15, MORE = 4 };
struct layer {
    uint32_t version;
    uint8_t valid;
    const sim_function *tables[TABLES];
};

/* How many functions each table of the core layer has, in its order. */
static const unsigned counts[] = {
#define SIM_TABLE(layer, table) (unsigned)(sizeof(#layer) == 3) * (0
#define SIM_CALL(since, function) +1
#define SIM_OWN(since, function) +1
#define SIM_STUB(since, function) +1
#define SIM_END(layer, table) ),
#include "tables.def"
};

void __real_sim_object_init(struct sim_object *object);
void __wrap_sim_object_init(struct sim_object *object);

static ze_result_t another(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                           size_t alignment, ze_device_handle_t device, void **out) {
    return sim_zeMemAllocDevice(context, desc, size, alignment, device, out);
}

/* A copy in pages of its own, with room for functions that nobody knows yet. */
static struct layer *copy_of(const struct layer *from) {
    size_t bytes = 16384;
    struct layer *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sim_function *next = (sim_function *)(to + 1);

    *to = *from;
    for (unsigned t = 0; t < TABLES && from->tables[t] && counts[t]; t++) {
        memcpy(next, from->tables[t], counts[t] * sizeof *next);
        to->tables[t] = next;
        next += counts[t];
        for (unsigned i = 0; i < MORE; i++)
            *next++ = (sim_function)sim_unsupported;
    }
    return to;
}

void __wrap_sim_object_init(struct sim_object *object) {
    const char *kind = getenv("ODD_DRIVER");
    struct layer *core;

    __real_sim_object_init(object);
    if (!kind)
        return;
    object->core = core = copy_of(object->core);
    if (strcmp(kind, "tomorrow") == 0) {
        core->version = ZE_MAKE_VERSION(1, 99);
    } else if (strcmp(kind, "another-major") == 0) {
        core->version = ZE_MAKE_VERSION(2, 0);
    } else if (strcmp(kind, "inserted") == 0) { /* two tables that were not there, in front */
        memmove(core->tables + 2, core->tables, (TABLES - 2) * sizeof *core->tables);
    } else if (strcmp(kind, "wrapped") == 0) { /* functions that are not in the driver's own tables */
        ((sim_function *)(uintptr_t)core->tables[MEM])[1] = (sim_function)another;
    } else if (strcmp(kind, "invalid") == 0) {
        core->valid = 0;
    } else if (strcmp(kind, "lying") == 0) { /* it says valid, and there is nothing */
        core->tables[MEM] = (const sim_function *)0x1000;
    } else if (strcmp(kind, "nowhere") == 0) {
        object->core = (const void *)0x2000;
    }
    if (strcmp(kind, "read-only") == 0)
        mprotect(core, 16384, PROT_READ);
}
