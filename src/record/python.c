/*
 * Frames of CPython, read from the interpreter's own structures.
 *
 * The frames of a thread do not change while it is inside a C function, as it is here, so they are
 * read without the GIL: taking it in the middle of a runtime could deadlock. The layout differs in
 * each minor version: only known ones are read, and the layout is verified once, through the
 * kernel, before it is trusted.
 */
#include "base/dl.h"
#include "record/record.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "record/python.def"

static const struct layout {
    uint8_t minor;
#define ZR_OFFSET(name) int16_t name;
    ZR_PYTHON_OFFSETS(ZR_OFFSET)
#undef ZR_OFFSET
} layouts[] = {
#define ZR_PYTHON(minor, ...) {minor, __VA_ARGS__},
    ZR_PYTHON_LAYOUTS(ZR_PYTHON)
#undef ZR_PYTHON
};

enum { NOT_LOOKED, ABSENT, REFUSED, UNCHECKED, TRUSTED, MOST_SHIMS = 16 };
static uint32_t python_state; /* atomic */
static const struct layout *l;
static const char *(*version)(void);
static void *(*attached)(void);   /* the state of this thread while it has the GIL */
static void *(*registered)(void); /* and without it */
static uintptr_t code_type, text_type, bytes_type;

/* Reads a word of our own memory through the kernel; 0 if it is not mapped. */
static ZR_COLD uintptr_t layout_probe(uintptr_t at) {
    uintptr_t value = 0;
    struct iovec local = {&value, sizeof value}, remote = {(void *)at, sizeof value};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof value ? value : 0;
}

static uintptr_t memory_word(uintptr_t at) {
    return likely(__atomic_load_n(&python_state, __ATOMIC_RELAXED) == TRUSTED)
               ? *(const uintptr_t *)at
               : layout_probe(at);
}

static uintptr_t memory_field(uintptr_t object, int16_t offset) {
    return memory_word(object + (uintptr_t)offset);
}

static uint8_t byte_field(uintptr_t object, int16_t offset) {
    return (uint8_t)(memory_field(object, offset & ~7) >> (offset & 7) * 8);
}

/* --- code objects ----------------------------------------------------------------------------- */

/* A str has 1, 2 or 4 bytes for each character. */
static uint32_t character_at(const uint8_t *data, uint32_t kind, size_t i) {
    switch (kind) {
    case 1:
        return data[i];
    case 2:
        return ((const uint16_t *)(const void *)data)[i];
    case 4:
        return ((const uint32_t *)(const void *)data)[i];
    default:
        return 0;
    }
}

/* UTF-8 of a str, cut at a character. */
static size_t copy_text(uintptr_t text, char *out, size_t most) {
    const uint8_t *object = (const uint8_t *)text, *data;
    size_t length = memory_word(text + 16), n = 0;
    uint32_t bits = (uint32_t)memory_word(text + 32), kind = bits >> 2 & 7;

    if (!object || !(bits & 32)) /* not compact: made by old C code, never by the compiler */
        return 0;
    data = object + (bits & 64 ? l->ascii_size : l->compact_size);
    for (size_t i = 0; i < length && n + 4 <= most; i++) {
        uint32_t c = character_at(data, kind, i);

        if (c < 0x80) {
            out[n++] = (char)c;
            continue;
        }
        if (c >= 0x10000) {
            out[n++] = (char)(0xf0 | c >> 18);
            out[n++] = (char)(0x80 | (c >> 12 & 63));
        } else if (c >= 0x800) {
            out[n++] = (char)(0xe0 | c >> 12);
        }
        out[n++] = c >= 0x800 ? (char)(0x80 | (c >> 6 & 63)) : (char)(0xc0 | c >> 6);
        out[n++] = (char)(0x80 | (c & 63));
    }
    return n;
}

/* Once per code object: it may be freed, and its address reused. */
static ZR_COLD void store_code(uintptr_t code, uint32_t id) {
    char file[1024], name[512];
    size_t file_size = copy_text(memory_field(code, l->filename), file, sizeof file);
    size_t name_size = copy_text(memory_field(code, l->qualname), name, sizeof name);
    uintptr_t table = memory_field(code, l->linetable);
    size_t whole = memory_word(table + 16),
           size = whole < ZEROUTE_RECORD_TEXT_MOST ? whole : ZEROUTE_RECORD_TEXT_MOST;
    struct zeroute_record_code c = {.first_line =
                                        *(const uint32_t *)(code + (uintptr_t)l->firstlineno),
                                    .file_size = (uint16_t)file_size,
                                    .name_size = (uint16_t)name_size,
                                    .table_size = (uint32_t)size,
                                    .table_cut = size < whole};

    zr_record_put(
        ZEROUTE_RECORD_CODE, id,
        (const struct zr_part[]){
            {&c, sizeof c}, {file, file_size}, {name, name_size}, {(void *)(table + 32), size}},
        4);
}

static uint32_t code_id(uintptr_t code) {
    uint64_t hash = zr_stack_mix(zr_stack_mix(2, code), memory_field(code, l->linetable));
    bool fresh;
    uint32_t id;

    hash = zr_stack_mix(zr_stack_mix(hash, memory_field(code, l->qualname)),
                        *(const uint32_t *)(code + (uintptr_t)l->firstlineno));
    id = zr_stack_id(hash, &fresh);
    if (unlikely(fresh))
        store_code(code, id);
    return id;
}

/* --- the layout ------------------------------------------------------------------------------- */

/*
 * Notes Python's version in the record, and why its frames cannot be read, which also goes to
 * stderr.
 */
