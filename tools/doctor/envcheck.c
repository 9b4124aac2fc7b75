#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum reader { RUNTIME, LOADER, DRIVER, KEY, CCL, TORCH, SETUP };

static const struct {
    const char *name;
    enum reader reader;
} known[] = {
/* With a character before it: the preload knows a runtime by such a string, and the command is none. */
#define ZR_ENV(name, reader) {&("=" #name)[1], reader},
#include "doctor/envnames.def"
#undef ZR_ENV
};

enum { KNOWN = sizeof known / sizeof *known };

/* The nearest known name, or NULL if none is near enough to be meant. */
static const char *nearest_name(const char *name) {
    size_t length = strlen(name);
    unsigned best = (unsigned)length / 5;
    const char *nearest = NULL;

    best = best < 2 ? 3 : best + 1;
    for (size_t i = 0; i < KNOWN; i++) {
        unsigned distance = zr_distance(name, length, known[i].name, strlen(known[i].name));

        if (distance < best) {
            best = distance;
            nearest = known[i].name;
        }
    }
    return nearest;
}

/* The driver takes its keys with a prefix too. */
static const char *without_prefix(const char *name) {
    if (!strncmp(name, "NEO_L0_", 7))
        return name + 7;
    return !strncmp(name, "NEO_", 4) ? name + 4 : name;
}

static int index_of(const char *name) {
    for (int i = 0; i < KNOWN; i++) {
        if (!strcmp(known[i].name, name))
            return i;
    }
    for (int i = 0; i < KNOWN; i++) {
        if (known[i].reader == KEY && !strcmp(known[i].name, without_prefix(name)))
            return i;
    }
    return -1;
}

/* Whether a variable is meant for the stack at all, by how its name starts. */
static bool is_of_the_stack(const char *name) {
    static const char *const starts[] = {"SYCL_", "UR_", "ZE_", "ZES_", "ZET_",          "ZEL_",     "UMF_",
                                         "CCL_",  "NEO", "Neo", "neo",  "ONEAPI_DEVICE", "ZEROUTE_", "PYTORCH_"};

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (!strncmp(name, starts[i], strlen(starts[i])))
            return true;
    }
    return false;
}

/* Only the driver has names in mixed case without a prefix. */
static bool looks_like_a_key(const char *name) {
    bool lower = false, upper = false;

    for (const char *c = name; *c; c++) {
        if (*c == '_')
            return false;
        lower |= *c >= 'a' && *c <= 'z';
        upper |= *c >= 'A' && *c <= 'Z';
    }
    return lower && upper && strlen(name) > 8;
}

/* Whether some library that is in use carries the name; *readable tells whether any could be read. */
static bool is_mentioned(const struct zr_stack *stack, const char *name, bool *readable) {
    *readable = false;
    for (int i = 0; i < ZR_PARTS; i++) {
        const struct zr_library *library = &stack->parts[i];

        if (!library->there || !*library->file || i == ZR_PART_PRELOAD || i == ZR_PART_SIMGPU ||
            (i == ZR_PART_UR_V1 && stack->adapter == 2) || (i == ZR_PART_UR_V2 && stack->adapter == 1))
            continue;
        *readable = true;
        if (zr_library_mentions(library, name))
            return true;
    }
    return false;
}

static bool reader_is_loaded(const struct zr_stack *stack, enum reader reader) {
    switch (reader) {
    case RUNTIME:
        return stack->parts[ZR_PART_SYCL].there && *stack->parts[ZR_PART_SYCL].file &&
               (stack->adapter == 0 || *stack->parts[stack->adapter == 2 ? ZR_PART_UR_V2 : ZR_PART_UR_V1].file);
    case LOADER:
        return *stack->parts[ZR_PART_LOADER].file;
    case CCL:
        return *stack->parts[ZR_PART_CCL].file;
    case DRIVER:
    case KEY:
        return *stack->parts[ZR_PART_DRIVER].file;
    case TORCH:
    case SETUP:
        break;
    }
    return false;
}

