/* Tables on a terminal: columns as wide as they need to be, the last one cut at the edge. */
#include "common/common.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS 16

struct zr_table {
    size_t columns, rows;
    bool right[COLUMNS];
    char **cells; /* the heads first */
};

struct zr_table *zr_table_new(const char *first, ...) {
    struct zr_table *t = calloc(1, sizeof *t);
    if (!t || !(t->cells = calloc(COLUMNS, sizeof *t->cells)))
        abort();
    va_list ap;
    va_start(ap, first);
    for (const char *h = first; h && t->columns < COLUMNS; h = va_arg(ap, const char *)) {
        t->right[t->columns] = *h == '>';
        t->cells[t->columns++] = strdup(h + (*h == '>'));
    }
    va_end(ap);
    t->rows = 1;
    return t;
}

void zr_table_row(struct zr_table *t, ...) {
    char **grown = realloc(t->cells, (t->rows + 1) * t->columns * sizeof *grown);
    if (!grown)
        abort();
    t->cells = grown;
    va_list ap;
    va_start(ap, t);
    for (size_t c = 0; c < t->columns; c++)
        t->cells[t->rows * t->columns + c] = zr_harmless(va_arg(ap, const char *), ZR_FOR_TERMINAL);
    va_end(ap);
    t->rows++;
}

size_t zr_table_rows(const struct zr_table *t) {
    return t->rows - 1;
}

static size_t terminal_width(FILE *out) {
    struct winsize w;
    int fd = fileno(out); /* -1: in memory */
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    return 0;
}

/* Columns on the screen, not bytes: continuation bytes of UTF-8 take none. */
static size_t width_of(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* The bytes of its first so many columns: no character is cut. */
static size_t bytes_of(const char *s, size_t columns) {
    size_t n = 0, seen = 0;
    for (; s[n]; n++)
        if ((s[n] & 0xc0) != 0x80 && seen++ == columns)
            break;
    return n;
}

static void pad(FILE *out, size_t n) {
    fprintf(out, "%*s", (int)n, "");
}

void zr_table_print(struct zr_table *t, FILE *out, bool colour) {
    size_t width[COLUMNS] = {0}, screen = terminal_width(out), before_last = 0;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->columns; c++) {
            size_t w = width_of(t->cells[r * t->columns + c]);
            width[c] = w > width[c] ? w : width[c];
        }
    for (size_t c = 0; c + 1 < t->columns; c++)
        before_last += width[c] + 2;
    for (size_t r = 0; r < t->rows; r++) {
        if (r == 0)
            fputs(zr_dim(colour), out);
        for (size_t c = 0; c < t->columns; c++) {
            const char *cell = t->cells[r * t->columns + c];
            size_t w = width_of(cell), room = width[c];
            bool last = c + 1 == t->columns;
            if (c)
                fputs("  ", out);
            if (t->right[c])
                pad(out, room - w);
            if (last && screen > before_last + 8 && w > screen - before_last)
                fprintf(out, "%.*s...", (int)bytes_of(cell, screen - before_last - 3), cell);
            else
                fputs(cell, out);
            if (!t->right[c] && !last)
                pad(out, room - w);
        }
        if (r == 0)
            fputs(zr_plain(colour), out);
        fputc('\n', out);
    }
    for (size_t i = 0; i < t->rows * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

bool zr_colour(FILE *out) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

const char *zr_bold(bool colour) {
    return colour ? "\033[1m" : "";
}

const char *zr_dim(bool colour) {
    return colour ? "\033[2m" : "";
}

const char *zr_red(bool colour) {
    return colour ? "\033[31m" : "";
}

const char *zr_plain(bool colour) {
    return colour ? "\033[0m" : "";
}
