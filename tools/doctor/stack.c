#include "doctor/doctor.h"

#include "common/common.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

const char *const zr_part_names[ZR_PARTS] = {
#define ZR_PART(id, file, what) what,
#include "doctor/parts.def"
#undef ZR_PART
};

static const char *const files[ZR_PARTS] = {
#define ZR_PART(id, file, what) file,
#include "doctor/parts.def"
#undef ZR_PART
};

/* --- the environment ------------------------------------------------------------------------- */

const char *zr_environ_next(const struct zr_environ *from, const char *last) {
    const char *next = last ? last + strlen(last) + 1 : from->text;

    return next && next < from->text + from->length ? next : NULL;
}

const char *zr_environ_get(const struct zr_environ *from, const char *name) {
    size_t length = strlen(name);

    for (const char *s = NULL; (s = zr_environ_next(from, s));) {
        if (!strncmp(s, name, length) && s[length] == '=')
            return s + length + 1;
    }
    return NULL;
}

const char *zr_environ_key(const struct zr_environ *from, const char *key, char *name, size_t size) {
    static const char *const prefixes[] = {"NEO_L0_", "NEO_", ""};

    for (size_t i = 0; i < 3; i++) {
        const char *value;

        snprintf(name, size, "%s%s", prefixes[i], key);
        value = zr_environ_get(from, name);
        if (value)
            return value;
    }
    return NULL;
}

static void take_own_environ(struct zr_environ *to) {
    for (char **s = environ; s && *s; s++) {
        size_t length = strlen(*s) + 1;
        char *more = realloc(to->text, to->length + length);

        if (!more)
            return;
        to->text = more;
        memcpy(more + to->length, *s, length);
        to->length += length;
    }
}

/* --- one library ----------------------------------------------------------------------------- */

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The part whose name the file's name starts with, followed by nothing or by a version. */
static int part_of(const char *path) {
    const char *base = base_of(path);

    for (int i = 0; i < ZR_PARTS; i++) {
        size_t length = strlen(files[i]);

        if (!strncmp(base, files[i], length) && (!base[length] || base[length] == '.'))
            return i;
    }
    return -1;
}

/* "libze_loader.so.1.28.2" -> "1.28.2". A bare ".so" or ".so.1" tells no version. */
static void version_from_name(const char *path, char *out, size_t size) {
    const char *so = strstr(base_of(path), ".so.");

    *out = '\0';
    if (so && strchr(so + 4, '.'))
        snprintf(out, size, "%s", so + 4);
}

/* "intel_sycl_rt-2026.2.0.dist-info" beside the library's folder tells the release of a wheel. */
static void version_from_wheel(const char *file, const char *wheel, char *out, size_t size) {
    char folder[1100];
    char *lib;
    DIR *python;
    struct dirent *entry;

    snprintf(folder, sizeof folder, "%s", file);
    lib = strrchr(folder, '/');
    if (!lib)
        return;
    *lib = '\0';
    python = opendir(folder);
    while (python && (entry = readdir(python))) {
        char site[1400];
        DIR *packages;
        struct dirent *package;

        if (strncmp(entry->d_name, "python3", 7))
            continue;
        snprintf(site, sizeof site, "%s/%s/site-packages", folder, entry->d_name);
        packages = opendir(site);
        while (packages && (package = readdir(packages))) {
            size_t length = strlen(wheel);
            const char *end = strstr(package->d_name, ".dist-info");

            if (end && !strncmp(package->d_name, wheel, length) && package->d_name[length] == '-')
                snprintf(out, size, "%.*s", (int)(end - package->d_name - (int)length - 1),
                         package->d_name + length + 1);
        }
        if (packages)
            closedir(packages);
    }
    if (python)
        closedir(python);
}

