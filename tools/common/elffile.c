#include "common/common.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((off_t)256 << 20) /* several times the largest library of the stack */

/* Regular files alone: to open a device, or a pipe, may do something, or wait. */
static int open_regular(const char *path, struct stat *st) {
    char again[32];
    int fd = -1, there = open(path, O_PATH | O_CLOEXEC);

    if (there < 0)
        return -1;
    snprintf(again, sizeof again, "/proc/self/fd/%d", there);
    if (!fstat(there, st) && S_ISREG(st->st_mode) && st->st_size > 0 && st->st_size <= MOST_BYTES)
        fd = open(again, O_RDONLY | O_CLOEXEC);
    close(there);
    return fd;
}

/* Read, not mapped: a file that its owner cuts off meanwhile would be the end of us. */
bool zr_elf_open(struct zr_elf_file *elf, const char *path) {
    struct stat st;
    unsigned char *data;
    size_t have = 0;
    ssize_t got = 1;
    int fd = open_regular(path, &st);

    *elf = (struct zr_elf_file){NULL, 0};
    if (fd < 0)
        return false;
    data = malloc((size_t)st.st_size);
    while (data && have < (size_t)st.st_size && got > 0) {
        got = read(fd, data + have, (size_t)st.st_size - have);
        have += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (!have) {
        free(data);
        return false;
    }
    *elf = (struct zr_elf_file){data, have};
    return true;
}

void zr_elf_close(struct zr_elf_file *elf) {
    free((void *)(uintptr_t)elf->data);
    *elf = (struct zr_elf_file){NULL, 0};
}

/* A piece of the file, copied out so that alignment does not matter; false outside the file. */
static bool take(const struct zr_elf_file *elf, uint64_t offset, void *to, size_t size) {
    if (offset > elf->size || size > elf->size - offset)
        return false;
    memcpy(to, elf->data + offset, size);
    return true;
}

static bool header_of(const struct zr_elf_file *elf, Elf64_Ehdr *header) {
    return elf->data && take(elf, 0, header, sizeof *header) && !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_phentsize == sizeof(Elf64_Phdr);
}

static bool segment_of(const struct zr_elf_file *elf, const Elf64_Ehdr *header, unsigned index, Elf64_Phdr *segment) {
    return index < header->e_phnum &&
           take(elf, header->e_phoff + (uint64_t)index * sizeof *segment, segment, sizeof *segment);
}

static bool find_segment(const struct zr_elf_file *elf, uint32_t type, Elf64_Phdr *segment) {
    Elf64_Ehdr header;

    if (!header_of(elf, &header))
        return false;
    for (unsigned i = 0; segment_of(elf, &header, i, segment); i++) {
        if (segment->p_type == type)
            return true;
    }
    return false;
}

static bool offset_of(const struct zr_elf_file *elf, uint64_t address, uint64_t *offset) {
    Elf64_Ehdr header;
    Elf64_Phdr load;

    if (!header_of(elf, &header))
        return false;
    for (unsigned i = 0; segment_of(elf, &header, i, &load); i++) {
        if (load.p_type == PT_LOAD && address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz) {
            *offset = address - load.p_vaddr + load.p_offset;
            return true;
        }
    }
    return false;
}

static const char *string_at(const struct zr_elf_file *elf, uint64_t offset) {
    if (offset >= elf->size || !memchr(elf->data + offset, '\0', elf->size - offset))
        return NULL;
    return (const char *)elf->data + offset;
}

void zr_elf_build_id(const struct zr_elf_file *elf, char *out, size_t size) {
    Elf64_Ehdr header;
    Elf64_Phdr notes;

    *out = '\0';
    if (!header_of(elf, &header))
        return;
    for (unsigned i = 0; segment_of(elf, &header, i, &notes); i++) {
        uint64_t at = notes.p_offset;
        Elf64_Nhdr note;

        if (notes.p_type != PT_NOTE)
            continue;
        while (at + sizeof note <= notes.p_offset + notes.p_filesz && take(elf, at, &note, sizeof note)) {
            uint64_t name = at + sizeof note;
            uint64_t text = name + ((note.n_namesz + 3u) & ~3u);
            unsigned char byte;

            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz <= 64) {
                for (uint32_t k = 0; k < note.n_descsz && 2 * k + 3 <= size; k++) {
                    if (take(elf, text + k, &byte, 1))
                        snprintf(out + 2 * (size_t)k, 3, "%02x", byte);
                }
                return;
            }
            at = text + ((note.n_descsz + 3u) & ~3u);
        }
    }
}

