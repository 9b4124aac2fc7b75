/* Lines of text, and the table of jobs and processes as such. Nothing here knows of a terminal. */
#include "watch/top.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- lines ------------------------------------------------------------------------------------------------------- */

void zr_lines_add(struct zr_lines *l, enum zr_style style, const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->at = realloc(l->at, l->room * sizeof *l->at);
        if (!l->at)
            abort();
    }
    l->at[l->count++] = (struct zr_screen_line){.text = text, .style = style};
}

void zr_lines_mark(struct zr_lines *l, size_t from, size_t to, enum zr_style style) {
    struct zr_screen_line *line = &l->at[l->count - 1];

    if (from < to && line->marks < ZR_MARKS)
        line->mark[line->marks++] = (struct zr_mark){from, to, style};
}

/* Where a line is broken: at the last space that leaves a good part of it, else anywhere. */
static size_t break_at(const char *line, size_t length, size_t width) {
    size_t at = width;
    if (length <= width)
        return length;
    while (at > width / 2 && line[at] != ' ')
        at--;
    if (line[at] == ' ')
        return at;
    for (at = width; at > 1 && ((unsigned char)line[at] & 0xc0) == 0x80; at--) /* not within a character of UTF-8 */
        ;
    return at;
}

void zr_lines_split(struct zr_lines *l, enum zr_style style, const char *text, size_t width) {
    while (*text) {
        size_t length = strcspn(text, "\n"), n = width ? break_at(text, length, width) : length;
        zr_lines_add(l, style, "%.*s", (int)n, text);
        text += n;
        if (n == length)
            text += *text == '\n';
        else
            text += *text == ' ';
    }
}

void zr_lines_free(struct zr_lines *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->at[i].text);
    free(l->at);
    *l = (struct zr_lines){0};
}

/* --- cells ------------------------------------------------------------------------------------------------------- */

const char *zr_short_bytes(char *out, uint64_t bytes) {
    static const char unit[] = "BKMGTPE";
    double n = (double)bytes;
    unsigned u = 0;
    if (bytes == ZR_ABSENT || !bytes) {
        snprintf(out, ZR_TEXT_SIZE, "%s", bytes ? "-" : "0");
        return out;
    }
    for (; n >= 999.5 && u < sizeof unit - 2; u++)
        n /= 1024;
    snprintf(out, ZR_TEXT_SIZE, u == 0 || n >= 99.95 ? "%.0f%c" : n >= 9.995 ? "%.1f%c" : "%.2f%c", n, unit[u]);
    return out;
}

static const char *short_count(char *out, double n) {
    static const char unit[] = " kMGT";
    unsigned u = 0;
    if (n < 0.05) {
        snprintf(out, ZR_TEXT_SIZE, "0");
        return out;
    }
    for (; n >= 999.5 && u < sizeof unit - 2; u++)
        n /= 1000;
    snprintf(out, ZR_TEXT_SIZE, n < 9.95 ? "%.1f" : "%.0f", n);
    if (u)
        snprintf(out + strlen(out), 2, "%c", unit[u]);
    return out;
}

static const char *short_time(char *out, uint64_t ns) {
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    double n = (double)ns;
    unsigned u = 0;
    if (!ns) {
        snprintf(out, ZR_TEXT_SIZE, "-");
        return out;
    }
    for (; n >= 999.5 && u < 3; u++)
        n /= 1000;
    snprintf(out, ZR_TEXT_SIZE, n < 9.95 && u ? "%.1f%s" : "%.0f%s", n, unit[u]);
    return out;
}

