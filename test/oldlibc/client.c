/*
 * A program for any glibc: starts by itself, because the start files of today ask for GLIBC_2.34, and
 * takes every symbol in its oldest version. Allocates and frees through dlsym, as SYCL's runtime does.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
OLD(__libc_start_main);
OLD(dlopen);
OLD(dlsym);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int client(int argc, char **argv, char **envp);

__asm__(".globl _start\n"
        "_start:\n"
        "  xor %ebp, %ebp\n"
        "  mov %rdx, %r9\n"
        "  pop %rsi\n"
        "  mov %rsp, %rdx\n"
        "  and $-16, %rsp\n"
        "  push %rax\n"
        "  push %rsp\n"
        "  xor %r8d, %r8d\n"
        "  xor %ecx, %ecx\n"
        "  lea client(%rip), %rdi\n"
        "  call *__libc_start_main@GOTPCREL(%rip)\n"
        "  hlt\n");

typedef uint32_t init_fn(uint32_t);
typedef uint32_t alloc_fn(void *, const void *, size_t, size_t, void *, void **);
typedef uint32_t free_fn(void *, void *);

int client(int argc, char **argv, char **envp)
{
    const uint64_t desc[4] = {0x15}; /* ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC */
    void *loader, *p = NULL;
    union {
        void *address;
        init_fn *init;
        alloc_fn *alloc;
        free_fn *free;
    } f;

    (void)envp;
    if (argc < 2 || !(loader = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)))
        return 2;
    f.address = dlsym(loader, "zeInit");
    if (!f.address || f.init(0))
        return 3;
    for (int i = 0; i < 3; i++) {
        f.address = dlsym(loader, "zeMemAllocDevice");
        if (!f.address || f.alloc((void *)desc, desc, 1000, 0, (void *)desc, &p) || !p)
            return 4;
        f.address = dlsym(loader, "zeMemFree");
        if (!f.address || f.free((void *)desc, p))
            return 5;
    }
    return write(1, "done\n", 5) == 5 ? 0 : 6;
}