static void inspect(struct zr_library *library, enum zr_part part) {
    struct zr_elf_file elf;

    version_from_name(library->path, library->version, sizeof library->version);
    if (!*library->file || !zr_elf_open(&elf, library->file)) {
        *library->file = '\0';
        return;
    }
    zr_elf_build_id(&elf, library->build_id, sizeof library->build_id);
    if (part == ZR_PART_LOADER) {
        char package[48];

        zr_package_version(library->path, package, sizeof package);
        if (*package)
            snprintf(library->version, sizeof library->version, "%s", package);
    }
    if (part == ZR_PART_DRIVER || part == ZR_PART_DRIVER_LEGACY) {
        char release[48];

        zr_elf_driver_version(&elf, release, sizeof release);
        if (*release)
            snprintf(library->version, sizeof library->version, "%s", release);
    } else if (part == ZR_PART_SYCL || part == ZR_PART_UR_V1 || part == ZR_PART_UR_V2 || part == ZR_PART_PI ||
               part == ZR_PART_UR) {
        char release[48];

        zr_elf_number_after(&elf, "DPC++/C++ Compiler ", release, sizeof release);
        if (*release)
            snprintf(library->version, sizeof library->version, "%s", release);
        if (part == ZR_PART_SYCL)
            version_from_wheel(library->file, "intel_sycl_rt", library->version, sizeof library->version);
    }
    zr_elf_close(&elf);
}

/* Whoever is looked at chooses the libraries and how many names to search them for: not without end. */
bool zr_library_mentions(const struct zr_library *library, const char *string) {
    static uint64_t searched;
    struct zr_elf_file elf;
    bool found;

    if (searched > UINT64_C(16) << 30)
        return true; /* of which nothing follows */
    if (!library->there || !*library->file || !zr_elf_open(&elf, library->file))
        return false;
    searched += elf.size;
    found = zr_elf_mentions(&elf, string);
    zr_elf_close(&elf);
    return found;
}

static void add(struct zr_stack *stack, const char *path, const char *file) {
    int part = part_of(path);

    if (part < 0 || stack->parts[part].there)
        return;
    stack->parts[part].there = true;
    snprintf(stack->parts[part].path, sizeof stack->parts[part].path, "%s", path);
    snprintf(stack->parts[part].file, sizeof stack->parts[part].file, "%s", file);
    inspect(&stack->parts[part], (enum zr_part)part);
}

/* --- what follows from the libraries --------------------------------------------------------- */

static bool is_on(const char *value) {
    return value && strcmp(value, "0") && strcasecmp(value, "false") && strcasecmp(value, "off");
}

static void choose_adapter(struct zr_stack *stack) {
    const char *set_by_user = zr_environ_get(&stack->environ, "SYCL_UR_USE_LEVEL_ZERO_V2");
    const char *set_for_loader = zr_environ_get(&stack->environ, "UR_LOADER_USE_LEVEL_ZERO_V2");
    bool v1 = stack->parts[ZR_PART_UR_V1].there, v2 = stack->parts[ZR_PART_UR_V2].there;

    stack->adapter_why = "";
    if (v1 != v2) {
        stack->adapter = v2 ? 2 : 1;
        stack->adapter_why = "the only one loaded";
    } else if (v1 && (set_by_user || set_for_loader)) {
        stack->adapter = is_on(set_by_user) || is_on(set_for_loader) ? 2 : 1;
        stack->adapter_why = set_by_user ? "SYCL_UR_USE_LEVEL_ZERO_V2 says so" : "UR_LOADER_USE_LEVEL_ZERO_V2 says so";
    } else if (v1 && stack->runtime.count) {
        stack->adapter = zr_fact_holds(ZR_FACT_DEFAULT_V2, stack->runtime) ? 2 : 1;
        stack->adapter_why =
            stack->adapter == 2 ? "the default on Battlemage and later" : "the default of this runtime";
    }
}

static void find_binding(struct zr_stack *stack) {
    const struct zr_library *adapter = &stack->parts[stack->adapter == 2   ? ZR_PART_UR_V2
                                                     : stack->adapter == 1 ? ZR_PART_UR_V1
                                                                           : ZR_PART_PI];
    struct zr_elf_file elf;

    if (!adapter->there || !*adapter->file || !zr_elf_open(&elf, adapter->file))
        return;
    stack->binding =
        zr_elf_needs(&elf, "libze_loader.so") || zr_elf_imports(&elf, "zeInit") ? ZR_LOADER_SHARED : ZR_LOADER_STATIC;
    zr_elf_close(&elf);
}

