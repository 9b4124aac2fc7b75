/*
 * Two handles of one device list are two cards, whatever they say about themselves: prog_alike.c on cards with one UUID
 * and one PCI address. What needs a newer loader is in test_sim_loaders.sh.
 */
#include "promises.h"

#define SIM "ZE_SIMGPU=devices:2,alike:on,vram:1GiB,count:on"
#define OWNER "ZEROUTE_CONF=preset:mitigate"
#define LIMIT "ZEROUTE_CONF=route:native,cache_idle:60s,limit:64MiB,cache:"
#define OWNER_COUNTS(owner, peer)                                                                                      \
    {                                                                                                                  \
        {"residency.owner.requested_calls", owner}, {"residency.peer.requested_calls", peer},                          \
            {"residency.peer.skipped_calls", peer}, {                                                                  \
            "residency.peer.granted_calls", 0                                                                          \
        }                                                                                                              \
    }

static const struct promise promises[] = {
    {"residency:owner skips the peer", "peer", OWNER, SIM, OWNER_COUNTS(2, 2)},
    {"also after a list of one", "one_by_one", OWNER, SIM, OWNER_COUNTS(2, 2)},
    {"the limit counts each card by itself", "limited", LIMIT "off", SIM, {{"limit.refused_calls", 1}}},
    {"with a cache, too", "limited", LIMIT "on", SIM, {{"limit.refused_calls", 1}}},
    {"each card is trimmed by itself",
     "trimmed",
     "ZEROUTE_CONF=route:native,cache:on,cache_idle:60s",
     SIM,
     {{"cache.trimmed_bytes", 8 << 20}}},
};

START_TEST(the_promise_is_kept) {
    keep_promise("alike", &promises[_i]);
}
END_TEST

/* The loader wraps the handles of two drivers; the driver's own are the bare ones. */
static const struct promise at_two_hooks[] = {
    {"residency:owner skips the peer", "linked_then_table", OWNER, SIM, OWNER_COUNTS(4, 4)},
    {"whichever hook was first", "table_then_linked", OWNER, SIM, OWNER_COUNTS(4, 4)},
    {"the limit counts each card by itself", "limited_at_two_hooks", LIMIT "off", SIM, {{"limit.refused_calls", 2}}},
};

START_TEST(the_promise_is_kept_at_two_hooks) {
    char drivers[2 * PATH_MAX + 64];

    snprintf(drivers, sizeof drivers, "%s,%s", sim_driver(), build_path("test/process/libze_simtwo.so"));
    setenv("DRIVER", build_path("libze_simgpu.so"), 1);
    keep_promise_with(drivers, "alike", &at_two_hooks[_i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("alike");
    TCase *c = tcase_create("promises");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, the_promise_is_kept, 0, (int)(sizeof promises / sizeof *promises));
    tcase_add_loop_test(c, the_promise_is_kept_at_two_hooks, 0, (int)(sizeof at_two_hooks / sizeof *at_two_hooks));
    return run_suite(suite);
}
