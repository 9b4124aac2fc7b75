/*
 * Finds out which of the driver's own kernels a walker runs. The driver's library carries them as
 * ELF files (zebin), one set per chip; a kernel in GPU memory is recognised by its code, and the
 * text in .ze_info says where its arguments are. Searched once per kernel, some milliseconds each.
 * Kernels of one set begin alike, and another may come to lie at the same address, on another card
 * or later: so what was found is used again only for the very same code.
 */
#include "standin.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EM_INTEL_GRAPHICS 205
#define LONGEST_CODE 4096
#define DIFFERENT_AT_MOST 16 /* bytes: places that the driver patches */
#define KNOWN 1024

static const uint8_t *library;
static size_t library_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known {
    const struct xs_vm *vm;
    uint64_t address;
    size_t size;
    uint8_t *code;
    struct xs_kernel kernel;
} known[KNOWN];

static void open_library(void) {
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !library && fgets(line, sizeof(line), maps)) {
        char *path = strchr(line, '/');
        if (!path || !strstr(path, "libze_intel_gpu.so"))
            continue;
        path[strcspn(path, "\n")] = 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        if (fd < 0)
            continue;
        if (!fstat(fd, &st)) {
            void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (map != MAP_FAILED) {
                library = map;
                library_size = (size_t)st.st_size;
            }
        }
        close(fd);
    }
    if (maps)
        fclose(maps);
}

/* --- .ze_info: a list of kernels, each with lines "key: value" -------------------------------- */

static const char *value_of(const char *from, const char *to, const char *key) {
    size_t length = strlen(key);
    for (const char *p = from; p && p < to; p = memchr(p, '\n', (size_t)(to - p))) {
        p += *p == '\n';
        while (p < to && (*p == ' ' || *p == '-'))
            p++;
        if ((size_t)(to - p) > length && !strncmp(p, key, length) && p[length] == ':') {
            p += length + 1;
            while (p < to && *p == ' ')
                p++;
            return p;
        }
    }
    return NULL;
}

