/* zeroute bed: a program on Level Zero and SYCL without a GPU. */
#ifndef ZEROUTE_TOOLS_BED_H
#define ZEROUTE_TOOLS_BED_H

int zr_cmd_bed(int argc, char **argv);

#endif
