/* Something is thrown through our frames: the calls after it are counted as before. */
#include "sim.h"

#include <setjmp.h>

jmp_buf thrown_to;
int throwing;
void *throw_marker;

static __attribute__((noinline)) void call_it(ze_context_handle_t context, void *p) {
    throw_marker = __builtin_frame_address(0);
    zeMemFree(context, p);
    puts("nothing was thrown");
    exit(1);
}

int main(void) {
    struct gpu gpu = first_gpu();
    void *volatile kept = on_card(&gpu, 0, MIB);

    if (!setjmp(thrown_to)) {
        throwing = 1;
        call_it(gpu.context, kept);
    }
    for (int i = 0; i < 5; i++)
        OK(zeMemFree(gpu.context, on_card(&gpu, 0, MIB)));
    puts("done");
    return 0;
}
