/* A library that is linked against the loader and starts Level Zero while it is being loaded. */
#include "way.h"

__attribute__((constructor)) static void start(void) {
    zeInit(0);
}

int user_run(void);
int user_run(void) {
#define F(name) .name = name,
    struct way way = {WAY_FUNCTIONS(F)};
    return way_run(&way);
}
