/* Starting a program under the preload. */
#ifndef ZEROUTE_TOOLS_RUN_H
#define ZEROUTE_TOOLS_RUN_H

int zr_cmd_run(int argc, char **argv);

#endif
