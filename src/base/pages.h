/*
 * Memory of the cache's own, straight from mmap: the process may have interposed malloc, and we may be
 * called inside it. Descriptors and map nodes are never unmapped: they stay readable for
 * ever, which is what lets readers go without locks.
 */
#ifndef ZEROUTE_CACHE_PAGES_H
#define ZEROUTE_CACHE_PAGES_H

#include <stddef.h>

/* Zeroed whole pages, or NULL. From 2 MiB up aligned to 2 MiB and advised to be huge. errno is preserved. */
void *zr_pages(size_t bytes);

/* For the few pages that no other thread can look at: what a thread kept for itself. */
void zr_pages_back(void *pages, size_t bytes);

/* A zeroed piece of a few KiB at most, aligned to a cache line, from a shared page. Takes a lock. */
void *zr_piece(size_t bytes);

void zr_pages_fork_child(void);

#endif
