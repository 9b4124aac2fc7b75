/* Where a test stops a thread to let another one go first (test/pause.h); nothing otherwise. */
#ifndef ZR_PAUSE
#define ZR_PAUSE(where) ((void)0)
#endif
