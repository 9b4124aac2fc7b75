/*
 * Who calls: a program, the Level Zero loader, or a SYCL runtime. A runtime frees blocks that
 * commands still use, keeps pools of its own, and looks up functions that its loader may lack. So
 * whether a library is one is decided here, and nowhere else: by its name; else by what it exports;
 * else, for a runtime that is linked into something else, by a string that the code of its Level
 * Zero adapter has.
 */
#include "base/base.h"

#include <link.h>
#include <string.h>

static bool begins_with_one(const char *name, const char *const *stems, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

#define BEGINS_WITH_ONE(name, stems) begins_with_one(name, stems, sizeof(stems) / sizeof *(stems))

/* --- by name ---------------------------------------------------------------------------------- */

static enum zr_who who_by_name(const char *soname) {
    static const char *const loaders[] = {"libze_loader"};

    if (BEGINS_WITH_ONE(soname, loaders))
        return ZR_WHO_LOADER;
    return zr_who_is_runtime_name(soname) ? ZR_WHO_RUNTIME : ZR_WHO_NOT_KNOWN;
}

bool zr_who_is_runtime_name(const char *file) {
    static const char *const runtimes[] = {"libur_", "libpi_", "libumf", "libsycl.so",
                                           "libsycl-preview.so"};

    return BEGINS_WITH_ONE(file, runtimes);
}

bool zr_who_is_adapter_name(const char *file) {
    static const char *const adapters[] = {"libur_adapter_level_zero", "libpi_level_zero"};

    return BEGINS_WITH_ONE(file, adapters);
}

bool zr_who_is_opencl_name(const char *file) {
    static const char *const drivers[] = {"libigdrcl"};

    return BEGINS_WITH_ONE(file, drivers);
}

/* --- by what it exports ----------------------------------------------------------------------- */

/*
 * The dynamic symbols of a library, with the hash table that linkers have written since 2006
 * (DT_GNU_HASH).
 */
struct exports {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t
        *hash; /* buckets, first symbol, words of the filter, its shift; then the filter */
};

/* A table that was not relocated (the vdso's) is an offset, not an address. */
static bool read_exports(const struct zr_elf *elf, struct exports *out) {
    const ElfW(Dyn) *d = elf->dynamic;

    memset(out, 0, sizeof *out);
    for (; d && d->d_tag != DT_NULL; d++) {
        uintptr_t at = d->d_un.d_ptr < elf->bias ? d->d_un.d_ptr + elf->bias : d->d_un.d_ptr;

        if (d->d_tag == DT_SYMTAB)
            out->symbols = (const void *)at;
        else if (d->d_tag == DT_STRTAB)
            out->names = (const void *)at;
        else if (d->d_tag == DT_GNU_HASH)
            out->hash = (const void *)at;
    }
    return out->symbols && out->names && out->hash;
}

static uint32_t hash_of(const char *name) {
    uint32_t hash = 5381;

    while (*name)
        hash = hash * 33 + (uint8_t)*name++;
    return hash;
}

/*
 * Whether the library itself defines the name: what it would only import has no place in this
 * table.
 */
static bool defines(const struct exports *e, const char *name) {
    uint32_t buckets = e->hash[0], first = e->hash[1], words = e->hash[2], hash = hash_of(name);
    const uint32_t *bucket = e->hash + 4 + 2 * (size_t)words;
    const uint32_t *chain = bucket + buckets;
    uint32_t n = buckets ? bucket[hash % buckets] : 0;

    if (n < first)
        return false;
    for (;; n++) {
        uint32_t there = chain[n - first];

        if ((there | 1) == (hash | 1) && strcmp(e->names + e->symbols[n].st_name, name) == 0)
            return e->symbols[n].st_shndx != SHN_UNDEF;
        if (there & 1) /* the end of the bucket */
            return false;
    }
}

/*
 * libsycl, UR's loader, UR's adapters up to 2025.2 and from 2025.3 on, UMF, and the plugins of
 * older runtimes.
 */
static bool exports_runtime(const struct zr_elf *elf) {
    static const char *const marks[] = {
        "__sycl_register_lib",       "urAdapterGet",  "urGetGlobalProcAddrTable",
        "urGetAdapterProcAddrTable", "umfPoolCreate", "piPluginInit"};
    struct exports e;

    if (!read_exports(elf, &e))
        return false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (defines(&e, marks[i]))
            return true;
    return false;
}

/* --- by what it holds ------------------------------------------------------------------------- */

/* The variable that every version of the Level Zero adapter reads, as a string of its own. */
static const unsigned char adapter_string[] = "\0UR_L0_USM_ALLOCATOR";
enum { LENGTH = sizeof adapter_string, LAST = LENGTH - 1 };

/*
 * Horspool's search. memmem() would be faster, but in a program that was built with
 * AddressSanitizer it is theirs, and ends the program: what lies between its variables is not to be
 * read.
 */
__attribute__((no_sanitize("address"))) static bool holds_adapter_string(const unsigned char *text,
                                                                         size_t bytes) {
    unsigned char skip[256];
    size_t at = 0;

    for (unsigned c = 0; c < sizeof skip; c++)
        skip[c] = LENGTH;
    for (unsigned i = 0; i < LAST; i++)
        skip[adapter_string[i]] = (unsigned char)(LAST - i);
    while (at + LENGTH <= bytes) {
        unsigned same = 0;

        while (same < LENGTH && text[at + same] == adapter_string[same])
            same++;
        if (same == LENGTH)
            return true;
        at += skip[text[at + LAST]];
    }
    return false;
}

bool zr_who_holds_adapter(const struct zr_elf *elf) {
    const size_t most = (size_t)256 << 20;
    const ElfW(Phdr) *segments = elf->segments;

    for (unsigned i = 0; i < elf->segment_count; i++) {
        const ElfW(Phdr) *p = &segments[i];
        const void *start = (const void *)(elf->bias + p->p_vaddr);
        size_t bytes = p->p_filesz < most ? p->p_filesz : most;

        if (p->p_type != PT_LOAD || p->p_flags & PF_W || !(p->p_flags & PF_R))
            continue;
        if (holds_adapter_string(start, bytes))
            return true;
    }
    return false;
}

enum zr_who zr_who_is(const struct zr_elf *elf) {
    enum zr_who who = who_by_name(elf->soname);

    if (who == ZR_WHO_NOT_KNOWN && exports_runtime(elf))
        who = ZR_WHO_RUNTIME;
    return who;
}
