/* zeroute top: the live screen (ncurses), and one look for scripts. */
#include "watch/top.h"
#include "stat/stat.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

enum { ONCE = ZR_LONG, INTERVAL, SORT, FLAT };
enum page { PAGE_TABLE, PAGE_DETAIL, PAGE_HELP };
enum { DETAIL_EVERY_NS = 2000000000, SIDEWAYS = 8 };

struct options {
    bool once, json, flat, interval_given;
    double interval;
    const char *filter;
    unsigned column;
    int pid;
};

struct top {
    struct zr_view *model;
    struct zr_top_view view;
    enum page page;
    size_t selected, first;         /* line of the table; the first one on the screen, of the table or of a page */
    uint64_t followed;              /* the process of the selected line, by its nonce; 0: whatever is in that line */
    char followed_job[128];         /* or the job */
    struct zeroute_process process; /* in detail */
    struct zr_lines detail;
    struct zr_callers callers; /* of the process in detail */
    uint64_t detail_ns, sampled_ns, interval_ns;
    bool typing;  /* the filter */
    bool gone;    /* the process in detail has ended */
    bool moved;   /* to another line, since it was drawn */
    bool colours; /* are wanted, and the terminal has them */
};

static const struct zr_option option_table[] = {
    {ONCE, "once", NULL, "print one look and exit"},
    {'j', "json", NULL, "print JSON; with --interval one document per line until interrupted"},
    {INTERVAL, "interval", "SECONDS", "time between two looks (default 1)"},
    {'f', "filter", "TEXT", "only processes with TEXT in command, job, pod or container"},
    {SORT, "sort", "COLUMN", "sort by this column: pid, rank, in-use (default), peak, mirror, alloc/s, ..."},
    {FLAT, "flat", NULL, "a line for each process; jobs are not folded"},
    {0},
};

static const struct zr_command command = {
    .name = "top",
    .usage = "zeroute top [PID] [--interval SECONDS] [OPTIONS]\n"
             "zeroute top --once | --json [OPTIONS]",
    .about =
        "Shows cards, jobs and processes under zeroute while they run: memory of each card over time, memory in use, "
        "reserved and at its peak, the mirror in host memory, the cache, allocations and driver calls per second. The "
        "ranks of a job are one line that unfolds. h shows the keys. With PID that process is shown in detail.",
    .options = option_table,
    .notes = "Exit code: 0 done, 2 no such process, no terminal, or wrong usage.\n",
    .operands = "one process id at most",
    .most = 1,
    .examples = "zeroute top\n"
                "zeroute top --filter train.py --sort peak\n"
                "zeroute top --once --flat\n"
                "zeroute top --json | jq '.jobs[] | {job, allocated_bytes}'",
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    switch (option->id) {
    case ONCE:
        return o->once = true;
    case 'j':
        return o->json = true;
    case 'f':
        o->filter = value;
        return true;
    case SORT:
        return zr_column_take(&command, option, value, &o->column);
    case FLAT:
        return o->flat = true;
    default:
        o->interval_given = true;
        return zr_option_real(&command, option, value, 0.1, &o->interval);
    }
}

/* --- without a screen ------------------------------------------------------------------------------------------- */

static size_t output_width(void) {
    const char *columns = getenv("COLUMNS");
    struct winsize w;
    if (isatty(1) && ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col)
        return w.ws_col;
    long told = columns ? strtol(columns, NULL, 10) : 0;
    return told > 0 ? (size_t)told : 132;
}

static void print_once(const struct top *t) {
    struct zr_lines l = {0};
    size_t count, rows;
    struct zr_job_view *jobs = zr_jobs(t->model, &count);
    struct zr_row *row = zr_rows(&t->view, jobs, count, &rows);
    zr_draw_machine(&l, t->model, &t->view);
    zr_draw_head(&l, &t->view);
    for (size_t i = 0; i < rows; i++)
        zr_draw_row(&l, &t->view, &row[i]);
    for (size_t i = 0; i < l.count; i++)
        puts(l.at[i].text);
    zr_lines_free(&l);
    free(row);
    zr_jobs_free(jobs);
}

