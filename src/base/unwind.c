/*
 * Unwinding through our frames without needing libgcc_s.
 *
 * What the compiler emits for a cleanup refers to two functions of libgcc_s, and a preload that
 * needs that library would load it into every shell. Whoever throws has it already: it is looked up
 * when something is thrown. Without it (a thrower with an unwinder of its own inside) our frames
 * are passed over.
 */
#include "base/base.h"

/* As <unwind.h> has them; that header gives _Unwind_Resume a visibility that is not ours. */
enum { CONTINUE_UNWIND = 8 };
typedef int (*personality)(int, int, uint64_t, void *, void *);
int __gcc_personality_v0(int version, int actions, uint64_t class, void *exception, void *context);
void _Unwind_Resume(void *exception);

/* Loaded, because somebody is throwing with it. */
static void *in_libgcc(const char *name) {
    return zr_dlsym_in("libgcc_s.so.1", name);
}

int __gcc_personality_v0(int version, int actions, uint64_t class, void *exception, void *context) {
    personality real = (personality)(uintptr_t)in_libgcc("__gcc_personality_v0");

    return real ? real(version, actions, class, exception, context) : CONTINUE_UNWIND;
}

void _Unwind_Resume(void *exception) {
    void (*resume)(void *) = (void (*)(void *))(uintptr_t)in_libgcc("_Unwind_Resume");

    /* Only the real personality leads here, so libgcc_s is loaded. */
    if (resume)
        resume(exception);
    __builtin_trap();
}