static void conclude(struct zr_stack *stack) {
    stack->loader = zr_version_of(stack->parts[ZR_PART_LOADER].version);
    stack->driver = zr_version_of(stack->parts[ZR_PART_DRIVER].version);
    stack->ccl = zr_version_of(stack->parts[ZR_PART_CCL].version);
    stack->runtime = zr_version_of(stack->parts[ZR_PART_SYCL].version);
    /* A file name tells only the soname's version, 8.0.0: that is no release. */
    if (stack->runtime.n[0] < 2000)
        stack->runtime = (struct zr_version){0, {0}};
    if (stack->driver.n[0] < 20)
        stack->driver = (struct zr_version){0, {0}};
    choose_adapter(stack);
    find_binding(stack);
}

/* --- a process ------------------------------------------------------------------------------- */

/* In a container the path means something else: the process's own root first. A root for tests may hold /proc alone. */
static bool find_file(char *out, size_t size, pid_t pid, const char *path) {
    zr_root_path(out, size, "/proc/%d/root%s", (int)pid, path);
    if (!access(out, R_OK))
        return true;
    snprintf(out, size, "/proc/%d/root%s", (int)pid, path);
    if (!access(out, R_OK))
        return true;
    zr_root_path(out, size, "%s", path);
    return !access(out, R_OK);
}

static void add_mapping(struct zr_stack *stack, pid_t pid, char *line) {
    char file[1024];
    char *path = strchr(line, '/');
    char *gone = path ? strstr(path, " (deleted)") : NULL;

    if (!path || part_of(path) < 0)
        return;
    if (gone) {
        *gone = '\0';
        if (part_of(path) < 0)
            return;
    }
    if (!find_file(file, sizeof file, pid, path))
        *file = '\0';
    add(stack, path, gone ? "" : file);
}

void zr_stack_of_process(struct zr_stack *out, pid_t pid) {
    char path[512];
    char *maps, *line, *next;

    memset(out, 0, sizeof *out);
    zr_root_path(path, sizeof path, "/proc/%d/environ", (int)pid);
    out->environ.text = zr_read_whole(path, &out->environ.length);
    if (!out->environ.text)
        out->environ.error = errno;
    zr_root_path(path, sizeof path, "/proc/%d/maps", (int)pid);
    maps = zr_read_whole(path, NULL);
    if (!maps)
        out->error = errno;
    for (line = maps; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        add_mapping(out, pid, line);
    }
    free(maps);
    conclude(out);
}

/* --- the machine ----------------------------------------------------------------------------- */

static void add_folder(struct zr_stack *stack, const char *folder) {
    char path[1024];
    DIR *listing;
    struct dirent *entry;

    zr_root_path(path, sizeof path, "%s", folder);
    listing = *folder ? opendir(path) : NULL;
    while (listing && (entry = readdir(listing))) {
        char name[1300], real[PATH_MAX];

        /* The runtime name is a link to the file with the version in its name. */
        if (part_of(entry->d_name) < 0 || stack->parts[part_of(entry->d_name)].there)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (realpath(name, real) && part_of(real) >= 0)
            add(stack, real, real);
    }
    if (listing)
        closedir(listing);
}

static void add_folders(struct zr_stack *stack, const char *list) {
    while (list && *list) {
        char folder[1024];
        size_t length = strcspn(list, ":");

        snprintf(folder, sizeof folder, "%.*s", (int)length, list);
        add_folder(stack, folder);
        list += length + (list[length] == ':');
    }
}

void zr_stack_of_machine(struct zr_stack *out) {
    static const char *const prefixes[] = {"VIRTUAL_ENV", "CONDA_PREFIX", "CMPLR_ROOT"};
    char folder[1024];

    memset(out, 0, sizeof *out);
    take_own_environ(&out->environ);
    add_folders(out, zr_environ_get(&out->environ, "LD_LIBRARY_PATH"));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const char *prefix = zr_environ_get(&out->environ, prefixes[i]);

        if (prefix) {
            snprintf(folder, sizeof folder, "%s/lib", prefix);
            add_folder(out, folder);
        }
    }
    add_folders(out, "/usr/local/lib:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu:/usr/lib64:/usr/lib");
    conclude(out);
}

void zr_stack_free(struct zr_stack *stack) {
    free(stack->environ.text);
    stack->environ.text = NULL;
}

struct zr_version zr_kernel_version(void) {
    char path[512];
    char *text = zr_read_whole(zr_root_path(path, sizeof path, "/proc/sys/kernel/osrelease"), NULL);
    struct zr_version version = zr_version_of(text ? text : "");

    free(text);
    return version;
}
