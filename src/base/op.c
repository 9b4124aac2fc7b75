/* The thread's operations: which of them is the innermost, and whether it still is one. */
#include "base/base.h"

#include <signal.h>

enum { STACK_MOST = 64 << 20 };

static bool is_on_signal_stack(void) {
    stack_t s;

    return sigaltstack(NULL, &s) == 0 && s.ss_flags & SS_ONSTACK;
}

/*
 * Whether its frame is gone. The stack grows down, so an operation below this frame was left,
 * unless this is a signal handler on a stack of its own.
 */
static bool is_abandoned(const struct zr_op *op) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), at = (uintptr_t)op;

    if (op->mark != zr_op_mark(op))
        return true;
    return at < here && here - at < STACK_MOST && !is_on_signal_stack();
}

static ZR_COLD struct zr_op *without_abandoned(struct zr_op *op) {
    while (op && is_abandoned(op)) {
        if (op->mark != zr_op_mark(op)) {
            op = NULL; /* something else lies there now, and `above` with it */
            break;
        }
        op = op->above;
    }
    zr_thread.op = op;
    return op;
}

/* The usual case is an operation in a frame above this one. */
struct zr_op *zr_op_checked(void) {
    struct zr_op *op = zr_thread.op;

    if (likely((uintptr_t)op > (uintptr_t)__builtin_frame_address(0) && op->mark == zr_op_mark(op)))
        return op;
    return without_abandoned(op);
}

void zr_op_begin_own(struct zr_op *op, uint32_t hook) {
    const struct zr_op *above = zr_op_innermost();

    *op = (struct zr_op){.hook = hook};
    if (above) {
        op->caller = above->caller;
        op->library = above->library;
        op->entry = above->entry;
        op->via = above->via;
    }
    zr_op_begin(op);
}

unsigned zr_op_rooms(const struct zr_op *op) {
    unsigned rooms = 0;

    for (; op; op = op->above)
        rooms += op->rooms;
    return rooms;
}
