/* The driver's tables, taken without a loader: an older caller's table is not written beyond its end. */
#include "sim.h"
#include <dlfcn.h>

typedef ze_result_t (*getter)(uint32_t version, void *table);

static getter find(void *driver, const char *name) {
    getter function;
    void *address = dlsym(driver, name);
    EXPECT(address);
    memcpy(&function, &address, sizeof(function));
    return function;
}

static unsigned filled(getter get, uint32_t minor) {
    void *table[64];
    unsigned n = 0;
    memset(table, 0x5a, sizeof(table));
    OK(get(ZE_MAKE_VERSION(1, minor), table));
    while (n < 64 && table[n] != table[63])
        n++;
    for (unsigned i = n; i < 64; i++)
        EXPECT((uintptr_t)table[i] == 0x5a5a5a5a5a5a5a5a);
    return n;
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    void *driver = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *table[64];
    EXPECT(driver);
    getter memory = find(driver, "zeGetMemProcAddrTable");
    EXPECT(filled(memory, 0) == 9);
    EXPECT(filled(memory, 3) == 10);
    EXPECT(filled(memory, 4) == 10);
    EXPECT(filled(memory, 6) == 11);
    EXPECT(filled(memory, 9) == 12);
    EXPECT(filled(memory, 17) == 13);
    getter command_list = find(driver, "zeGetCommandListProcAddrTable");
    EXPECT(filled(command_list, 4) == 28);
    EXPECT(filled(command_list, 17) > 40);
    EXPECT(filled(find(driver, "zeGetGlobalProcAddrTable"), 4) == 1);
    EXPECT(filled(find(driver, "zesGetMemoryProcAddrTable"), 4) == 3);
    find(driver, "zetGetMetricProcAddrTable");
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, memory(ZE_MAKE_VERSION(1, 4), NULL));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, memory(ZE_MAKE_VERSION(2, 0), table));
    EXPECT(dlsym(driver, "zeMemAllocDevice") == NULL); /* nothing that could stand before a loader */
    return 0;
}