static int print_json(struct top *t, const struct options *o) {
    do {
        if (o->interval_given && !zr_view_sample(t->model))
            return ZR_EXIT_ERROR;
        if (!zr_json_write(stdout, zr_view_json(t->model, (struct zr_json_parts){.machine = true, .jobs = true}),
                           ZR_JSON_DIGITS, o->interval_given) ||
            fflush(stdout))
            return ZR_EXIT_ERROR;
        if (o->interval_given)
            nanosleep(&(struct timespec){.tv_sec = (time_t)o->interval,
                                         .tv_nsec = (long)((o->interval - (double)(time_t)o->interval) * 1e9)},
                      NULL);
    } while (o->interval_given && !interrupted);
    return ZR_EXIT_DONE;
}

/* --- the screen ------------------------------------------------------------------------------------------------- */

enum { RED = 1, CYAN, GREEN, YELLOW };

static int attributes(const struct top *t, enum zr_style style) {
    switch (style) {
    case ZR_STYLE_TITLE:
        return A_BOLD;
    case ZR_STYLE_HEAD:
        return A_REVERSE;
    case ZR_STYLE_DIM:
        return A_DIM;
    case ZR_STYLE_JOB:
        return A_BOLD | (t->colours ? COLOR_PAIR(CYAN) : 0);
    case ZR_STYLE_OURS:
        return t->colours ? COLOR_PAIR(GREEN) : 0;
    case ZR_STYLE_OTHERS:
        return t->colours ? COLOR_PAIR(YELLOW) : 0;
    case ZR_STYLE_WARNING:
        return t->colours ? A_BOLD | COLOR_PAIR(YELLOW) : A_BOLD;
    case ZR_STYLE_ALERT:
        return t->colours ? A_BOLD | COLOR_PAIR(RED) : A_BOLD;
    default:
        return 0;
    }
}

/* As much of a text as fits, from column `left` of it on; wide characters take two columns. */
static void put(int y, const char *text, int attribute, bool to_the_edge, size_t left) {
    wchar_t wide[2048];
    size_t n = mbstowcs(wide, text, sizeof wide / sizeof *wide - 1);
    int column = 0, width = COLS;
    if (n == (size_t)-1)
        n = 0;
    wide[n] = L'\0';
    attrset(attribute);
    move(y, 0);
    for (size_t i = left; i < n; i++) {
        int w = wcwidth(wide[i]);
        if (w < 0 || column + w > width)
            break;
        addnwstr(&wide[i], 1);
        column += w;
    }
    for (; to_the_edge && column < width; column++)
        addch(' ');
    attrset(0);
    if (column < width)
        clrtoeol();
}

/* Columns with a style of their own, as far as they are on the screen. */
static void put_marks(const struct top *t, const struct zr_screen_line *line, int y, size_t left, attr_t also) {
    for (unsigned i = 0; i < line->marks; i++) {
        const struct zr_mark *m = &line->mark[i];
        size_t from = m->from > left ? m->from - left : 0, to = m->to > left ? m->to - left : 0;

        if (to > (size_t)COLS)
            to = (size_t)COLS;
        if (from >= to)
            continue;
        attr_t all = (attr_t)attributes(t, m->style) | also;
        mvchgat(y, (int)from, (int)(to - from), all & ~(attr_t)A_COLOR, (short)PAIR_NUMBER(all), NULL);
    }
}

static void put_lines(const struct top *t, const struct zr_lines *l, size_t first, int y, int height, size_t left) {
    for (int i = 0; i < height; i++) {
        const struct zr_screen_line *line = first + (size_t)i < l->count ? &l->at[first + (size_t)i] : NULL;
        put(y + i, line ? line->text : "", line ? attributes(t, line->style) : 0, line && line->style == ZR_STYLE_HEAD,
            left);
        if (line)
            put_marks(t, line, y + i, left, 0);
    }
}

static void put_footer(const struct top *t) {
    char text[160];
    if (t->typing) {
        snprintf(text, sizeof text, "filter: %s_   (Enter: keep, Esc: none)", zr_shown(t->view.filter));
        put(LINES - 1, text, A_BOLD, false, 0);
    } else if (t->page == PAGE_TABLE) {
        put(LINES - 1, "q quit  h help  / filter  t tree  s sort  Enter detail  c graphs", A_DIM, false, 0);
    } else {
        put(LINES - 1, t->gone ? "the process has ended  q back" : "Up Down scroll  q back", A_DIM, false, 0);
    }
}

