/* Included before everything: the allocator calls this at the places where another thread may come in between. */
#ifndef ZEROUTE_TEST_PAUSE_H
#define ZEROUTE_TEST_PAUSE_H

void pause_at(const char *where);
#define ZR_PAUSE(where) pause_at(where)

#endif
