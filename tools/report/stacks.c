/*
 * Stacks as people read them: outermost frame first, frames of Python where the interpreter's evaluation function
 * stands in the native stack. The interpreter's own frames, those that start a process or a thread, and ours are left
 * out. Stacks that come out the same are one path.
 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { FRAMES_MOST = ZEROUTE_RECORD_NATIVE_MOST + ZEROUTE_RECORD_PYTHON_MOST + 1 };

/* Grows as a table of what was interned: value + 1 by hash; 0 is empty. */
struct table {
    uint32_t *slot;
    size_t mask, used;
};

struct building {
    struct zr_paths *p;
    const struct zr_record *r;
    struct zr_symbols *symbols;
    struct table frames, paths, callers, natives, pythons;
    size_t frame_room, path_room, caller_room;
    /* A native address that was looked up: its frame, and what it means for the merge. */
    struct native {
        uint64_t address;
        size_t module;
        uint32_t frame;
        bool evaluates, interpreter, hidden, libc;
    } * native;
    size_t native_count, native_room;
    /* An instruction of Python whose line was decoded. */
    struct python {
        struct zeroute_record_python at;
        uint32_t frame;
    } * python;
    size_t python_count, python_room;
    bool no_memory;
};

static uint64_t seed; /* no file can be made so that everything collides */

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text) {
    for (; *text; text++)
        h = mix(h, (unsigned char)*text);
    return h;
}

static bool room(struct building *b, void *array, size_t *have, size_t used, size_t each) {
    bool got = zr_room(array, have, used, each);
    b->no_memory = b->no_memory || !got;
    return got;
}

/* The slot of an equal element, or the empty one where it belongs. NULL without memory. */
static uint32_t *look(struct building *b, struct table *t, uint64_t hash,
                      bool (*equal)(const struct building *b, uint32_t index, const void *with),
                      uint64_t (*hash_of)(const struct building *b, uint32_t index), const void *with) {
    if (t->used * 2 >= t->mask) {
        struct table more = {.mask = t->slot ? t->mask * 2 + 1 : 255, .used = t->used};

        more.slot = calloc(more.mask + 1, sizeof *more.slot);
        if (!more.slot) {
            b->no_memory = true;
            return NULL;
        }
        for (size_t i = 0; t->slot && i <= t->mask; i++)
            if (t->slot[i]) {
                size_t at = (size_t)hash_of(b, t->slot[i] - 1) & more.mask;
                while (more.slot[at])
                    at = (at + 1) & more.mask;
                more.slot[at] = t->slot[i];
            }
        free(t->slot);
        *t = more;
    }
    size_t at = (size_t)hash & t->mask;
    while (t->slot[at] && !equal(b, t->slot[at] - 1, with))
        at = (at + 1) & t->mask;
    return &t->slot[at];
}

/* --- frames ----------------------------------------------------------------------------------------------------- */

static uint64_t frame_hash(const struct zr_frame *f) {
    return mix(mix_text(mix_text(seed + f->python, f->name), f->file), f->line);
}
static uint64_t frame_hash_at(const struct building *b, uint32_t i) {
    return frame_hash(&b->p->frame[i]);
}
static bool frame_equal(const struct building *b, uint32_t i, const void *with) {
    const struct zr_frame *x = &b->p->frame[i], *y = with;
    return x->line == y->line && x->python == y->python && strcmp(x->name, y->name) == 0 &&
           strcmp(x->file, y->file) == 0;
}