static void keep_within(size_t *first, size_t selected, size_t height) {
    if (selected < *first)
        *first = selected;
    if (height && selected >= *first + height)
        *first = selected - height + 1;
}

/* The selected process stays selected while lines are sorted. If it is gone, the next one takes its line. */
static void follow(struct top *t, const struct zr_row *row, size_t rows) {
    size_t i = 0;
    while (i < rows &&
           (row[i].job ? strcmp(row[i].job->name, t->followed_job) != 0 : row[i].process->process.nonce != t->followed))
        i++;
    if ((t->followed || *t->followed_job) && i < rows)
        t->selected = i;
    if (t->selected >= rows)
        t->selected = rows ? rows - 1 : 0;
}

/* After a key that moves, this process is selected; on the first line, whichever is first. */
static void follow_selected(struct top *t, const struct zr_row *row, size_t rows) {
    t->followed = 0;
    *t->followed_job = '\0';
    if (!t->selected || t->selected >= rows)
        return;
    if (row[t->selected].job)
        snprintf(t->followed_job, sizeof t->followed_job, "%s", row[t->selected].job->name);
    else
        t->followed = row[t->selected].process->process.nonce;
}

static void draw_table(struct top *t) {
    struct zr_lines l = {0}, table = {0};
    size_t count, rows;
    struct zr_job_view *jobs = zr_jobs(t->model, &count);
    struct zr_row *row = zr_rows(&t->view, jobs, count, &rows);
    zr_draw_machine(&l, t->model, &t->view);
    /* On a low screen the cards give way to the table. */
    int top = (int)l.count, most = LINES > 8 ? LINES - 6 : 1;
    if (top > most)
        top = most;
    put_lines(t, &l, 0, 0, top, 0);
    zr_draw_head(&table, &t->view);
    put_lines(t, &table, 0, top, 1, t->view.left);
    if (t->moved)
        follow_selected(t, row, rows);
    t->moved = false;
    follow(t, row, rows);
    size_t height = LINES > top + 2 ? (size_t)(LINES - top - 2) : 0;
    keep_within(&t->first, t->selected, height);
    for (size_t i = 0; i < rows; i++)
        zr_draw_row(&table, &t->view, &row[i]);
    for (size_t i = 0; i < height; i++) {
        size_t n = t->first + i;
        const struct zr_screen_line *line = n < rows ? &table.at[1 + n] : NULL;
        put(top + 1 + (int)i, line ? line->text : "",
            line ? attributes(t, line->style) | (n == t->selected ? A_REVERSE : 0) : 0, line && n == t->selected,
            t->view.left);
        if (line)
            put_marks(t, line, top + 1 + (int)i, t->view.left, n == t->selected ? A_REVERSE : 0);
    }
    if (!rows)
        put(top + 1, *t->view.filter ? "no process fits the filter" : "no process runs under zeroute", A_DIM, false, 0);
    zr_lines_free(&l);
    zr_lines_free(&table);
    free(row);
    zr_jobs_free(jobs);
}

static struct zr_process_view *find(const struct zr_view *m, const struct zeroute_process *p) {
    for (size_t i = 0; i < m->process_count; i++)
        if (zr_is_same_process(&m->process[i]->process, p))
            return m->process[i];
    return NULL;
}

/* Doctor reads the libraries of the process: not with every key. */
static void draw_page(struct top *t) {
    struct zr_process_view *p = t->page == PAGE_DETAIL ? find(t->model, &t->process) : NULL;
    if (t->page == PAGE_HELP || (p && zr_clock_ns() - t->detail_ns > DETAIL_EVERY_NS)) {
        zr_lines_free(&t->detail);
        if (p)
            zr_draw_detail(&t->detail, p, t->model, &t->view, &t->callers);
        else
            zr_draw_help(&t->detail);
        t->detail_ns = zr_clock_ns();
    }
    t->gone = t->page == PAGE_DETAIL && !p;
    size_t height = (size_t)(LINES - 1);
    if (t->first + height > t->detail.count)
        t->first = t->detail.count > height ? t->detail.count - height : 0;
    put_lines(t, &t->detail, t->first, 0, (int)height, t->view.left);
}