static ZR_COLD void python_say(const char *why) {
    const char *name = version();
    char text[256];

    int length = (int)strcspn(name, " ");

    if (why)
        snprintf(text, sizeof text, "Python %.*s: %s; native frames are recorded", length, name,
                 why);
    else
        snprintf(text, sizeof text, "Python %.*s", length, name);
    zr_record_text(ZEROUTE_TEXT_PYTHON, text, strlen(text));
    if (why)
        zr_warn("record: %s", text);
    __atomic_store_n(&python_state, why ? REFUSED : TRUSTED, __ATOMIC_RELEASE);
}

static uintptr_t symbol_find(const char *name) {
    return (uintptr_t)zr_real_dlsym(RTLD_DEFAULT, name);
}

/* Racing threads find the same. */
static ZR_COLD void layout_look(void) {
    const unsigned long *number = (const unsigned long *)symbol_find("Py_Version");
    const char *runtime = (const char *)symbol_find("_PyRuntime");
    const struct layout *known = NULL;

    version = (const char *(*)(void))symbol_find("Py_GetVersion");
    if (!version) {
        __atomic_store_n(&python_state, ABSENT, __ATOMIC_RELEASE);
        return;
    }
    for (size_t i = 0; number && i < sizeof layouts / sizeof *layouts; i++)
        if (*number >> 24 == 3 && (*number >> 16 & 255) == layouts[i].minor)
            known = &layouts[i];
    if (!known) {
        python_say("its frames are not known, those of 3.11 to 3.15 are");
        return;
    }
    /* "xdebugpy", the version, and whether there is no GIL: from 3.13 on. */
    if (known->minor >= 13 && runtime && (memcmp(runtime, "xdebugpy", 8) != 0 || runtime[16])) {
        python_say("its frames are not known, as it is a build without the GIL");
        return;
    }
    attached = NULL;
    if (known->minor == 12)
        attached = (void *(*)(void))symbol_find("_PyThreadState_UncheckedGet");
    else if (known->minor > 12)
        attached = (void *(*)(void))symbol_find("PyThreadState_GetUnchecked");
    registered = (void *(*)(void))symbol_find("PyGILState_GetThisThreadState");
    code_type = symbol_find("PyCode_Type");
    text_type = symbol_find("PyUnicode_Type");
    bytes_type = symbol_find("PyBytes_Type");
    l = known;
    __atomic_store_n(&python_state, UNCHECKED, __ATOMIC_RELEASE);
}

/* --- walking ---------------------------------------------------------------------------------- */

static uintptr_t frame_innermost(uintptr_t thread) {
    uintptr_t frame = memory_field(thread, l->frame);

    return l->in_cframe < 0 || !frame ? frame : memory_field(frame, l->in_cframe);
}

/* A frame that stands for a call from C, from 3.12 on. */
static bool is_shim(uintptr_t frame) {
    return l->entry < 0 && byte_field(frame, l->owner) >= 3;
}

static bool has_type(uintptr_t object, uintptr_t type) {
    return memory_word(object + 8) == type;
}

/* Whether everything that will be read of this thread's innermost frame is in its place. */
static ZR_COLD bool layout_check(uintptr_t thread) {
    bool right = memory_field(thread, l->native_thread_id) == (uintptr_t)syscall(SYS_gettid);
    uintptr_t frame = frame_innermost(thread), code;

    for (int i = 0; i < MOST_SHIMS && frame && is_shim(frame); i++)
        frame = memory_field(frame, l->previous);
    if (right && !frame)
        return false; /* next time */
    code = memory_field(frame, l->code) & ~(uintptr_t)7;
    right = right && has_type(code, code_type) &&
            has_type(memory_field(code, l->filename), text_type) &&
            has_type(memory_field(code, l->qualname), text_type) &&
            has_type(memory_field(code, l->linetable), bytes_type) &&
            memory_field(frame, l->instruction) - code - (uintptr_t)l->code_adaptive + 2 < 1 << 24;
    python_say(right ? NULL : "its frames do not lie where this version has them");
    return right;
}

size_t zr_python_frames(struct zeroute_record_python *out, size_t most, uint8_t *cut) {
    uintptr_t thread, frame, code;
    size_t count = 0;

    if (unlikely(__atomic_load_n(&python_state, __ATOMIC_ACQUIRE) == NOT_LOOKED))
        layout_look();
    if (__atomic_load_n(&python_state, __ATOMIC_ACQUIRE) < UNCHECKED)
        return 0;
    thread = attached ? (uintptr_t)attached() : 0;
    if (!thread && registered)
        thread = (uintptr_t)registered();
    if (!thread || (unlikely(__atomic_load_n(&python_state, __ATOMIC_ACQUIRE) != TRUSTED) &&
                    !layout_check(thread)))
        return 0;
    for (frame = frame_innermost(thread); frame; frame = memory_field(frame, l->previous)) {
        if (is_shim(frame)) {
            if (count)
                out[count - 1].where |= ZEROUTE_PYTHON_ENTRY;
            continue;
        }
        code = memory_field(frame, l->code) & ~(uintptr_t)7;
        if (!code || !has_type(code, code_type))
            continue;
        if (count == most) {
            *cut = 1;
            break;
        }
        intptr_t offset = (intptr_t)(memory_field(frame, l->instruction) - code) - l->code_adaptive;
        out[count].code = code_id(code);
        out[count].where = offset < 0 ? 0 : (uint32_t)offset & ~ZEROUTE_PYTHON_ENTRY;
        if (l->entry >= 0 && byte_field(frame, l->entry))
            out[count].where |= ZEROUTE_PYTHON_ENTRY;
        count++;
    }
    return count;
}

/* Libraries were loaded: looks for Python again. */
void zr_python_again(void) {
    uint32_t absent = ABSENT;

    __atomic_compare_exchange_n(&python_state, &absent, NOT_LOOKED, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

void zr_python_fork_child(void) {
    python_state = NOT_LOOKED;
}
