/* inject: every entry point that is called can be made to fail, once, and the books end at zero all the same. */
#include "child.h"
#include "suite.h"

static const char *const names[] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
};

/* Of the extensions and of the entry points that only newer loaders have there is no call in prog_inject.c. */
static bool is_left_out(const char *name) {
    return strstr(name, "Exp") || strcmp(name, "zesInit") == 0 || strcmp(name, "zeInitDrivers") == 0 ||
           strcmp(name, "zeMemPutIpcHandle") == 0 || strcmp(name, "zeMemGetPitchFor2dImage") == 0 ||
           strcmp(name, "zeMemGetIpcHandleWithProperties") == 0 || strcmp(name, "zePhysicalMemGetProperties") == 0;
}

START_TEST(the_first_call_fails_and_nothing_is_lost) {
    static const char *const kept[] = {"cache:on,cache_limit:0", "cache:off"};
    const char *name = names[_i / 2];
    char conf[256];
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:2,count:on,tiles:2", conf, "ZES_ENABLE_SYSMAN=1", NULL};
    const char *argv[] = {"inject", name, NULL};
    struct child *c;

    snprintf(conf, sizeof conf, "ZEROUTE_CONF=route:native,%s,inject:%s@1=0x70000001", kept[_i % 2], name);
    c = child_run(settings, argv);
    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0, "%s: status %#x: %s", conf, (unsigned)c->status,
                  c->out);
    ck_assert_msg(child_count(c, "inject.failed_calls") == 1, "%s: not counted once", conf);
    ck_assert_msg(child_count(c, "failures.%s", name) == 1, "%s: not counted as a failure", conf);
    ck_assert_msg(child_count(c, "allocated_bytes.all.current") == 0 && child_count(c, "allocation.all.current") == 0 &&
                      child_count(c, "allocated_bytes.host.current") == 0 &&
                      child_count(c, "virtual_bytes.reserved.current") == 0 &&
                      child_count(c, "virtual_bytes.mapped.current") == 0 &&
                      child_count(c, "imported_bytes.all.current") == 0 &&
                      child_count(c, "reserved_bytes.all.current") == 0,
                  "%s: the books do not end at zero", conf);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("inject");
    TCase *c = tcase_create("every entry point");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!is_left_out(names[i]))
            tcase_add_loop_test(c, the_first_call_fails_and_nothing_is_lost, 2 * i, 2 * i + 2);
    return run_suite(suite);
}
