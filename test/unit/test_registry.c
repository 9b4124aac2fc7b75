/* The registry of blocks where the driver does what no hook has seen. */
#include "policy/policy.h"
#include "suite.h"
#include "zeroute/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static uint64_t value(const char *name) {
    char why[256], path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", zr_segment.file.fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct zeroute_snapshot *s = zeroute_snapshot_of_fd(fd, why, sizeof why);
    ck_assert_msg(s != NULL, "%s", why);
    uint64_t v = zeroute_value(s, name, UINT64_MAX);
    zeroute_snapshot_free(s);
    close(fd);
    return v;
}

static void remove_segment(void) {
    char link[64], path[128] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", zr_segment.file.fd);
    ck_assert_int_gt(readlink(link, path, sizeof path - 1), 0);
    unlink(path);
}

/* It was freed on a way that we did not see, so the driver gives its address out again. */
START_TEST(a_block_at_the_address_of_another_takes_its_place_in_the_books) {
    struct zr_op op = {0};
    struct zr_key key = {.context = &op, .device = &key, .kind = ZR_KIND_DEVICE};
    char *address = (char *)(uintptr_t)0x500000000000;
    ck_assert(zr_stats_open());
    ck_assert_ptr_nonnull(zr_registry_add(&op, &key, address, 4 * MIB, 4 * MIB, 0));
    ck_assert_ptr_nonnull(zr_registry_add(&op, &key, address, MIB, MIB, 0));
    ck_assert_uint_eq(value("allocated_bytes.all.current"), MIB);
    ck_assert_uint_eq(value("allocation.all.current"), 1);
    zr_registry_gone(zr_registry_take(address));
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("allocation.all.current"), 0);
    ck_assert_ptr_null(zr_registry_take(address));
    remove_segment();
}
END_TEST

int main(void) {
    Suite *s = suite_create("registry");
    TCase *t = tcase_create("registry");
    tcase_add_test(t, a_block_at_the_address_of_another_takes_its_place_in_the_books);
    suite_add_tcase(s, t);
    return run_suite(s);
}
