/*
 * Refusals: one function counts, records and explains every allocation that was refused for good
 * (base/refusals.def). An explanation says who asked, who refused, what was held and by whom, and
 * what to try: once per process and reason, on stderr and in the segment. And what is never freed
 * is reported by caller at the end of the process. Both walk the blocks without a lock, at most
 * MOST_SEEN of them. Cold.
 */
#include "policy/policy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEEN = 1 << 20, GROUPS = 64, SHOWN = 5, BYTES = 16 };

/* What is live, by the library that allocated it and by size. */
struct live {
    uint64_t blocks, bytes;
    unsigned groups;
    struct group {
        const struct zr_library *caller;
        unsigned power; /* blocks of 2^power bytes and more, up to the next power */
        uint64_t blocks, bytes;
    } group[GROUPS];
};

/* "16.0 MiB"; returns out, which has room for BYTES. */
static const char *text_of(char *out, uint64_t bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double n = (double)bytes;
    unsigned u = 0;

    for (; n >= 1023.95 && u < 5; u++)
        n /= 1024;
    snprintf(out, BYTES, u && n < 99.95 ? "%.1f %s" : "%.0f %s", n, unit[u]);
    return bytes ? out : "nothing";
}

/* Appends to a text of the segment; what does not fit is cut. */
static __attribute__((format(printf, 2, 3))) void append(char *out, const char *format, ...) {
    size_t used = strlen(out);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(out + used, ZR_TEXT_ROOM - used, format, arguments);
    va_end(arguments);
}

static unsigned power_of(uint64_t bytes) {
    return bytes ? 63u - (unsigned)__builtin_clzll(bytes) : 0;
}

/* If all groups are taken, the rest is counted with the last one. */
static void add_live(struct live *l, const struct group *more) {
    unsigned i = 0;

    while (i < l->groups && (l->group[i].caller->counters != more->caller->counters ||
                             l->group[i].power != more->power))
        i++;
    if (i == GROUPS)
        i--;
    if (i == l->groups)
        l->group[l->groups++] = (struct group){.caller = more->caller, .power = more->power};
    l->group[i].blocks += more->blocks;
    l->group[i].bytes += more->bytes;
    l->blocks += more->blocks;
    l->bytes += more->bytes;
}

static void add_one(struct live *l, const struct zr_library *caller, uint64_t bytes) {
    add_live(l, &(struct group){caller, power_of(bytes), 1, bytes});
}

static int by_bytes(const void *a, const void *b) {
    const struct group *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Appends the largest groups, each on a line of its own, and the sum of the others. */
static void put_groups(struct live *l, char *out) {
    uint64_t shown = 0;
    char a[BYTES], b[BYTES], c[BYTES];

    qsort(l->group, l->groups, sizeof *l->group, by_bytes);
    for (unsigned i = 0; i < l->groups && i < SHOWN; i++) {
        const struct group *g = &l->group[i];

        append(out, "\n    %-24.24s %7llu x %8s to %8s %10s", g->caller->name,
               (unsigned long long)g->blocks, text_of(a, UINT64_C(1) << g->power),
               text_of(b, UINT64_C(2) << g->power), text_of(c, g->bytes));
        shown += g->bytes;
    }
    if (shown < l->bytes)
        append(out, "\n    %-24s %41s", "others", text_of(a, l->bytes - shown));
}

static void tell_leaks(struct live *l) {
    char text[ZR_TEXT_ROOM] = "";

    zr_gauge(ZR_G_LEFT_BLOCKS, l->blocks);
    zr_gauge(ZR_G_LEFT_BYTES, l->bytes);
    put_groups(l, text);
    zr_text(ZR_T_LEFT, *text ? text + 1 : "");
}

/* --- the walk --------------------------------------------------------------------------------- */

static uint32_t explained; /* atomic, bit n: cause n */

struct walk {
    struct live live;
    struct live objects; /* that are live, too: who has made them is asked afterwards */
    uint64_t cached;     /* bytes */
    unsigned number;     /* of the card; ZR_UNKNOWN_DEVICE: all */
    bool at_end;
    uint64_t runtime_blocks, runtime_bytes; /* which a SYCL runtime frees with its context */
    unsigned seen, seen_objects;
};

/* Not on the stack: a thread that is refused memory may have a small one. NULL without memory. */
static struct walk *new_walk(unsigned number, bool at_end) {
    struct walk *w = zr_pages(sizeof *w);

    if (w) {
        w->number = number;
        w->at_end = at_end;
    }
    return w;
}

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
    if (w->at_end && (zr_library_who(caller) != ZR_WHO_PROGRAM ||
                      flags & (ZR_BLOCK_WITH_CONTEXT | ZR_BLOCK_POOLED))) {
        w->runtime_blocks++;
        w->runtime_bytes += bytes;
        return true;
    }
    add_one(&w->live, caller, bytes);
    return ++w->seen < MOST_SEEN;
}

