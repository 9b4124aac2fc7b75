/*
 * Included before everything: the allocator, or the preload, calls this at the places where another thread may come in
 * between. Weak: a preload whose program has none does not stop.
 */
#ifndef ZEROUTE_TEST_PAUSE_H
#define ZEROUTE_TEST_PAUSE_H

extern void pause_at(const char *where) __attribute__((weak, visibility("default")));
#define ZR_PAUSE(where) (pause_at ? pause_at(where) : (void)0)

#endif
