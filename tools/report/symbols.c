/*
 * Names of native frames. A module's file is opened when the first of its addresses is asked for, and used only if its
 * build id is the recorded one. libdw reads the symbol table, that of separate debug information included; the
 * functions are sorted once, because libdw searches them one by one. libdw is loaded when it is needed: without it
 * everything but the names is there.
 */
#include "report/report.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WALK = 64, NAME_MOST = 1000, LENT_MOST = 4096 };

struct function {
    uint64_t address, size;
    const char *name;
};

enum state { UNTOUCHED, OPEN, REPLACED, UNREADABLE };

/* Addresses are in the file's own terms: the same for every process. */
struct module {
    enum state state;
    Dwfl *dwfl; /* NULL: lent by an earlier record, which owns the functions too */
    Dwfl_Module *in;
    struct function *function;
    size_t functions;
};

struct zr_symbols {
    const struct zr_record *r;
    const char *root;
    bool off, unavailable;
    const struct zr_symbols *before;
    struct module *module; /* as in the record */
    size_t *by_start;      /* indexes of modules */
    void *library;         /* libdw */
    struct zr_arena *arena;
};

/* What is used of libdw. */
static struct {
#define ZR_LIBDW(name) __typeof__(name) *name;
#include "report/libdw.def"
#undef ZR_LIBDW
} dw;

