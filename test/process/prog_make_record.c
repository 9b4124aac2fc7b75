/* A record of the shape of a training run: make_record FILE EVENTS. */
#include "bench/report.c"
