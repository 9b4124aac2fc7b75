/*
 * A program as an old system has it: linked against the first versions of dlsym and dlopen, with a start of its own
 * because today's needs a newer libc. Prints what it gets from the loader by each way.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void *dlsym(void *handle, const char *name);
void *dlopen(const char *name, int flags);
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5\n"
        ".symver dlopen, dlopen@GLIBC_2.2.5\n");
int zeMemFree(void *context, void *ptr);

__attribute__((used, noreturn)) void start(void);
void start(void) {
    void *loader = dlopen("libze_loader.so.1", 1);
    int (*by_name)(void *, void *);

    *(void **)&by_name = loader ? dlsym(loader, "zeMemFree") : NULL;
    if (!by_name)
        exit(1);
    printf("plt %#x\n", (unsigned)zeMemFree(NULL, NULL));
    printf("dlsym %#x\n", (unsigned)by_name(NULL, NULL));
    exit(0);
}
__asm__(".globl _start\n"
        "_start:\n"
        "    xorl %ebp, %ebp\n"
        "    andq $-16, %rsp\n"
        "    call start\n");
