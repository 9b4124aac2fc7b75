/*
 * The function tables: what the loader asks for by name, filled as far as the version it asks for,
 * and the same tables behind every handle for loaders that call through handles. A call that
 * `fail:` names, or every call with count:on, goes through a trampoline that counts it and may
 * answer in its place.
 */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct slot {
    unsigned since;
    const char *name;
    sim_function function;
};

#define SIM_TABLE(layer, table) static struct slot layer##_##table[] = {
#define SIM_CALL(since, function) {since, #function, (sim_function)sim_##function},
#define SIM_OWN(since, function) {since, #function, (sim_function)sim_##function},
#define SIM_STUB(since, function) {since, #function, (sim_function)sim_unsupported},
#define SIM_END(layer, table)                                                                                          \
    }                                                                                                                  \
    ;
#include "tables.def"

struct table {
    const char *layer, *name;
    struct slot *slots;
    size_t count;
};
static const struct table tables[] = {
#define SIM_END(layer, table) {#layer, #table, layer##_##table, sizeof(layer##_##table) / sizeof(struct slot)},
#include "tables.def"
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

ze_result_t sim_unsupported(void) {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

#define SLOTS 1024
static atomic_ulong calls[SLOTS];
static struct slot *by_number[SLOTS];

static struct slot *slot_named(const char *name, size_t *number) {
    *number = 0;
    for (size_t t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < tables[t].count; i++, ++*number) {
            if (strcmp(tables[t].slots[i].name, name) == 0)
                return &tables[t].slots[i];
        }
    }
    return NULL;
}

sim_function sim_function_named(const char *name) {
    size_t number;
    struct slot *slot = slot_named(name, &number);
    return slot && slot->function != (sim_function)sim_unsupported ? slot->function : NULL;
}

bool sim_is_function(const char *name) {
    size_t number;
    return slot_named(name, &number) != NULL;
}

uint64_t sim_calls(const char *name) {
    size_t number;
    return slot_named(name, &number) ? atomic_load(&calls[number]) : 0;
}

/* --- trampolines ------------------------------------------------------------------------------ */

struct verdict {        /* in rax and rdx */
    sim_function go_on; /* NULL: answer with the code */
    uint64_t code;
};
struct verdict sim_intercept(uint64_t number) __attribute__((used));

struct verdict sim_intercept(uint64_t number) {
    const struct slot *slot = by_number[number];
    uint64_t nth = atomic_fetch_add(&calls[number], 1) + 1;
    for (unsigned i = 0; i < SIM_FAULTS; i++) {
        const struct sim_fault *fault = &sim_config.fail[i];
        if ((fault->nth && fault->nth != nth) || strcmp(fault->function, slot->name) != 0)
            continue;
        while (fault->code == SIM_HANGS)
            pause();
        return (struct verdict){NULL, fault->code};
    }
    return (struct verdict){slot->function, 0};
}

/* One entry of 16 bytes per slot: number on the stack, then the common part, which keeps every
 * register that carries an argument and jumps on as if it had not been there. */
__asm__(".text\n"
        ".balign 16\n"
        "sim_trampolines:\n"
        ".set number, 0\n"
        ".rept 1024\n"
        "  push $number\n"
        "  jmp 1f\n"
        "  .balign 16\n"
        "  .set number, number + 1\n"
        ".endr\n"
        "1:\n"
        "  push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9\n"
        "  mov 48(%rsp), %rdi\n"
        "  call sim_intercept\n"
        "  mov %rax, %r11\n"
        "  mov %rdx, %r10\n"
        "  pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\n"
        "  add $8, %rsp\n"
        "  test %r11, %r11\n"
        "  jz 2f\n"
        "  jmp *%r11\n"
        "2:\n"
        "  mov %r10, %rax\n"
        "  ret\n");
extern const char sim_trampolines[] __attribute__((visibility("hidden")));

static bool is_watched(const char *name) {
    for (unsigned i = 0; i < SIM_FAULTS; i++) {
        if (strcmp(sim_config.fail[i].function, name) == 0)
            return true;
    }
    return sim_config.count;
}

static sim_function entry_of(const struct table *table, size_t i) {
    size_t number = i;
    for (const struct table *t = tables; t != table; t++)
        number += t->count;
    if (number >= SLOTS || !is_watched(table->slots[i].name))
        return table->slots[i].function;
    by_number[number] = &table->slots[i];
    sim_function entry;
    const char *address = sim_trampolines + 16 * number;
    memcpy(&entry, &address, sizeof(entry));
    return entry;
}

/* --- what the loader asks for ----------------------------------------------------------------- */

/* A caller's table has room for the slots of the version it names, and no more. */
static ze_result_t fill(ze_api_version_t version, const struct table *table, void *out) {
    sim_function *functions = out;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if ((unsigned)version >> 16 != 1)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    sim_start();
    for (size_t i = 0; i < table->count; i++) {
        if (table->slots[i].since <= ((unsigned)version & 0xffff))
            functions[i] = entry_of(table, i);
    }
    return ZE_RESULT_SUCCESS;
}

enum {
#define SIM_END(layer, table) TABLE_##layer##_##table,
#include "tables.def"
};

#define SIM_TABLE(layer, table)                                                                                        \
    __attribute__((visibility("default")))                                                                             \
    ze_result_t layer##Get##table##ProcAddrTable(ze_api_version_t version, void *out);                                 \
    ze_result_t layer##Get##table##ProcAddrTable(ze_api_version_t version, void *out) {                                \
        return fill(version, &tables[TABLE_##layer##_##table], out);                                                   \
    }
#include "tables.def"

/* --- tables behind handles: loaders from 1.24 on, with ZE_extension_driver_ddi_handles -------- */

#define LAYER_TABLES 48
struct layer {
    uint32_t version;
    uint8_t valid;
    const sim_function *tables[LAYER_TABLES];
};
static struct layer core, tools, sysman;

static void fill_layer(struct layer *layer, const char *name) {
    unsigned used = 0;
    layer->version = ZE_MAKE_VERSION(1, 17);
    layer->valid = 1;
    for (size_t t = 0; t < TABLES; t++) {
        if (strcmp(tables[t].layer, name) != 0 || used == LAYER_TABLES)
            continue;
        sim_function *functions = calloc(tables[t].count, sizeof(*functions));
        for (size_t i = 0; functions && i < tables[t].count; i++)
            functions[i] = entry_of(&tables[t], i);
        layer->tables[used++] = functions;
    }
}

void sim_tables_init(void) {
    fill_layer(&core, "ze");
    fill_layer(&tools, "zet");
    fill_layer(&sysman, "zes");
}

void sim_object_init(struct sim_object *object) {
    *object = (struct sim_object){.core = &core, .tools = &tools, .sysman = &sysman};
}
