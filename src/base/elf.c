/* Loaded libraries: their names, where they lie, and whether any have come or gone. */
#include "base/dl.h"

#include "base/base.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

extern char *program_invocation_short_name;

/* A string table that was not relocated (the vdso's) is an offset, not an address. */
static const char *soname_of(const ElfW(Dyn) * d, uintptr_t bias) {
    uintptr_t strings = 0;
    size_t at = 0;

    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB)
            strings = d->d_un.d_ptr;
        else if (d->d_tag == DT_SONAME)
            at = d->d_un.d_val;
    }
    if (!strings || !at)
        return NULL;
    return (const char *)(strings < bias ? strings + bias : strings) + at;
}

static void name_elf(struct zr_elf *elf, const struct dl_phdr_info *info) {
    const char *path = info->dlpi_name ? info->dlpi_name : "";
    const char *slash = strrchr(path, '/');
    const char *soname = NULL;

    if (!*path)
        soname = program_invocation_short_name;
    else if (elf->dynamic)
        soname = soname_of(elf->dynamic, info->dlpi_addr);
    if (!soname)
        soname = slash ? slash + 1 : path;
    snprintf(elf->path, sizeof elf->path, "%s", path);
    snprintf(elf->soname, sizeof elf->soname, "%s", soname);
}

static void read_build_id(struct zr_elf *elf, const char *at, const ElfW(Phdr) * p) {
    size_t align = p->p_align == 8 ? 8 : 4;

    for (const char *end = at + p->p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
        ElfW(Nhdr) n;
        memcpy(&n, at, sizeof n);
        const char *name = at + sizeof n, *desc = name + (n.n_namesz + align - 1) / align * align;
        if (desc + n.n_descsz > end)
            return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            elf->build_id_size =
                n.n_descsz < sizeof elf->build_id ? n.n_descsz : (uint32_t)sizeof elf->build_id;
            memcpy(elf->build_id, desc, elf->build_id_size);
            return;
        }
        at = desc + (n.n_descsz + align - 1) / align * align;
    }
}

/* Returns false if the library does not hold the address; 0 matches any library. */
static bool read_elf(struct zr_elf *elf, const struct dl_phdr_info *info, uintptr_t address) {
    bool holds = address == 0;

    elf->start = UINTPTR_MAX;
    elf->end = 0;
    elf->bias = info->dlpi_addr;
    elf->build_id_size = 0;
    elf->unwind = NULL;
    elf->dynamic = NULL;
    elf->segments = info->dlpi_phdr;
    elf->segment_count = info->dlpi_phnum;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;

        if (p->p_type == PT_DYNAMIC)
            elf->dynamic = (const void *)start;
        if (p->p_type == PT_GNU_EH_FRAME)
            elf->unwind = (const uint8_t *)start;
        if (p->p_type == PT_NOTE && !elf->build_id_size)
            read_build_id(elf, (const char *)start, p);
        if (p->p_type != PT_LOAD)
            continue;
        elf->start = start < elf->start ? start : elf->start;
        elf->end = start + p->p_memsz > elf->end ? start + p->p_memsz : elf->end;
        holds |= address - start < p->p_memsz;
    }
    if (holds && elf->end)
        name_elf(elf, info);
    return holds && elf->end;
}

/* --- walking the list ------------------------------------------------------------------------- */

typedef int (*visitor)(struct dl_phdr_info *info, size_t size, void *arg);

static enum zr_answer walk(visitor see, void *arg) {
    int result;

    if (unlikely(!zr_walk_begin()))
        return ZR_LIST_BUSY;
    result = dl_iterate_phdr(see, arg);
    zr_walk_end();
    return result ? ZR_LIST_FOUND : ZR_LIST_ABSENT;
}

struct search {
    struct zr_elf *elf;
    uintptr_t address;
    bool (*see)(const struct zr_elf *elf, void *arg);
    void *arg;
};

static int visit_elf(struct dl_phdr_info *info, size_t size, void *arg) {
    struct search *s = arg;

    (void)size;
    if (!read_elf(s->elf, info, s->address))
        return 0;
    return !s->see || s->see(s->elf, s->arg);
}

