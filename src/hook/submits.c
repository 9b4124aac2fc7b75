/*
 * Hooks in front of what gives a device work or waits for it (work.def): only where somebody asks
 * what is idle. Elsewhere only waits are hooked, which tell that the device was lost. How a call
 * came does not matter here, so a hook belongs to a function that it
 * stands in front of, and there are as many as there can be different functions of one name.
 */
#include "hook/hook.h"
#include "work/work.h"

#include <string.h>

enum { FUNCTIONS = 4 };

static zr_function
    below_hook[FUNCTIONS + 1]
              [ZR_WORK_ENTRIES]; /* atomic; the last row: below our exported symbols */

/* Nobody asks what is idle: only what calls answer is of interest. Set before the first hook is. */
static bool only_answers;

/*
 * A call may pass two hooks, by name and in a table, and counts once: the inner one has counted it,
 * whose frame lies below. What longjmp leaves behind costs one count at most.
 */
static ZR_COLD void tell_lost(const char *frame) {
    const char *told = zr_thread.work.lost;

    if (zr_exiting())
        return;
    zr_thread.work.lost = NULL;
    if (told && told < frame)
        return;
    zr_thread.work.lost = frame;
    zr_count(ZR_F_LOST_CALLS, 1);
}

static inline ze_result_t note_lost(ze_result_t result) {
    if (unlikely((uint32_t)result == ZR_DEVICE_LOST))
        tell_lost(__builtin_frame_address(0));
    return result;
}