/* One entry of the dynamic section after the other; false at the end. */
static bool dynamic_entry(const struct zr_elf_file *elf, const Elf64_Phdr *dynamic, unsigned index, Elf64_Dyn *entry) {
    return (index + UINT64_C(1)) * sizeof *entry <= dynamic->p_filesz &&
           take(elf, dynamic->p_offset + index * sizeof *entry, entry, sizeof *entry) && entry->d_tag != DT_NULL;
}

static bool dynamic_value(const struct zr_elf_file *elf, const Elf64_Phdr *dynamic, int64_t tag, uint64_t *value) {
    Elf64_Dyn entry;

    for (unsigned i = 0; dynamic_entry(elf, dynamic, i, &entry); i++) {
        if (entry.d_tag == tag) {
            *value = entry.d_un.d_val;
            return true;
        }
    }
    return false;
}

bool zr_elf_needs(const struct zr_elf_file *elf, const char *name) {
    Elf64_Phdr dynamic;
    Elf64_Dyn entry;
    uint64_t strings;

    if (!find_segment(elf, PT_DYNAMIC, &dynamic) || !dynamic_value(elf, &dynamic, DT_STRTAB, &strings) ||
        !offset_of(elf, strings, &strings))
        return false;
    for (unsigned i = 0; dynamic_entry(elf, &dynamic, i, &entry); i++) {
        const char *needed = entry.d_tag == DT_NEEDED ? string_at(elf, strings + entry.d_un.d_val) : NULL;

        if (needed && !strncmp(needed, name, strlen(name)))
            return true;
    }
    return false;
}

bool zr_elf_imports(const struct zr_elf_file *elf, const char *name) {
    Elf64_Phdr dynamic;
    Elf64_Sym symbol;
    uint64_t strings, symbols;

    if (!find_segment(elf, PT_DYNAMIC, &dynamic) || !dynamic_value(elf, &dynamic, DT_STRTAB, &strings) ||
        !dynamic_value(elf, &dynamic, DT_SYMTAB, &symbols) || !offset_of(elf, strings, &strings) ||
        !offset_of(elf, symbols, &symbols))
        return false;
    /* The symbols' number is not told; linkers put the strings right behind them, or a hash table
     * whose first words are no valid symbol: either ends the walk at a name outside the file. */
    for (uint64_t at = symbols; at < strings || symbols > strings; at += sizeof symbol) {
        const char *text;

        if (!take(elf, at, &symbol, sizeof symbol))
            return false;
        text = string_at(elf, strings + symbol.st_name);
        if (!text)
            return false;
        if (symbol.st_shndx == SHN_UNDEF && !strcmp(text, name))
            return true;
    }
    return false;
}

bool zr_elf_mentions(const struct zr_elf_file *elf, const char *string) {
    size_t length = strlen(string) + 1;
    const unsigned char *at = elf->data;

    while (at && (at = memmem(at, elf->size - (size_t)(at - elf->data), string, length))) {
        if (at == elf->data || !at[-1])
            return true;
        at++;
    }
    return false;
}

void zr_elf_number_after(const struct zr_elf_file *elf, const char *prefix, char *out, size_t size) {
    const unsigned char *at = elf->data ? memmem(elf->data, elf->size, prefix, strlen(prefix)) : NULL;
    size_t n = 0;

    if (at) {
        at += strlen(prefix);
        while (n + 1 < size && at < elf->data + elf->size && (isdigit(*at) || *at == '.'))
            out[n++] = (char)*at++;
    }
    out[n] = '\0';
}

void zr_elf_driver_version(const struct zr_elf_file *elf, char *out, size_t size) {
    const unsigned char *at = elf->data, *end = elf->data + elf->size;

    *out = '\0';
    /* Strings of 11 or 12 characters between two zeros. */
    while (at && at + 14 < end && (at = memchr(at, '\0', (size_t)(end - at) - 14))) {
        const unsigned char *s = ++at;
        size_t digits = 6;

        if (s[0] != '2' || !isdigit(s[1]) || s[2] != '.' || !isdigit(s[3]) || !isdigit(s[4]) || s[5] != '.')
            continue;
        while (digits < 12 && isdigit(s[digits]))
            digits++;
        if (digits < 11 || s[digits])
            continue;
        /* the build number is padded with a zero: 26.27.039122 */
        snprintf(out, size, "%.6s%s", (const char *)s, (const char *)s + 6 + (s[6] == '0' && digits == 12));
        return;
    }
}