static void draw(struct top *t) {
    t->view.width = (size_t)COLS;
    t->view.height = (size_t)LINES;
    if (COLS < 20 || LINES < 4) {
        erase();
        put(0, "too small", 0, false, 0);
    } else {
        if (t->page == PAGE_TABLE)
            draw_table(t);
        else
            draw_page(t);
        put_footer(t);
    }
    refresh();
}

/* --- keys ------------------------------------------------------------------------------------------------------- */

static void show_page(struct top *t, enum page page) {
    t->page = page;
    t->first = t->view.left = 0;
    t->detail_ns = 0;
}

/* Opens the selected line: a job unfolds, a process is shown in detail. */
static void choose(struct top *t, bool only_fold) {
    size_t count, rows;
    struct zr_job_view *jobs = zr_jobs(t->model, &count);
    struct zr_row *row = zr_rows(&t->view, jobs, count, &rows);
    if (t->selected < rows && row[t->selected].job) {
        zr_top_fold(&t->view, row[t->selected].job->name);
    } else if (t->selected < rows && !only_fold) {
        t->process = row[t->selected].process->process;
        show_page(t, PAGE_DETAIL);
    }
    free(row);
    zr_jobs_free(jobs);
}

static void type(struct top *t, int key) {
    size_t n = strlen(t->view.filter);
    if (key == '\n' || key == KEY_ENTER || key == '\r') {
        t->typing = false;
    } else if (key == 27) {
        t->typing = false;
        *t->view.filter = '\0';
    } else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && n) {
        t->view.filter[n - 1] = '\0';
    } else if (key >= ' ' && key < 127 && n + 1 < sizeof t->view.filter) {
        t->view.filter[n] = (char)key;
        t->view.filter[n + 1] = '\0';
    }
}

static void sort_by(struct top *t, unsigned column) {
    t->view.up = column == t->view.column ? !t->view.up : column < 2;
    t->view.column = column;
}

static void next_column(struct top *t, int step) {
    do
        t->view.column = (t->view.column + zr_column_count() + (unsigned)step) % zr_column_count();
    while (!zr_column_is_shown(&t->view, t->view.column));
    t->view.up = t->view.column < 2;
}

static void move_by(struct top *t, long lines) {
    size_t *at = t->page == PAGE_TABLE ? &t->selected : &t->first;
    t->moved = t->page == PAGE_TABLE;
    if (lines < 0 && *at < (size_t)-lines)
        *at = 0;
    else
        *at += (size_t)lines;
}