static uint32_t intern_frame(struct building *b, const struct zr_frame *f) {
    uint32_t *slot = look(b, &b->frames, frame_hash(f), frame_equal, frame_hash_at, f);

    if (!slot || !room(b, &b->p->frame, &b->frame_room, b->p->frames, sizeof *f))
        return 0;
    if (!*slot) {
        struct zr_frame copy = *f;
        copy.name = zr_arena_text(b->p->arena, f->name, strlen(f->name));
        copy.file = zr_arena_text(b->p->arena, f->file, strlen(f->file));
        if (!copy.name || !copy.file) {
            b->no_memory = true;
            return 0;
        }
        b->p->frame[b->p->frames++] = copy;
        b->frames.used++;
        *slot = b->p->frames;
    }
    return *slot - 1;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_one(const char *text, const char *const *names) {
    for (; *names; names++)
        if (strcmp(text, *names) == 0)
            return true;
    return false;
}

static bool any(const char *text, const char *const *prefixes) {
    for (; *prefixes; prefixes++)
        if (begins(text, *prefixes))
            return true;
    return false;
}

/* Below whoever requested the memory: callers are looked for above these. */
static bool is_runtime(const char *library) {
    static const char *const names[] = {
        "libsycl",       "libur_",    "libumf",   "libpi_level_zero", "libze_", "libzeroute.so",
        "libstdc++.so.", "libgcc_s.", "libc.so.", "ld-linux",         NULL};
    return any(library, names);
}

static uint32_t native_frame(struct building *b, const struct zr_symbol *s, uint64_t address, struct native *n) {
    static const char *const starts[] = {"_start", "start_thread", "clone", "clone3", "__clone", "__clone3", NULL};
    static const char *const evaluates[] = {"_PyEval_EvalFrameDefault", "_TAIL_CALL_", NULL};
    const char *library = s->library ? base_name(s->library) : "";
    char name[96];

    n->interpreter = begins(library, "python") || begins(library, "libpython");
    n->libc = begins(library, "libc.so.") || begins(library, "libpthread.so.") || begins(library, "ld-linux");
    n->evaluates = s->name && any(s->name, evaluates);
    n->hidden =
        begins(library, "libzeroute.so") || (s->name && (is_one(s->name, starts) || begins(s->name, "__libc_start")));
    if (!s->name)
        snprintf(name, sizeof name, "%.60s+0x%llx", *library ? library : "unknown",
                 (unsigned long long)(s->library ? s->offset : address));
    struct zr_frame f = {.name = s->name ? s->name : name,
                         .file = s->file      ? s->file
                                 : s->library ? s->library
                                              : "",
                         .line = s->line,
                         .runtime = is_runtime(library)};
    return intern_frame(b, &f);
}

static uint64_t native_hash(uint64_t address, size_t module) {
    return mix(mix(seed, address), module);
}
static uint64_t native_hash_at(const struct building *b, uint32_t i) {
    return native_hash(b->native[i].address, b->native[i].module);
}
static bool native_equal(const struct building *b, uint32_t i, const void *with) {
    const struct native *y = with;
    return i < b->native_count && b->native[i].address == y->address && b->native[i].module == y->module;
}

/* Looked up once for each address, and again when another library was loaded there. */
static const struct native *native_of(struct building *b, uint64_t address, uint64_t time) {
    struct native n = {.address = address, .module = zr_symbol_module(b->symbols, address, time)};
    uint32_t *slot = look(b, &b->natives, native_hash(address, n.module), native_equal, native_hash_at, &n);

    if (!slot || !room(b, &b->native, &b->native_room, b->native_count, sizeof n))
        return NULL;
    if (!*slot) {
        struct zr_symbol s;
        zr_symbol_of(b->symbols, address, time, &s);
        n.frame = native_frame(b, &s, address, &n);
        b->native[b->native_count++] = n;
        b->natives.used++;
        *slot = (uint32_t)b->native_count;
    }
    return &b->native[*slot - 1];
}

static uint32_t decode(struct building *b, uint32_t code, uint32_t offset) {
    const struct zr_record *r = b->r;
    struct zr_frame f = {.name = "unknown", .file = "", .python = true};
    size_t low = 0, high = r->codes;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->code[middle].id < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < r->codes && code && r->code[low].id == code) {
        f.name = r->code[low].name;
        f.file = r->code[low].file;
        f.line = zr_python_line(&r->code[low], offset);
    }
    return intern_frame(b, &f);
}

static uint64_t python_hash(const struct zeroute_record_python *p) {
    return mix(mix(seed, p->code), p->where);
}
static uint64_t python_hash_at(const struct building *b, uint32_t i) {
    return python_hash(&b->python[i].at);
}
static bool python_equal(const struct building *b, uint32_t i, const void *with) {
    const struct zeroute_record_python *y = with;
    return i < b->python_count && b->python[i].at.code == y->code && b->python[i].at.where == y->where;
}

