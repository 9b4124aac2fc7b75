/* What the file of a library tells, wherever its process has it. */
#include "outside/wire.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 4096 }; /* of one directory */

/*
 * In a container the path means something else: the process's own root first. A root for tests may hold /proc alone.
 */
static bool find_library(char *out, size_t size, int pid, const char *path) {
    if (!pid) {
        snprintf(out, size, "%s", path);
        return access(out, R_OK) == 0;
    }
    zr_root_path(out, size, "/proc/%d/root%s", pid, path);
    if (!access(out, R_OK))
        return true;
    snprintf(out, size, "/proc/%d/root%s", pid, path);
    if (!access(out, R_OK))
        return true;
    zr_root_path(out, size, "%s", path);
    return !access(out, R_OK);
}

/* "intel_sycl_rt-2026.2.0.dist-info" in site-packages tells the release of a wheel. */
static void find_wheel(const char *site, const char *wheel, char *out, size_t size) {
    size_t length = strlen(wheel);
    DIR *packages = opendir(site);
    struct dirent *package;

    for (int i = 0; i < ENTRIES && packages && (package = readdir(packages)); i++) {
        const char *end = strstr(package->d_name, ".dist-info");

        if (end && !strncmp(package->d_name, wheel, length) && package->d_name[length] == '-')
            snprintf(out, size, "%.*s", (int)(end - package->d_name - (int)length - 1), package->d_name + length + 1);
    }
    if (packages)
        closedir(packages);
}

static void look_beside(struct zr_outside_library *l) {
    char folder[1100], site[1400];
    DIR *python;
    struct dirent *entry;

    snprintf(folder, sizeof folder, "%s", l->file);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return;
    *slash = '\0';
    snprintf(site, sizeof site, "%s/libze_loader.so", folder);
    l->unversioned = !access(site, F_OK);
    python = opendir(folder);
    for (int i = 0; i < ENTRIES && python && (entry = readdir(python)); i++) {
        if (strncmp(entry->d_name, "python3", 7))
            continue;
        snprintf(site, sizeof site, "%s/%s/site-packages", folder, entry->d_name);
        find_wheel(site, "intel_sycl_rt", l->wheel, sizeof l->wheel);
    }
    if (python)
        closedir(python);
}

bool zr_library_look(int pid, const char *path, struct zr_outside_library *out) {
    struct zr_elf_file elf;

    memset(out, 0, sizeof *out);
    if (!find_library(out->file, sizeof out->file, pid, path) || !zr_elf_open(&elf, out->file)) {
        *out->file = '\0';
        return false;
    }
    zr_elf_build_id(&elf, out->build_id, sizeof out->build_id);
    zr_elf_driver_version(&elf, out->driver, sizeof out->driver);
    zr_elf_number_after(&elf, "DPC++/C++ Compiler ", out->compiler, sizeof out->compiler);
    out->needs_loader = zr_elf_needs(&elf, "libze_loader.so") || zr_elf_imports(&elf, "zeInit");
    zr_elf_close(&elf);
    look_beside(out);
    return true;
}

/* The file of the last question, because many are about the same one. */
bool zr_library_has(const char *file, const char *string) {
    static struct zr_elf_file elf;
    static char last[1024];

    if (!elf.data || strcmp(last, file) != 0) {
        zr_elf_close(&elf);
        snprintf(last, sizeof last, "%s", file);
        if (!zr_elf_open(&elf, file))
            return false;
    }
    return zr_elf_mentions(&elf, string);
}
