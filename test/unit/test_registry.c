/* The registry of blocks where the driver does what no hook has seen. */
#include "policy/policy.h"
#include "suite.h"
#include "sycl/sycl.h"
#include "zeroute/reader.h"

#include <fcntl.h>
#include <pthread.h>
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

/* What lies in the range as a whole goes, however much that is, and what is covered in part stays. */
START_TEST(an_unmap_takes_every_mapping_in_its_range_and_no_other) {
    enum { MAPPINGS = 5 };
    char *address = (char *)(uintptr_t)0x500000000000;
    struct zr_op op = {0};

    ck_assert(zr_stats_open());
    for (size_t i = 0; i < MAPPINGS; i++)
        zr_registry_mapped(&op, address + i * 2 * MIB, 2 * MIB, &op);
    ck_assert_uint_eq(value("virtual_bytes.mapped.current"), 10 * MIB);
    zr_registry_unmapped(zr_object_take_mapped(address + 2 * MIB, 5 * MIB), address + 2 * MIB, 5 * MIB,
                         ZE_RESULT_SUCCESS);
    ck_assert_uint_eq(value("virtual_bytes.mapped.current"), 6 * MIB);
    zr_registry_unmapped(zr_object_take_mapped(address, 10 * MIB), address, 10 * MIB, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ck_assert_uint_eq(value("virtual_bytes.mapped.current"), 6 * MIB); /* the driver has refused */
    zr_registry_unmapped(zr_object_take_mapped(address, 10 * MIB), address, 10 * MIB, ZE_RESULT_SUCCESS);
    ck_assert_uint_eq(value("virtual_bytes.mapped.current"), 0);
    remove_segment();
}
END_TEST

/*
 * A walk over all blocks follows a change of the limit. It charges a block that ends meanwhile, and before it has
 * noticed, the descriptor is another block's.
 */
START_TEST(what_a_walk_charges_too_late_is_struck_with_the_next_use_of_the_descriptor) {
    char *address = (char *)(uintptr_t)0x500000000000;
    struct zr_op op = {0};
    struct zr_key key = {.context = &op, .device = &key, .kind = ZR_KIND_DEVICE};
    struct zr_block *b;

    setenv("ZEROUTE_CONF", "limit:64MiB", 1);
    zr_config_load();
    ck_assert(zr_stats_open());
    b = zr_registry_add(&op, &key, address, MIB, MIB, 0);
    ck_assert_ptr_nonnull(b);
    zr_registry_gone(zr_registry_take(address));
    zr_limit_follow(&b->charge, ZR_KIND_DEVICE, 0, MIB);
    ck_assert_ptr_eq(zr_registry_add(&op, &key, address, 2 * MIB, 2 * MIB, 0), b);
    zr_charge_undo(&b->charge); /* the walk has noticed, */
    zr_limit_changed();         /* and looks again */
    ck_assert(!zr_limit_take(&op, 0, 63 * MIB));
    ck_assert(zr_limit_take(&op, 0, 62 * MIB));
    zr_charge_undo(&op.charge);
    zr_registry_gone(zr_registry_take(address));
    ck_assert(zr_limit_take(&op, 0, 64 * MIB));
    remove_segment();
}
END_TEST

enum { OBJECTS = 300000 };

/* Threads make and destroy objects under the same few handles: whoever is destroyed first by a wrong call. */
static void *make_and_destroy(void *card) {
    struct zr_op op = {0};

    for (unsigned i = 0; i < OBJECTS; i++) {
        const void *made = (void *)(uintptr_t)(0x1000 + i % 3), *gone = (void *)(uintptr_t)(0x1000 + i * 7 % 3);

        zr_object_add(&op, ZR_KIND_PHYSICAL, (unsigned)(uintptr_t)card, NULL, made, MIB);
        zr_object_answered(zr_object_take(gone), ZE_RESULT_SUCCESS);
    }
    return NULL;
}

START_TEST(an_object_is_booked_before_it_can_be_found) {
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    char name[64];

    ck_assert(zr_stats_open());
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, make_and_destroy, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (uintptr_t handle = 0x1000; handle < 0x1003; handle++)
        zr_object_answered(zr_object_take((void *)handle), ZE_RESULT_SUCCESS);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        snprintf(name, sizeof name, "device.%u.allocated_bytes.all.allocated", i);
        ck_assert_uint_eq(value(name), OBJECTS * MIB);
        snprintf(name, sizeof name, "device.%u.allocated_bytes.all.freed", i);
        ck_assert_uint_eq(value(name), OBJECTS * MIB);
    }
    remove_segment();
}
END_TEST

/* While a runtime frees its probe it may free something else, too: that is not how it frees. */
START_TEST(a_free_of_another_pointer_says_nothing_about_the_practice) {
    static const ze_memory_free_ext_desc_t blocking = {.freePolicy =
                                                           ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    char probe[2];
    struct zr_practice practice;
    struct zr_op op;

    zr_watch_begin(&op, &practice, MIB);
    ck_assert(op.watcher->allocates(op.watch, 0, NULL, NULL, MIB, NULL));
    op.watcher->allocated(op.watch, &probe[0]);
    op.watcher->frees(op.watch, &probe[1], NULL, false);
    ck_assert(!practice.seen.freed);
    op.watcher->frees(op.watch, &probe[0], &blocking, true);
    ck_assert(practice.seen.freed && practice.seen.frees_ext);
    ck_assert_uint_eq(practice.seen.free_policy, blocking.freePolicy);
    zr_op_end(&op);
}
END_TEST

int main(void) {
    Suite *s = suite_create("registry");
    TCase *t = tcase_create("registry");
    tcase_add_test(t, a_block_at_the_address_of_another_takes_its_place_in_the_books);
    tcase_add_test(t, an_unmap_takes_every_mapping_in_its_range_and_no_other);
    tcase_add_test(t, what_a_walk_charges_too_late_is_struck_with_the_next_use_of_the_descriptor);
    tcase_add_test(t, an_object_is_booked_before_it_can_be_found);
    tcase_add_test(t, a_free_of_another_pointer_says_nothing_about_the_practice);
    suite_add_tcase(s, t);
    return run_suite(s);
}
