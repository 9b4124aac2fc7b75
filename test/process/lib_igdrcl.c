/* Intel's OpenCL driver by its file name: it opens the Level Zero driver itself, past the loader. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void open_driver(void) {
    const char *driver = getenv("ZE_ENABLE_ALT_DRIVERS");

    if (driver)
        dlopen(driver, RTLD_NOW | RTLD_LOCAL);
}
