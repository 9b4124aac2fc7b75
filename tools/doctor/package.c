/*
 * The version of the package that a library came with. The file's name is no help: libze_loader.so.1.8.0 is in
 * libze1 1.8.12, and everybody else names that.
 */
#include "doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

/* Whether a line of the list is this path; merged-usr systems list /lib/... and /usr/lib/... alike. */
static bool lists(const char *list, const char *path) {
    const char *paths[] = {path, !strncmp(path, "/usr/", 5) ? path + 4 : path};

    for (size_t i = 0; i < 2; i++)
        for (const char *at = list; (at = strstr(at, paths[i])); at++) {
            size_t n = strlen(paths[i]);
            if ((at == list || at[-1] == '\n') && (at[n] == '\n' || !at[n]))
                return true;
        }
    return false;
}

static void version_of_package(const char *status, const char *package, char *out, size_t size) {
    char head[80];
    const char *at, *end;

    snprintf(head, sizeof head, "Package: %s\n", package);
    for (at = strstr(status, head); at; at = strstr(at + 1, head)) {
        if (at != status && at[-1] != '\n')
            continue;
        end = strstr(at, "\n\n");
        const char *version = strstr(at, "\nVersion: ");
        if (version && (!end || version < end)) {
            version += 10;
            version +=
                strcspn(version, ":\n") < 3 && version[strcspn(version, ":\n")] == ':' ? strcspn(version, ":") + 1 : 0;
            snprintf(out, size, "%.*s", (int)strcspn(version, "-+~\n"), version);
        }
        return;
    }
}

/* Below a root for tests, or as the machine has it. */
static char *read_of(const char *format, const char *a, const char *b) {
    char below[512], path[256];

    snprintf(path, sizeof path, format, a, b);
    char *text = zr_read_whole(zr_root_path(below, sizeof below, "%s", path), NULL);
    return text ? text : zr_read_whole(path, NULL);
}

void zr_package_version(const char *path, char *out, size_t size) {
    static const char *const packages[] = {"libze1", "level-zero", "level-zero-loader"};
    static const char *const kinds[] = {"", ":amd64"};
    char *status = NULL;

    *out = '\0';
    for (size_t p = 0; p < sizeof packages / sizeof *packages && !*out; p++)
        for (size_t k = 0; k < 2 && !*out; k++) {
            char *list = read_of("/var/lib/dpkg/info/%s%s.list", packages[p], kinds[k]);
            if (list && lists(list, path)) {
                status = status ? status : read_of("/var/lib/dpkg/status%s%s", "", "");
                if (status)
                    version_of_package(status, packages[p], out, size);
            }
            free(list);
        }
    free(status);
}
