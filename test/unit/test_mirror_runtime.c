/* Which adapters a SYCL runtime has, by the files that a process has mapped. */
#include "mirror/mirror.h"
#include "suite.h"

#define AT "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 /opt/lib/"

static const struct {
    const char *maps;
    bool lacks;
} cases[] = {
    {AT "libsycl.so.8\n" AT "libur_adapter_level_zero.so.0.11\n", true},
    {AT "libsycl.so.7\n" AT "libpi_level_zero.so\n", true},
    {AT "libsycl.so.9\n" AT "libur_adapter_level_zero.so.0\n" AT "libur_adapter_level_zero_v2.so.0\n", false},
    {AT "libsycl.so.9\n" AT "libur_adapter_level_zero_v2.so.0\n", false},
    {AT "libsycl.so.9\n" AT "libze_loader.so.1\n", false}, /* inside */
};

START_TEST(adapter_v2_is_lacked_where_there_are_others_and_not_where_they_are_inside) {
    ck_assert_msg(zr_mirror_lacks_v2(cases[_i].maps) == cases[_i].lacks, "%s", cases[_i].maps);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mirror-test: the runtime");
    TCase *t = tcase_create("adapters");

    tcase_add_loop_test(t, adapter_v2_is_lacked_where_there_are_others_and_not_where_they_are_inside, 0,
                        sizeof cases / sizeof *cases);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
