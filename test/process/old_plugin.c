/* A plugin as libc itself loads one (nsswitch.conf), into a program that knows nothing of libdl. It needs libdl. */
#include <stddef.h>

void *dlsym(void *handle, const char *name);
void *dlopen(const char *name, int flags);
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5\n"
        ".symver dlopen, dlopen@GLIBC_2.2.5\n");

/* Bit 0: dlopen(NULL) and dlsym found libc's own function; bit 1: what is not there was not found. */
int plugin(void);
int plugin(void) {
    void *program = dlopen(NULL, 1);

    return (program && dlsym(program, "getpid")) | (!dlsym(program, "zeNoSuchFunction") << 1);
}
