/*
 * What the cache keeps per thread, and how it is given back when the thread ends.
 */
#ifndef ZEROUTE_CACHE_THREAD_H
#define ZEROUTE_CACHE_THREAD_H

#include <stdbool.h>

enum { ZR_THREAD_NEW, ZR_THREAD_ACTIVE, ZR_THREAD_GONE };
extern _Thread_local unsigned char zr_thread_state;

/*
 * True when this thread may keep something of its own: it then is given back at the thread's end. False in
 * a thread whose end has begun (destructors of other libraries may still call): use shared lists there.
 */
bool zr_thread_enter_slow(void);

static inline bool zr_thread_enter(void)
{
    return __builtin_expect(zr_thread_state == ZR_THREAD_ACTIVE, 1) || zr_thread_enter_slow();
}

#endif
