/* The SYCL runtime that a Python has, or /opt/intel. Nothing is run: its folder is looked into. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const sonames[] = {"libsycl.so.9", "libsycl.so.8", "libsycl.so.7"};
enum { SONAMES = sizeof sonames / sizeof *sonames };

static bool in_folder(const char *folder, char *out, size_t out_size, char *name, size_t size) {
    char path[1200];

    for (unsigned i = 0; i < SONAMES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, sonames[i]);
        if (access(path, R_OK) != 0)
            continue;
        if (out != folder)
            snprintf(out, out_size, "%s", folder);
        snprintf(name, size, "%s", sonames[i]);
        return true;
    }
    return false;
}

/* The first folder of a list like LD_LIBRARY_PATH that has one. */
static bool in_list(const char *list, char *out, size_t out_size, char *name, size_t size) {
    char folder[512];

    while (list && *list) {
        size_t n = strcspn(list, ":");

        snprintf(folder, sizeof folder, "%.*s", (int)n, list);
        if (*folder && in_folder(folder, out, out_size, name, size))
            return true;
        list += n + (list[n] == ':');
    }
    return false;
}

/* PREFIX/bin/python has its runtime in PREFIX/lib: pip puts it there. The name of a program is searched in PATH. */
static bool of_python(const char *python, char *out, size_t out_size, char *name, size_t size) {
    const char *path = getenv("PATH");
    char file[1024], folder[1100], *slash;

    snprintf(file, sizeof file, "%s", python);
    while (!strchr(python, '/') && path && *path) {
        size_t n = strcspn(path, ":");

        snprintf(file, sizeof file, "%.*s/%s", (int)n, path, python);
        if (access(file, X_OK) == 0)
            break;
        path += n + (path[n] == ':');
    }
    slash = strrchr(file, '/');
    if (!slash)
        return false;
    *slash = '\0';
    snprintf(folder, sizeof folder, "%s/../lib", file);
    return in_folder(folder, out, out_size, name, size);
}

bool zr_selftest_find_runtime(const char *python, char *folder, size_t folder_size, char *name, size_t size) {
    static const char *const installed[] = {"/opt/intel/oneapi/compiler/latest/lib", "/opt/intel/oneapi/redist/lib"};
    const char *active = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX");
    char own[1024];

    *folder = *name = '\0';
    if (python)
        return of_python(python, folder, folder_size, name, size);
    if (in_list(getenv("LD_LIBRARY_PATH"), folder, folder_size, name, size))
        return true;
    for (int i = 0; i < 2; i++) {
        const char *prefix = i ? conda : active;

        snprintf(own, sizeof own, "%s/lib", prefix ? prefix : "");
        if (prefix && in_folder(own, folder, folder_size, name, size))
            return true;
    }
    if (of_python("python3", folder, folder_size, name, size))
        return true;
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++) {
        if (in_folder(installed[i], folder, folder_size, name, size))
            return true;
    }
    return false;
}