enum zr_answer zr_elf_find(const void *address, struct zr_elf *out) {
    struct search s = {.elf = out, .address = (uintptr_t)address};

    return address ? walk(visit_elf, &s) : ZR_LIST_ABSENT;
}

enum zr_answer zr_elf_each(bool (*see)(const struct zr_elf *elf, void *arg), void *arg) {
    struct zr_elf elf;
    struct search s = {.elf = &elf, .see = see, .arg = arg};

    return walk(visit_elf, &s);
}

/*
 * The dynamic linker's description of a library whose ELF header is mapped at its start, as linkers
 * lay it out.
 */
static bool describe_map(const struct link_map *map, const void *start, struct dl_phdr_info *out) {
    const ElfW(Ehdr) *header = start;

    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    *out = (struct dl_phdr_info){
        .dlpi_addr = map->l_addr, .dlpi_name = map->l_name, .dlpi_phnum = header->e_phnum};
    out->dlpi_phdr = (const void *)((const char *)start + header->e_phoff);
    return true;
}

bool zr_elf_find_now(const void *address, struct zr_elf *out) {
    enum zr_answer answer = zr_elf_find(address, out);
    struct dl_phdr_info info;
    struct link_map *map;
    Dl_info found;

    if (likely(answer != ZR_LIST_BUSY))
        return answer == ZR_LIST_FOUND;
    if (!dladdr1(address, &found, (void **)&map, RTLD_DL_LINKMAP) ||
        !describe_map(map, found.dli_fbase, &info))
        return false;
    return read_elf(out, &info, (uintptr_t)address);
}

static int read_generation(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

bool zr_elf_generation(uint64_t *out) {
    return walk(read_generation, out) == ZR_LIST_FOUND;
}

static int visit_name(struct dl_phdr_info *info, size_t size, void *named) {
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)size;
    return slash && (*(bool (**)(const char *))named)(slash + 1);
}

/* Cheaper than zr_elf_each(): it runs in a constructor. */
enum zr_answer zr_elf_named(bool (*named)(const char *file)) {
    return walk(visit_name, &named);
}

/* --- other namespaces ------------------------------------------------------------------------- */

/*
 * glibc's r_debug; from 2.35 on, where there is more than one namespace, the r_version of the first
 * is 2 and they are chained.
 */
struct namespaces {
    struct r_debug one;
    const struct namespaces *next;
};

struct elsewhere {
    bool (*named)(const char *file);
    bool found;
};

/* Through DT_DEBUG of the program, as a debugger does. */
static const struct namespaces *first_namespace(const struct dl_phdr_info *program) {
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &program->dlpi_phdr[i];
        const ElfW(Dyn) *d = (const void *)(program->dlpi_addr + p->p_vaddr);

        if (p->p_type != PT_DYNAMIC)
            continue;
        for (; d->d_tag != DT_NULL; d++)
            if (d->d_tag == DT_DEBUG)
                return (const struct namespaces *)d->d_un.d_ptr;
    }
    return NULL;
}

static bool namespace_has(const struct namespaces *n, bool (*named)(const char *file)) {
    for (const struct link_map *l = n->one.r_map; l; l = l->l_next) {
        const char *slash = l->l_name ? strrchr(l->l_name, '/') : NULL;

        if (slash && named(slash + 1))
            return true;
    }
    return false;
}

/* Ends the walk at the first library, the program. While it lasts, no namespace changes. */
static int visit_namespaces(struct dl_phdr_info *info, size_t size, void *arg) {
    const struct namespaces *n = first_namespace(info);
    struct elsewhere *e = arg;

    (void)size;
    if (!n || n->one.r_version < 2)
        return 1;
    for (n = n->next; n && !e->found; n = n->next)
        e->found = namespace_has(n, e->named);
    return 1;
}

enum zr_answer zr_elf_elsewhere(bool (*named)(const char *file)) {
    struct elsewhere e = {.named = named};

    if (walk(visit_namespaces, &e) == ZR_LIST_BUSY)
        return ZR_LIST_BUSY;
    return e.found ? ZR_LIST_FOUND : ZR_LIST_ABSENT;
}
