/* Histories as text: a line of bars, or an area of several lines, in Braille where the terminal has it. */
#include "watch/top.h"

#include <string.h>

void zr_sparkline(char *out, size_t size, const struct zr_history *h, size_t width, uint64_t most, bool utf8) {
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char ascii[] = " .:-=+*%#";
    unsigned first = h->count > width ? h->count - (unsigned)width : 0;
    size_t used = 0;

    for (unsigned i = first; i < h->count; i++)
        most = zr_history_at(h, i) > most ? zr_history_at(h, i) : most;
    *out = '\0';
    for (unsigned i = first; i < h->count && used + 4 < size; i++) {
        uint64_t value = zr_history_at(h, i);
        unsigned level = value && most ? 1 + (unsigned)((double)value / (double)most * 7.0) : 0;
        used += (size_t)snprintf(out + used, size - used, utf8 ? "%s" : "%.1s", utf8 ? bars[level] : &ascii[level]);
    }
}

/* A character of Braille has two values beside each other, and four dots for each. */
static unsigned values_each(bool utf8) {
    return utf8 ? 2 : 1;
}

unsigned zr_graph_values(const struct zr_history *h, size_t width, bool utf8) {
    unsigned most = (unsigned)(width < ZR_GRAPH_COLUMNS ? width : ZR_GRAPH_COLUMNS) * values_each(utf8);

    return h->count < most ? h->count : most;
}

uint64_t zr_graph_most(const struct zr_history *h, size_t width, bool utf8) {
    uint64_t most = 0;

    for (unsigned i = h->count - zr_graph_values(h, width, utf8); i < h->count; i++)
        most = zr_history_at(h, i) > most ? zr_history_at(h, i) : most;
    return most;
}

/* Parts of a line that a value fills: 0 to `parts`, and at least one in the lowest line if there is anything. */
static unsigned filled(uint64_t value, uint64_t most, size_t height, size_t y, unsigned parts) {
    double all = most ? (double)value / (double)most * (double)height * parts : 0;
    size_t below = (height - 1 - y) * parts;
    size_t n = (size_t)(all + 0.5);

    if (value && !n)
        n = 1;
    if (n <= below)
        return 0;
    return n - below < parts ? (unsigned)(n - below) : parts;
}

/* One character of Braille; U+2800 is the empty one, for which a space stands. */
static size_t put_braille(char *out, unsigned left, unsigned right) {
    static const unsigned char column[2][5] = {{0, 0x40, 0x44, 0x46, 0x47}, {0, 0x80, 0xa0, 0xb0, 0xb8}};
    unsigned dots = column[0][left] | column[1][right];

    if (!dots) {
        *out = ' ';
        return 1;
    }
    out[0] = (char)0xe2;
    out[1] = (char)(0xa0 | dots >> 6);
    out[2] = (char)(0x80 | (dots & 0x3f));
    return 3;
}

void zr_graph_line(char out[ZR_GRAPH_TEXT], const struct zr_history *h, size_t width, size_t height, size_t y,
                   uint64_t most, bool utf8) {
    static const char ascii[] = " .:|";
    size_t used = 0;

    if (width > ZR_GRAPH_COLUMNS)
        width = ZR_GRAPH_COLUMNS;
    unsigned each = values_each(utf8), room = (unsigned)width * each;
    for (unsigned at = 0; at < room; at += each) {
        unsigned level[2] = {0, 0};
        for (unsigned k = 0; k < each; k++) {
            unsigned from_right = room - (at + k); /* the newest value is 1 */
            if (from_right <= h->count)
                level[k] = filled(zr_history_at(h, h->count - from_right), most, height, y, utf8 ? 4 : 3);
        }
        if (utf8)
            used += put_braille(out + used, level[0], level[1]);
        else
            out[used++] = ascii[level[0]];
    }
    out[used] = '\0';
}