static bool keys_are_read(const struct zr_environ *from) {
    const char *value = zr_environ_get(from, "NEOReadDebugKeys");

    return value && strtoll(value, NULL, 10) != 0;
}

static bool is_inert(const struct zr_stack *stack, const char *name, enum reader reader, struct zr_env_report *out) {
    static const char restrict_p2p[] = "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P";
    bool readable;

    out->todo = "unset it";
    if (reader == KEY && !keys_are_read(&stack->environ)) {
        out->why = "the driver reads its keys with NEOReadDebugKeys=1 only";
        out->todo = "set NEOReadDebugKeys=1 as well";
        return true;
    }
    if (!strcmp(name, restrict_p2p) && stack->adapter == 1) {
        out->why = "adapter v1 is in use and ignores it";
        out->todo = "use adapter v2 (SYCL_UR_USE_LEVEL_ZERO_V2=1)";
        return true;
    }
    /* names of loggers are put together from pieces */
    if (!strncmp(name, "UR_LOG_", 7) || !reader_is_loaded(stack, reader))
        return false;
    if (is_mentioned(stack, reader == KEY ? without_prefix(name) : name, &readable) || !readable)
        return false;
    if (stack->adapter == 2 && zr_library_mentions(&stack->parts[ZR_PART_UR_V1], name)) {
        out->why = "only adapter v1 reads it, and v2 is in use";
        out->todo = "unset it, or use adapter v1 (SYCL_UR_USE_LEVEL_ZERO_V2=0)";
    } else if (stack->adapter == 1 && zr_library_mentions(&stack->parts[ZR_PART_UR_V2], name)) {
        out->why = "only adapter v2 reads it, and v1 is in use";
        out->todo = "unset it, or use adapter v2 (SYCL_UR_USE_LEVEL_ZERO_V2=1)";
    } else if (!strncmp(name, "SYCL_PI_", 8)) {
        out->why = "it belongs to the plugins before Unified Runtime, and nothing here reads it";
        out->todo = "use the name that starts with UR_L0_ instead";
    } else {
        out->why = "no library of the stack that is loaded here reads it";
    }
    return true;
}

/* The user did not set the variables of --sim. */
static bool is_of_simulation(const struct zr_stack *stack, const char *name) {
    const char *driver = zr_environ_get(&stack->environ, "ZE_ENABLE_ALT_DRIVERS");

    return driver && strstr(driver, "libze_simgpu") &&
           (strcmp(name, "ZE_ENABLE_ALT_DRIVERS") == 0 || strcmp(name, "ZE_SIMGPU") == 0);
}

void zr_env_check(const struct zr_stack *stack, void (*report)(void *to, const struct zr_env_report *what), void *to) {
    unsigned left = 256; /* of the stack; there are not half as many */

    for (const char *s = NULL; left && (s = zr_environ_next(&stack->environ, s));) {
        struct zr_env_report found = {0};
        size_t length = strcspn(s, "=");
        int index;
        bool readable;

        if (!length || length >= sizeof found.name)
            continue;
        memcpy(found.name, s, length);
        if (is_of_simulation(stack, found.name))
            continue;
        index = index_of(found.name);
        left -= index >= 0 || is_of_the_stack(found.name) || looks_like_a_key(found.name);
        if (index >= 0) {
            found.trouble = ZR_ENV_INERT;
            if (is_inert(stack, found.name, known[index].reader, &found))
                report(to, &found);
        } else if ((is_of_the_stack(found.name) || looks_like_a_key(found.name)) &&
                   (found.nearest = nearest_name(without_prefix(found.name))) != NULL &&
                   !is_mentioned(stack, without_prefix(found.name), &readable)) {
            found.trouble = ZR_ENV_MISSPELT;
            report(to, &found);
        }
    }
}
