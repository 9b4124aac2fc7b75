/*
 * How every suite of Check ends: run it, say how many promises were kept, in the form that test/run reads, and by the
 * exit code whether all were.
 */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>
#include <stdio.h>
#include <sys/mman.h>

/* Each test may be a process of its own (CK_FORK): they count together. */
static unsigned *suite_skipped;

/* Where the machine lacks what a test needs: said, and counted as skipped. Ends the test. */
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        printf("skipped: %s: %s\n", __func__, why);                                                                    \
        fflush(stdout);                                                                                                \
        __atomic_fetch_add(suite_skipped, 1, __ATOMIC_RELAXED);                                                        \
        return;                                                                                                        \
    } while (0)

static inline int run_suite(Suite *suite) {
    void *shared = mmap(NULL, sizeof *suite_skipped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    suite_skipped = shared;

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);

    printf("%d passed, %d failed, %u skipped\n", run - failed - (int)*suite_skipped, failed, *suite_skipped);
    return failed != 0;
}

#endif
