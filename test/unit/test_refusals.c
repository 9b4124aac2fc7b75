/* Who is said to have refused an allocation, on SYCL's route, over a driver that does as it is told. */
#include "suite.h"
#include "sycl/sycl.h"
#include "zeroute/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static ze_device_handle_t const device = (ze_device_handle_t)(uintptr_t)0xd0;
static struct zr_practice practice;
static ze_result_t of_residency;

void zr_ipc_before_free(struct zr_op *op, const struct zr_block *b) {
    (void)op;
    (void)b;
}

/* --- the driver --------------------------------------------------------------------------------------------------- */

static ze_result_t get_properties(ze_device_handle_t d, ze_device_properties_t *p) {
    (void)d;
    p->uuid.id[0] = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t alloc_device(ze_context_handle_t c, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                size_t alignment, ze_device_handle_t d, void **out) {
    static uintptr_t next = 0x500000000000;

    (void)c;
    (void)desc;
    (void)alignment;
    (void)d;
    *out = (void *)next;
    next += size + MIB;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t make_resident(ze_context_handle_t c, ze_device_handle_t d, void *p, size_t size) {
    (void)c;
    (void)d;
    (void)p;
    (void)size;
    return of_residency;
}

static ze_result_t free_memory(ze_context_handle_t c, void *p) {
    (void)c;
    (void)p;
    return ZE_RESULT_SUCCESS;
}

static void begin(const char *settings) {
    struct zr_op op = {.hook = ZR_HOOK_PLT};

    setenv("ZEROUTE_CONF", settings, 1);
    zr_config_load();
    ck_assert(zr_stats_open());
    zr_original[ZR_HOOK_PLT][ZR_E_zeDeviceGetProperties] = (zr_function)get_properties;
    zr_original[ZR_HOOK_PLT][ZR_E_zeMemAllocDevice] = (zr_function)alloc_device;
    zr_original[ZR_HOOK_PLT][ZR_E_zeContextMakeMemoryResident] = (zr_function)make_resident;
    zr_original[ZR_HOOK_PLT][ZR_E_zeMemFree] = (zr_function)free_memory;
    zr_device_seen(&op, &device, 1);
    practice.seen.context = (ze_context_handle_t)(uintptr_t)0xc0;
    practice.seen.device = device;
    practice.seen.resident[0] = device;
    practice.seen.residents = 1;
    practice.residents = 1;
    ck_assert_int_eq(zr_route_decide(true), ZR_AT_SYCL);
}

static uint64_t value(const char *name) {
    char why[256], path[64];
    struct zeroute_snapshot *s;
    uint64_t v;
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", zr_segment.file.fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    s = zeroute_snapshot_of_fd(fd, why, sizeof why);
    ck_assert_msg(s != NULL, "%s", why);
    v = zeroute_value(s, name, UINT64_MAX);
    zeroute_snapshot_free(s);
    close(fd);
    return v;
}

static void end(void) {
    char link[64], path[128] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", zr_segment.file.fd);
    ck_assert_int_gt(readlink(link, path, sizeof path - 1), 0);
    unlink(path);
}

static void *ask(size_t size) {
    void *p = NULL;

    ck_assert(zr_route_alloc(&practice, ZR_E_aligned_alloc_device, size, 0, &practice, &p));
    return p;
}

/* --- what it is called -------------------------------------------------------------------------------------------- */

/*
 * The limit has refused once. A block that fits comes from the cache, and is made resident once more, because the
 * program has evicted something: the driver cannot do that.
 */
START_TEST(a_driver_without_room_for_residency_is_not_taken_for_the_limit) {
    struct zr_op op = {.hook = ZR_HOOK_PLT};
    void *p;

    begin("preset:reroute,route:sycl,reuse:always,limit:64MiB,cache_idle:60s");
    ck_assert_ptr_null(ask(100 * MIB));
    ck_assert_uint_eq(value("limit.refused_calls"), 1);
    p = ask(20 * MIB);
    ck_assert_ptr_nonnull(p);
    ck_assert(zr_route_free(p, ZR_E_free, &practice));
    zr_residency_evict(&op, practice.seen.context, device, &op, MIB);
    of_residency = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    ck_assert_ptr_null(ask(20 * MIB));
    ck_assert_uint_ge(value("cache.hits"), 1);
    ck_assert_uint_eq(value("limit.refused_calls"), 1);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    end();
}
END_TEST

/* In one call first the limit refuses, and after a trim the driver does. */
START_TEST(of_several_tries_the_last_one_says_who_refused) {
    void *p;

    begin("preset:reroute,route:sycl,reuse:always,limit:64MiB,cache_idle:60s");
    p = ask(40 * MIB);
    ck_assert(zr_route_free(p, ZR_E_free, &practice));
    of_residency = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    ck_assert_ptr_null(ask(50 * MIB));
    ck_assert_uint_ge(value("cache.retries"), 1);
    ck_assert_uint_eq(value("limit.refused_calls"), 0);
    end();
}
END_TEST

int main(void) {
    Suite *s = suite_create("refusals");
    TCase *t = tcase_create("sycl");

    tcase_add_test(t, a_driver_without_room_for_residency_is_not_taken_for_the_limit);
    tcase_add_test(t, of_several_tries_the_last_one_says_who_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
