/* The real dlsym, found past ourselves. */
#include "base/dl.h"
#include "base/base.h"

#include <errno.h>
#include <string.h>

/* Written by whoever comes first; whoever comes second stores the same value. The hooks jump there. */
void *zr_dlsym_real __attribute__((visibility("hidden")));
void *zr_dlopen_real __attribute__((visibility("hidden")));

/* Not as a tail call: the function that is called must see a return address of ours. */
static ZR_BEFORE_SANITIZERS __attribute__((noinline)) void *call_dlsym(void *f, void *handle, const char *name) {
    void *p = ((void *(*)(void *, const char *))(uintptr_t)f)(handle, name);
    void *volatile kept = p;

    return kept;
}

struct lookup {
    const char *name;
    void *found;
};

static int look_in_libdl(struct dl_phdr_info *info, size_t size, void *arg) {
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Word) *hash = NULL; /* DT_HASH: its second word is the number of symbols */
    struct lookup *l = arg;

    (void)size;
    if (!slash || strcmp(slash + 1, "libdl.so.2") != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Dyn) *d = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);

        for (; info->dlpi_phdr[i].p_type == PT_DYNAMIC && d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_SYMTAB)
                symbols = (const void *)d->d_un.d_ptr;
            else if (d->d_tag == DT_STRTAB)
                strings = (const void *)d->d_un.d_ptr;
            else if (d->d_tag == DT_HASH)
                hash = (const void *)d->d_un.d_ptr;
        }
    }
    for (ElfW(Word) i = 0; symbols && strings && hash && i < hash[1]; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && strcmp(strings + symbols[i].st_name, l->name) == 0)
            l->found = (void *)(info->dlpi_addr + symbols[i].st_value);
    return 1;
}

/* Of a libdl that came after the start, with a plugin of libc's own (nsswitch.conf): its caller has it loaded. */
static ZR_COLD void *in_late_libdl(const char *name) {
    struct lookup l = {.name = name};

    dl_iterate_phdr(look_in_libdl, &l);
    return l.found;
}

/*
 * The next definition after us may be another preload's, which then is called as it would be without us; it usually
 * has no version, and then only a dlsym without one finds it.
 */
ZR_BEFORE_SANITIZERS __attribute__((used)) void *zr_dlsym_resolve(void) {
    int saved = errno;
    void *f = zr_has_dl() ? dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34") : in_late_libdl("dlsym");
    void *next;

    if (!f && zr_has_dl())
        f = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); /* every libc has one of the two */
    next = f ? call_dlsym(f, RTLD_NEXT, "dlsym") : NULL;
    if (next)
        f = next;
    __atomic_store_n(&zr_dlsym_real, f, __ATOMIC_RELEASE);
    errno = saved;
    return f;
}

void *zr_real_dlsym(void *handle, const char *name) {
    void *real = __atomic_load_n(&zr_dlsym_real, __ATOMIC_ACQUIRE);

    return call_dlsym(real ? real : zr_dlsym_resolve(), handle, name);
}

ZR_BEFORE_SANITIZERS __attribute__((used)) void *zr_dlopen_resolve(void) {
    int saved = errno;
    void *f = zr_has_dl() ? zr_real_dlsym(RTLD_NEXT, "dlopen") : in_late_libdl("dlopen");

    __atomic_store_n(&zr_dlopen_real, f, __ATOMIC_RELEASE);
    errno = saved;
    return f;
}

void *zr_dlsym_in(const char *path, const char *name) {
    void *handle = path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *p = handle ? zr_real_dlsym(handle, name) : NULL;

    if (handle)
        dlclose(handle);
    return p;
}

void *zr_dlsym_from(const void *address, const char *name) {
    Dl_info info;

    return address && dladdr(address, &info) ? zr_dlsym_in(info.dli_fname, name) : NULL;
}
