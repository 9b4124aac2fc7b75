/* What reader.c needs to make a snapshot. Private to the reader: zeroute/reader.h is for everybody. */
#ifndef ZEROUTE_READER_SNAPSHOT_H
#define ZEROUTE_READER_SNAPSHOT_H

#include "zeroute/reader.h"

enum { ZEROUTE_DERIVED = 5 }; /* fields that follow a histogram */

#pragma GCC visibility push(hidden)

/* Zeroed memory that lives as long as the snapshot; NULL for none. */
void *zeroute_keep(struct zeroute_snapshot *s, size_t size);
/* A copy that ends with a zero; "" where there is no memory for it. */
const char *zeroute_keep_text(struct zeroute_snapshot *s, const char *text, size_t length);
/* at[0] is a histogram, with its sum in `value`; the derived fields follow it. */
void zeroute_derive(struct zeroute_field *at, uint64_t max);
bool zeroute_name_derived(struct zeroute_snapshot *s, struct zeroute_field *at);
/* Without it all is found as well, and takes longer. */
void zeroute_index_names(struct zeroute_snapshot *s);

/* --- budget.c ---------------------------------------------------------------------------------- */
struct zeroute_budget {
    unsigned uid;
    bool free;      /* one's own */
    uint64_t began; /* of the thread's processor time */
};
/* False: this user's segments have cost enough for now. */
bool zeroute_budget_begin(struct zeroute_budget *b, unsigned uid);
/* Charges the time since then, and memory. */
void zeroute_budget_end(const struct zeroute_budget *b, int64_t bytes);
/* Memory that was charged is free again. */
void zeroute_budget_return(unsigned uid, uint64_t bytes);
/* The same with the memory of the snapshot, which is given back when it is freed. */
void zeroute_snapshot_charge(struct zeroute_snapshot *s, const struct zeroute_budget *b);
#define ZEROUTE_BUDGET_WHY "not read: the segments of user %u take too much time or memory"

#pragma GCC visibility pop

#endif
