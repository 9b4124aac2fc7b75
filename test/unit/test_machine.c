/* Promises of src/machine (host_floor, what others hold of a card) and src/base/backing.c (backing:eager). */
#include "machine/machine.h"
#include "root.h"
#include "suite.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void meminfo(unsigned long available_mib) {
    char text[96];

    snprintf(text, sizeof text, "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: %lu kB\n", available_mib << 10);
    lay("/proc/meminfo", text);
}

static void machine(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
    setenv("ZEROUTE_CONF", "stats:off", 1);
    unsetenv("NEOReadDebugKeys");
    unsetenv("EnableDeferBacking");
    zr_config_load();
}

static void clear(void) {
    clear_root();
}

/* A large request looks at the machine anew, however short ago the last look was. */
static bool refused(void) {
    return zr_host_refuses((uint64_t)1 << 30, false);
}

START_TEST(without_the_setting_nothing_is_refused) {
    meminfo(1);
    zr_config.host_floor = (struct zr_amount){0};
    ck_assert(!refused());
}
END_TEST

START_TEST(below_the_floor_memory_is_refused_and_above_it_given_again) {
    zr_config.host_floor = (struct zr_amount){.set = true, .bytes = (uint64_t)4 << 30};
    meminfo(5000);
    ck_assert(!refused());
    meminfo(4000);
    ck_assert(refused());
    meminfo(5000);
    ck_assert(!refused());
}
END_TEST

START_TEST(a_floor_may_be_a_part_of_the_machine) {
    zr_config.host_floor = (struct zr_amount){.set = true, .percent_x100 = 2500};
    meminfo(4097);
    ck_assert(!refused());
    meminfo(4095);
    ck_assert(refused());
}
END_TEST

START_TEST(of_itself_the_floor_leaves_the_kernel_what_it_needs) {
    zr_config.host_floor = (struct zr_amount){.set = true, .is_auto = true};
    meminfo(1);
    ck_assert(!refused());                                /* memory of a card takes none of the host */
    ck_assert(!zr_host_refuses((uint64_t)1 << 30, true)); /* the kernel tells of no mirror */
    ck_assert(zr_host_refuses((uint64_t)20 << 30, false));
    meminfo(21000);
    ck_assert(zr_host_refuses((uint64_t)21 << 30, false));
    ck_assert(!zr_host_refuses((uint64_t)20 << 30, false)); /* 20480 + 512, more than 2 % of 16 GiB */
    lay("/proc/meminfo", "MemTotal: 268435456 kB\nMemAvailable: 5500000 kB\nGPUActive: 0 kB\n");
    ck_assert(zr_host_refuses((uint64_t)1 << 30, true)); /* 2 % are 5.1 GiB */
    ck_assert(!refused());
    lay("/proc/meminfo", "MemTotal: 268435456 kB\nMemAvailable: 7000000 kB\nGPUActive: 0 kB\n");
    ck_assert(!zr_host_refuses((uint64_t)1 << 30, true));
}
END_TEST

START_TEST(a_machine_that_tells_nothing_refuses_nothing) {
    zr_config.host_floor = (struct zr_amount){.set = true, .bytes = (uint64_t)4 << 30};
    ck_assert(!refused());
}
END_TEST

START_TEST(eager_backing_is_put_into_the_environment) {
    zr_config.backing = ZR_BACKING_EAGER;
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEOReadDebugKeys"), "1");
    ck_assert_str_eq(getenv("EnableDeferBacking"), "0");
}
END_TEST

START_TEST(what_the_user_set_himself_is_kept) {
    zr_config.backing = ZR_BACKING_EAGER;
    setenv("EnableDeferBacking", "1", 1);
    setenv("NEOReadDebugKeys", "0", 1);
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEOReadDebugKeys"), "0");
    ck_assert_str_eq(getenv("EnableDeferBacking"), "1");
    unsetenv("EnableDeferBacking");
    setenv("NEO_EnableDeferBacking", "1", 1);
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEO_EnableDeferBacking"), "1"); /* the longest prefix wins */
}
END_TEST

