/* inject: every entry point that is called can be made to fail, once, and the books end at zero all the same. */
#include "child.h"
#include "suite.h"

static const char *const names[] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
};

/*
 * The simulated GPU has neither images nor modules. Of the extensions and of the entry points that only newer loaders
 * have there is no call in prog_inject.c.
 */
static bool is_left_out(const char *name) {
    return strstr(name, "Exp") || strstr(name, "Image") || strncmp(name, "zeModule", 8) == 0 ||
           strcmp(name, "zesInit") == 0 || strcmp(name, "zeInitDrivers") == 0 ||
           strcmp(name, "zeMemPutIpcHandle") == 0 || strcmp(name, "zeMemGetIpcHandleWithProperties") == 0;
}

/* Every code that a driver may answer with, as the headers have them. */
static const unsigned codes[] = {0x70000001, 0x70000002, 0x70000003, 0x70000004, 0x70000005, 0x70000006, 0x70010000,
                                 0x70010001, 0x70010002, 0x70020000, 0x70020001, 0x70020002, 0x70020003, 0x78000001,
                                 0x78000002, 0x78000003, 0x78000004, 0x78000005, 0x78000006, 0x78000007, 0x78000008,
                                 0x78000009, 0x7800000a, 0x7800000b, 0x7800000c, 0x7800000d, 0x7800000e, 0x7800000f,
                                 0x78000010, 0x78000011, 0x78000012, 0x78000013, 0x78000014, 0x7ffffffe};
enum { CODES = sizeof codes / sizeof *codes };

static bool is_short_of_memory(unsigned code) {
    return code == 0x70000002 || code == 0x70000003;
}

static void ends_at_zero(const struct child *c, const char *conf) {
    static const char *const books[] = {"allocated_bytes.all.current",  "allocation.all.current",
                                        "allocated_bytes.host.current", "virtual_bytes.reserved.current",
                                        "virtual_bytes.mapped.current", "imported_bytes.all.current",
                                        "reserved_bytes.all.current"};
    for (size_t i = 0; i < sizeof books / sizeof *books; i++)
        ck_assert_msg(child_count(c, "%s", books[i]) == 0, "%s: %s does not end at zero", conf, books[i]);
}

/* False: there is no n-th call. */
static bool nth_call_fails(const char *name, const char *kept, unsigned n, unsigned code) {
    char conf[256], number[16];
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:2,count:on,tiles:2", conf, "ZES_ENABLE_SYSMAN=1", NULL};
    const char *argv[] = {"inject", name, number, NULL};
    struct child *c;
    uint64_t failed;
    int end;

    snprintf(number, sizeof number, "%#x", code);
    snprintf(conf, sizeof conf, "ZEROUTE_CONF=route:native,%s,inject:%s@%u=%#x", kept, name, n, code);
    c = child_run(settings, argv);
    ck_assert_msg(WIFEXITED(c->status), "%s: status %#x: %s", conf, (unsigned)c->status, c->out);
    end = WEXITSTATUS(c->status);
    failed = child_count(c, "inject.failed_calls");
    ck_assert_msg(failed <= 1, "%s: counted %llu times", conf, (unsigned long long)failed);
    ck_assert_msg(failed == child_count(c, "failures.%s", name), "%s: not counted as a failure", conf);
    /* A program need not see that memory was short, if something cached could be given back for it. */
    ck_assert_msg(end == (failed ? 0 : 3) || (end == 3 && is_short_of_memory(code) && strstr(kept, "cache:on")),
                  "%s: exit code %d: %s", conf, end, c->out);
    ends_at_zero(c, conf);
    child_free(c);
    return failed != 0;
}

/* In the long run with every code, else with another one each time. */
START_TEST(every_nth_call_fails_with_any_code_and_nothing_is_lost) {
    static const char *const kept[] = {"cache:on,cache_limit:0", "cache:off"};
    const char *name = names[_i / 2];
    bool all = getenv("LONG") != NULL;
    unsigned calls = 0, tried = 0, which = (unsigned)_i * 5;

    for (bool more = true; more; calls += more) {
        more = nth_call_fails(name, kept[_i % 2], calls + 1, codes[which++ % CODES]);
        tried++;
        for (unsigned i = 0; all && more && i < CODES; i++, tried++)
            ck_assert(nth_call_fails(name, kept[_i % 2], calls + 1, codes[i]));
    }
    ck_assert_msg(calls > 0, "%s is not called", name);
    if (all)
        printf("tried: %s, %s: %u calls, each failed with each of %d codes: %u programs\n", name, kept[_i % 2], calls,
               CODES, tried);
    fflush(stdout);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("inject");
    TCase *c = tcase_create("every entry point");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, getenv("LONG") ? 1800 : 60);
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!is_left_out(names[i]))
            tcase_add_loop_test(c, every_nth_call_fails_with_any_code_and_nothing_is_lost, 2 * i, 2 * i + 2);
    return run_suite(suite);
}
