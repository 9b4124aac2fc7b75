/*
 * The location table of CPython 3.11 and later. An entry begins with a byte that has the top bit set: four bits of
 * form, three of length. It covers length + 1 code units of two bytes and moves the line as its form says.
 */
#include "report/report.h"

enum form { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NO_LOCATION = 15 };

/* Six bits to a byte, the lowest first; the seventh bit says that more follow. */
static uint32_t variable(const struct zr_code *c, uint32_t *at) {
    uint32_t value = 0;

    for (unsigned shift = 0; *at < c->table_size; shift += 6) {
        uint8_t byte = c->table[(*at)++];
        if (shift < 32)
            value |= (uint32_t)(byte & 0x3f) << shift;
        if (!(byte & 0x40))
            break;
    }
    return value;
}

/* The lowest bit is the sign. */
static int64_t with_sign(uint32_t value) {
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

uint32_t zr_python_line(const struct zr_code *c, uint32_t offset) {
    int64_t line = c->first_line;
    uint64_t covered = 0;

    for (uint32_t at = 0; at < c->table_size;) {
        uint8_t first = c->table[at++];
        unsigned form = first >> 3 & 15;

        if (!(first & 0x80))
            return 0;
        if (form == NO_COLUMNS || form == LONG)
            line += with_sign(variable(c, &at));
        else if (form >= ONE_LINE && form < NO_COLUMNS)
            line += form - ONE_LINE;
        covered += 2 * ((first & 7) + 1u);
        if (offset < covered)
            return form == NO_LOCATION || line <= 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
        while (at < c->table_size && !(c->table[at] & 0x80)) /* columns */
            at++;
    }
    return 0;
}
