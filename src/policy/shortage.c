/*
 * Explains an allocation that failed for lack of memory: who asked, who refused, what was held, what to try. Once per
 * process and cause, on stderr and in the segment. And reports what is never freed, by caller, at the end of the
 * process. Both walk the blocks without a lock, at most MOST_SEEN of them. Cold.
 */
#include "policy/policy.h"

enum { MOST_SEEN = 1 << 20 };

static uint32_t explained; /* atomic, bit n: cause n */

struct walk {
    struct zr_live live;
    uint64_t cached; /* bytes */
    unsigned number; /* of the card; ZR_UNKNOWN_DEVICE: all */
    bool at_end;
    uint64_t runtime_blocks, runtime_bytes; /* which a SYCL runtime frees with its context */
    unsigned seen;
};

static bool see(struct zr_block *b, void *arg) {
    struct walk *w = arg;
    uint32_t flags = zr_block_flags(b), kind = __atomic_load_n(&b->key.kind, __ATOMIC_RELAXED);
    bool live = zr_word_state(zr_block_word(b)) == ZR_BLOCK_LIVE;
    uint64_t bytes = __atomic_load_n(live ? &b->size : &b->held, __ATOMIC_RELAXED);
    unsigned account = __atomic_load_n(&b->key.account, __ATOMIC_RELAXED);

    if (flags & ZR_BLOCK_FOREIGN || kind > ZR_KIND_HOST || (kind == ZR_KIND_HOST && !w->at_end) ||
        (w->number != ZR_UNKNOWN_DEVICE && w->number != account))
        return true;
    if (!live) {
        w->cached += bytes;
        return true;
    }
    const struct zr_library *caller = zr_library_of(__atomic_load_n(&b->caller, __ATOMIC_RELAXED));
    if (w->at_end && (zr_library_who(caller) != ZR_WHO_PROGRAM || flags & (ZR_BLOCK_WITH_CONTEXT | ZR_BLOCK_POOLED))) {
        w->runtime_blocks++;
        w->runtime_bytes += bytes;
        return true;
    }
    zr_live_add(&w->live, caller, bytes);
    return ++w->seen < MOST_SEEN;
}

/* Physical memory is live, too. */
static void see_object(struct zr_object *o, void *arg) {
    struct walk *w = arg;
    const struct zr_library *caller = zr_library_of(o->caller);
    bool counts = o->kind == ZR_KIND_PHYSICAL || (o->kind == ZR_KIND_HOST && w->at_end);

    if (!counts || (w->number != ZR_UNKNOWN_DEVICE && w->number != o->account) || ++w->seen >= MOST_SEEN)
        return;
    if (w->at_end && zr_library_who(caller) == ZR_WHO_RUNTIME) {
        w->runtime_blocks++;
        w->runtime_bytes += o->bytes;
        return;
    }
    zr_live_add(&w->live, caller, o->bytes);
}

ZR_COLD void zr_shortage(struct zr_op *op, enum zr_cause cause, enum zr_entry entry, unsigned number, uint64_t bytes,
                         ze_result_t code) {
    struct walk w = {.number = number < ZR_HOST_ACCOUNT ? number : ZR_UNKNOWN_DEVICE};

    if (cause == ZR_CAUSE_FLOOR)
        zr_record(ZEROUTE_EVENT_FAIL, ZR_KIND_DEVICE, number, NULL, bytes, zr_config.host_floor.bytes,
                  ZEROUTE_REFUSED_BY_HOST_FLOOR, (uint32_t)code);
    if (__atomic_fetch_or(&explained, 1u << cause, __ATOMIC_RELAXED) >> cause & 1)
        return;
    zr_block_each(see, &w);
    zr_object_each(see_object, &w);
    struct zr_shortage s = {.caller = op->library,
                            .entry = entry,
                            .code = (uint32_t)code,
                            .bytes = bytes,
                            .card = w.number == ZR_UNKNOWN_DEVICE ? -1 : (int)number,
                            .cached = w.cached,
                            .limit = cause == ZR_CAUSE_LIMIT ? zr_limit_of(number) : 0};
    ZR_OWN_OP(own, ZR_HOOK_PLT); /* ask the card itself, not what the limit leaves of it */
    ze_device_handle_t device = s.card < 0 ? NULL : zr_device_handle(number, &own.hook);

    if (device) {
        s.total = zr_device_memory(&own, device);
        s.others = zr_claims_look(number, w.live.bytes + w.cached, true);
    }
    zr_live_explain(cause, &s, &w.live);
}

ze_result_t zr_policy_refused(struct zr_op *op, enum zr_entry entry, unsigned number, uint64_t bytes,
                              ze_result_t result) {
    bool limited = op->refused_by == ZR_REFUSED_BY_LIMIT;
    bool injected = !limited && zr_record_refuser((uint32_t)result) == ZEROUTE_REFUSED_BY_INJECT;
    enum zr_cause cause = ZR_CAUSE_DRIVER;

    if (limited)
        cause = ZR_CAUSE_LIMIT;
    else if (injected)
        cause = ZR_CAUSE_INJECT;
    if (zr_op_rooms(op))
        return result;
    if (limited) {
        zr_count(ZR_F_LIMIT_REFUSED_CALLS, 1);
        zr_count_failure(entry, (uint32_t)result);
    }
    zr_record(ZEROUTE_EVENT_FAIL, number == ZR_HOST_ACCOUNT ? ZR_KIND_HOST : ZR_KIND_DEVICE, number, NULL, bytes,
              limited ? zr_limit_of(number) : 0,
              limited ? ZEROUTE_REFUSED_BY_LIMIT : zr_record_refuser((uint32_t)result), (uint32_t)result);
    if (result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY || result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        zr_shortage(op, cause, entry, number, bytes, result);
    return result;
}

/* Later calls go straight down: what a runtime frees as its libraries are torn down is not seen any more. */
void zr_shortage_process_end(void) {
    struct walk w = {.number = ZR_UNKNOWN_DEVICE, .at_end = true};

    if (!zr_stats_is_open())
        return;
    zr_block_each(see, &w);
    zr_object_each(see_object, &w);
    zr_gauge(ZR_G_LEFT_RUNTIME_BLOCKS, w.runtime_blocks);
    zr_gauge(ZR_G_LEFT_RUNTIME_BYTES, w.runtime_bytes);
    zr_live_left(&w.live);
}

void zr_shortage_fork_child(void) {
    explained = 0;
}
