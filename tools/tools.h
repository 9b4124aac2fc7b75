/* What the files of the command share, grouped by the file that defines it. */
#ifndef ZEROUTE_TOOLS_H
#define ZEROUTE_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <zeroute/reader.h>

/* --- one function for each subcommand; argv[0] is its name ------------------------------------ */
#define ZR_COMMAND(name, help) int zr_cmd_##name(int argc, char **argv);
#include "commands.def"
#undef ZR_COMMAND

/* --- json.c: a writer; commas and indentation by itself --------------------------------------- */
struct zr_json {
    FILE *out;
    int depth;
    bool first, after_key;
};
extern bool zr_json_begun; /* on stdout */
void zr_json_start(struct zr_json *j, FILE *out);
void zr_json_open(struct zr_json *j, char bracket); /* '{' or '[' */
void zr_json_close(struct zr_json *j, char bracket);
void zr_json_key(struct zr_json *j, const char *key);
void zr_json_string(struct zr_json *j, const char *text);
void zr_json_number(struct zr_json *j, uint64_t n);
void zr_json_double(struct zr_json *j, double d);
void zr_json_bool(struct zr_json *j, bool b);
void zr_json_null(struct zr_json *j);
/* A key and its value, or what begins there. */
void zr_json_text(struct zr_json *j, const char *key, const char *text); /* NULL: left out */
void zr_json_count(struct zr_json *j, const char *key, uint64_t n);
void zr_json_amount(struct zr_json *j, const char *key, uint64_t n); /* UINT64_MAX, absent: left out */
void zr_json_real(struct zr_json *j, const char *key, double d);
void zr_json_flag(struct zr_json *j, const char *key, bool b);
void zr_json_begin(struct zr_json *j, const char *key, char bracket);
/* "fields":{...},"fingerprint":{...} of a process, inside an object that is open. */
void zr_json_fields(struct zr_json *j, const struct zeroute_snapshot *s);
/* A whole process as an object: pid, command, state, fields, fingerprint. */
void zr_json_process(struct zr_json *j, const struct zeroute_snapshot *s);

/* --- text.c: numbers for people; each returns its buffer -------------------------------------- */
#define ZR_TEXT_SIZE 32
const char *zr_text_bytes(char *out, uint64_t bytes); /* 1.50 GiB */
const char *zr_text_time(char *out, uint64_t ns);     /* 12.3 us */
const char *zr_text_count(char *out, uint64_t n);     /* 1,234,567 */
const char *zr_text_age(char *out, uint64_t ns);      /* 3m 20s */

/* --- table.c ---------------------------------------------------------------------------------- */
struct zr_table;
/* Column heads, NULL last; one that begins with > is aligned to the right. */
struct zr_table *zr_table_new(const char *first, ...) __attribute__((sentinel));
void zr_table_row(struct zr_table *t, ...); /* as many texts as there are columns; copied */
size_t zr_table_rows(const struct zr_table *t);
/* Cuts the last column at the width of a terminal; colours where asked for. Frees the table. */
void zr_table_print(struct zr_table *t, FILE *out, bool colour);
/* A terminal, and no NO_COLOR in the environment. */
bool zr_colour(FILE *out);
/* "\033[1m" and so on, or nothing. */
const char *zr_bold(bool colour);
const char *zr_dim(bool colour);
const char *zr_red(bool colour);
const char *zr_plain(bool colour);

/* --- screen.c: a page that is shown again and again ------------------------------------------- */
/* False where nothing can be drawn over: no terminal, or a dumb one. */
bool zr_screen_size(FILE *out, size_t *width, size_t *height);
/* From the top left corner; lines are cut at the edge, what is below the last one is counted. */
void zr_screen_show(FILE *out, const char *text, size_t width, size_t height);

/* --- summary.c: a process on one page --------------------------------------------------------- */
void zr_summary(FILE *out, const struct zeroute_snapshot *s, bool colour);
/* One line for each process, most memory first or as given. */
void zr_overview(FILE *out, struct zeroute_snapshot *const *s, size_t count, bool colour);
uint64_t zr_calls_of(const struct zeroute_snapshot *s, const char *entry);
uint64_t zr_calls_total(const struct zeroute_snapshot *s);
uint64_t zr_failures_total(const struct zeroute_snapshot *s);

/* --- host_summary.c: host memory behind device memory; a live process is looked at from the outside  */
void zr_summary_host(FILE *out, const struct zeroute_snapshot *s);
void zr_json_host(struct zr_json *j, const struct zeroute_snapshot *s);
struct zr_card_use;
void zr_json_card_use(struct zr_json *j, const struct zr_card_use *use); /* inside an object that is open */

/* --- prometheus.c ----------------------------------------------------------------------------- */
void zr_prometheus(FILE *out, struct zeroute_snapshot *const *s, size_t count);

/* --- gc.c ------------------------------------------------------------------------------------- */
/*
 * Removes what has been finished for ten minutes; what is newly found finished starts its ten
 * minutes.
 */
void zr_gc_old(void);
bool zr_gc_remove(const struct zeroute_process *p);

/* --- find.c: files that belong to the command ------------------------------------------------- */
/*
 * A file installed with the command ("libzeroute.so"): beside it, or in ../lib. False: not found,
 * `out` says where.
 */
bool zr_find_file(const char *name, char *out, size_t size);
/* Is it our preload, for this machine? If not, `why` says what it is. */
bool zr_check_library(const char *path, char *why, size_t size);
/* Why nothing can be preloaded into a program, looked for in PATH ("is ..."); NULL: it can. */
const char *zr_preload_obstacle(const char *program);

/* --- zeroute.c -------------------------------------------------------------------------------- */
/* "zeroute NAME: ..." on stderr. */
void zr_complain(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
