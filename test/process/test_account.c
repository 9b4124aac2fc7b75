/*
 * One account per card, and what passes it by: each promise of prog_account.c with the settings that
 * it needs, on the simulated GPU, and what was counted.
 */
#include "promises.h"

#define CONF "ZEROUTE_CONF=route:native,cache_idle:60s,"
#define SIM "ZE_SIMGPU=count:on,vram:1GiB,devices:3"
#define PARTS "ZE_SIMGPU=count:on,vram:1GiB,devices:1,regions:4"
#define IN_USE "0x78000006"
#define NO_HOST "0x70000002"
#define FULL "0x70000003"

static const struct promise promises[] = {
    {"every question is answered as the limit leaves it", "told", CONF "cache:on,limit:256MiB", SIM, {{0}}},
    {"by a part of the memory as well", "told", CONF "cache:on,limit:25%", SIM, {{0}}},
    {"without a cache, too", "told", CONF "cache:off,limit:25%", SIM, {{0}}},
    {"who takes all that is told gets it", "fits", CONF "cache:on,limit:256MiB", SIM, {{"limit.refused_calls", 0}}},
    {"of a part of the memory as well", "fits", CONF "cache:on,limit:10%", SIM, {{"limit.refused_calls", 0}}},
    {"a plain question trims nothing", "plain_questions", CONF "cache:on", SIM, {{"cache.trims", 2}}},
    {"every kind of memory counts",
     "every_kind",
     CONF "cache:on,limit:64MiB",
     SIM,
     {{"limit.refused_calls", 3},
      {"failures.zeMemOpenIpcHandle", 1},
      {"ipc.imports", 3},
      {"imported_bytes.all.current", 0}}},
    {"every kind of memory counts", "every_kind", CONF "cache:off,limit:6.25%", SIM, {{"limit.refused_calls", 3}}},
    {"what is kept makes room", "makes_room", CONF "cache:on,limit:64MiB", SIM, {{"limit.refused_calls", 0}}},
    {"what is imported counts as what it is",
     "imported_by_descriptor",
     CONF "cache:on,limit:64MiB",
     SIM,
     {{"limit.refused_calls", 2},
      {"imported_bytes.all.allocated", 40 << 20},
      {"imported_bytes.all.current", 0},
      {"ipc.imports", 0}}},
    {"what is kept makes room for host and shared memory",
     "room_for_other_kinds",
     CONF "cache:on,inject:zeMemAllocShared@1=0x70000003+zeMemAllocHost@1=0x70000002"
          "+zeMemAllocShared@3=0x70000003",
     SIM,
     {{"cache.retries", 2}, {"failures.zeMemAllocShared", 2}, {"failures.zeMemAllocHost", 1}}},
    {"host memory that is kept makes room, and makes do with what is kept on cards",
     "room_on_the_host",
     CONF "cache:on,cache_host:on,inject:zeMemAllocShared@1=" NO_HOST "+zeMemAllocDevice@1=" NO_HOST
          "+zePhysicalMemCreate@1=" NO_HOST "+zeMemAllocHost@4=" NO_HOST,
     SIM,
     {{"cache.retries", 4}}},
    {"what is kept makes room wherever the driver may be short of it",
     "room_for_what_comes_later",
     CONF "cache:on,inject:zeContextMakeMemoryResident@1=" FULL "+zeContextMakeMemoryResident@3=" FULL
          "+zeVirtualMemMap@1=" FULL "+zeMemOpenIpcHandle@1=" FULL "+zeMemAllocDevice@7=" FULL,
     SIM,
     {{"cache.retries", 5}}},
    {"what the driver did not give is not counted, nor is the parent's",
     "not_counted",
     CONF "cache:on,limit:64MiB,inject:zeMemAllocDevice@1=0x70000003",
     SIM,
     {{"limit.refused_calls", 1}}},
    {"a free of nothing is counted", "freed_nothing", CONF "cache:off", SIM, {{"free.invalid.null", 2}}},
    {"with a cache, too", "freed_nothing", CONF "cache:on", SIM, {{"free.invalid.null", 2}}},
    {"a sub-device is another device of the same card",
     "parts",
     CONF "cache:on,limit:64MiB",
     SIM ",tiles:2",
     {{"limit.refused_calls", 1}, {"residency.owner.requested_calls", 3}, {"residency.peer.requested_calls", 0}}},
    {"of the card's memory, not the sub-device's",
     "parts",
     CONF "cache:on,limit:6.25%",
     SIM ",tiles:2",
     {{"limit.refused_calls", 1}}},
    {"what differs is kept apart", "keys", CONF "cache:on", SIM, {{"cache.hits", 4}}},
    {"what we do not know passes and is counted",
     "passed",
     CONF "cache:on",
     SIM,
     {{"passed_through.pnext", 1},
      {"passed_through.export", 1},
      {"passed_through.import", 1},
      {"passed_through.kind", 2}}},
    {"a refused free leaves the block",
     "refused_and_held",
     CONF "cache:on,reuse:runtime,inject:zeMemFree@1=" IN_USE "+zeMemFreeExt@1=" IN_USE,
     SIM,
     {{"allocated_bytes.all.current", 16 << 20},
      {"reserved_bytes.all.current", 16 << 20},
      {"allocation.all.current", 2}}},
    {"a refused free leaves the block",
     "refused_and_held",
     CONF "cache:off,inject:zeMemFree@1=" IN_USE "+zeMemFreeExt@1=" IN_USE,
     SIM,
     {{"allocated_bytes.all.current", 16 << 20}, {"allocation.all.current", 2}}},
    {"and it can be freed again",
     "refused_and_freed",
     CONF "cache:on,limit:16MiB,cache_limit:0,inject:zeMemFree@1=" IN_USE "+zeMemFreeExt@1=" IN_USE,
     SIM,
     {{"allocated_bytes.all.current", 0}, {"reserved_bytes.all.current", 0}, {"allocation.all.current", 0}}},
    {"and it can be freed again",
     "refused_and_freed",
     CONF "cache:off,inject:zeMemFree@1=" IN_USE "+zeMemFreeExt@1=" IN_USE,
     SIM,
     {{"allocated_bytes.all.current", 0}, {"allocation.all.current", 0}}},
    {"what a trim could not give back is not reused, and given back by the next",
     "refused_by_a_trim",
     CONF "cache:on,inject:zeMemFree@1=" IN_USE,
     SIM,
     {{"reserved_bytes.all.current", 0}, {"allocated_bytes.all.current", 0}}},
};

