/* What test_segment.c and test_shards.c share: the segment of this process, opened, read as by others, and removed. */
#ifndef ZEROUTE_TEST_SEGMENT_H
#define ZEROUTE_TEST_SEGMENT_H

#include "stats/stats.h"
#include "suite.h"
#include "zeroute/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char path[320];

/* This process's own segment, as anybody would read it. */
static inline struct zeroute_snapshot *look(void) {
    char why[256] = "not listed";
    struct zeroute_snapshot *found = NULL;
    struct zeroute_list *list = zeroute_list_new();
    for (size_t i = 0; i < list->count; i++)
        if (list->process[i].pid_inside == getpid() && list->process[i].nonce == zr_segment.header->nonce) {
            found = zeroute_snapshot_new(&list->process[i], why, sizeof why);
            snprintf(path, sizeof path, "%s", list->process[i].path);
        }
    zeroute_list_free(list);
    ck_assert_msg(found != NULL, "%s", why);
    return found;
}

static inline uint64_t value(const char *name) {
    struct zeroute_snapshot *s = look();
    uint64_t v = zeroute_value(s, name, UINT64_MAX);
    zeroute_snapshot_free(s);
    return v;
}

/* As main of the preload does it. */
static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child, .thread_end = zr_stats_thread_end},
    {.fork_child = zr_libraries_fork_child},
};

static inline void open_it(void) {
    ck_assert(zr_stats_open());
    zeroute_snapshot_free(look());
}

static inline void remove_it(void) {
    if (*path)
        unlink(path);
}

static inline TCase *segment_case(Suite *s) {
    TCase *t = tcase_create("segment");
    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
    tcase_add_checked_fixture(t, NULL, remove_it);
    tcase_set_timeout(t, 120);
    suite_add_tcase(s, t);
    return t;
}

#endif
