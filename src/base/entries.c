#include "base/base.h"

const char *const zr_via_name[ZR_VIAS] = {"plt", "dlsym", "table", "handle", "sycl", "pool"};

const char *const zr_entry_name[ZR_ENTRIES] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#define ZR_ABOVE(name, via) #name,
#include "base/entries_above.def"
};

const char *const zr_work_name[ZR_WORK_ENTRIES] = {
#define ZR_WORK(name, ...) #name,
#include "base/work.def"
};
