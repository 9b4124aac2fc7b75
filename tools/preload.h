/* What a program is given to run under the preload; for every command that starts one. */
#ifndef ZEROUTE_TOOLS_PRELOAD_H
#define ZEROUTE_TOOLS_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <zeroute/reader.h>

#define ZR_RUN_NAME 40

/*
 * Where libzeroute.so is (ZEROUTE_LIB, or with the command); said under `command`'s name when it is
 * no good.
 */
bool zr_preload_find(const char *command, char *path, size_t size);
/* Puts it in front of what is in LD_PRELOAD of our own environment. */
bool zr_preload_set(const char *path);

/*
 * Points our environment to a simulated GPU; `root`, when not empty then, is to be handed to
 * zr_simulate_end.
 */
bool zr_simulate(const char *command, const char *spec, char *root, size_t size);
void zr_simulate_end(const char *root);

/*
 * Names a run in our environment. A run inside a run carries both names, so that each finds its own
 * processes.
 */
void zr_run_name(char *run, size_t size);
bool zr_run_owns(const struct zeroute_process *p, const char *run);

#endif