#define CELL(name) static const char *name(char *out, const struct zr_row *r)
CELL(cell_pid) {
    const struct zeroute_process *p = &r->process->process;
    if (r->job)
        snprintf(out, ZR_TEXT_SIZE, "%s", r->open ? "[-]" : "[+]");
    else
        snprintf(out, ZR_TEXT_SIZE, "%d", p->pid ? p->pid : p->pid_inside);
    return out;
}
CELL(cell_rank) {
    if (r->job)
        snprintf(out, ZR_TEXT_SIZE, "x%zu", r->job->count);
    else
        snprintf(out, ZR_TEXT_SIZE, "%.5s", zr_shown(r->process->id.rank));
    return out;
}
CELL(cell_allocated) {
    return zr_short_bytes(out, r->process->allocated);
}
CELL(cell_reserved) {
    return zr_short_bytes(out, r->process->reserved);
}
CELL(cell_peak) {
    return zr_short_bytes(out, r->process->peak);
}
CELL(cell_host) {
    return zr_short_bytes(out, r->process->host_usm);
}
CELL(cell_mirror) {
    return zr_short_bytes(out, r->process->mirror);
}
CELL(cell_hits) {
    if (r->process->hit_rate < 0)
        snprintf(out, ZR_TEXT_SIZE, "-");
    else
        snprintf(out, ZR_TEXT_SIZE, "%.0f%%", 100 * r->process->hit_rate);
    return out;
}
CELL(cell_allocations) {
    return short_count(out, r->process->allocations_rate);
}
CELL(cell_driver) {
    return short_count(out, r->process->driver_rate);
}
CELL(cell_p99) {
    return short_time(out, r->process->p99_ns);
}
CELL(cell_failures) {
    return short_count(out, (double)r->process->failures);
}

/* Cards by their numbers on this screen. */
CELL(cell_cards) {
    return zr_cards_text(out, ZR_TEXT_SIZE, r->process->on_cards);
}

static bool has_mirror(const struct zr_row *r) {
    return r->process->mirror != ZR_ABSENT && r->process->mirror >= ZR_MIRROR_WARNS;
}

static double amount(uint64_t n) {
    return n == ZR_ABSENT ? -1 : (double)n;
}
static int pid_of(const struct zr_row *r) {
    return r->process->process.pid ? r->process->process.pid : r->process->process.pid_inside;
}
#define KEY(name, value)                                                                                               \
    static double name(const struct zr_row *r) {                                                                       \
        return value;                                                                                                  \
    }
KEY(key_pid, pid_of(r))
KEY(key_rank, strtod(r->process->id.rank, NULL))
KEY(key_cards, r->process->on_cards)
KEY(key_allocated, amount(r->process->allocated))
KEY(key_reserved, amount(r->process->reserved))
KEY(key_peak, amount(r->process->peak))
KEY(key_host, amount(r->process->host_usm))
KEY(key_mirror, amount(r->process->mirror))
KEY(key_hits, r->process->hit_rate)
KEY(key_allocations, r->process->allocations_rate)
KEY(key_driver, r->process->driver_rate)
KEY(key_p99, amount(r->process->p99_ns))
KEY(key_failures, amount(r->process->failures))

static const struct column {
    const char *name, *also; /* what else it may be called */
    int width;               /* a space in front included */
    size_t from;             /* shown on screens so wide */
    const char *(*cell)(char *out, const struct zr_row *r);
    double (*key)(const struct zr_row *r);
    bool (*warns)(const struct zr_row *r); /* whether the cell deserves a colour; NULL: never */
} columns[] = {
    {"PID", NULL, 7, 0, cell_pid, key_pid, NULL},
    {"RANK", NULL, 5, 0, cell_rank, key_rank, NULL},
    {"CARD", "cards", 5, 72, cell_cards, key_cards, NULL},
    {"IN-USE", NULL, 8, 0, cell_allocated, key_allocated, NULL},
    {"RESV", "reserved", 7, 90, cell_reserved, key_reserved, NULL},
    {"PEAK", NULL, 7, 60, cell_peak, key_peak, NULL},
    {"HOST", NULL, 7, 118, cell_host, key_host, NULL},
    {"MIRROR", NULL, 8, 72, cell_mirror, key_mirror, has_mirror},
    {"HIT", NULL, 6, 100, cell_hits, key_hits, NULL},
    {"ALLOC/S", NULL, 9, 100, cell_allocations, key_allocations, NULL},
    {"DRV/S", NULL, 7, 112, cell_driver, key_driver, NULL},
    {"P99", NULL, 7, 128, cell_p99, key_p99, NULL},
    {"FAIL", "failed", 6, 128, cell_failures, key_failures, NULL},
};
#define COLUMNS (sizeof columns / sizeof *columns)

unsigned zr_column_count(void) {
    return COLUMNS;
}

bool zr_column_is_shown(const struct zr_top_view *v, unsigned column) {
    return v->left || v->width >= columns[column].from;
}

const char *zr_column_name(unsigned column) {
    return columns[column].name;
}

