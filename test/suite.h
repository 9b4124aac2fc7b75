/* How every suite of Check ends: run it, and say by the exit code whether all promises were kept. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>
#include <stdio.h>

/* Where the machine lacks what a test needs: said, and counted as skipped by test/run. Ends the test. */
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        printf("skipped: %s: %s\n", __func__, why);                                                                    \
        fflush(stdout);                                                                                                \
        return;                                                                                                        \
    } while (0)

static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
