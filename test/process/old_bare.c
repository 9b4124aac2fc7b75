/* A program of an old system without libdl, whose libc loads a plugin that needs it: as getpwnam() does. */
#include <stdio.h>
#include <stdlib.h>

void *__libc_dlopen_mode(const char *name, int flags);
void *__libc_dlsym(void *handle, const char *name);

__attribute__((used, noreturn)) void start(void);
void start(void) {
    void *handle = __libc_dlopen_mode("libplugin.so", 2 | (int)0x80000000);
    int (*plugin)(void);

    *(void **)&plugin = handle ? __libc_dlsym(handle, "plugin") : NULL;
    if (!plugin)
        exit(1);
    printf("plugin %d\n", plugin());
    exit(0);
}
__asm__(".globl _start\n"
        "_start:\n"
        "    xorl %ebp, %ebp\n"
        "    andq $-16, %rsp\n"
        "    call start\n");
