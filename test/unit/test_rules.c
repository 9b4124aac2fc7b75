/* The table of rules by which native frames are found (src/record/native.c): read and written without a lock. */
#include "record/native.c"
#include "suite.h"

/* Two threads write one slot at once, and each of its words is of another one. */
START_TEST(a_slot_of_two_writers_holds_a_rule_of_neither) {
    enum { SLOT = 5, ONE = 0x401000, OTHER = 0x12345678 };
    const struct rule mine = {.cfa = CFA_RSP, .cfa_offset = 16}, others = {.cfa = CFA_RBP, .cfa_offset = 32};
    uint64_t word;
    bool free;

    ck_assert(!is_rule_of(SLOT, ONE, &word, &free));
    ck_assert(free);
    keep_rule(SLOT, ONE, &mine);
    ck_assert(is_rule_of(SLOT, ONE, &word, &free));
    ck_assert(!is_rule_of(SLOT, OTHER, &word, &free));
    memcpy(&word, &others, sizeof word);
    __atomic_store_n(&cache[SLOT].rule, word, __ATOMIC_RELAXED); /* the first half of keep_rule(SLOT, OTHER, &others) */
    ck_assert(!is_rule_of(SLOT, ONE, &word, &free));
    ck_assert(!is_rule_of(SLOT, OTHER, &word, &free));
    ck_assert(!free);
    keep_rule(SLOT, OTHER, &others);
    ck_assert(is_rule_of(SLOT, OTHER, &word, &free));
}
END_TEST

/* A writer that was held up stores its rule after all rules were forgotten: under its own address. */
START_TEST(a_rule_that_comes_late_stands_under_its_own_address) {
    enum { SLOT = 6, GONE = 0x401000, NEW = 0x402000 };
    const struct rule late = {.cfa = CFA_RSP, .cfa_offset = 8}, rule = {.cfa = CFA_RSP, .cfa_offset = 24};
    uint64_t word;
    bool free;

    keep_rule(SLOT, NEW, &rule);
    zr_native_forget();
    keep_rule(SLOT, NEW, &rule);
    keep_rule(SLOT, GONE, &late);
    ck_assert(!is_rule_of(SLOT, NEW, &word, &free));
    ck_assert(is_rule_of(SLOT, GONE, &word, &free));
}
END_TEST

int main(void) {
    Suite *s = suite_create("rules");
    TCase *t = tcase_create("slots");

    tcase_add_test(t, a_slot_of_two_writers_holds_a_rule_of_neither);
    tcase_add_test(t, a_rule_that_comes_late_stands_under_its_own_address);
    suite_add_tcase(s, t);
    return run_suite(s);
}
