/* Numbers of a record in words. */
#include "common/common.h"
#include "report/report.h"

#include <level_zero/ze_api.h>

const char *zr_code_name(uint32_t code) {
    static char number[16];
    static const struct {
        uint32_t code;
        const char *name;
    } names[] = {
#define NAME(x) {ZE_RESULT_ERROR_##x, #x}
        NAME(DEVICE_LOST),
        NAME(OUT_OF_HOST_MEMORY),
        NAME(OUT_OF_DEVICE_MEMORY),
        NAME(NOT_AVAILABLE),
        NAME(UNINITIALIZED),
        NAME(UNSUPPORTED_FEATURE),
        NAME(INVALID_ARGUMENT),
        NAME(INVALID_NULL_HANDLE),
        NAME(HANDLE_OBJECT_IN_USE),
        NAME(INVALID_NULL_POINTER),
        NAME(INVALID_SIZE),
        NAME(UNSUPPORTED_SIZE),
        NAME(UNSUPPORTED_ALIGNMENT),
        NAME(INVALID_ENUMERATION),
        NAME(UNSUPPORTED_ENUMERATION),
        NAME(UNKNOWN),
#undef NAME
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code)
            return names[i].name;
    snprintf(number, sizeof number, "0x%x", code);
    return number;
}

const char *zr_refuser_name(unsigned refuser) {
    static const char *const names[] = {
#define ZR_BY_SETTING(id, setting, ...) [ZEROUTE_REFUSED_BY_##id] = "the setting " setting,
#define ZR_BY_DRIVER(id, name, who, ...) [ZEROUTE_REFUSED_BY_##id] = who,
#define ZR_BY_OTHER(id, who, ...) [ZEROUTE_REFUSED_BY_##id] = who,
#include "base/refusals.def"
    };
    return refuser < sizeof names / sizeof *names ? names[refuser] : "unknown";
}

const char *zr_event_name(unsigned type) {
    static const char *const names[ZEROUTE_EVENTS] = {
        [ZEROUTE_EVENT_ALLOC] = "alloc",     [ZEROUTE_EVENT_FREE] = "free",
        [ZEROUTE_EVENT_BACK] = "back",       [ZEROUTE_EVENT_FAIL] = "fail",
        [ZEROUTE_EVENT_RESERVE] = "reserve", [ZEROUTE_EVENT_RELEASE] = "release",
        [ZEROUTE_EVENT_TRIM] = "trim",       [ZEROUTE_EVENT_RESIDENT] = "resident",
        [ZEROUTE_EVENT_EVICT] = "evict",     [ZEROUTE_EVENT_EXPORT] = "export",
        [ZEROUTE_EVENT_MAP] = "map",         [ZEROUTE_EVENT_UNMAP] = "unmap",
        [ZEROUTE_EVENT_CONTEXT] = "context", [ZEROUTE_EVENT_CONTEXT_GO] = "context_destroyed",
        [ZEROUTE_EVENT_MARK] = "mark",
    };
    return type < ZEROUTE_EVENTS && names[type] ? names[type] : "unknown";
}

const char *zr_share_text(char *out, uint64_t part, uint64_t whole) {
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;

    snprintf(out, ZR_TEXT_SIZE, part && part < whole / 10.0 ? "%.1f %%" : "%.0f %%", percent);
    return out;
}

const char *zr_span_text(char *out, uint64_t ns) {
    unsigned long long s = ns / 1000000000u;

    if (ns == 0)
        snprintf(out, ZR_TEXT_SIZE, "0");
    else if (s < 120)
        zr_text_time(out, ns);
    else if (s < 3600)
        snprintf(out, ZR_TEXT_SIZE, "%llu:%02llu min", s / 60, s % 60);
    else
        snprintf(out, ZR_TEXT_SIZE, "%llu:%02llu:%02llu h", s / 3600, s / 60 % 60, s % 60);
    return out;
}
