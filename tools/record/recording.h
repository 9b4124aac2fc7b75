/* Recording a program, and holding it to a line. */
#ifndef ZEROUTE_TOOLS_RECORDING_H
#define ZEROUTE_TOOLS_RECORDING_H

int zr_cmd_record(int argc, char **argv);

#endif
