/* A table of promises: a program's part by name, the settings that it needs, and what must have been counted. */
#ifndef TEST_PROMISES_H
#define TEST_PROMISES_H

#include "child.h"
#include "suite.h"

struct promise {
    const char *what; /* in words, where the name does not say it */
    const char *name, *conf, *simgpu;
    struct {
        const char *field;
        uint64_t wanted;
    } counted[4];
};

/* `drivers`: NAME=VALUE by which the loader finds them. */
static inline void keep_promise_with(const char *drivers, const char *program, const struct promise *p) {
    const char *what = p->what ? p->what : p->name;
    const char *settings[] = {drivers, p->simgpu, p->conf, "ZES_ENABLE_SYSMAN=1", NULL};
    const char *argv[] = {program, p->name, NULL};
    struct child *c;

    c = child_run(settings, argv);
    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0, "%s (%s, %s): status %#x: %s", what, p->name,
                  p->conf, (unsigned)c->status, c->out);
    for (int i = 0; i < 4 && p->counted[i].field; i++) {
        uint64_t counted = child_count(c, "%s", p->counted[i].field);
        ck_assert_msg(counted == p->counted[i].wanted, "%s (%s, %s): %s is %llu, not %llu", what, p->name, p->conf,
                      p->counted[i].field, (unsigned long long)counted, (unsigned long long)p->counted[i].wanted);
    }
    child_free(c);
}

static inline void keep_promise(const char *program, const struct promise *p) {
    keep_promise_with(sim_driver(), program, p);
}

#endif
