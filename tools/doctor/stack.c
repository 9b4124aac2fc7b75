#include "doctor/doctor.h"

#include "common/common.h"
#include "outside/outside.h"

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

/* `pid` has it mapped; 0: it is one of this machine's. */
static void inspect(struct zr_library *library, enum zr_part part, pid_t pid) {
    struct zr_outside_library seen;

    version_from_name(library->path, library->version, sizeof library->version);
    if (!*library->file || !zr_outside_library(pid, library->file, &seen)) {
        *library->file = '\0';
        return;
    }
    snprintf(library->file, sizeof library->file, "%s", seen.file);
    snprintf(library->build_id, sizeof library->build_id, "%s", seen.build_id);
    library->binding = seen.needs_loader ? ZR_LOADER_SHARED : ZR_LOADER_STATIC;
    library->unversioned = seen.unversioned;
    library->pid = pid;
    if (part == ZR_PART_LOADER) {
        char package[48];

        zr_package_version(library->path, package, sizeof package);
        if (*package)
            snprintf(library->version, sizeof library->version, "%s", package);
    }
    if (part == ZR_PART_DRIVER || part == ZR_PART_DRIVER_LEGACY) {
        if (*seen.driver)
            snprintf(library->version, sizeof library->version, "%s", seen.driver);
    } else if (part == ZR_PART_SYCL || part == ZR_PART_UR_V1 || part == ZR_PART_UR_V2 || part == ZR_PART_PI ||
               part == ZR_PART_UR) {
        if (*seen.compiler)
            snprintf(library->version, sizeof library->version, "%s", seen.compiler);
        if (part == ZR_PART_SYCL && *seen.wheel)
            snprintf(library->version, sizeof library->version, "%s", seen.wheel);
    }
}

bool zr_library_mentions(const struct zr_library *library, const char *string) {
    return library->there && *library->file && zr_outside_mentions(library->pid, library->file, string);
}

/* `deleted`: another file may stand at that path by now. */
static void add(struct zr_stack *stack, const char *path, pid_t pid, bool deleted) {
    int part = part_of(path);

    if (part < 0 || stack->parts[part].there)
        return;
    stack->parts[part].there = true;
    snprintf(stack->parts[part].path, sizeof stack->parts[part].path, "%.511s", path);
    snprintf(stack->parts[part].file, sizeof stack->parts[part].file, "%.1023s", deleted ? "" : path);
    inspect(&stack->parts[part], (enum zr_part)part, pid);
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

/* Unified Runtime may hold its adapters: then no file bears their name, and the holder's stands for them. */
static void find_inside(struct zr_stack *stack) {
    static const enum zr_part holders[] = {ZR_PART_SYCL, ZR_PART_UR};
    struct zr_library *parts = stack->parts;

    if (parts[ZR_PART_UR_V1].there || parts[ZR_PART_UR_V2].there || parts[ZR_PART_PI].there)
        return;
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const struct zr_library *holder = &parts[holders[i]];

        if (!zr_library_mentions(holder, &"=UR_L0_USM_ALLOCATOR"[1])) /* as in envcheck.c */
            continue;
        parts[ZR_PART_UR_V1] = *holder;
        parts[ZR_PART_UR_V1].inside = true;
        if (zr_library_mentions(holder, "SYCL_UR_USE_LEVEL_ZERO_V2")) {
            parts[ZR_PART_UR_V2] = *holder;
            parts[ZR_PART_UR_V2].inside = true;
        }
        return;
    }
}

static enum zr_part adapter_part(int adapter) {
    switch (adapter) {
    case 2:
        return ZR_PART_UR_V2;
    case 1:
        return ZR_PART_UR_V1;
    default:
        return ZR_PART_PI;
    }
}

static void find_binding(struct zr_stack *stack) {
    const struct zr_library *adapter = &stack->parts[adapter_part(stack->adapter)];

    if (adapter->there && *adapter->file)
        stack->binding = adapter->binding;
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
    find_inside(stack);
    choose_adapter(stack);
    find_binding(stack);
}

/* --- a process ------------------------------------------------------------------------------- */

static void add_mapping(struct zr_stack *stack, pid_t pid, char *line) {
    char *path = strchr(line, '/');
    char *gone = path ? strstr(path, " (deleted)") : NULL;

    if (!path || part_of(path) < 0)
        return;
    if (gone) {
        *gone = '\0';
        if (part_of(path) < 0)
            return;
    }
    add(stack, path, pid, gone != NULL);
}

void zr_stack_of_process(struct zr_stack *out, pid_t pid) {
    char *maps, *line, *next;

    memset(out, 0, sizeof *out);
    out->environ.text = zr_outside_text(pid, ZR_FILE_ENVIRON, ZR_OUTSIDE_BYTES, &out->environ.length);
    if (!out->environ.text)
        out->environ.error = errno;
    maps = zr_outside_text(pid, ZR_FILE_MAPS, ZR_OUTSIDE_MOST, NULL);
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
            add(stack, real, 0, false);
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
