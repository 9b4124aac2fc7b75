/*
 * Where segments lie: in /dev/shm, and in that of every container, a directory per user. The one place that knows.
 * Private to the reader: zeroute/reader.h is for everybody.
 */
#ifndef ZEROUTE_READER_FOUND_H
#define ZEROUTE_READER_FOUND_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/*
 * A file that may be a segment, as far as its name goes. Nothing of it has been opened. Without a name: the directory
 * of a user whom the caller may not look at.
 */
struct zeroute_found {
    int directory;    /* open for reading */
    unsigned owner;   /* of the directory, and so of the segment; of an old one that of its file counts */
    bool old;         /* it lies in /dev/shm itself: a released zeroute up to layout 3 has put it there */
    bool crowd;       /* no file: there are more directories than are gone through */
    int pid;          /* in its name */
    const char *path; /* of the directory */
    const char *name; /* of the file in it, or NULL */
};

/*
 * Calls see() for each, those of other users and containers included as far as the caller may look. see() returns false
 * to end with this directory. Every directory is seen once, whatever leads to it.
 */
struct zeroute_watchman;
void zeroute_each_found(bool (*see)(const struct zeroute_found *f, void *arg), const struct zeroute_watchman *watchman,
                        void *arg);

#pragma GCC visibility pop

#endif
