/* Promises of src/machine/drm.c: which card of the kernel's a device is. */
#include "machine/machine.h"
#include "suite.h"

enum { HERE = 3 << 8, THERE = 4 << 8 };

START_TEST(a_device_has_the_address_that_was_told) {
    ck_assert_uint_eq(zr_drm_address(0), ZR_NO_ADDRESS);
    zr_drm_name(0, HERE);
    zr_drm_name(1, THERE);
    ck_assert_uint_eq(zr_drm_address(0), HERE);
    ck_assert_uint_eq(zr_drm_address(1), THERE);
    ck_assert_uint_eq(zr_drm_address(2), ZR_NO_ADDRESS);
    ck_assert_uint_eq(zr_drm_address(ZR_DEVICES), ZR_NO_ADDRESS);
}
END_TEST

/* Without sysfs Intel's driver reports one address for all cards. */
START_TEST(of_devices_with_one_address_none_has_it_however_many_they_are) {
    for (unsigned devices = 1; devices <= 4; devices++) {
        zr_drm_name(devices - 1, HERE);
        for (unsigned i = 0; i < devices; i++)
            ck_assert_uint_eq(zr_drm_address(i), devices == 1 ? HERE : ZR_NO_ADDRESS);
    }
    zr_drm_name(4, THERE);
    ck_assert_uint_eq(zr_drm_address(4), THERE);
    ck_assert_uint_eq(zr_drm_address(5), ZR_NO_ADDRESS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cards");
    TCase *t = tcase_create("addresses");

    tcase_add_test(t, a_device_has_the_address_that_was_told);
    tcase_add_test(t, of_devices_with_one_address_none_has_it_however_many_they_are);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
