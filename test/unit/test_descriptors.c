/* Promises of src/base/descriptor.c: ours are out of the way, and a file of the program is never taken for one. */
#include "segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int some_file(void) {
    char name[] = "/tmp/zeroute-descriptors.XXXXXX";
    int fd = mkstemp(name);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(write(fd, "hello", 5), 5);
    return fd;
}

static off_t size_of(int fd) {
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    return st.st_size;
}

static const struct {
    rlim_t limit;
    int least;
} limits[] = {{1024, 800}, {500, 64}, {20, 3}};

START_TEST(what_is_kept_has_no_low_number) {
    struct rlimit limit = {limits[_i].limit, limits[_i].limit};
    struct zr_descriptor d;
    int given = some_file();

    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    d = zr_descriptor_keep(given);
    ck_assert_int_ge(d.fd, limits[_i].least);
    ck_assert_int_eq(fcntl(d.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert(d.fd == given || fcntl(given, F_GETFD) < 0);
    ck_assert(zr_descriptor_is_ours(&d));
    zr_descriptor_close(&d);
    ck_assert_int_eq(d.fd, -1);
    ck_assert(!zr_descriptor_is_ours(&d));
}
END_TEST

/* A program that was started without standard streams prints into whatever has their numbers. */
START_TEST(no_standard_stream_is_ever_taken) {
    struct zr_descriptor d;
    int given;

    close(_i);
    given = open("/dev/null", O_RDWR);
    ck_assert_int_eq(given, _i);
    d = zr_descriptor_keep(given);
    ck_assert_int_gt(d.fd, 2);
    ck_assert_int_lt(fcntl(_i, F_GETFD), 0);
    zr_descriptor_close(&d);
    given = open("/dev/null", O_RDWR);
    ck_assert_int_eq(given, _i);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 3}), 0);
    d = zr_descriptor_keep(given); /* no other number is to be had */
    ck_assert_int_eq(d.fd, -1);
    ck_assert_int_lt(fcntl(_i, F_GETFD), 0);
}
END_TEST

START_TEST(what_has_got_our_number_is_not_closed) {
    struct zr_descriptor d = zr_descriptor_keep(some_file());
    int number = d.fd, theirs = some_file();

    ck_assert_int_eq(dup2(theirs, number), number);
    ck_assert(!zr_descriptor_is_ours(&d));
    zr_descriptor_close(&d);
    ck_assert_int_eq(size_of(number), 5);
}
END_TEST

static void *count_one(void *unused) {
    (void)unused;
    zr_count(ZR_F_CACHE_HITS, 1);
    return NULL;
}

/* New threads and new names want more of the segment; 5 bytes had become 4,292,608. */
START_TEST(a_users_file_under_the_number_of_the_segment_does_not_grow) {
    int number, theirs = some_file(), status;
    pthread_t thread;
    pid_t child;

    open_it();
    number = zr_segment.file.fd;
    ck_assert_int_eq(dup2(theirs, number), number);
    for (unsigned i = 0; i < ZR_DYNAMIC; i++) {
        char name[32];

        snprintf(name, sizeof name, "test.name.%u", i);
        zr_count_named(zr_named(name, "", ""), 1);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, count_one, NULL), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
    child = fork();
    if (child == 0) {
        zr_fork_check();
        _exit(zr_segment.header || fcntl(number, F_GETFD) < 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(size_of(number), 5);
    ck_assert_uint_eq(value("cache.hits"), 4); /* what there was room for goes on */
}
END_TEST

int main(void) {
    Suite *s = suite_create("descriptors");
    TCase *t = segment_case(s);

    tcase_add_loop_test(t, what_is_kept_has_no_low_number, 0, 3);
    tcase_add_loop_test(t, no_standard_stream_is_ever_taken, 0, 3);
    tcase_add_test(t, what_has_got_our_number_is_not_closed);
    tcase_add_test(t, a_users_file_under_the_number_of_the_segment_does_not_grow);
    return run_suite(s);
}