/* False: quit. */
static bool press(struct top *t, int key) {
    bool table = t->page == PAGE_TABLE;
    if (t->typing) {
        type(t, key);
        return true;
    }
    switch (key) {
    case 'q':
    case KEY_F(10):
    case 27:
        if (!table)
            show_page(t, PAGE_TABLE);
        return !table;
    case 3:
        return false;
    case 'h':
    case '?':
    case KEY_F(1):
        show_page(t, table ? PAGE_HELP : PAGE_TABLE);
        break;
    case KEY_UP:
    case 'k':
        move_by(t, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_by(t, 1);
        break;
    case KEY_LEFT:
        t->view.left -= t->view.left < SIDEWAYS ? t->view.left : SIDEWAYS;
        break;
    case KEY_RIGHT:
        t->view.left += t->view.left < 256 ? SIDEWAYS : 0;
        break;
    case KEY_PPAGE:
        move_by(t, -(LINES / 2));
        break;
    case KEY_NPAGE:
        move_by(t, LINES / 2);
        break;
    case KEY_HOME:
    case 'g':
        move_by(t, -1000000);
        break;
    case KEY_END:
    case 'G':
        move_by(t, 1000000);
        break;
    default:
        break;
    }
    if (!table)
        return true;
    switch (key) {
    case '\n':
    case '\r':
    case KEY_ENTER:
    case 'd':
        choose(t, false);
        break;
    case ' ':
    case '+':
    case '-':
        choose(t, true);
        break;
    case 't':
    case KEY_F(5):
        t->view.tree = !t->view.tree;
        break;
    case '/':
    case '\\':
    case KEY_F(4):
        t->typing = true;
        break;
    case 's':
    case '>':
    case KEY_F(6):
        next_column(t, 1);
        break;
    case '<':
        next_column(t, -1);
        break;
    case 'c':
        t->view.no_graphs = !t->view.no_graphs;
        break;
    case 'I':
    case KEY_F(7):
        t->view.up = !t->view.up;
        break;
    case 'P':
        sort_by(t, zr_column_find("PID"));
        break;
    case 'M':
        sort_by(t, zr_column_find("IN-USE"));
        break;
    default:
        break;
    }
    return true;
}

/* --- all together ---------------------------------------------------------------------------------------------- */

static bool begin_screen(struct top *t) {
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    if (!isatty(0) || !isatty(1) || !term || !*term || strcmp(term, "dumb") == 0) {
        zr_complain("top", "standard output is not a terminal that can be drawn on: use --once or --json");
        return false;
    }
    if (!newterm(NULL, stdout, stdin)) {
        zr_complain("top", "the terminal type '%s' is unknown here: use --once, or set TERM", term);
        return false;
    }
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    t->colours = has_colors() && !(no_colour && *no_colour) && start_color() == OK && use_default_colors() == OK;
    if (t->colours) {
        init_pair(RED, COLOR_RED, -1);
        init_pair(CYAN, COLOR_CYAN, -1);
        init_pair(GREEN, COLOR_GREEN, -1);
        init_pair(YELLOW, COLOR_YELLOW, -1);
    }
    return true;
}

static void watch(struct top *t) {
    bool go_on = true;
    while (go_on && !interrupted) {
        uint64_t now = zr_clock_ns();
        if (now - t->sampled_ns >= t->interval_ns) {
            if (!zr_view_sample(t->model))
                return;
            t->sampled_ns = now;
        }
        draw(t);
        uint64_t since = zr_clock_ns() - t->sampled_ns;
        timeout(since < t->interval_ns ? (int)((t->interval_ns - since) / 1000000) + 1 : 1);
        int key = getch();
        if (key == KEY_RESIZE) {
            clear();
            t->detail_ns = 0;
        } else if (key != ERR) {
            go_on = press(t, key);
        }
    }
}

/* False, said: there is no such process. */
static bool begin_with(struct top *t, int pid) {
    for (size_t i = 0; i < t->model->process_count; i++)
        if (t->model->process[i]->process.pid == pid || t->model->process[i]->process.pid_inside == pid) {
            t->process = t->model->process[i]->process;
            show_page(t, PAGE_DETAIL);
            return true;
        }
    zr_complain("top", "no running process %d under zeroute", pid);
    return false;
}

static int run(struct top *t, const struct options *o) {
    if (!zr_view_sample(t->model))
        return ZR_EXIT_ERROR;
    t->sampled_ns = zr_clock_ns();
    if (o->json)
        return print_json(t, o);
    if (o->once) {
        print_once(t);
        return ZR_EXIT_DONE;
    }
    if (o->pid && !begin_with(t, o->pid))
        return ZR_EXIT_ERROR;
    if (!begin_screen(t))
        return ZR_EXIT_ERROR;
    watch(t);
    endwin();
    return ZR_EXIT_DONE;
}

int zr_cmd_top(int argc, char **argv) {
    struct options o = {.interval = 1, .column = zr_column_find("IN-USE")};
    struct sigaction act = {.sa_handler = interrupt};
    struct top *t;
    int at, code = ZR_EXIT_ERROR;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (at < argc && !zr_operand_pid(&command, argv[at], &o.pid))
        return ZR_EXIT_ERROR;
    if (o.pid && (o.once || o.json))
        return zr_wrong(&command, "PID with --once or --json: expected 'zeroute stat PID'");
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    t = calloc(1, sizeof *t);
    if (!t)
        return code;
    t->interval_ns = (uint64_t)(o.interval < 3600 ? o.interval * 1e9 : 3600e9);
    t->view = (struct zr_top_view){.width = output_width(),
                                   .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                                   .tree = !o.flat,
                                   .each = (double)t->interval_ns / 1e9,
                                   .column = o.column,
                                   .up = o.column < 2};
    if (o.filter)
        snprintf(t->view.filter, sizeof t->view.filter, "%s", o.filter);
    t->model = zr_view_new(
        &(struct zr_scope){.history_ns = t->interval_ns, .all_at_once = o.once || (o.json && !o.interval_given)});
    zr_gc_old();
    if (t->model)
        code = run(t, &o);
    zr_lines_free(&t->detail);
    zr_view_free(t->model);
    free(t);
    return code;
}
