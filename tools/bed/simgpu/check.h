/* For the command, which asks before it starts anything. */
#ifndef ZEROUTE_SIMGPU_CHECK_H
#define ZEROUTE_SIMGPU_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* Is this a text for ZE_SIMGPU? If not, why. Names of functions in `fail` are left to the driver. */
bool sim_config_check(const char *spec, char *why, size_t size);

#endif