/* Physical memory. Its table is locked. */
static void see_object(struct zr_object *o, void *arg) {
    struct walk *w = arg;
    bool counts = o->kind == ZR_KIND_PHYSICAL || (o->kind == ZR_KIND_HOST && w->at_end);

    if (counts && (w->number == ZR_UNKNOWN_DEVICE || w->number == o->account) &&
        ++w->seen_objects < MOST_SEEN)
        add_one(&w->objects, o->library, o->bytes);
}

static void add_objects(struct walk *w) {
    zr_object_each(see_object, w);
    for (unsigned i = 0; i < w->objects.groups; i++) {
        const struct group *g = &w->objects.group[i];

        if (!w->at_end || zr_library_who(g->caller) != ZR_WHO_RUNTIME) {
            add_live(&w->live, g);
            continue;
        }
        w->runtime_blocks += g->blocks;
        w->runtime_bytes += g->bytes;
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

static const struct {
    const char *who, *advice;
    uint32_t code;   /* of a setting that refuses; else 0 */
    int counter;     /* enum zr_field; -1: counted elsewhere */
    int explanation; /* enum zr_text */
    bool by_setting;
} refusers[ZR_REFUSERS] = {
#define ZR_BY_SETTING(id, setting, code_, advice_)                                                 \
    [ZR_REFUSED_BY_##id] = {"the setting " setting,    advice_,       code_,                       \
                            ZR_F_##id##_REFUSED_CALLS, ZR_T_OOM_##id, true},
#define ZR_BY_DRIVER(id, name, who_, advice_)                                                      \
    [ZR_REFUSED_BY_##id] = {who_, advice_, 0, -1, ZR_T_OOM_##id, false},
#define ZR_BY_OTHER(id, who_, advice_)                                                             \
    [ZR_REFUSED_BY_##id] = {who_, advice_, 0, -1, ZR_T_OOM_DRIVER, false},
#include "base/refusals.def"
};

#define SAME(id)                                                                                   \
    _Static_assert((int)ZR_REFUSED_BY_##id == (int)ZEROUTE_REFUSED_BY_##id, "the record's "        \
                                                                            "number");
#define ZR_BY_SETTING(id, ...) SAME(id)
#define ZR_BY_DRIVER(id, ...) SAME(id)
#define ZR_BY_OTHER(id, ...) SAME(id)
#include "base/refusals.def"

/* What a setting allows, for the record. */
static uint64_t bound_of(enum zr_refuser who, unsigned number) {
    uint64_t floor, left;

    if (who == ZR_REFUSED_BY_LIMIT || who == ZR_REFUSED_BY_GROUP_LIMIT)
        return zr_limit_of(number);
    zr_host_room(&floor, &left);
    return who == ZR_REFUSED_BY_HOST_FLOOR ? floor : 0;
}

/* On a card that is full a higher limit gives nothing. */
static const char *advice_of(enum zr_refuser who) {
    if (who == ZR_REFUSED_BY_LIMIT && zr_config.limit.is_auto)
        return refusers[ZR_REFUSED_BY_DRIVER].advice;
    return refusers[who].advice;
}

/* A refusal, as it is explained. */
struct shortage {
    enum zr_refuser who;
    const struct zr_op *op;
    enum zr_entry entry;
    unsigned number;
    uint64_t bytes;
    ze_result_t code;
    uint64_t total; /* memory of the card; 0: not known */
    struct zr_share share;
};

/* The largest of the other processes. Their names are what they say of themselves. */
static void put_holders(const struct zr_holder *holder, char *out) {
    char a[BYTES], path[32], name[24];

    for (unsigned i = 0; i < ZR_HOLDERS && holder[i].bytes; i++) {
        int pid = holder[i].pid;

        if (!pid) {
            append(out, "\n    %-24s %10s", "of another PID namespace",
                   text_of(a, holder[i].bytes));
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        name[zr_read_system(path, name, sizeof name) ? strcspn(name, "\n") : 0] = '\0';
        append(out, "\n    %8d %-15.15s %10s", pid, zr_printable(name),
               text_of(a, holder[i].bytes));
    }
}

/* Which of the bounds of limit:auto it was, with its figure. */
static void put_bound(const struct shortage *s, char *out) {
    const struct zr_look *look = &s->share.look;
    char a[BYTES], b[BYTES], name[ZR_CGROUP_NAME];

    append(out, "\n  limit     %s (auto), because of ", text_of(a, s->share.bytes));
    switch (s->share.bound) {
    case ZR_BOUND_CGROUP:
        snprintf(name, sizeof name, "%s", *look->cgroup.name ? look->cgroup.name : "/");
        append(out, "the cgroup %.120s: its dmem.max is %s", zr_printable(name),
               text_of(a, look->cgroup.most));
        if (look->cgroup_others)
            append(out, ", others in it have %s", text_of(b, look->cgroup_others));
        return;
    case ZR_BOUND_OTHERS:
        append(out, "other processes, which have %s of the card:", text_of(a, look->others));
        put_holders(look->holder, out);
        return;
    case ZR_BOUND_GROUP:
    case ZR_BOUND_LIMIT:
    case ZR_BOUND_CARD:
        append(out, "the size of the card");
        if (s->total > s->share.card)
            append(out, ", of which the driver keeps %s", text_of(a, s->total - s->share.card));
    }
}

/* Why device memory needs memory of the host. */
static void put_floor(const struct shortage *s, char *out) {
    uint64_t floor, left;
    char a[BYTES], b[BYTES];

    zr_host_room(&floor, &left);
    append(out, "\n  host      %s available, of which %s are left to the kernel", text_of(a, left),
           text_of(b, floor));
    if (zr_config.host_floor.is_auto && zr_residency_mirrors())
        append(out, "\n            the process makes its blocks resident on other cards: each is "
                    "mirrored in host memory");
    else if (zr_config.host_floor.is_auto)
        append(out, "\n            a block as large as this needs host memory of its size (%s)",
               text_of(a, s->bytes));
}

/* With whom a limit is shared. */
static void put_group(const struct shortage *s, char *out) {
    char a[BYTES], name[200];

    zr_group_name(name, sizeof name);
    append(out, "\n  limit     %s, because of the group %.80s", text_of(a, s->share.bytes),
           zr_printable(name));
    if (s->share.look.group_others)
        append(out, ": other processes of it have %s:", text_of(a, s->share.look.group_others));
    put_holders(s->share.look.group_holder, out);
}

static void print_explanation(const struct shortage *s, struct walk *w) {
    const char *host = s->code == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY ? "out of host memory"
                                                                     : "out of device memory";
    bool by_runtime = s->op->pooled || !s->op->library;
    uint64_t others = s->share.look.others + s->share.look.unseen;
    char text[ZR_TEXT_ROOM] = "", a[BYTES], b[BYTES];

    append(text, "out of memory: %s refused %s", refusers[s->who].who, text_of(a, s->bytes));
    if (w->number != ZR_UNKNOWN_DEVICE)
        append(text, " on card %u", w->number);
    append(text, "\n  asked by  %.40s with %s",
           by_runtime ? "the SYCL runtime's pool" : s->op->library->name, zr_entry_name[s->entry]);
    append(text, "\n  answer    0x%x (%s)", (uint32_t)s->code, host);
    append(text, "\n  held      %s by the process, %s in the cache", text_of(a, w->live.bytes),
           text_of(b, w->cached));
    if (s->who == ZR_REFUSED_BY_HOST_FLOOR)
        put_floor(s, text);
    else if (s->who == ZR_REFUSED_BY_GROUP_LIMIT)
        put_group(s, text);
    else if (s->who == ZR_REFUSED_BY_LIMIT && zr_config.limit.is_auto)
        put_bound(s, text);
    else if (s->who == ZR_REFUSED_BY_LIMIT)
        append(text, "\n  limit     %s", text_of(a, zr_limit_of(s->number)));
    if (s->total)
        append(text, "\n  card      %s", text_of(a, s->total));
    if (s->total && others)
        append(text, ", %s of it with other processes and the driver", text_of(a, others));
    if (w->live.groups)
        append(text, "\n  largest groups by caller and size of block:");
    put_groups(&w->live, text);
    append(text, "\n  try       %s", advice_of(s->who));
    if (zr_recording())
        append(text, "\n  record    'zeroute report %.60s' shows what was live, by call stack",
               zr_record_path());
    zr_text((enum zr_text)refusers[s->who].explanation, text);
    zr_warn("%s", text);
}

/* Asks the card itself, not what the limit leaves of it. */
static void look_at_card(struct shortage *s, const struct walk *w) {
    ZR_OWN_OP(own, ZR_HOOK_PLT);
    ze_device_handle_t device =
        w->number == ZR_UNKNOWN_DEVICE ? NULL : zr_device_handle(w->number, &own.hook);

    if (!device)
        return;
    s->total = zr_device_memory(&own, device);
    zr_limit_share(w->number, w->live.bytes + w->cached, &s->share);
    /* Without the others it would not fit either. */
    if (s->share.bound == ZR_BOUND_OTHERS &&
        w->live.bytes + w->cached + s->bytes + s->share.look.unseen > s->share.card)
        s->share.bound = ZR_BOUND_CARD;
}

/* Once per reason. */
static ZR_COLD void explain(struct shortage *s) {
    struct walk *w;

    if (!*refusers[s->who].advice ||
        __atomic_fetch_or(&explained, 1u << s->who, __ATOMIC_RELAXED) >> s->who & 1)
        return;
    w = new_walk(s->number < ZR_HOST_ACCOUNT ? s->number : ZR_UNKNOWN_DEVICE, false);
    if (!w)
        return;
    zr_block_each(see, w);
    add_objects(w);
    look_at_card(s, w);
    print_explanation(s, w);
    zr_pages_back(w, sizeof *w);
}

/* What the driver has refused may be a wish of `inject`, whose code tells. */
ZR_COLD ze_result_t zr_refused(struct zr_op *op, enum zr_entry entry, unsigned number,
                               uint64_t bytes, ze_result_t code) {
    enum zr_refuser who = (enum zr_refuser)op->refused_by;
    enum zr_kind kind = number == ZR_HOST_ACCOUNT ? ZR_KIND_HOST : ZR_KIND_DEVICE;
    struct shortage s = {
        .who = who, .op = op, .entry = entry, .number = number, .bytes = bytes, .code = code};

    if (zr_op_rooms(op))
        return code;
    if (refusers[who].by_setting) {
        zr_count((enum zr_field)refusers[who].counter, 1);
        zr_count_failure(entry, (uint32_t)code);
    } else if (zr_record_refuser((uint32_t)code) == ZEROUTE_REFUSED_BY_INJECT) {
        s.who = ZR_REFUSED_BY_INJECT;
    }
    zr_record(ZEROUTE_EVENT_FAIL, kind, number, NULL, bytes, bound_of(who, number), s.who,
              (uint32_t)code);
    if (zr_is_short(code))
        explain(&s);
    return code;
}

ZR_COLD ze_result_t zr_refuse(struct zr_op *op, enum zr_refuser who, enum zr_entry entry,
                              unsigned number, uint64_t bytes) {
    op->refused_by = (uint8_t)who;
    return zr_refused(op, entry, number, bytes, (ze_result_t)refusers[who].code);
}

ZR_COLD bool zr_floor_refuses_slow(struct zr_op *op, enum zr_entry entry, unsigned number,
                                   uint64_t bytes, ze_result_t *result) {
    if (zr_op_rooms(op) || !zr_host_refuses(bytes, zr_residency_mirrors()))
        return false;
    /* What no card could hold is refused by the driver, with its own error. */
    if (zr_config.host_floor.is_auto && !zr_limit_fits_card(number, bytes))
        return false;
    *result = zr_refuse(op, ZR_REFUSED_BY_HOST_FLOOR, entry, number, bytes);
    return true;
}

/* --- the end of the process ------------------------------------------------------------------- */

/* Later calls go straight down: what a runtime frees as its libraries are torn down is not seen any
 * more. */
void zr_shortage_process_end(void) {
    struct walk *w = zr_stats_is_open() ? new_walk(ZR_UNKNOWN_DEVICE, true) : NULL;

    if (!w)
        return;
    zr_block_each(see, w);
    add_objects(w);
    zr_gauge(ZR_G_LEFT_RUNTIME_BLOCKS, w->runtime_blocks);
    zr_gauge(ZR_G_LEFT_RUNTIME_BYTES, w->runtime_bytes);
    tell_leaks(&w->live);
    zr_pages_back(w, sizeof *w);
}

void zr_shortage_fork_child(void) {
    explained = 0;
}