static unsigned number_of(const char *from, const char *to, const char *key, unsigned otherwise) {
    const char *value = value_of(from, to, key);
    return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static const char *find(const char *from, const char *to, const char *what) {
    return from < to ? memmem(from, (size_t)(to - from), what, strlen(what)) : NULL;
}

static void read_arguments(const char *from, const char *to, struct xs_kernel *kernel) {
    kernel->skip = number_of(from, to, "offset_to_skip_per_thread_data_load", 0);
    kernel->inline_size = number_of(from, to, "inline_data_payload_size", 0);
    const char *item = find(from, to, "payload_arguments:");
    const char *end = item ? find(item, to, "per_thread_payload_arguments:") : NULL;
    end = end ? end : to;
    while (item && (item = find(item, end, "- arg_type:")) != NULL) {
        const char *next = find(item + 1, end, "- arg_type:");
        next = next ? next : end;
        unsigned offset = number_of(item, next, "offset", 0), size = number_of(item, next, "size", 0);
        unsigned index = number_of(item, next, "arg_index", XS_KERNEL_ARGUMENTS);
        const char *type = value_of(item, next, "arg_type");
        if (index < XS_KERNEL_ARGUMENTS)
            kernel->arguments[index] = (struct xs_argument){offset, size};
        else if (type && !strncmp(type, "enqueued_local_size", 19))
            kernel->group = (struct xs_argument){offset, size};
        item++;
    }
}

static bool describe(const char *info, size_t length, const char *name, struct xs_kernel *kernel) {
    const char *end = info + length;
    for (const char *p = info; (p = find(p, end, "- name:")) != NULL; p++) {
        const char *value = value_of(p, end, "name");
        size_t n = strlen(name);
        if (value && (size_t)(end - value) > n && !strncmp(value, name, n) && value[n] == '\n') {
            const char *next = find(p + 1, end, "- name:");
            *kernel = (struct xs_kernel){0};
            read_arguments(p, next ? next : end, kernel);
            snprintf(kernel->name, sizeof(kernel->name), "%s", name);
            return true;
        }
    }
    return false;
}

/* --- the zebin files -------------------------------------------------------------------------- */

static unsigned differences(const uint8_t *a, const uint8_t *b, size_t length, unsigned most) {
    unsigned count = 0;
    for (size_t i = 0; i < length && count <= most; i++)
        count += a[i] != b[i];
    return count;
}

static const Elf64_Shdr *sections_of(const uint8_t *file, size_t room) {
    const Elf64_Ehdr *elf = (const void *)file;
    if (room < sizeof(*elf) || elf->e_machine != EM_INTEL_GRAPHICS ||
        elf->e_shoff + elf->e_shnum * sizeof(Elf64_Shdr) > room || elf->e_shstrndx >= elf->e_shnum)
        return NULL;
    return (const void *)(file + elf->e_shoff);
}

/* Looks at one file; best is the fewest differences so far. Sets the size of the code it found. */
static void try_file(const uint8_t *file, size_t room, struct known *out, unsigned *best) {
    const uint8_t *code = out->code;
    const Elf64_Shdr *sections = sections_of(file, room), *info = NULL;
    if (!sections)
        return;
    const Elf64_Ehdr *elf = (const void *)file;
    const char *names = (const char *)file + sections[elf->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < elf->e_shnum; i++) {
        if (!strcmp(names + sections[i].sh_name, ".ze_info"))
            info = &sections[i];
    }
    for (unsigned i = 0; i < elf->e_shnum && info && *best; i++) {
        const char *name = names + sections[i].sh_name;
        if (strncmp(name, ".text.", 6) || sections[i].sh_offset + sections[i].sh_size > room)
            continue;
        const uint8_t *text = file + sections[i].sh_offset;
        size_t size = sections[i].sh_size < LONGEST_CODE ? sections[i].sh_size : LONGEST_CODE;
        const uint8_t *start = memmem(text, size < 512 ? size : 512, code, 32);
        if (!start)
            continue;
        size -= (size_t)(start - text);
        unsigned n = differences(start, code, size, DIFFERENT_AT_MOST);
        struct xs_kernel kernel;
        if (n <= DIFFERENT_AT_MOST && n < *best &&
            describe((const char *)file + info->sh_offset, info->sh_size, name + 6, &kernel)) {
            *best = n;
            out->size = size;
            out->kernel = kernel;
        }
    }
}

static void search(struct known *out) {
    unsigned best = DIFFERENT_AT_MOST + 1;
    const uint8_t *p = library, *end = library + library_size;
    while (p && best && (p = memmem(p, (size_t)(end - p), ELFMAG, SELFMAG)) != NULL) {
        if (!((uintptr_t)p % 4))
            try_file(p, (size_t)(end - p), out, &best);
        p += SELFMAG;
    }
}

static struct known *place_of(const struct xs_vm *vm, uint64_t address) {
    uint64_t key = (address / 64 ^ (uintptr_t)vm) * 0x9e3779b97f4a7c15ull;
    return &known[key >> 32 & (KNOWN - 1)];
}

/* Lock held. */
static void learn(struct known *place, const struct xs_vm *vm, uint64_t address, const struct xs_span *span) {
    if (!library)
        open_library();
    if (!place->code)
        place->code = malloc(LONGEST_CODE);
    place->address = 0;
    if (!place->code)
        return;
    size_t length = span->length < LONGEST_CODE ? (size_t)span->length : LONGEST_CODE;
    memcpy(place->code, span->at, length);
    memset(place->code + length, 0, LONGEST_CODE - length);
    place->vm = vm;
    place->address = address;
    place->size = length;
    place->kernel = (struct xs_kernel){0};
    search(place);
}

/* The name is empty for a kernel that is not one of the driver's own. */
struct xs_kernel xs_kernel_at(struct xs_vm *vm, uint64_t address) {
    struct xs_kernel kernel = {0};
    struct xs_span span;
    if (!xs_vm_pin(vm, address, &span)) {
        xs_vm_fault(address, "no kernel");
        return kernel;
    }
    pthread_mutex_lock(&lock);
    struct known *place = place_of(vm, address);
    if (place->vm != vm || place->address != address || place->size > span.length ||
        memcmp(place->code, span.at, place->size))
        learn(place, vm, address, &span);
    if (place->address)
        kernel = place->kernel;
    pthread_mutex_unlock(&lock);
    xs_vm_unpin(&span);
    return kernel;
}
