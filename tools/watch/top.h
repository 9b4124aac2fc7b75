/* zeroute top: what its files share. */
#ifndef ZEROUTE_TOOLS_WATCH_TOP_H
#define ZEROUTE_TOOLS_WATCH_TOP_H

#include "view/view.h"

/* --- draw.c: lines of text, for a screen or for a pipe; the table ------------------------------------------------ */
enum zr_style {
    ZR_STYLE_PLAIN,
    ZR_STYLE_TITLE,
    ZR_STYLE_HEAD,
    ZR_STYLE_DIM,
    ZR_STYLE_JOB,
    ZR_STYLE_OURS,
    ZR_STYLE_OTHERS,
    ZR_STYLE_WARNING,
    ZR_STYLE_ALERT
};

/* Columns of a line that have a style of their own. */
enum { ZR_MARKS = 16 };
struct zr_mark {
    size_t from, to;
    enum zr_style style;
};
struct zr_screen_line {
    char *text;
    enum zr_style style;
    unsigned marks;
    struct zr_mark mark[ZR_MARKS];
};
struct zr_lines {
    struct zr_screen_line *at;
    size_t count, room;
};
void zr_lines_free(struct zr_lines *l);
void zr_lines_add(struct zr_lines *l, enum zr_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Gives columns of the last line a style; nothing if there are none. */
void zr_lines_mark(struct zr_lines *l, size_t from, size_t to, enum zr_style style);
/* Each line of a text; what is wider than `width`, unless that is 0, goes on in the next line. */
void zr_lines_split(struct zr_lines *l, enum zr_style style, const char *text, size_t width);

/* One line of the table: a process, or a job of several. */
struct zr_row {
    const struct zr_job_view *job;         /* of a line for a whole job, else NULL */
    const struct zr_process_view *process; /* the process, or the sum */
    bool child, open;
};

enum { ZR_TOP_OPEN = 256 };
struct zr_top_view {
    size_t width;
    size_t height; /* 0: no screen, and so no graphs */
    size_t left;   /* columns of text to the left of the screen; where there are any, the table has all its columns */
    double each;   /* seconds between two values of a history */
    bool utf8;
    bool no_graphs;
    bool tree;       /* jobs are folded into a line; else each process has its own */
    unsigned column; /* by which lines are sorted */
    bool up;         /* the least first */
    char filter[64];
    unsigned open_count;
    char open[ZR_TOP_OPEN][128]; /* names of jobs that are unfolded */
};

/* What the table shows, sorted and filtered; to be freed. `jobs` must live as long. */
struct zr_row *zr_rows(const struct zr_top_view *v, const struct zr_job_view *jobs, size_t count, size_t *rows);
bool zr_top_is_open(const struct zr_top_view *v, const char *job);
void zr_top_fold(struct zr_top_view *v, const char *job);
unsigned zr_column_count(void);
/* Whether it has room on this screen. */
bool zr_column_is_shown(const struct zr_top_view *v, unsigned column);
const char *zr_column_name(unsigned column);
/* A column by its name; zr_column_count() if there is none. */
unsigned zr_column_find(const char *name);
/* The value of --sort, in any case. Returns false, with what is wrong on stderr, if it is no column. */
bool zr_column_take(const struct zr_command *c, const struct zr_option *o, const char *value, unsigned *column);
/* What lines are sorted by. */
double zr_column_value(unsigned column, const struct zr_row *r);

/* The head of the table. */
void zr_draw_head(struct zr_lines *l, const struct zr_top_view *v);
void zr_draw_row(struct zr_lines *l, const struct zr_top_view *v, const struct zr_row *r);
/* 5 columns: 0, 512M, 1.50G. */
const char *zr_short_bytes(char *out, uint64_t bytes);

/* --- graph.c: histories ------------------------------------------------------------------------------------------- */
/* The last `width` values as a line of bars. `most` 0: the highest of them is the top. */
void zr_sparkline(char *out, size_t size, const struct zr_history *h, size_t width, uint64_t most, bool utf8);
enum { ZR_GRAPH_COLUMNS = 200, ZR_GRAPH_TEXT = 3 * ZR_GRAPH_COLUMNS + 1 };
/* How many values a graph of so many columns shows. */
unsigned zr_graph_values(const struct zr_history *h, size_t width, bool utf8);
uint64_t zr_graph_most(const struct zr_history *h, size_t width, bool utf8);
/* Line y of `height`, 0 at the top, of an area as high as its values; `most` is the top. The newest is at the right. */
void zr_graph_line(char out[ZR_GRAPH_TEXT], const struct zr_history *h, size_t width, size_t height, size_t y,
                   uint64_t most, bool utf8);

/* --- machine.c: title, host memory, cards and their graphs -------------------------------------------------------- */
void zr_draw_machine(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v);

/* --- detail.c ----------------------------------------------------------------------------------------------------- */
enum { ZR_CALLERS = 32 };
/* What each library has done until the last look. */
struct zr_callers {
    uint64_t seen_ns, nonce; /* CLOCK_MONOTONIC; of which process */
    unsigned count;
    struct zr_caller_view {
        char name[80];
        uint64_t calls, bytes;
        double calls_rate, bytes_rate; /* per second, since the look before */
    } at[ZR_CALLERS];
};
/* Brings `c` up to date: the one that asked for most first. */
void zr_callers_take(struct zr_callers *c, const struct zeroute_snapshot *s, uint64_t now_ns);
void zr_draw_detail(struct zr_lines *l, struct zr_process_view *p, const struct zr_view *m, const struct zr_top_view *v,
                    struct zr_callers *callers);
void zr_draw_help(struct zr_lines *l);

#endif
