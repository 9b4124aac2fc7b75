/*
 * Objects opened with RTLD_DEEPBIND bind past every preload, and a loader opened that way finds its
 * drivers' tables past us. The dlopen hook notes their names. At the next dlsym the object is
 * loaded and relocated: its GOT slots for dlsym and dlopen, and those of the loader, are then
 * pointed at us, where they would lead without RTLD_DEEPBIND. No other slot is written.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OPENED = 8, PATH = 4096 };
static char opened[OPENED][PATH]; /* the last ones, as passed to dlopen */
static unsigned opened_count;
bool zr_deep_seen;

/* Called by the dlopen hook before the real dlopen. What is loaded already keeps its scope. */
ZR_BEFORE_SANITIZERS __attribute__((used)) void zr_deep_open(const char *file, int mode) {
    int saved = errno;
    void *there = file ? dlopen(file, RTLD_LAZY | RTLD_NOLOAD) : NULL;

    if (there) {
        dlclose(there);
    } else if (file && !(mode & RTLD_NOLOAD)) {
        zr_lock(&zr_loaded_lock);
        snprintf(opened[opened_count++ % OPENED], PATH, "%s", file);
        zr_unlock(&zr_loaded_lock);
        __atomic_store_n(&zr_deep_seen, true, __ATOMIC_RELEASE);
    }
    errno = saved;
}

/*
 * Returns false if the slot leads to us already or is neither of the two. *refused: its page cannot
 * be written.
 */
static bool redirect_slot(const char *name, void **slot, bool *refused) {
    bool is_dlsym = strcmp(name, "dlsym") == 0, is_dlopen = strcmp(name, "dlopen") == 0;
    void *to = is_dlsym ? ZR_POINTER(zr_dlsym) : ZR_POINTER(zr_dlopen);
    int was;

    if ((!is_dlsym && !is_dlopen) || *slot == to)
        return false;
    zr_lock(&zr_loaded_lock);
    was = zr_pages_protect(slot, sizeof *slot, -1);
    if (was >= 0) {
        __atomic_store_n(slot, to, __ATOMIC_RELEASE);
        zr_pages_protect(slot, sizeof *slot, was);
    }
    zr_unlock(&zr_loaded_lock);
    *refused |= was < 0;
    return true;
}

/*
 * Returns whether a slot led elsewhere. dlopen waits until the object is relocated; its reference
 * keeps it loaded.
 */
static bool redirect(const char *file) {
    void *handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    uintptr_t value[DT_JMPREL + 1] = {0};
    bool refused = false, changed = false;

    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return false;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag >= 0 && d->d_tag <= DT_JMPREL)
            value[d->d_tag] = d->d_un.d_val;
    for (int plt = 0; plt < 2; plt++) {
        const ElfW(Rela) *r = (const void *)value[plt ? DT_JMPREL : DT_RELA];

        for (size_t i = value[plt ? DT_PLTRELSZ : DT_RELASZ] / sizeof *r; i-- > 0; r++) {
            const ElfW(Sym) *s = (const ElfW(Sym) *)value[DT_SYMTAB] + ELF64_R_SYM(r->r_info);

            if (s->st_shndx == SHN_UNDEF && ELF64_R_TYPE(r->r_info) != R_X86_64_64)
                changed |= redirect_slot((const char *)value[DT_STRTAB] + s->st_name,
                                         (void **)(map->l_addr + r->r_offset), &refused);
        }
    }
    if (refused)
        zr_missed("calls through %s, which was opened deep-bound (RTLD_DEEPBIND) and whose memory "
                  "cannot be "
                  "written" ZR_DEEP,
                  file);
    dlclose(handle);
    return changed;
}

/*
 * The loader led past us until now. If it has drivers already, it has their tables, and nothing is
 * seen.
 */
static void report_late(void) {
    if (zr_elf_named(zr_is_driver_name) == ZR_LIST_FOUND &&
        !__atomic_exchange_n(&zr_touched, true, __ATOMIC_RELAXED))
        zr_missed("calls through the Level Zero loader, which was opened deep-bound "
                  "(RTLD_DEEPBIND) and had started "
                  "its drivers before it was found" ZR_DEEP);
}

/*
 * Where the list of libraries cannot be read now, what was opened is looked at all the same, and
 * once more the next time.
 */
void zr_deep_look(void) {
    static uint64_t looked;
    uint64_t now;
    int saved = errno;
    char path[PATH];

    if (zr_elf_generation(&now) && __atomic_exchange_n(&looked, now, __ATOMIC_RELAXED) == now)
        return;
    for (unsigned i = 0; i < OPENED; i++) {
        zr_lock(&zr_loaded_lock);
        memcpy(path, opened[i], sizeof path);
        zr_unlock(&zr_loaded_lock);
        if (path[0])
            redirect(path);
    }
    if (redirect("libze_loader.so.1"))
        report_late();
    dlerror(); /* clears the error of a failed lookup of ours */
    errno = saved;
}
