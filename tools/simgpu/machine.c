/* What the processes of one simulated machine share: VRAM, and the host memory that exports cost.
 */
#include "simgpu.h"

#include <string.h>

static uint64_t vram_used[SIM_CARDS];

void sim_machine_attach(void)
{
}

bool sim_machine_take(unsigned card, size_t bytes, bool spill, bool *spilled)
{
    *spilled = spill;
    if (spill)
        return true;
    if (vram_used[card] + bytes > sim_config.vram)
        return false;
    vram_used[card] += bytes;
    return true;
}

void sim_machine_give(unsigned card, size_t bytes, bool spilled)
{
    if (!spilled)
        vram_used[card] -= bytes;
}

void sim_machine_mirror(int64_t bytes)
{
    (void)bytes;
}

void sim_machine_import(unsigned card, int64_t bytes)
{
    (void)card;
    (void)bytes;
}

uint64_t sim_machine_free(unsigned card)
{
    pthread_mutex_lock(&sim.memory);
    uint64_t left = sim_config.vram - vram_used[card];
    pthread_mutex_unlock(&sim.memory);
    return left;
}

uint64_t sim_query(const char *what)
{
    (void)what;
    return 0;
}
