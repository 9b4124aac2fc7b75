/* What check found, at the end of a run. */
#ifndef ZEROUTE_TOOLS_RUN_CHECKED_H
#define ZEROUTE_TOOLS_RUN_CHECKED_H

#include <stdio.h>

#include <zeroute/reader.h>

/*
 * Prints the errors that the processes of a run published, equal ones once, with the names of their frames. Returns how
 * many different ones there are, without leaks. Costs some ms for each library that is named.
 */
unsigned zr_checked_print(FILE *out, struct zeroute_snapshot *const *s, size_t count);

#endif