static bool load_libdw(struct zr_symbols *s) {
    bool all = true;

    s->library = dlopen("libdw.so.1", RTLD_LAZY | RTLD_LOCAL);
#define ZR_LIBDW(name)                                                                                                 \
    *(void **)&dw.name = s->library ? dlsym(s->library, #name) : NULL;                                                 \
    all = all && dw.name;
#include "report/libdw.def"
#undef ZR_LIBDW
    return all;
}

static char *debug_path;
static Dwfl_Callbacks callbacks = {.debuginfo_path = &debug_path};

static const struct zr_record *sorted; /* for qsort */
static int by_start(const void *a, const void *b) {
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const struct zr_module *x = &sorted->module[i], *y = &sorted->module[j];

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return i < j ? -1 : i > j;
}

struct zr_symbols *zr_symbols_new(const struct zr_record *r, const char *root, bool off,
                                  const struct zr_symbols *before) {
    struct zr_symbols *s = calloc(1, sizeof *s);

    if (!s || !(s->arena = zr_arena_new()) || !(s->module = calloc(r->modules + 1, sizeof *s->module)) ||
        !(s->by_start = malloc((r->modules + 1) * sizeof *s->by_start))) {
        zr_symbols_free(s);
        return NULL;
    }
    s->r = r;
    s->root = root;
    s->off = off;
    s->before = before;
    for (size_t i = 0; i < r->modules; i++)
        s->by_start[i] = i;
    sorted = r;
    qsort(s->by_start, r->modules, sizeof *s->by_start, by_start);
    unsetenv("DEBUGINFOD_URLS"); /* a report asks no server */
    if (off)
        return s;
    s->unavailable = !load_libdw(s);
    callbacks.find_elf = dw.dwfl_build_id_find_elf;
    callbacks.find_debuginfo = dw.dwfl_standard_find_debuginfo;
    return s;
}

void zr_symbols_free(struct zr_symbols *s) {
    if (!s)
        return;
    for (size_t i = 0; s->module && s->r && i < s->r->modules; i++) {
        if (!s->module[i].dwfl)
            continue;
        free(s->module[i].function);
        dw.dwfl_end(s->module[i].dwfl);
    }
    if (s->library)
        dlclose(s->library);
    zr_arena_free(s->arena);
    free(s->module);
    free(s->by_start);
    free(s);
}

/* --- a module ------------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
    const struct function *x = a, *y = b;

    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static void read_functions(struct module *m) {
    int symbols = dw.dwfl_module_getsymtab(m->in);

    if (symbols <= 0 || !(m->function = malloc((size_t)symbols * sizeof *m->function)))
        return;
    for (int i = 1; i < symbols; i++) {
        GElf_Sym symbol;
        GElf_Addr address;
        const char *name = dw.dwfl_module_getsym_info(m->in, i, &symbol, &address, NULL, NULL, NULL);
        int type = GELF_ST_TYPE(symbol.st_info);

        if (name && *name && (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF)
            m->function[m->functions++] = (struct function){address, symbol.st_size, name};
    }
    qsort(m->function, m->functions, sizeof *m->function, by_address);
}

/* Regular files with something on the disk behind them: a record may name anything, of /proc too. */
static int open_file(const char *root, const char *path) {
    char where[PATH_MAX];
    struct stat st;

    if (*path != '/' || (size_t)snprintf(where, sizeof where, "%s%s", root, path) >= sizeof where)
        return -1;
    int fd = open(where, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_blocks == 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool is_the_same(const struct zr_module *recorded, Dwfl_Module *in) {
    const unsigned char *id;
    GElf_Addr at;
    int size = dw.dwfl_module_build_id(in, &id, &at);

    if (recorded->build_id_size == 0)
        return true; /* nothing to go by */
    return size == (int)recorded->build_id_size && memcmp(id, recorded->build_id, (size_t)size) == 0;
}

/* Ranks of a job run the same libraries: each is opened once. */
static bool borrow(const struct zr_symbols *from, const struct zr_module *wanted, struct module *m) {
    for (size_t i = 0; from && i < from->r->modules && i < LENT_MOST; i++) {
        const struct zr_module *has = &from->r->module[i];

        if (from->module[i].state != OPEN || has->build_id_size != wanted->build_id_size ||
            memcmp(has->build_id, wanted->build_id, wanted->build_id_size) != 0 || strcmp(has->path, wanted->path) != 0)
            continue;
        *m = from->module[i];
        m->dwfl = NULL;
        return true;
    }
    return false;
}

static void open_module(struct zr_symbols *s, size_t index) {
    struct module *m = &s->module[index];
    const struct zr_module *recorded = &s->r->module[index];

    if (borrow(s->before, recorded, m))
        return;
    int fd = s->off || s->unavailable ? -1 : open_file(s->root, recorded->path);

    m->state = UNREADABLE;
    if (fd < 0)
        return;
    m->dwfl = dw.dwfl_begin(&callbacks);
    if (m->dwfl) {
        dw.dwfl_report_begin(m->dwfl);
        m->in = dw.dwfl_report_elf(m->dwfl, recorded->path, recorded->path, fd, 0, true);
    }
    if (!m->in) {
        close(fd); /* a module would own it */
        return;
    }
    dw.dwfl_report_end(m->dwfl, NULL, NULL);
    if (!is_the_same(recorded, m->in)) {
        m->state = REPLACED;
        return;
    }
    m->state = OPEN;
    read_functions(m);
}

/* --- an address ----------------------------------------------------------------------------------------------- */

/* The latest module that holds the address and is not younger than the stack; else the first that holds it. */
size_t zr_symbol_module(const struct zr_symbols *s, uint64_t address, uint64_t time) {
    const struct zr_module *module = s->r->module;
    size_t low = 0, high = s->r->modules, best = SIZE_MAX;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (module[s->by_start[middle]].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t walked = 0; low-- > 0 && walked < WALK; walked++) {
        size_t i = s->by_start[low];
        if (address >= module[i].end)
            continue;
        if (best == SIZE_MAX ||
            (module[i].time <= time && (module[best].time > time || module[best].time < module[i].time)))
            best = i;
    }
    return best;
}

static const char *plain(struct zr_symbols *s, const char *name) {
    char text[NAME_MOST + 1];

    zr_demangle(name, text, sizeof text);
    return zr_arena_text(s->arena, text, strlen(text));
}

static const char *function_at(struct zr_symbols *s, const struct module *m, uint64_t address) {
    size_t low = 0, high = m->functions;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->function[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct function *f = &m->function[low - 1];
    return f->size && address - f->address >= f->size ? NULL : plain(s, f->name);
}

void zr_symbol_of(struct zr_symbols *s, uint64_t address, uint64_t time, struct zr_symbol *out) {
    *out = (struct zr_symbol){.module = zr_symbol_module(s, address, time)};
    if (out->module == SIZE_MAX || address == 0)
        return;
    const struct zr_module *recorded = &s->r->module[out->module];
    struct module *m = &s->module[out->module];
    if (m->state == UNTOUCHED)
        open_module(s, out->module);
    out->library = recorded->path;
    out->offset = address - recorded->bias;
    if (m->state != OPEN)
        return;
    address = out->offset - 1; /* a return address is behind the call */
    out->name = function_at(s, m, address);
    Dwfl_Line *line = dw.dwfl_module_getsrc(m->in, address);
    int number = 0;
    const char *file = line ? dw.dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    if (file && number > 0) {
        out->file = zr_arena_text(s->arena, file, strnlen(file, PATH_MAX));
        out->line = (uint32_t)number;
        const char *folder = *file == '/' ? NULL : dw.dwfl_line_comp_dir(line);
        out->folder = folder ? zr_arena_text(s->arena, folder, strnlen(folder, PATH_MAX)) : NULL;
    }
}

const char *zr_symbols_replaced(const struct zr_symbols *s, size_t *i) {
    while (*i < s->r->modules) {
        size_t at = (*i)++;
        if (s->module[at].state == REPLACED)
            return s->r->module[at].path;
    }
    return NULL;
}

bool zr_symbols_unavailable(const struct zr_symbols *s) {
    return s->unavailable;
}
