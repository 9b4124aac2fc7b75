/*
 * What a shared library's file tells: build id, soname, what it needs, which names it mentions.
 * Nothing is loaded; a file that is damaged or not ELF gives empty answers.
 */
#ifndef ZEROUTE_TOOLS_ELFFILE_H
#define ZEROUTE_TOOLS_ELFFILE_H

#include <stdbool.h>
#include <stddef.h>

struct zr_elf {
    const unsigned char *data; /* NULL: could not be opened */
    size_t size;
};

/* False with errno set when the file cannot be read. */
bool zr_elf_open(struct zr_elf *elf, const char *path);
void zr_elf_close(struct zr_elf *elf);

/* Hexadecimal; "" when the file has none, as Intel's own builds have not. */
void zr_elf_build_id(const struct zr_elf *elf, char *out, size_t size);

/* Whether a DT_NEEDED entry starts with this name. */
bool zr_elf_needs(const struct zr_elf *elf, const char *name);

/* Whether the file imports a function of exactly this name. */
bool zr_elf_imports(const struct zr_elf *elf, const char *name);

/* Whether the whole string is somewhere in the file: a library that reads an environment variable
 * carries its name. Walks the whole file. */
bool zr_elf_mentions(const struct zr_elf *elf, const char *string);

/* What follows the first occurrence of a prefix, up to a character outside "0-9."; "" without one. */
void zr_elf_number_after(const struct zr_elf *elf, const char *prefix, char *out, size_t size);

/* The first string of the file that looks like "2N.NN.NNNNN": how the Intel driver names itself. */
void zr_elf_driver_version(const struct zr_elf *elf, char *out, size_t size);

#endif
