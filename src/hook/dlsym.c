/*
 * dlsym: what a process gets when it asks for a Level Zero function by name. And dlopen, for
 * deep.c.
 *
 * The functions themselves are assembly: for a name that is not ours they jump to the real function
 * with the caller's return address still on the stack, so that RTLD_NEXT is resolved from the
 * caller's place in the order, and dlopen searches the caller's own path, whatever the optimiser
 * does. For our names zr_dlsym_answer decides what is returned.
 *
 * Our own ze* exports have hidden versions: a caller that was linked against the loader binds to
 * them, but dlsym never finds them. So a program that probes with dlsym finds what it would find
 * without us.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <errno.h>
#include <string.h>

struct decision {
    void *answer;
    uintptr_t decided; /* 0: the real dlsym answers the caller itself */
};
struct decision zr_dlsym_answer(void *handle, const char *name, const void *caller);

#define SAVE                                                                                       \
    "    pushq %rdi\n"                                                                             \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    pushq %rsi\n"                                                                             \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    subq $8, %rsp\n"                                                                          \
    "    .cfi_adjust_cfa_offset 8\n"
#define RESTORE                                                                                    \
    "    addq $8, %rsp\n"                                                                          \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    popq %rsi\n"                                                                              \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    popq %rdi\n"                                                                              \
    "    .cfi_adjust_cfa_offset -8\n"
/* zr_NAME: the body decides; at its label 2 it jumps to the real function. */
#define HOOK(name, body)                                                                           \
    __asm__(".text\n"                                                                              \
            ".p2align 4\n"                                                                         \
            ".globl zr_" name "\n"                                                                 \
            ".type zr_" name ", @function\n"                                                       \
            "zr_" name ":\n"                                                                       \
            "    .cfi_startproc\n"                                                                 \
            "    endbr64\n" body "2:  movq zr_" name "_real(%rip), %rax\n"                         \
            "    testq %rax, %rax\n"                                                               \
            "    je 3f\n"                                                                          \
            "    jmp *%rax\n"                                                                      \
            "3:\n" SAVE "    call zr_" name "_resolve\n" RESTORE "    jmp *%rax\n"                 \
            "    .cfi_endproc\n"                                                                   \
            ".size zr_" name ", .-zr_" name "\n"                                                   \
            ".globl zr_" name "_old\n"                                                             \
            ".type zr_" name "_old, @function\n"                                                   \
            ".set zr_" name "_old, zr_" name "\n"                                                  \
            ".symver zr_" name ", " name "@@GLIBC_2.34\n"                                          \
            ".symver zr_" name "_old, " name "@GLIBC_2.2.5\n")

HOOK("dlsym", "    testq %rsi, %rsi\n"
              "    je 2f\n"
              "    cmpb $0, zr_deep_seen(%rip)\n"
              "    jne 1f\n"
              "    cmpb $'z', (%rsi)\n" /* ze*, zes* */
              "    jne 2f\n"
              "1:\n" SAVE "    movq 24(%rsp), %rdx\n"
              "    call zr_dlsym_answer\n" RESTORE "    testq %rdx, %rdx\n"
              "    je 2f\n"
              "    ret\n");
HOOK("dlopen", "    testq %rdi, %rdi\n"
               "    je 2f\n"
               "    testl $8, %esi\n" /* RTLD_DEEPBIND */
               "    jne 1f\n"
               "    cmpb $'l', (%rdi)\n" /* libze_loader.so */
               "    je 1f\n"
               "    cmpb $'/', (%rdi)\n" /* /.../libigdrcl.so */
               "    jne 2f\n"
               "1:\n" SAVE "    movq 24(%rsp), %rdx\n"
               "    call zr_dlopen_as\n" RESTORE "    testq %rax, %rax\n"
               "    je 2f\n"
               "    movq %rax, %rdi\n");

/* The name to open instead of this one, or NULL. */
const char *zr_dlopen_as(const char *file, int mode, const void *caller);
ZR_BEFORE_SANITIZERS __attribute__((used)) const char *zr_dlopen_as(const char *file, int mode,
                                                                    const void *caller) {
    const char *instead = NULL;

    if (!(mode & RTLD_NOLOAD)) {
        zr_opencl_open(file, mode, caller);
        if (strncmp(file, "libze_", 6) == 0)
            instead = zr_unversioned(file, caller);
    }
    if (mode & RTLD_DEEPBIND)
        zr_deep_open(instead ? instead : file, mode);
    return instead;
}

static int find_name(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/*
 * What the caller gets instead of p: a hook if p belongs to a loader or is a driver's table getter.
 */
static void *hook_for(void *p, void *handle, int entry, int table) {
    int n;
    enum zr_loaded_kind kind = zr_loaded_of(p, handle, &n);

    if (n < 0)
        return p;
    if (table >= 0) {
        __atomic_store_n(&zr_loaded[n].getter[table], ZR_FUNCTION(p), __ATOMIC_RELEASE);
        return ZR_POINTER(zr_getter_function[n][table]);
    }
    if (kind != ZR_LOADED_LOADER)
        return p;
    __atomic_store_n(&zr_original[ZR_HOOK_DLSYM + n][entry], ZR_FUNCTION(p), __ATOMIC_RELEASE);
    return ZR_POINTER(zr_hook_function[ZR_HOOK_DLSYM + n][entry]);
}

/* The same for what gives devices work; p if it is no loader's. */
static void *work_hook_for(void *p, void *handle, const char *name) {
    int n;

    if (!p || zr_loaded_of(p, handle, &n) != ZR_LOADED_LOADER)
        return p;
    return ZR_POINTER(zr_submit_named(name, ZR_FUNCTION(p)));
}

/*
 * Searches as dlsym(RTLD_DEFAULT) would for the caller: the global scope, then the dependencies of
 * the caller's own library. What only the real dlsym can find is left to it, and hooked later in a
 * table.
 */
static void *default_scope(const char *name, const void *caller) {
    void *p = zr_real_dlsym(RTLD_DEFAULT, name);

    return p ? p : zr_dlsym_from(caller, name);
}

static struct decision answer_ze(void *handle, const char *name, const void *caller) {
    struct decision d = {NULL, 0};
    int entry = find_name(zr_entry_name, ZR_ENTRIES_ZE, name);
    int table = entry < 0 ? find_name(zr_getter_name, ZR_TABLES, name) : -1;
    void *p;

    if (handle == RTLD_NEXT)
        return d;
    if (handle != RTLD_DEFAULT)
        zr_config_load(); /* a loader is there: the driver reads its keys when it starts */
    if (zr_guard_answer(handle, name, caller, &d.answer)) {
        d.decided = 1;
        return d;
    }
    if (entry < 0 && table < 0 && !zr_submit_is_work(name))
        return d;
    p = handle == RTLD_DEFAULT ? default_scope(name, caller) : zr_real_dlsym(handle, name);
    if (p) {
        d.answer = entry < 0 && table < 0 ? work_hook_for(p, handle, name)
                                          : hook_for(p, handle, entry, table);
        d.decided = 1;
    }
    return d;
}

ZR_BEFORE_SANITIZERS __attribute__((used)) struct decision
zr_dlsym_answer(void *handle, const char *name, const void *caller) {
    struct decision d = {NULL, 0};

    if (__atomic_load_n(&zr_deep_seen, __ATOMIC_RELAXED) && !zr_exiting())
        zr_deep_look();
    if (name[0] == 'z' && name[1] == 'e' && !zr_exiting()) {
        int saved = errno;

        d = answer_ze(handle, name, caller);
        errno = saved;
    }
    return d;
}
