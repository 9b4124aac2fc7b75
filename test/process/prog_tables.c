/*
 * Every entry point, in every version of its table, through the driver's hook: what was exchanged leads to the very
 * function it stands for, and what the version does not have is not touched.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *table, *getter;
} tables[] = {
#define ZR_TABLE(table, getter, ...) {#table, #getter},
#include "base/tables.def"
#undef ZR_TABLE
};
static const struct {
    const char *name, *table;
    unsigned index, minor;
} entries[] = {
#define ZR_ENTRY(name, table, index, minor, ...) {#name, #table, index, minor},
#include "base/entries.def"
#undef ZR_ENTRY
};
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a)

typedef uint32_t (*getter)(uint32_t, void **);
typedef uint32_t (*any)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static uint32_t place(const char *table, unsigned n) {
    return 0x7e000000u | (uint32_t)(strlen(table) + 1) << 16 | (uint32_t)table[0] << 8 | n;
}

static int in_driver(const void *f) {
    Dl_info info;

    return dladdr(f, &info) && strstr(info.dli_fname, "fake_driver");
}

static int check(const char *table, getter get, unsigned minor) {
    void *t[32];
    int bad = 0;

    for (unsigned i = 0; i < 32; i++)
        t[i] = UNTOUCHED;
    if (get(1u << 16 | minor, t))
        return printf("%s: the getter failed\n", table), 1;
    for (unsigned i = 0; i < COUNT(entries); i++) {
        any call;

        if (strcmp(entries[i].table, table) != 0)
            continue;
        if (entries[i].minor > minor) {
            if (t[entries[i].index] != UNTOUCHED)
                bad += printf("%s.%s was written in version 1.%u\n", table, entries[i].name, minor);
            continue;
        }
        if (in_driver(t[entries[i].index]))
            bad += printf("%s.%s was not exchanged\n", table, entries[i].name);
        *(void **)&call = t[entries[i].index];
        if (call(0, 0, 0, 0, 0, 0, 0) != place(table, entries[i].index))
            bad += printf("%s.%s leads elsewhere\n", table, entries[i].name);
    }
    return bad;
}

int main(int argc, char **argv) {
    void *driver = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int bad = 0;

    if (!driver)
        return puts("no driver"), 1;
    for (unsigned i = 0; i < COUNT(tables); i++)
        for (unsigned minor = 0; minor < 20; minor++) {
            getter get;

            *(void **)&get = dlsym(driver, tables[i].getter);
            bad += get ? check(tables[i].table, get, minor) : printf("no %s\n", tables[i].getter);
        }
    for (unsigned e = 0; e < COUNT(entries); e++) {
        unsigned found = 0;

        for (unsigned i = 0; i < COUNT(entries); i++)
            found += strcmp(entries[i].table, entries[e].table) == 0 && entries[i].index == entries[e].index;
        if (found != 1)
            bad += printf("%s shares its place\n", entries[e].name);
    }
    printf("%zu entry points\n", COUNT(entries));
    return bad != 0;
}
