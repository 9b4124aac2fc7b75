/* The driver's own functions, found in its symbol table: dlsym may be answered by whoever is measured. */
#ifndef ZEROUTE_BENCH_DRIVER_H
#define ZEROUTE_BENCH_DRIVER_H

#include <elf.h>
#include <level_zero/ze_ddi.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct wanted {
    const char *library, *name;
    uintptr_t found;
};

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wanted *w = data;
    const ElfW(Dyn) *d = NULL;
    const ElfW(Sym) *symbol = NULL;
    const char *names = NULL;

    (void)size;
    if (!strstr(info->dlpi_name, w->library))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbol = (const ElfW(Sym) *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            names = (const char *)d->d_un.d_ptr;
    }
    /* The names follow the symbols, as every linker lays them out. */
    for (; symbol && (uintptr_t)symbol < (uintptr_t)names; symbol++)
        if (symbol->st_value && strcmp(names + symbol->st_name, w->name) == 0)
            w->found = info->dlpi_addr + symbol->st_value;
    return w->found != 0;
}

/* False: Intel's driver is not in the process. */
static inline bool driver_table(ze_mem_dditable_t *table)
{
    struct wanted w = {"libze_intel_gpu", "zeGetMemProcAddrTable", 0};

    dl_iterate_phdr(look_into, &w);
    return w.found && ((ze_pfnGetMemProcAddrTable_t)w.found)(ZE_API_VERSION_CURRENT, table) == ZE_RESULT_SUCCESS;
}

#endif
