/*
 * Entry points that are counted, timed and passed on as they are. zr_op_enter() reads the settings,
 * so those that the driver must find when it starts are in force before zeInit goes down.
 */
#include "driver/driver.h"

#define ZR_ENTRY(name, table, index, minor, parameters, arguments)
#define ZR_PASS(name, table, index, minor, parameters, arguments)                                  \
    ze_result_t zr_on_##name ZR_ARRIVES(parameters) {                                              \
        ZR_ENTER_OR_RETURN(name, arguments);                                                       \
        return ZR_DOWN(&op, name, 0, arguments);                                                   \
    }
#include "base/entries.def"
