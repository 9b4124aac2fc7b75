/*
 * A driver that is nothing but tables: each member of each table is a function of its own that returns its place, so
 * that a caller can tell where a call arrived.
 */
#include <stdint.h>
#include <string.h>

#define F(table, n)                                                                                                    \
    static uint32_t table##n(void) {                                                                                   \
        return 0x7e000000u | (uint32_t)sizeof #table << 16 | (uint32_t) #table[0] << 8 | (n);                          \
    }
/* clang-format off */
#define EACH(X, t)                                                                                                     \
    X(t, 0)                                                                                                            \
    X(t, 1) X(t, 2) X(t, 3) X(t, 4) X(t, 5) X(t, 6) X(t, 7) X(t, 8) X(t, 9) X(t, 10) X(t, 11) X(t, 12) X(t, 13)        \
        X(t, 14) X(t, 15) X(t, 16)
/* clang-format on */
#define AT(table, n) table##n,

/* What the version asks for and no more; the later members of our tables are those that entries.def dates. */
static const struct {
    const char *table;
    int member;
    uint32_t since;
} dated[] = {
#define ZR_ENTRY(name, table, index, minor, ...) {#table, index, 1 << 16 | (minor)},
#include "base/entries.def"
#undef ZR_ENTRY
};

static uint32_t fill(const char *table, uint32_t (*const *functions)(void), uint32_t version, void **out) {
    for (unsigned i = 0; i < sizeof dated / sizeof *dated; i++)
        if (strcmp(dated[i].table, table) == 0 && dated[i].since <= version)
            out[dated[i].member] = (void *)(uintptr_t)functions[dated[i].member];
    return 0;
}

#define ZR_TABLE(table, getter, ...)                                                                                   \
    EACH(F, table)                                                                                                     \
    uint32_t getter(uint32_t version, void **out);                                                                     \
    uint32_t getter(uint32_t version, void **out) {                                                                    \
        static uint32_t (*const functions[])(void) = {EACH(AT, table)};                                                \
        return fill(#table, functions, version, out);                                                                  \
    }
#include "base/tables.def"
