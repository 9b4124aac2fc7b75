/* What may grow in a process while its own allocations do not. */
#include "common/common.h"

const struct zr_growth_kind zr_growth_kinds[ZR_GROWTHS] = {
    [ZR_GROWTH_UNSEEN] = {"unseen", "device memory that no allocation call shows",
                          "look at images, modules and command lists in 'zeroute stat PID': objects made and never "
                          "destroyed",
                          UINT64_C(16) << 20},
    [ZR_GROWTH_HOST] = {"host_usm", "host USM",
                        "look at who allocates pinned memory: 'zeroute record' has the call stacks",
                        UINT64_C(16) << 20},
    [ZR_GROWTH_GTT] = {"gtt", "host memory of the cards (GTT)",
                       "a card is full, or buffers are imported and never closed", UINT64_C(16) << 20},
    [ZR_GROWTH_IPC] = {"ipc", "open IPC handles",
                       "the program opens handles that it never closes (zeMemCloseIpcHandle)", 0},
};
