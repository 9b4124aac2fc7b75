/*
 * Entry points that are counted, timed and passed on as they are. Settings that the driver must find when it starts are
 * in force before zeInit goes down: ZR_ENTER reads them.
 */
#include "driver/driver.h"

#define ZR_ENTRY(name, table, index, minor, parameters, arguments)
#define ZR_PASS(name, table, index, minor, parameters, arguments)                                                      \
    ze_result_t zr_on_##name parameters {                                                                              \
        ZR_ENTER(name, arguments);                                                                                     \
        return ZR_DOWN(&call, name, 0, arguments);                                                                     \
    }
#include "base/entries.def"
