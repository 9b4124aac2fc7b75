/* zeroute top: what its files share. */
#ifndef ZEROUTE_TOOLS_WATCH_TOP_H
#define ZEROUTE_TOOLS_WATCH_TOP_H

#include "view/view.h"

/* --- draw.c: the model as lines of text, for a screen or for a pipe ----------------------------------------------- */
enum zr_style {
    ZR_STYLE_PLAIN,
    ZR_STYLE_TITLE,
    ZR_STYLE_HEAD,
    ZR_STYLE_DIM,
    ZR_STYLE_JOB,
    ZR_STYLE_CARD,
    ZR_STYLE_ALERT
};

struct zr_screen_line {
    char *text;
    enum zr_style style;
};
struct zr_lines {
    struct zr_screen_line *at;
    size_t count, room;
};
void zr_lines_free(struct zr_lines *l);
void zr_lines_add(struct zr_lines *l, enum zr_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
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
    size_t
        left; /* columns of text to the left of the screen; where there are any, all columns of the table are drawn */
    bool utf8;
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

/* Title, host memory and cards. */
void zr_draw_machine(struct zr_lines *l, const struct zr_view *m, const struct zr_top_view *v);
/* The head of the table. */
void zr_draw_head(struct zr_lines *l, const struct zr_top_view *v);
void zr_draw_row(struct zr_lines *l, const struct zr_top_view *v, const struct zr_row *r);
/* The last `width` values as a line of bars. `most` 0: the highest of them is the top. */
void zr_sparkline(char *out, size_t size, const struct zr_history *h, size_t width, uint64_t most, bool utf8);
/* 5 columns: 0, 512M, 1.50G. */
const char *zr_short_bytes(char *out, uint64_t bytes);

/* --- detail.c ----------------------------------------------------------------------------------------------------- */
void zr_draw_detail(struct zr_lines *l, struct zr_process_view *p, const struct zr_view *m, const struct zr_top_view *v,
                    double seconds_each);
void zr_draw_help(struct zr_lines *l);

#endif
