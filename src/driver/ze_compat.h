/*
 * Level Zero as we use it, against any libze-dev from 1.8 (Debian 12) on.
 *
 * Entry points and structures that the installed header may lack are declared here under names of
 * our own, so that a newer header never collides with them.
 */
#ifndef ZEROUTE_ZE_COMPAT_H
#define ZEROUTE_ZE_COMPAT_H

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>

enum {
    ZR_TABLE_SLOTS = 64,
    ZR_NEWEST_API = 1 << 16 | 17
}; /* no function table of that version is longer */

enum zr_table {
#define ZR_TABLE(table, ...) ZR_TABLE_##table,
#include "base/tables.def"
    ZR_TABLES,
    ZR_TABLE_None = ZR_TABLES /* functions that are in no table */
};

/* Which table of tables in a handle: ze_handle_t's pCore, pTools, pSysman, pRuntime (1.13). */
enum zr_layer { ZR_LAYER_CORE, ZR_LAYER_TOOLS, ZR_LAYER_SYSMAN, ZR_LAYER_RUNTIME, ZR_LAYERS };
enum { ZR_STYPE_DRIVER_DDI_HANDLES = 0x20027, ZR_DRIVER_HAS_DDI_HANDLES = 1 };

/* Physical memory of the host (since 1.10). */
enum { ZR_PHYSICAL_MEM_FLAG_ON_HOST = 1 << 1 };

/*
 * What SYCL's free_memory asks for, chained to ze_device_memory_properties_t or
 * ze_device_properties_t.
 */
enum { ZR_STYPE_DEVICE_USABLEMEM_SIZE = 0x20041 };
struct zr_ze_usable_memory {
    uint32_t stype;
    void *next;
    uint64_t bytes;
};

struct zr_ze_flags {
    uint32_t stype;
    void *next;
    uint32_t flags;
};

/* What ze_group_count_t and ze_group_size_t are, passed by value. */
struct zr_three {
    uint32_t of[3];
};

/* Of a function whose parameters do not matter: as many as any such function has. */
#define ZR_ANY_PARAMETERS void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h
#define ZR_ANY_ARGUMENTS a, b, c, d, e, f, g, h

/* The common beginning of every descriptor and of every structure in a pNext chain. */
struct zr_ze_base {
    uint32_t stype;
    const void *next;
};

#endif
