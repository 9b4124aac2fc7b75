/*
 * Programs that use OpenCL. Intel's driver for it, libigdrcl.so, reaches the card past Level Zero's
 * loader: it opens the Level Zero driver itself, or lets that do its work (the driver's setting
 * EnableLEO), and no function of Level Zero is called. So its memory cannot be seen, which is said
 * when the driver is opened, or at the end of the process at the latest.
 *
 * A SYCL runtime opens OpenCL's driver only to list its devices. So where one is loaded, and Level
 * Zero was used, nothing is said.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <errno.h>
#include <string.h>

/* The library through which programs find OpenCL's drivers. */
static bool is_opencl_loader(const char *file) {
    return strncmp(file, "libOpenCL.so", 12) == 0;
}

static void report_opencl(void) {
    static const char text[] =
        "this program uses OpenCL: zeroute does not see its memory, and limits do not hold for it";
    static bool said; /* atomic */

    if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&zr_touched, true, __ATOMIC_RELAXED); /* the segment is closed at the end */
    zr_fork_check();
    if (zr_stats_open())
        zr_text(ZR_T_HOOKS, text);
    zr_warn("%s", text);
}

static bool has_runtime(void) {
    return zr_elf_named(zr_who_is_runtime_name) == ZR_LIST_FOUND;
}

/* Whether this file is OpenCL's driver: by its name, or because OpenCL's loader opens it. */
static bool is_opencl_driver(const char *file, const void *caller) {
    if (zr_who_is_opencl_name(file))
        return true;
    return zr_is_driver_name(file) && is_opencl_loader(zr_library_find_now(caller)->name);
}

/* A driver that is opened stays open, as it does under every loader of OpenCL. */
void zr_opencl_open(const char *file, int mode, const void *caller) {
    const char *slash = strrchr(file, '/');
    int saved = errno;

    if (zr_exiting() || !is_opencl_driver(slash ? slash + 1 : file, caller) || has_runtime())
        return;
    zr_config_load(); /* settings for the driver must be set before it starts */
    if (zr_real_dlopen(file, mode & ~RTLD_GLOBAL))
        report_opencl();
    else
        dlerror(); /* clears the error: the caller's own call fails again */
    errno = saved;
}

bool zr_opencl_at_end(bool level_zero_used) {
    bool driver = zr_elf_named(zr_who_is_opencl_name) == ZR_LIST_FOUND;

    if (!driver && !level_zero_used)
        driver = zr_elf_named(zr_is_driver_name) == ZR_LIST_FOUND &&
                 zr_elf_named(is_opencl_loader) == ZR_LIST_FOUND;
    if (!driver || (level_zero_used && has_runtime()))
        return false;
    report_opencl();
    return true;
}
