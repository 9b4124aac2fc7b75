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

#pragma GCC visibility pop

#endif