unsigned zr_column_find(const char *name) {
    unsigned i = 0;
    while (i < COLUMNS && strcasecmp(columns[i].name, name) != 0 &&
           (!columns[i].also || strcasecmp(columns[i].also, name) != 0))
        i++;
    return i;
}

bool zr_column_take(const struct zr_command *c, const struct zr_option *o, const char *value, unsigned *column) {
    char choices[256] = "", word[32] = "";
    size_t used = 0;

    *column = zr_column_find(value);
    if (*column < COLUMNS)
        return true;
    for (unsigned i = 0; i < COLUMNS && used < sizeof choices; i++)
        used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%s", i ? "|" : "", columns[i].name);
    for (char *at = choices; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    for (size_t i = 0; value[i] && i + 1 < sizeof word; i++)
        word[i] = (char)tolower((unsigned char)value[i]);
    return zr_option_choice(c, o, *word ? word : value, choices);
}

double zr_column_value(unsigned column, const struct zr_row *r) {
    return columns[column].key(r);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

bool zr_top_is_open(const struct zr_top_view *v, const char *job) {
    for (unsigned i = 0; i < v->open_count; i++)
        if (strcmp(v->open[i], job) == 0)
            return true;
    return false;
}

void zr_top_fold(struct zr_top_view *v, const char *job) {
    for (unsigned i = 0; i < v->open_count; i++)
        if (strcmp(v->open[i], job) == 0) {
            memmove(v->open[i], v->open[v->open_count - 1], sizeof v->open[i]);
            v->open_count--;
            return;
        }
    if (v->open_count < ZR_TOP_OPEN)
        snprintf(v->open[v->open_count++], sizeof v->open[0], "%s", job);
}

static const struct zr_top_view *sorted_by; /* for qsort */

static int by_column(const void *a, const void *b) {
    const struct zr_row *r = a, *s = b;
    double x = columns[sorted_by->column].key(r), y = columns[sorted_by->column].key(s);
    if (x != y)
        return (x < y) == sorted_by->up ? -1 : 1;
    return pid_of(r) - pid_of(s);
}

/* Ranks of an unfolded job stand in their order. */
static int by_rank(const void *a, const void *b) {
    double x = key_rank(a), y = key_rank(b);
    return x != y ? (x < y ? -1 : 1) : pid_of(a) - pid_of(b);
}

static bool contains(const char *text, const char *part) {
    return strcasestr(text, part) != NULL;
}

static bool is_shown(const struct zr_top_view *v, const struct zr_process_view *p) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", p->process.pid);
    return !*v->filter || contains(p->process.command, v->filter) || contains(p->id.job, v->filter) ||
           contains(p->id.job_name, v->filter) || contains(p->id.pod, v->filter) ||
           contains(p->id.container, v->filter) || contains(p->id.space, v->filter) || strcmp(pid, v->filter) == 0;
}

static bool any_is_shown(const struct zr_top_view *v, const struct zr_job_view *j) {
    for (size_t i = 0; i < j->count; i++)
        if (is_shown(v, j->process[i]))
            return true;
    return false;
}

/* The processes of a job behind its line. */
static size_t put_members(struct zr_row *to, const struct zr_top_view *v, const struct zr_job_view *j) {
    size_t n = 0;
    for (size_t i = 0; i < j->count; i++)
        if (is_shown(v, j->process[i]))
            to[n++] = (struct zr_row){.process = j->process[i], .child = true};
    qsort(to, n, sizeof *to, by_rank);
    return n;
}

struct zr_row *zr_rows(const struct zr_top_view *v, const struct zr_job_view *jobs, size_t count, size_t *rows) {
    size_t processes = 0, tops = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        processes += jobs[i].count;
    struct zr_row *top = calloc(processes + 1, sizeof *top), *all = calloc(2 * processes + 1, sizeof *all);
    if (!top || !all)
        abort();
    for (size_t i = 0; i < count; i++) {
        const struct zr_job_view *j = &jobs[i];
        if (v->tree && j->count > 1 && any_is_shown(v, j))
            top[tops++] = (struct zr_row){.job = j, .process = &j->sum, .open = zr_top_is_open(v, j->name)};
        for (size_t p = 0; p < j->count && (!v->tree || j->count == 1); p++)
            if (is_shown(v, j->process[p]))
                top[tops++] = (struct zr_row){.process = j->process[p]};
    }
    sorted_by = v;
    if (tops)
        qsort(top, tops, sizeof *top, by_column);
    for (size_t i = 0; i < tops; i++) {
        all[n++] = top[i];
        if (top[i].job && top[i].open)
            n += put_members(all + n, v, top[i].job);
    }
    free(top);
    *rows = n;
    return all;
}

/* --- the table --------------------------------------------------------------------------------------------------- */

void zr_draw_head(struct zr_lines *l, const struct zr_top_view *v) {
    char text[512] = "";
    size_t used = 0;
    for (unsigned i = 0; i < COLUMNS; i++)
        if (zr_column_is_shown(v, i))
            used += (size_t)snprintf(text + used, sizeof text - used, "%*s%s", columns[i].width - (i == v->column),
                                     columns[i].name, i == v->column ? (v->up ? "^" : "v") : "");
    snprintf(text + used, sizeof text - used, "  COMMAND");
    zr_lines_add(l, ZR_STYLE_HEAD, "%s", text);
}

/* As much of a command as a line has room for behind so many columns; all of it where the screen can be moved. */
static const char *command_of(const struct zr_row *r, const struct zr_top_view *v, size_t at) {
    static char text[4 * sizeof r->process->process.command];
    size_t room = v->width > at + 8 ? v->width - at : 8;

    return zr_text_command(text, zr_shown(r->process->process.command), v->left ? sizeof text : room);
}

/* "[space/pod/container] ", cut so that the command behind it stays visible. */
static void where_of(char *out, size_t size, const struct zr_identity *id, size_t room) {
    enum { COMMAND = 16, LEAST = 12 };
    size_t most = room > COMMAND + LEAST ? room - COMMAND : LEAST;

    snprintf(out, size, "[%s%s%s%s%s] ", id->space, *id->space ? "/" : "", id->pod,
             *id->pod && *id->container ? "/" : "", id->container);
    if (strlen(out) <= most || most >= size)
        return;
    size_t cut = most - strlen("...] ");
    while (cut > 1 && (out[cut] & 0xc0) == 0x80) /* the rest of a character */
        cut--;
    snprintf(out + cut, size - cut, "...] ");
}

/* "(paused) " in front of a command, "(2 paused) " of a job; "" if it runs. */
static size_t paused_text(char *out, const struct zr_row *r) {
    *out = '\0';
    if (r->job && r->job->paused)
        snprintf(out, ZR_TEXT_SIZE, "(%zu paused) ", r->job->paused);
    else if (!r->job && zr_is_paused(r->process))
        snprintf(out, ZR_TEXT_SIZE, "(%s) ", zr_pause_name(r->process->pause.state));
    return strlen(out);
}

void zr_draw_row(struct zr_lines *l, const struct zr_top_view *v, const struct zr_row *r) {
    const struct zr_identity *id = &r->process->id;
    char text[512] = "", cell[ZR_TEXT_SIZE], where[300] = "", paused[ZR_TEXT_SIZE];
    size_t used = 0, from = 0, to = 0;
    for (unsigned i = 0; i < COLUMNS; i++) {
        if (!zr_column_is_shown(v, i))
            continue;
        if (columns[i].warns && columns[i].warns(r)) {
            from = used + 1;
            to = used + (size_t)columns[i].width;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%*s", columns[i].width, columns[i].cell(cell, r));
    }
    enum zr_style style = r->process->failures || r->process->refused ? ZR_STYLE_ALERT
                          : r->job                                    ? ZR_STYLE_JOB
                                                                      : ZR_STYLE_PLAIN;
    size_t at = used + 2 + (r->child ? 3 : 0) + paused_text(paused, r),
           room = v->width > at && !v->left ? v->width - at : sizeof where;

    if (*id->pod || *id->container)
        where_of(where, sizeof where, id, room);
    if (*paused && !r->job)
        style = ZR_STYLE_DIM;
    if (r->job)
        zr_lines_add(l, style, "%s  %sjob %s%s%s%s", text, paused, zr_shown(r->job->name), *id->job_name ? " (" : "",
                     zr_shown(id->job_name), *id->job_name ? ")" : "");
    else
        zr_lines_add(l, style, "%s  %s%s%s%s", text, r->child ? "`- " : "", paused, zr_shown(where),
                     command_of(r, v, at + strlen(where)));
    zr_lines_mark(l, from, to, ZR_STYLE_WARNING);
}
