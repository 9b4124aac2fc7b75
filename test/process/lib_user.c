/* A library that is linked against the loader, for programs that are not. */
#include "way.h"

int user_run(void);
int user_run(void) {
#define F(name) .name = name,
    struct way way = {WAY_FUNCTIONS(F)};
    return way_run(&way);
}
