/* The command line of zeroute ab. */
#ifndef ZEROUTE_AB_OPTIONS_H
#define ZEROUTE_AB_OPTIONS_H

#include "ab_run.h"

struct zr_ab_options {
    struct zr_ab ab;
    struct zr_ab_running how;
    size_t runs, warmup;
    const char *setup, *prepare, *cleanup;
    const char *report, *html, *sim;
    const char *json, *markdown; /* "": on stdout */
    const char **higher, **lower;
    size_t n_higher, n_lower;
    bool quiet, help;
};

void zr_ab_help(void);
/* False, said, when something in it is not understood. `--help` ends it. */
bool zr_ab_parse(struct zr_ab_options *o, int argc, char **argv);
/* Whether it can be compared: arms in the order of their names, or made of factors, each with a command. */
bool zr_ab_check(struct zr_ab_options *o);
/* Takes what a parser found wrong, or NULL; true when nothing was. */
bool zr_ab_right(char *message);
void zr_ab_allow(struct zr_ab *ab, const char *what); /* --allow */

#endif
