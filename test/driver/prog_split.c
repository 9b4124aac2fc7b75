/*
 * Holds what GPUActive is made of, until its input ends: 96 MiB of card 0 that card 1 has made resident (a mirror),
 * 200 MiB of host USM and 48 MiB of shared USM.
 */
#include "ze_test.h"

#include <time.h>
#include <unistd.h>

int main(void) {
    ze_device_mem_alloc_desc_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *shared;
    char end;
    start();
    CHECK(zeContextMakeMemoryResident(context, cards[1], new_device(0, 96 << 20), 96 << 20));
    new_host(200 << 20);
    CHECK(zeMemAllocShared(context, &device, &host, 48 << 20, 0, cards[0], &shared));
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* host figures are read ten times a second */
    CHECK(zeMemFree(context, new_host(3 << 20)));
    puts("ready");
    fflush(stdout);
    return read(0, &end, 1) < 0;
}
