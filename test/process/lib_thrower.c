/*
 * Stands after us and throws out of zeMemFree the first time, as a runtime with exceptions might: the frames between,
 * ours among them, are unwound. Built with exceptions in C: the unwinder is called by hand.
 */
#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unwind.h>

extern jmp_buf thrown_to;
extern int throwing;

/* Every frame is left, with its cleanups, until the program's own marker is reached. */
static _Unwind_Reason_Code stop(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                struct _Unwind_Exception *exception, struct _Unwind_Context *frame, void *marker) {
    (void)version, (void)class, (void)exception;
    if (actions & _UA_END_OF_STACK || _Unwind_GetCFA(frame) > (_Unwind_Word)(uintptr_t)marker)
        longjmp(thrown_to, 1);
    return _URC_NO_REASON;
}

extern void *throw_marker;

ze_result_t zeMemFree(ze_context_handle_t context, void *ptr) {
    static struct _Unwind_Exception exception;
    __typeof__(&zeMemFree) real;

    if (throwing) {
        throwing = 0;
        _Unwind_ForcedUnwind(&exception, stop, throw_marker);
        abort();
    }
    *(void **)&real = dlsym(RTLD_NEXT, "zeMemFree");
    return real(context, ptr);
}
