/*
 * The loader by its unversioned name. Some libraries open libze_loader.so, which distributions ship
 * in the development package only, and give up without it. Where that would fail and
 * libze_loader.so.1 is there, they are given that.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char unversioned[] = "libze_loader.so", versioned[] = "libze_loader.so.1";

/* Whether this name can be opened from our place. What is loaded for that is closed again. */
static bool opens(const char *name) {
    void *handle = zr_real_dlopen(name, RTLD_LAZY | RTLD_LOCAL);

    if (handle)
        dlclose(handle);
    return handle != NULL;
}

/*
 * Whether one folder of a search path, which ends at `end`, has the file. $ORIGIN is the folder of
 * the library.
 */
static bool folder_has(const char *folder, const char *end, const struct zr_elf *elf) {
    const char *slash = strrchr(elf->path, '/');
    int origin = slash ? (int)(slash - elf->path) : 0;
    bool relative = false;
    char path[8192];

    for (size_t n = 7; n <= 9 && !relative; n += 2) /* $ORIGIN, ${ORIGIN} */
        if ((size_t)(end - folder) >= n &&
            strncmp(folder, n == 7 ? "$ORIGIN" : "${ORIGIN}", n) == 0) {
            relative = true;
            folder += n;
        }
    snprintf(path, sizeof path, "%.*s%.*s/%s", relative ? origin : 0, elf->path,
             (int)(end - folder), folder, unversioned);
    return access(path, R_OK) == 0;
}

/*
 * Whether the search path inside the caller's library (DT_RUNPATH, DT_RPATH) has it: we cannot open
 * from there.
 */
static bool own_path_has(const void *caller) {
    const char *strings = NULL, *list = NULL, *end;
    size_t at = 0;
    struct zr_elf elf;

    if (!zr_elf_find_now(caller, &elf) || !elf.dynamic)
        return false;
    for (const ElfW(Dyn) *d = elf.dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RUNPATH || d->d_tag == DT_RPATH)
            at = d->d_un.d_val;
    }
    for (list = at && strings ? strings + at : NULL; list; list = *end ? end + 1 : NULL) {
        end = strchrnul(list, ':');
        if (folder_has(list, end, &elf))
            return true;
    }
    return false;
}

static bool is_needed(const void *caller) {
    zr_config_load();
    if (!zr_config.guard || zr_dl_loaded(unversioned) || opens(unversioned) || own_path_has(caller))
        return false;
    return zr_dl_loaded(versioned) || opens(versioned);
}

const char *zr_unversioned(const char *file, const void *caller) {
    int saved = errno;
    static bool named; /* atomic */
    const char *who;
    bool needed;

    if (strcmp(file, unversioned) != 0 || zr_exiting())
        return NULL;
    needed = is_needed(caller);
    dlerror(); /* clears the error of a failed lookup of ours */
    if (needed) {
        zr_fork_check();
        who = zr_library_find_now(caller)->name;
        if (zr_stats_open() && !__atomic_exchange_n(&named, true, __ATOMIC_RELAXED))
            zr_text(ZR_T_GUARD_LOADER, who);
        zr_count(ZR_F_GUARD_LOADERS, 1);
        zr_warn("%s opens %s, which is not installed: zeroute opens %s instead; install the "
                "loader's development "
                "package (libze-dev)",
                who, unversioned, versioned);
    }
    errno = saved;
    return needed ? versioned : NULL;
}