START_TEST(backing_as_asked_touches_nothing) {
    zr_config.backing = ZR_BACKING_DEFAULT;
    zr_backing_apply();
    ck_assert_ptr_null(getenv("NEOReadDebugKeys"));
    ck_assert_ptr_null(getenv("EnableDeferBacking"));
}
END_TEST

/* --- what the kernel and other processes say of the cards -------------------------------------------------------- */

#define MIB(n) ((uint64_t)(n) << 20)
enum { CARD = 3 << 8 }; /* 0000:03:00.0 */

static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child, .thread_end = zr_stats_thread_end},
    {.fork_child = zr_libraries_fork_child},
    {.fork_child = zr_claim_fork_child},
};

/* How often libparts.a opens a file or a list in a folder: it calls this one. */
static unsigned opens;

int openat(int folder, const char *path, int flags, ...) {
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    opens++;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static unsigned reads; /* files that it opens by name */

int open(const char *path, int flags, ...) {
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    reads++;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void card_holds(int pid, unsigned client, unsigned vram_mib) {
    char path[64], text[256];

    snprintf(path, sizeof path, "/proc/%d/fdinfo/9", pid);
    snprintf(text, sizeof text,
             "drm-driver:\txe\ndrm-client-id:\t%u\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t%u MiB\n"
             "drm-total-gtt:\t5 MiB\n",
             client, vram_mib);
    lay(path, text);
}

static uint64_t taken_beside(unsigned mib, bool fresh) {
    struct zr_look look;

    zr_claims_look(0, MIB(mib), fresh, &look);
    return look.others + look.unseen;
}

static char directory[64];

static void machine_with_a_segment(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    zr_config_load();
    ck_assert(zr_stats_open());
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(zr_segment.path, '/') - zr_segment.path),
             zr_segment.path);
    zr_drm_name(0, CARD);
    card_holds(getpid(), 7, 64);
}

static void without_the_segment(void) {
    ck_assert_int_eq(unlink(zr_segment.path), 0);
    clear_root();
}

static uint64_t taken(void) {
    return taken_beside(64, false);
}

START_TEST(what_others_hold_and_what_no_block_shows_is_taken) {
    ck_assert_uint_eq(taken(), 0);
    ck_assert_uint_eq(taken_beside(40, false), MIB(24));
    card_holds(77, 8, 30);
    card_holds(78, 7, 64); /* our own client, in another process */
    usleep(6000);          /* a look that must be fresh is at most 5 ms old */
    ck_assert_uint_eq(taken_beside(64, true), MIB(30));
}
END_TEST

/* A process with a segment of its own, which has announced so much of the card; it ends when told to. */
struct announcer {
    pid_t pid;
    int out, in;
};

static struct announcer announce(unsigned mib) {
    struct announcer a;
    int to[2], from[2];
    char c = 'r';

    ck_assert_int_eq(pipe(to), 0);
    ck_assert_int_eq(pipe(from), 0);
    a.pid = fork();
    if (a.pid == 0) {
        close(to[1]);
        zr_fork_check();
        card_holds(getpid(), 7, 64);
        ck_assert(zr_claim(0, (int64_t)MIB(mib)));
        taken_beside(64, false);
        ck_assert_int_eq(write(from[1], &c, 1), 1);
        ck_assert_int_eq(read(to[0], &c, 1), 1);
        unlink(zr_segment.path);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    ck_assert_int_eq(read(from[0], &c, 1), 1);
    a.out = to[1];
    a.in = from[0];
    return a;
}

static void leave(struct announcer *a) {
    ck_assert_int_eq(write(a->out, "e", 1), 1);
    close(a->out);
    waitpid(a->pid, NULL, 0);
    close(a->in);
}

enum { FOREIGN = 3000, DEAD = 5000 };

static void make_files(const char *format, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char path[128];
        int fd;

        snprintf(path, sizeof path, format, directory, i);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(pwrite(fd, zr_segment.header, sizeof *zr_segment.header, 0), sizeof *zr_segment.header);
        close(fd);
    }
}

