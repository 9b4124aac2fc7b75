/* Files that belong to the command, wherever it is installed. */
#include "common/common.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool zr_find_file(const char *name, char *out, size_t size) {
    static const char *const places[] = {"", "../lib/zeroute/", "../lib/", "../lib64/", "../lib/x86_64-linux-gnu/"};
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
    snprintf(out, size, "%s is neither beside the command (%s) nor in ../lib or ../lib/zeroute", name, self);
    return false;
}

/* Its own name is in the library, whatever the file is called. */
static bool is_ours(const char *path, char *why, size_t size) {
    struct zr_elf_file elf;
    bool ours = zr_elf_open(&elf, path) && zr_elf_mentions(&elf, "libzeroute.so");
    zr_elf_close(&elf);
    if (!ours)
        snprintf(why, size, "%s is another library: expected libzeroute.so", path);
    return ours;
}

bool zr_check_library(const char *path, char *why, size_t size) {
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
        return is_ours(path, why, size);
    return false;
}

/* Why nothing can be preloaded into this ELF file; NULL if it can. */
static const char *elf_obstacle(int fd) {
    Elf64_Ehdr h;
    if (pread(fd, &h, sizeof h, 0) != sizeof h || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
        return NULL;
    if (h.e_ident[EI_CLASS] != ELFCLASS64)
        return "is a 32-bit program";
    if (h.e_machine != EM_X86_64)
        return "is for another machine";
    if (h.e_phentsize != sizeof(Elf64_Phdr))
        return NULL;
    for (unsigned i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        if (pread(fd, &p, sizeof p, (off_t)(h.e_phoff + i * sizeof p)) != sizeof p || p.p_type == PT_INTERP)
            return NULL;
    }
    return "is statically linked";
}

const char *zr_preload_obstacle(const char *program) {
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
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const char *obstacle = fd < 0 ? NULL : elf_obstacle(fd);
    if (!obstacle && stat(file, &st) == 0 &&
        (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) || ((st.st_mode & S_ISGID) && st.st_gid != getegid())))
        obstacle = "runs with other rights than yours (set-user-ID)";
    if (fd >= 0)
        close(fd);
    return obstacle;
}

/* Through an ld-linux that was called by hand the link names that instead. */
void zr_own_path(char *out, size_t size) {
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    const char *base;

    out[length < 0 ? 0 : length] = '\0';
    base = strrchr(out, '/');
    if (length < 0 || (base && !strncmp(base + 1, "ld-", 3)))
        snprintf(out, size, "%s", program_invocation_name);
}
