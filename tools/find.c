/* Files that belong to the command, wherever it is installed. */
#include "tools.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool zr_find_file(const char *name, char *out, size_t size)
{
    static const char *const places[] = {"", "../lib/zeroute/", "../lib/", "../lib64/",
                                         "../lib/x86_64-linux-gnu/"};
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s%s%s", self, places[i], name);
        if (access(path, F_OK) == 0) {
            /* Without "..", so that it reads well and survives a change of directory. */
            char *whole = realpath(path, NULL);
            snprintf(out, size, "%s", whole ? whole : path);
            free(whole);
            return true;
        }
    }
    snprintf(out, size, "%s is neither beside the command (%s) nor in ../lib or ../lib/zeroute",
             name, self);
    return false;
}

bool zr_check_library(const char *path, char *why, size_t size)
{
    Elf64_Ehdr h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        return false;
    }
    ssize_t n = read(fd, &h, sizeof h);
    close(fd);
    if (n != sizeof h || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
        snprintf(why, size, "%s is not an ELF file: expected a shared library", path);
    else if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != EM_X86_64)
        snprintf(why, size, "%s is for another machine: expected one for x86-64", path);
    else if (h.e_type != ET_DYN)
        snprintf(why, size, "%s is not a shared library", path);
    else
        return true;
    return false;
}

bool zr_is_static(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];
    snprintf(file, sizeof file, "%s", program);
    while (!strchr(program, '/') && path && *path) {
        size_t n = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)n, path, program);
        if (access(file, X_OK) == 0)
            break;
        path += n + (path[n] == ':');
    }
    Elf64_Ehdr h;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    bool is_static = fd >= 0 && read(fd, &h, sizeof h) == sizeof h &&
                     memcmp(h.e_ident, ELFMAG, SELFMAG) == 0 &&
                     h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_phentsize == sizeof(Elf64_Phdr);
    for (unsigned i = 0; is_static && i < h.e_phnum; i++) {
        Elf64_Phdr p;
        if (pread(fd, &p, sizeof p, (off_t)(h.e_phoff + i * sizeof p)) != sizeof p ||
            p.p_type == PT_INTERP)
            is_static = false;
    }
    if (fd >= 0)
        close(fd);
    return is_static;
}