/* Of prog_regions.c: the memory of a card in several parts. */
static const struct promise of_regions[] = {
    {"regions tell the limit together, modules a part of it each", "told", CONF "cache:on,limit:640MiB", PARTS, {{0}}},
    {"by a part of the memory as well", "told", CONF "cache:on,limit:62.5%", PARTS, {{0}}},
    {"without a cache, too", "told", CONF "cache:off,limit:62.5%", PARTS, {{0}}},
    {"a part of the memory is one of all regions",
     "part_of_all",
     CONF "cache:on,limit:50%",
     "ZE_SIMGPU=vram:1GiB,regions:16",
     {{"limit.refused_calls", 1}}},
    {"every region counts", "counted", CONF "cache:on,limit:64MiB", PARTS, {{"limit.refused_calls", 1}}},
    {"a module is one of several, even if asked for alone",
     "asked_for_one",
     CONF "cache:on,limit:640MiB",
     PARTS,
     {{0}}},
    {"a module that is not known may be any card's",
     "unknown",
     CONF "cache:on,limit:32MiB",
     "ZE_SIMGPU=count:on,vram:1GiB,devices:8,regions:16",
     {{"cache.trims", 1}}},
};

START_TEST(the_promise_is_kept) {
    keep_promise("account", &promises[_i]);
}
END_TEST

START_TEST(the_promise_is_kept_by_cards_of_several_regions) {
    keep_promise("regions", &of_regions[_i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("account");
    TCase *c = tcase_create("promises");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, the_promise_is_kept, 0, (int)(sizeof promises / sizeof *promises));
    tcase_add_loop_test(c, the_promise_is_kept_by_cards_of_several_regions, 0,
                        (int)(sizeof of_regions / sizeof *of_regions));
    return run_suite(suite);
}
