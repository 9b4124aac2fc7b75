/* How every suite of Check ends: run it, and say by the exit code whether all promises were kept. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>

static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