/* Decoded once for each instruction. */
static uint32_t python_frame(struct building *b, const struct zeroute_record_python *from) {
    struct zeroute_record_python at = {from->code, from->where & ~ZEROUTE_PYTHON_ENTRY};
    uint32_t *slot = look(b, &b->pythons, python_hash(&at), python_equal, python_hash_at, &at);

    if (!slot || !room(b, &b->python, &b->python_room, b->python_count, sizeof *b->python))
        return 0;
    if (!*slot) {
        b->python[b->python_count++] = (struct python){at, decode(b, at.code, at.where)};
        b->pythons.used++;
        *slot = (uint32_t)b->python_count;
    }
    return b->python[*slot - 1].frame;
}

/* --- a stack ---------------------------------------------------------------------------------------------------- */

/*
 * Frames innermost first into `out`; returns how many. Python's own native frames are shown only where there are no
 * frames of Python. Where no evaluation function was recognised, Python's frames go where the interpreter begins.
 */
static uint32_t merge(struct building *b, const struct zr_call_stack *s, uint32_t *out) {
    bool evaluates = false, placed = false;
    uint32_t n = 0;
    uint16_t next = 0, natives = s->native;

    /* What the C library does before main, or before a thread's own function, is the same everywhere. */
    while (natives && !s->cut) {
        const struct native *f = native_of(b, s->address[natives - 1], s->time);
        if (!f || !(f->libc || f->hidden))
            break;
        natives--;
    }
    for (uint16_t i = 0; i < natives && s->python; i++) {
        const struct native *f = native_of(b, s->address[i], s->time);
        evaluates = evaluates || (f && f->evaluates);
    }
    for (uint16_t i = 0; i < natives; i++) {
        const struct native *f = native_of(b, s->address[i], s->time);

        if (!f)
            return 0;
        if (s->python && (evaluates ? f->evaluates : f->interpreter && !placed)) {
            placed = true;
            while (next < s->python) {
                bool entry = s->frame[next].where & ZEROUTE_PYTHON_ENTRY;
                out[n++] = python_frame(b, &s->frame[next++]);
                if (entry && evaluates)
                    break;
            }
        } else if (!f->hidden && !(s->python && f->interpreter)) {
            out[n++] = f->frame;
        }
    }
    while (next < s->python) /* the native part was cut, or absent */
        out[n++] = python_frame(b, &s->frame[next++]);
    return n;
}

static uint64_t path_hash(const struct zr_path *p) {
    uint64_t h = seed + p->frames;
    for (uint32_t i = 0; i < p->frames; i++)
        h = mix(h, p->frame[i]);
    return h;
}
static uint64_t path_hash_at(const struct building *b, uint32_t i) {
    return path_hash(&b->p->path[i]);
}
static bool path_equal(const struct building *b, uint32_t i, const void *with) {
    const struct zr_path *y = with;
    return i < b->p->paths && b->p->path[i].frames == y->frames &&
           memcmp(b->p->path[i].frame, y->frame, y->frames * sizeof *y->frame) == 0;
}

static uint64_t caller_hash_at(const struct building *b, uint32_t i) {
    return mix_text(seed, b->p->caller[i]);
}
static bool caller_equal(const struct building *b, uint32_t i, const void *with) {
    return strcmp(b->p->caller[i], with) == 0;
}

static uint32_t intern_caller(struct building *b, const char *text) {
    uint32_t *slot = look(b, &b->callers, mix_text(seed, text), caller_equal, caller_hash_at, text);

    if (!slot || !room(b, &b->p->caller, &b->caller_room, b->p->callers, sizeof *b->p->caller))
        return 0;
    if (!*slot) {
        char *copy = zr_arena_text(b->p->arena, text, strlen(text));
        if (!copy) {
            b->no_memory = true;
            return 0;
        }
        b->p->caller[b->p->callers++] = copy;
        b->callers.used++;
        *slot = b->p->callers;
    }
    return *slot - 1;
}

/* Code that was installed rather than written here. */
static bool is_package(const struct zr_frame *f) {
    return strstr(f->file, "/site-packages/") || strstr(f->file, "/dist-packages/") ||
           strstr(f->file, "/lib/python3") || f->file[0] == '<';
}

/*
 * The innermost frame of Python outside installed packages, else the innermost one of Python, else the innermost one
 * above the runtime, else the innermost one.
 */
static uint32_t find_caller(const struct building *b, const struct zr_path *p) {
    const uint32_t none = p->frames;
    uint32_t python = none, native = none;

    for (uint32_t i = p->frames; i-- > 0;) {
        const struct zr_frame *f = &b->p->frame[p->frame[i]];

        if (f->python && !is_package(f))
            return i;
        if (f->python && python == none)
            python = i;
        if (!f->python && !f->runtime && native == none)
            native = i;
    }
    if (python != none)
        return python;
    if (native != none)
        return native;
    return p->frames ? p->frames - 1 : 0;
}