#define ZR_BELOW_AND(arguments) (below, ZR_LIST arguments)
#define HOOK(n, name, parameters, arguments)                                                       \
    static ze_result_t hook##n##_##name parameters {                                               \
        zr_function below = __atomic_load_n(&below_hook[n][ZR_W_##name], __ATOMIC_ACQUIRE);        \
        if (__atomic_load_n(&only_answers, __ATOMIC_RELAXED))                                      \
            return note_lost(((zr_work_fn_##name)below)arguments);                                 \
        return note_lost(zr_does_##name ZR_BELOW_AND(arguments));                                  \
    }

static ze_result_t no_function(void) {
    return ZE_RESULT_ERROR_UNINITIALIZED;
}

/* What is below an exported symbol: the next definition. */
static ZR_COLD zr_function find_below(unsigned entry, const void *caller) {
    zr_function f = (zr_function)zr_next(zr_work_name[entry], caller);

    if (!f)
        f = zr_guard_stub(zr_work_name[entry]);
    if (!f)
        return (zr_function)no_function;
    __atomic_store_n(&below_hook[FUNCTIONS][entry], f, __ATOMIC_RELEASE);
    return f;
}

static inline zr_function below_name(unsigned entry, const void *caller) {
    zr_function f = __atomic_load_n(&below_hook[FUNCTIONS][entry], __ATOMIC_ACQUIRE);

    return likely(f) ? f : find_below(entry, caller);
}

#define BY_NAME(name, parameters, arguments)                                                       \
    ze_result_t zr_plt_##name parameters;                                                          \
    __attribute__((visibility("default"))) ze_result_t zr_plt_##name parameters {                  \
        zr_function below = below_name(ZR_W_##name, __builtin_return_address(0));                  \
        if (!zr_work_is_watched())                                                                 \
            return note_lost(((zr_work_fn_##name)below)arguments);                                 \
        return note_lost(zr_does_##name ZR_BELOW_AND(arguments));                                  \
    }                                                                                              \
    __asm__(".symver zr_plt_" #name ", " #name "@ZEROUTE_0");

#define ZR_WORK(name, table, index, minor, parameters, arguments)                                  \
    BY_NAME(name, parameters, arguments)                                                           \
    HOOK(0, name, parameters, arguments)                                                           \
    HOOK(1, name, parameters, arguments)                                                           \
    HOOK(2, name, parameters, arguments)                                                           \
    HOOK(3, name, parameters, arguments)
#include "base/work.def"

#define AT(n, name) [n][ZR_W_##name] = (zr_function)hook##n##_##name,
static const zr_function hook_function[FUNCTIONS][ZR_WORK_ENTRIES] = {
#define ZR_WORK(name, ...) AT(0, name) AT(1, name) AT(2, name) AT(3, name)
#include "base/work.def"
};

static const struct {
    uint8_t table, index;
    uint32_t since;
} place[ZR_WORK_ENTRIES] = {
#define ZR_WORK(name, table, index, minor, parameters, arguments)                                  \
    [ZR_W_##name] = {ZR_TABLE_##table, (index), 1 << 16 | (minor)},
#include "base/work.def"
};

/* What a pause alone asks for. */
static bool is_wanted(unsigned entry) {
    return place[entry].table != ZR_TABLE_Kernel || zr_config_at_start.pause;
}

static bool is_in_table(unsigned entry, unsigned t, uint32_t version) {
    return place[entry].table == t && place[entry].since <= version && is_wanted(entry);
}

zr_function zr_submit_hook(unsigned entry, zr_function original) {
    for (unsigned n = 0; n < FUNCTIONS; n++)
        if (hook_function[n][entry] == original)
            return original;
    for (unsigned n = 0; n < FUNCTIONS; n++) {
        zr_function none = NULL;

        if (__atomic_compare_exchange_n(&below_hook[n][entry], &none, original, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            none == original)
            return hook_function[n][entry];
    }
    zr_work_lost("the process has more than %d functions called %s", FUNCTIONS,
                 zr_work_name[entry]);
    return original;
}

/* Names that give a device work by the look of them. */
static bool looks_like_work(const char *name) {
    return strstr(name, "CommandListAppend") || strstr(name, "ExecuteCommandLists") ||
           strstr(name, "ImmediateAppend");
}

static int find_work(const char *name) {
    for (int e = 0; e < ZR_WORK_ENTRIES; e++)
        if (strcmp(name, zr_work_name[e]) == 0)
            return e;
    return -1;
}

bool zr_submit_is_work(const char *name) {
    return find_work(name) >= 0 || looks_like_work(name);
}

/* Waits, whose answer says that the device was lost. */
static bool is_wait(int entry) {
    switch (entry) {
    case ZR_W_zeCommandListHostSynchronize:
    case ZR_W_zeCommandQueueSynchronize:
    case ZR_W_zeDeviceSynchronize:
    case ZR_W_zeFenceHostSynchronize:
    case ZR_W_zeEventHostSynchronize:
        return true;
    default:
        return false;
    }
}

/* Whether the entry point is to be hooked; -1: it is not one of work.def. */
static bool is_hooked(int entry) {
    bool watched = zr_work_is_watched();

    if (!watched)
        __atomic_store_n(&only_answers, true, __ATOMIC_RELAXED);
    return watched || is_wait(entry);
}

zr_function zr_submit_named(const char *name, zr_function original) {
    int e = find_work(name);

    if (!is_hooked(e))
        return original;
    if (e >= 0 && !is_wanted((unsigned)e))
        return original;
    if (e >= 0)
        return zr_submit_hook((unsigned)e, original);
    if (looks_like_work(name))
        zr_work_lost("%s was asked for, which this version of zeroute does not know", name);
    return original;
}

void zr_submit_table(unsigned t, uint32_t version, void **table) {
    if (zr_work_is_watched() && t == ZR_TABLE_CommandList && version > ZR_NEWEST_API)
        zr_work_lost("a table of functions of API %u.%u was asked for, and this version of zeroute "
                     "knows them up to "
                     "%u.%u",
                     version >> 16, version & 0xffff, ZR_NEWEST_API >> 16, ZR_NEWEST_API & 0xffff);
    for (unsigned e = 0; e < ZR_WORK_ENTRIES; e++) {
        bool hooked = is_hooked((int)e) && is_in_table(e, t, version);
        void **slot = hooked ? &table[place[e].index] : NULL;

        if (slot && *slot)
            __atomic_store_n(slot, ZR_POINTER(zr_submit_hook(e, ZR_FUNCTION(*slot))),
                             __ATOMIC_RELEASE);
    }
}

size_t zr_submit_table_bytes(unsigned t, uint32_t version, size_t least) {
    for (unsigned e = 0; e < ZR_WORK_ENTRIES; e++)
        if (is_hooked((int)e) && is_in_table(e, t, version) &&
            (place[e].index + 1u) * sizeof(void *) > least)
            least = (place[e].index + 1u) * sizeof(void *);
    return least;
}
