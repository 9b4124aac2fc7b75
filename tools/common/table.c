/* Tables on a terminal: columns as wide as they need to be, one of them cut where the screen is too narrow. */
#include "common/common.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS 16

struct zr_table {
    size_t columns, rows;
    size_t elastic; /* the column that is cut */
    bool commands;  /* it has commands */
    bool right[COLUMNS];
    char **cells; /* the heads first */
};

struct zr_table *zr_table_of(const char *const *head) {
    struct zr_table *t = calloc(1, sizeof *t);
    if (!t || !(t->cells = calloc(COLUMNS, sizeof *t->cells)))
        abort();
    for (; *head && t->columns < COLUMNS; head++) {
        const char *h = *head;
        t->right[t->columns] = *h == '>';
        t->commands |= *h == '$';
        if (*h == '~' || *h == '$')
            t->elastic = t->columns;
        t->cells[t->columns++] = strdup(h + (strchr(">~$", *h) != NULL));
    }
    t->rows = 1;
    return t;
}

void zr_table_cells(struct zr_table *t, const char *const *cell) {
    char **grown = realloc(t->cells, (t->rows + 1) * t->columns * sizeof *grown);
    if (!grown)
        abort();
    t->cells = grown;
    for (size_t c = 0; c < t->columns; c++)
        t->cells[t->rows * t->columns + c] = zr_harmless(cell[c], ZR_FOR_TERMINAL);
    t->rows++;
}

struct zr_table *zr_table_new(const char *first, ...) {
    const char *head[COLUMNS + 1] = {NULL};
    size_t n = 0;
    va_list ap;
    va_start(ap, first);
    for (const char *h = first; h && n < COLUMNS; h = va_arg(ap, const char *))
        head[n++] = h;
    va_end(ap);
    return zr_table_of(head);
}

void zr_table_row(struct zr_table *t, ...) {
    const char *cell[COLUMNS];
    va_list ap;
    va_start(ap, t);
    for (size_t c = 0; c < t->columns; c++)
        cell[c] = va_arg(ap, const char *);
    va_end(ap);
    zr_table_cells(t, cell);
}

size_t zr_table_rows(const struct zr_table *t) {
    return t->rows - 1;
}

size_t zr_columns(FILE *out) {
    struct winsize w;
    int fd = fileno(out); /* -1: in memory */
    const char *columns = getenv("COLUMNS");
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    size_t n = columns ? strtoul(columns, NULL, 10) : 0;
    return n > 20 && n < 10000 ? n : 0;
}

static void pad(FILE *out, size_t n) {
    fprintf(out, "%*s", (int)n, "");
}

void zr_table_free(struct zr_table *t) {
    for (size_t i = 0; i < t->rows * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

/* Cuts the elastic column so that all of the table fits, down to LEAST columns. */
static void fit(struct zr_table *t, size_t *width, size_t screen) {
    enum { LEAST = 12 };
    size_t all = 0;
    for (size_t c = 0; c < t->columns; c++)
        all += width[c] + (c ? 2 : 0);
    if (!screen || all <= screen || width[t->elastic] <= LEAST)
        return;
    size_t over = all - screen, room = width[t->elastic] - LEAST;
    width[t->elastic] -= over < room ? over : room;
    for (size_t r = 0; r < t->rows; r++) {
        char **cell = &t->cells[r * t->columns + t->elastic], *cut = malloc(strlen(*cell) + 8);
        if (!cut)
            abort();
        if (t->commands)
            zr_text_command(cut, *cell, width[t->elastic]);
        else
            zr_text_middle(cut, *cell, width[t->elastic]);
        free(*cell);
        *cell = cut;
    }
}

void zr_table_print(struct zr_table *t, FILE *out, bool colour) {
    size_t width[COLUMNS] = {0};
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->columns; c++) {
            size_t w = zr_text_width(t->cells[r * t->columns + c]);
            width[c] = w > width[c] ? w : width[c];
        }
    fit(t, width, zr_columns(out));
    for (size_t r = 0; r < t->rows; r++) {
        if (r == 0)
            fputs(zr_dim(colour), out);
        for (size_t c = 0; c < t->columns; c++) {
            const char *cell = t->cells[r * t->columns + c];
            size_t w = zr_text_width(cell);
            if (c)
                fputs("  ", out);
            if (t->right[c])
                pad(out, width[c] - w);
            fputs(cell, out);
            if (!t->right[c] && c + 1 < t->columns)
                pad(out, width[c] - w);
        }
        if (r == 0)
            fputs(zr_plain(colour), out);
        fputc('\n', out);
    }
    zr_table_free(t);
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