static void set_caller(struct building *b, struct zr_path *p) {
    char text[256];

    p->caller_at = find_caller(b, p);
    if (p->frames)
        zr_frame_text(&b->p->frame[p->frame[p->caller_at]], text, sizeof text);
    p->caller = intern_caller(b, p->frames ? text : "no stack recorded");
}

static uint32_t intern_path(struct building *b, const uint32_t *innermost_first, uint32_t frames) {
    uint32_t order[FRAMES_MOST];
    struct zr_path p = {.frame = order, .frames = frames};

    for (uint32_t i = 0; i < frames; i++)
        order[i] = innermost_first[frames - 1 - i];
    uint32_t *slot = look(b, &b->paths, path_hash(&p), path_equal, path_hash_at, &p);
    if (!slot || !room(b, &b->p->path, &b->path_room, b->p->paths, sizeof p))
        return 0;
    if (!*slot) {
        uint32_t *copy = zr_arena_get(b->p->arena, frames * sizeof *copy + 8);
        if (!copy) {
            b->no_memory = true;
            return 0;
        }
        memcpy(copy, order, frames * sizeof *copy);
        p.frame = copy;
        set_caller(b, &p);
        b->p->path[b->p->paths++] = p;
        b->paths.used++;
        *slot = b->p->paths;
    }
    return *slot - 1;
}

struct zr_paths *zr_paths_new(const struct zr_record *r, struct zr_symbols *s) {
    struct zr_paths *p = calloc(1, sizeof *p);
    struct building b = {.p = p, .r = r, .symbols = s};

    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uintptr_t)p;
    b.no_memory = !p || !(p->arena = zr_arena_new()) || !(p->of_stack = calloc(r->stacks, sizeof *p->of_stack));
    for (uint32_t i = 0; i < r->stacks && !b.no_memory; i++) {
        uint32_t frames[FRAMES_MOST];
        uint32_t n = merge(&b, &r->stack[i], frames);
        p->of_stack[i] = intern_path(&b, frames, n);
    }
    b.no_memory = b.no_memory || !zr_paths_name(p);
    free(b.frames.slot);
    free(b.paths.slot);
    free(b.callers.slot);
    free(b.natives.slot);
    free(b.native);
    free(b.pythons.slot);
    free(b.python);
    if (!b.no_memory)
        return p;
    zr_paths_free(p);
    return NULL;
}

uint32_t zr_path_shown(const struct zr_paths *p, uint32_t path) {
    const struct zr_path *x = &p->path[path];
    uint32_t n = x->frames;

    while (n && p->frame[x->frame[n - 1]].runtime)
        n--;
    return n < x->frames ? n + 1 : n;
}

void zr_paths_free(struct zr_paths *p) {
    if (!p)
        return;
    zr_arena_free(p->arena);
    free(p->frame);
    free(p->path);
    free(p->of_stack);
    free(p->caller);
    free(p);
}

/* How much of a C++ name there is without its arguments: at::empty(...) is at::empty. */
static int short_length(const char *name) {
    int depth = 0, i = 0;

    for (; name[i]; i++) {
        if (name[i] == '<')
            depth++;
        else if (name[i] == '>' && i && name[i - 1] != '-')
            depth--;
        else if (name[i] == '(' && depth <= 0 && i > 0 && !begins(name + i, "(anonymous") &&
                 !(i >= 8 && begins(name + i - 8, "operator")))
            break;
    }
    return i;
}

const char *zr_frame_text(const struct zr_frame *f, char *out, size_t size) {
    const char *file = base_name(f->file);
    int length = f->python ? 0 : short_length(f->name);

    if (f->python && f->line)
        snprintf(out, size, "%s:%u in %s", file, f->line, f->name);
    else if (f->python)
        snprintf(out, size, "%s in %s", *file ? file : "Python", f->name);
    else if (f->line)
        snprintf(out, size, "%.*s (%s:%u)", length, f->name, file, f->line);
    else if (*file && !begins(f->name, file))
        snprintf(out, size, "%.*s (%s)", length, f->name, file);
    else
        snprintf(out, size, "%.*s", length, f->name);
    return out;
}
