/* dlopen(NULL): the program's own handle, the loader among what it is linked against. */
#include "way.h"
#include <dlfcn.h>

int main(void) {
    void *handle = dlopen(NULL, RTLD_LAZY);
    struct way way;
    __typeof__(&zeInit) volatile linked = zeInit; /* keeps the loader among what the program needs */
    (void)linked;
    WAY_BY_NAME(handle);
    return way_run(&way);
}
