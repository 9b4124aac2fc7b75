/*
 * The dynamic linker's functions, by the symbol versions that every glibc from 2.28 on has. Since 2.34 they live in
 * libc under a newer version; before that in libdl, which is not loaded for our sake: opening it takes a quarter of our
 * start. All are NULL in a process of such a libc that was started without it, and zr_has_dl() is false.
 */
#ifndef ZEROUTE_BASE_DL_H
#define ZEROUTE_BASE_DL_H

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>

__asm__(".symver dlopen, dlopen@GLIBC_2.2.5\n"
        ".symver dlclose, dlclose@GLIBC_2.2.5\n"
        ".symver dlerror, dlerror@GLIBC_2.2.5\n"
        ".symver dlvsym, dlvsym@GLIBC_2.2.5\n"
        ".symver dlinfo, dlinfo@GLIBC_2.3.3\n"
        ".symver dladdr, dladdr@GLIBC_2.2.5\n");

#pragma weak dlclose
#pragma weak dlerror
#pragma weak dlvsym
#pragma weak dlinfo
#pragma weak dladdr

static inline bool zr_has_dl(void) {
    return dlvsym;
}

/*
 * A sanitizer's run-time library looks up what it intercepts before it has set itself up: what it runs of ours must not
 * call it.
 */
#define ZR_BEFORE_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))

#endif
