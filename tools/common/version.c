/* zeroute --version, and with --verbose what this build is made of. */
#include "common/common.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#ifndef ZR_WITHOUT_HTTP
#include <microhttpd.h>
#endif
#include <stdlib.h>
#include <string.h>

static const void *at(const struct zr_elf_file *elf, uint64_t offset, uint64_t size) {
    return offset <= elf->size && size <= elf->size - offset ? elf->data + offset : NULL;
}

static const Elf64_Shdr *section(const struct zr_elf_file *elf, uint64_t index) {
    const Elf64_Ehdr *h = at(elf, 0, sizeof *h);

    return h && index < h->e_shnum ? at(elf, h->e_shoff + index * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr)) : NULL;
}

/* One library's list of needed versions; raises *minor to the newest GLIBC_2.x in it. */
static void newest_of(const struct zr_elf_file *elf, const Elf64_Shdr *strings, uint64_t offset, unsigned count,
                      long *minor) {
    static const char stem[] = "GLIBC_2.";
    const Elf64_Vernaux *aux;

    for (; count && (aux = at(elf, offset, sizeof *aux)); count--, offset += aux->vna_next) {
        const char *name = at(elf, strings->sh_offset + aux->vna_name, sizeof stem + 8);

        if (name && !strncmp(name, stem, sizeof stem - 1) && strtol(name + sizeof stem - 1, NULL, 10) > *minor)
            *minor = strtol(name + sizeof stem - 1, NULL, 10);
    }
}

/* The oldest glibc that the file runs on: 2.N; -1 when it does not say. */
static long glibc_floor(const struct zr_elf_file *elf) {
    const Elf64_Shdr *s, *strings;
    const Elf64_Verneed *need;
    long minor = -1;

    for (uint64_t i = 0; (s = section(elf, i)); i++) {
        uint64_t offset = s->sh_offset;

        if (s->sh_type != SHT_GNU_verneed || !(strings = section(elf, s->sh_link)))
            continue;
        for (unsigned left = s->sh_info; left && (need = at(elf, offset, sizeof *need)); left--) {
            newest_of(elf, strings, offset + need->vn_aux, need->vn_cnt, &minor);
            offset += need->vn_next;
        }
    }
    return minor;
}

static void describe(const char *what, const char *path) {
    struct zr_elf_file elf;
    char id[64] = "";

    if (!zr_elf_open(&elf, path)) {
        printf("%-13s not found\n", what);
        return;
    }
    zr_elf_build_id(&elf, id, sizeof id);
    printf("%-13s build id %s, glibc 2.%ld or later\n", what, *id ? id : "none", glibc_floor(&elf));
    zr_elf_close(&elf);
}

void zr_print_version(bool verbose) {
    char path[1024];

    printf("zeroute %s\n", ZEROUTE_VERSION);
    if (!verbose)
        return;
    describe("command:", "/proc/self/exe");
    describe("preload:", zr_find_file("libzeroute.so", path, sizeof path) ? path : "");
    describe("simgpu:", zr_find_file("libze_simgpu.so", path, sizeof path) ? path : "");
    printf("%-13s %s\n", "compiler:", __VERSION__);
#ifdef ZR_WITHOUT_HTTP
    printf("%-13s %s\n", "features:", "all but serving over HTTP (zeroute serve --textfile works)");
    printf("%-13s glibc %s, jansson %s\n", "libraries:", gnu_get_libc_version(), jansson_version_str());
#else
    printf("%-13s %s\n", "features:", "all");
    printf("%-13s glibc %s, jansson %s, libmicrohttpd %s\n", "libraries:", gnu_get_libc_version(),
           jansson_version_str(), MHD_get_version());
#endif
}
