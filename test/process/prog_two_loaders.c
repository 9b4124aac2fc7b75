/* Two copies of the loader in one process, asked by their own handles: each call goes to the copy it was got from. */
#include "way.h"
#include <dlfcn.h>

static int with(const char *path) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    struct way way;

    if (!handle)
        return puts(dlerror()), 1;
    WAY_BY_NAME(handle);
    return way_run(&way);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    return with("libze_loader.so.1") || with(argv[1]) || with("libze_loader.so.1");
}
