/*
 * Level Zero as we use it, against any libze-dev from 1.8 (Debian 12) on.
 *
 * Entry points and structures that the installed header may lack are declared here under names of our
 * own, so that a newer header never collides with them.
 */
#ifndef ZEROUTE_ZE_COMPAT_H
#define ZEROUTE_ZE_COMPAT_H

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>

enum { ZR_TABLE_SLOTS = 32 }; /* no function table is longer */

enum zr_table {
#define ZR_TABLE(table, getter) ZR_TABLE_##table,
#include "base/tables.def"
    ZR_TABLES
};

/* Physical memory of the host (since 1.10). */
enum { ZR_PHYSICAL_MEM_FLAG_ON_HOST = 1 << 1 };

/* What SYCL's free_memory asks for, chained to ze_device_memory_properties_t or ze_device_properties_t. */
enum { ZR_STYPE_DEVICE_USABLEMEM_SIZE = 0x20041 };
struct zr_ze_usable_memory {
    uint32_t stype;
    void *next;
    uint64_t bytes;
};

/* The common beginning of every descriptor and of every structure in a pNext chain. */
struct zr_ze_base {
    uint32_t stype;
    const void *next;
};

#endif
