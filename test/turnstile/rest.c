/* What must hold when no thread is in a call: the books, the segment, the limit, the claims and the driver agree. */
#include "program.h"

#include <stdio.h>
#include <string.h>

static void compare(const char *when, const char *field, int64_t expected) {
    int64_t value;

    if (segment_value(field, &value) && value != expected)
        ts_violation("%s, %s is %lld; it should be %lld", when, field, (long long)value, (long long)expected);
}

/* Blocks that were allocated past us are known to nobody. */
static void add_known(const struct ts_block *b, void *sum) {
    if (!b->past_us)
        *(int64_t *)sum += b->kind == TS_HOST ? 0 : (int64_t)b->size;
}

static void compare_books(const char *when) {
    static const char *const field[] = {"allocated_bytes.device.current", "allocated_bytes.host.current",
                                        "allocated_bytes.shared.current"};
    int64_t bytes[TS_KINDS] = {0}, blocks = 0, reserved = 0;

    for (int i = 0; i < owner_count; i++) {
        const struct owner *o = &owners[i];

        if (o->gone || o->past_us)
            continue;
        bytes[o->kind] += (int64_t)o->size;
        blocks += o->kind != TS_HOST;
    }
    sycl_add_up(&bytes[TS_DEVICE], &blocks);
    for (int kind = TS_DEVICE; kind <= TS_SHARED; kind++)
        compare(when, field[kind], bytes[kind]);
    compare(when, "allocation.all.current", blocks);
    compare(when, "allocated_bytes.physical.current", 0);
    compare(when, "virtual_bytes.reserved.current", 0);
    compare(when, "virtual_bytes.mapped.current", 0);
    compare(when, "imported_bytes.all.current", 0);
    if (truth_setting->flags & CHECKED)
        return;
    ts_each_block(add_known, &reserved);
    if (truth_setting->flags & HAS_CACHE)
        compare(when, "reserved_bytes.all.current", reserved);
}

/* What is announced to other processes is what the driver has given out. */
static void compare_claims(const char *when) {
    int64_t blocks, unseen;

    for (int card = 0; card < TS_CARDS && truth_setting->flags & AUTO; card++) {
        if (!segment_claim(card, &blocks, &unseen))
            continue;
        if (blocks < 0)
            ts_violation("%s, %lld bytes of card %d are announced", when, (long long)blocks, card);
        if (truth_setting->flags & FDINFO && !(truth_setting->flags & FLAKY) && (uint64_t)blocks > ts_driver.used[card])
            ts_violation("%s, %lld bytes of card %d are announced, but the driver has given out %lld", when,
                         (long long)blocks, card, (long long)ts_driver.used[card]);
    }
}

/* With everything freed and trimmed the driver has nothing left that is nobody's. */
static void find_left(const struct ts_block *b, void *when) {
    if (b->past_us || !ts_context_is_live(b->context))
        return;
    for (int i = 0; i < owner_count; i++)
        if (owners[i].p == b->base && !owners[i].gone)
            return;
    ts_violation("%s, the driver still has %p (%zu bytes), which nobody owns", (const char *)when, (void *)b->base,
                 b->size);
}

/* With everything freed the whole limit is there again. */
static void try_limit(const char *when) {
    uint64_t gone = 0;
    int i;

    for (int k = 0; k < owner_count; k++)
        if (!owners[k].gone && owners[k].kind == TS_DEVICE && owners[k].card == 0)
            gone += owners[k].size;
    if (gone || ts_driver.used[0] + truth_setting->limit > ts_driver.vram[0] || ts_driver.refuse_alloc)
        return;
    ts_operation(MOST_OPERATIONS, "allocate all that the limit allows");
    i = do_alloc(TS_DEVICE, 0, 0, truth_setting->limit, 0);
    if (i == NO_OWNER)
        ts_violation("%s, an allocation of all that the limit allows (%llu bytes) is refused", when,
                     (unsigned long long)truth_setting->limit);
    do_free((const void *)owners[i].p, 0, -1);
    make_request("trim");
}

void rest_compare(const char *when, bool everything_freed) {
    const char *field;
    int64_t value;

    if (!segment_open())
        ts_violation("%s, the process has no segment", when);
    field = segment_negative(&value);
    if (field)
        ts_violation("%s, %s is %lld", when, field, (long long)value);
    if (truth_inexact)
        return;
    compare_books(when);
    compare_claims(when);
    if (truth_setting->flags & RECORDED)
        record_compare(when);
    if (everything_freed && !(truth_setting->flags & CHECKED))
        ts_each_block(find_left, (void *)(uintptr_t)when);
    if (everything_freed && truth_setting->flags & LIMITED && ts_context_is_live(0))
        try_limit(when);
}
