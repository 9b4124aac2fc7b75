/*
 * The dynamic linker's functions, by the symbol versions that every glibc from 2.28 on has. Since
 * 2.34 they live in libc, before that in libdl; a library for such machines names it as needed (the
 * Makefile).
 */
#ifndef ZEROUTE_BASE_DL_H
#define ZEROUTE_BASE_DL_H

#include <dlfcn.h>
#include <link.h>

__asm__(".symver dlopen, dlopen@GLIBC_2.2.5\n"
        ".symver dlclose, dlclose@GLIBC_2.2.5\n"
        ".symver dlerror, dlerror@GLIBC_2.2.5\n"
        ".symver dlvsym, dlvsym@GLIBC_2.2.5\n"
        ".symver dlinfo, dlinfo@GLIBC_2.3.3\n"
        ".symver dladdr, dladdr@GLIBC_2.2.5\n"
        ".symver dladdr1, dladdr1@GLIBC_2.3.3\n");

/*
 * A sanitizer's run-time library looks up what it intercepts before it has set itself up: our code
 * that such a lookup runs must not call it.
 */
#define ZR_BEFORE_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))

#endif
