/* dlopen and dlsym on the handle, as PyTorch, oneCCL and ctypes do. */
#include "way.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    void *handle = dlopen(argc > 1 ? argv[1] : "libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    struct way way;

    if (!handle)
        return puts(dlerror()), 1;
    WAY_BY_NAME(handle);
    return way_run(&way);
}