static void remove_files(const char *format, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char path[128];

        snprintf(path, sizeof path, format, directory, i);
        unlink(path);
    }
}

/* Thousands of dead segments are looked at once; then a look costs what the living cost, and finds each of them. */
START_TEST(announcements_are_found_among_thousands_of_dead_segments) {
    static const char dead[] = "%s/1.%016x", foreign[] = "%.8s/zeroute.2.%016x";
    struct announcer first, second;
    unsigned before;

    make_files(foreign, FOREIGN);
    make_files(dead, DEAD);
    first = announce(10);
    ck_assert_uint_eq(taken(), MIB(10));
    usleep(150000); /* the clock of files has a grain: until then the directory is listed again */
    ck_assert_uint_eq(taken(), MIB(10));
    before = opens;
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(taken(), MIB(10));
    /* Each time the list of our own descriptors and one segment; now and then those of other processes. */
    ck_assert_uint_lt(opens - before, 300);
    second = announce(20);
    ck_assert_uint_eq(taken(), MIB(30));
    leave(&first);
    ck_assert_uint_eq(taken(), MIB(20));
    leave(&second);
    ck_assert_uint_eq(taken(), 0);
    remove_files(dead, DEAD);
    remove_files(foreign, FOREIGN);
}
END_TEST

/* A server has thousands of descriptors, of which a few lead to a card. The figures are those of now all the same. */
START_TEST(a_look_reads_the_descriptors_that_lead_to_a_card) {
    enum { OTHERS = 1000, LOOKS = 50 };
    char path[64];
    unsigned before;

    for (unsigned i = 0; i < OTHERS; i++) {
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%u", getpid(), 100 + i);
        lay(path, "pos:\t0\nflags:\t02\n");
    }
    card_holds(getpid(), 7, 64);
    ck_assert_uint_eq(taken_beside(1, false), MIB(63));
    before = reads;
    for (unsigned i = 0; i < LOOKS; i++) {
        card_holds(getpid(), 7, 64 + i);
        ck_assert_uint_eq(taken_beside(1, false), MIB(63 + i));
    }
    ck_assert_uint_lt(reads - before, LOOKS * OTHERS / 4); /* now and then all of them */
}
END_TEST

/* What the parent saw is not what the child sees: it looks by itself. */
START_TEST(a_child_looks_anew) {
    pid_t child, pid = getpid();
    int status;

    ck_assert_uint_eq(taken(), 0);
    child = fork();
    if (child == 0) {
        zr_fork_check();
        card_holds(getpid(), 9, 1);
        card_holds(pid, 7, 64);
        _exit(taken_beside(1, false) == MIB(64) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("machine");
    TCase *inside = tcase_create("inside"), *cards = tcase_create("cards");

    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
    tcase_add_checked_fixture(inside, machine, clear);
    tcase_add_test(inside, without_the_setting_nothing_is_refused);
    tcase_add_test(inside, below_the_floor_memory_is_refused_and_above_it_given_again);
    tcase_add_test(inside, a_floor_may_be_a_part_of_the_machine);
    tcase_add_test(inside, of_itself_the_floor_leaves_the_kernel_what_it_needs);
    tcase_add_test(inside, a_machine_that_tells_nothing_refuses_nothing);
    tcase_add_test(inside, eager_backing_is_put_into_the_environment);
    tcase_add_test(inside, what_the_user_set_himself_is_kept);
    tcase_add_test(inside, backing_as_asked_touches_nothing);
    suite_add_tcase(suite, inside);
    tcase_set_timeout(cards, 60);
    tcase_add_checked_fixture(cards, machine_with_a_segment, without_the_segment);
    tcase_add_test(cards, what_others_hold_and_what_no_block_shows_is_taken);
    tcase_add_test(cards, a_look_reads_the_descriptors_that_lead_to_a_card);
    tcase_add_test(cards, announcements_are_found_among_thousands_of_dead_segments);
    tcase_add_test(cards, a_child_looks_anew);
    suite_add_tcase(suite, cards);
    return run_suite(suite);
}
