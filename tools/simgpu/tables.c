/*
 * The function tables: what the loader asks for by name, filled as far as the version it asks for,
 * and the same tables behind every handle for loaders that call through handles. A call that
 * `fail:` names, or every call with count:on, goes through a trampoline that counts it and may
 * answer in its place.
 */
#include "simgpu.h"

#include <stdio.h>
#include <string.h>

struct slot {
    unsigned since;
    const char *name;
    sim_function function;
};

#define SIM_TABLE(layer, table) static struct slot layer##_##table[] = {
#define SIM_CALL(since, function) {since, #function, (sim_function)sim_##function},
#define SIM_OWN(since, function) {since, #function, (sim_function)sim_##function},
#define SIM_STUB(since, function) {since, #function, (sim_function)sim_unsupported},
#define SIM_END(layer, table)                                                                      \
    }                                                                                              \
    ;
#include "tables.def"
#undef SIM_TABLE
#undef SIM_CALL
#undef SIM_OWN
#undef SIM_STUB
#undef SIM_END

struct table {
    const char *layer, *name;
    struct slot *slots;
    size_t count;
};
static const struct table tables[] = {
#define SIM_TABLE(layer, table)
#define SIM_CALL(since, function)
#define SIM_OWN(since, function)
#define SIM_STUB(since, function)
#define SIM_END(layer, table)                                                                      \
    {#layer, #table, layer##_##table, sizeof(layer##_##table) / sizeof(struct slot)},
#include "tables.def"
#undef SIM_TABLE
#undef SIM_CALL
#undef SIM_OWN
#undef SIM_STUB
#undef SIM_END
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

ze_result_t sim_unsupported(void)
{
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static struct slot *slot_named(const char *name)
{
    for (size_t t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            if (strcmp(tables[t].slots[i].name, name) == 0)
                return &tables[t].slots[i];
        }
    }
    return NULL;
}

sim_function sim_function_named(const char *name)
{
    struct slot *slot = slot_named(name);
    return slot && slot->function != (sim_function)sim_unsupported ? slot->function : NULL;
}

/* A caller's table has room for the slots of the version it names, and no more. */
static ze_result_t fill(ze_api_version_t version, const struct slot *slots, size_t count, void *out)
{
    sim_function *table = out;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if ((unsigned)version >> 16 != 1)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    sim_start();
    for (size_t i = 0; i < count; i++) {
        if (slots[i].since <= ((unsigned)version & 0xffff))
            table[i] = slots[i].function;
    }
    return ZE_RESULT_SUCCESS;
}

#define SIM_TABLE(layer, table)                                                                    \
    __attribute__((visibility("default")))                                                         \
    ze_result_t layer##Get##table##ProcAddrTable(ze_api_version_t version, void *out);             \
    ze_result_t layer##Get##table##ProcAddrTable(ze_api_version_t version, void *out)              \
    {                                                                                              \
        return fill(version, layer##_##table, sizeof(layer##_##table) / sizeof(struct slot), out); \
    }
#define SIM_CALL(since, function)
#define SIM_OWN(since, function)
#define SIM_STUB(since, function)
#define SIM_END(layer, table)
#include "tables.def"
#undef SIM_TABLE
#undef SIM_CALL
#undef SIM_OWN
#undef SIM_STUB
#undef SIM_END

void sim_object_init(struct sim_object *object)
{
    memset(object, 0, sizeof(*object));
}
