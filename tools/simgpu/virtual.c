/* Virtual and physical memory: reservations, and what is mapped into them. */
#include "simgpu.h"

bool sim_virtual_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out)
{
    (void)backing;
    (void)address;
    (void)out;
    return false;
}
