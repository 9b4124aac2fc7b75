/* backing:eager for a program that is about to be started. */
#ifndef ZEROUTE_TOOLS_EAGER_H
#define ZEROUTE_TOOLS_EAGER_H

#include <stdbool.h>
#include <stddef.h>

/* Puts NEOReadDebugKeys=1 and EnableDeferBacking=0 into our environment. What the user set himself
 * is kept: if that stands against it, false, and `kept` names it. */
bool zr_eager_environment(char *kept, size_t size);

#endif
