/*
 * Threads in the order that a test wants: one that comes by a place where it is to stop (pause.h) waits there until it
 * is told to go. One at a time.
 */
#ifndef ZEROUTE_TEST_TURNS_H
#define ZEROUTE_TEST_TURNS_H

#include "pause.h"

#include <sched.h>
#include <string.h>

static _Thread_local const char *stop_here;
static int stopped, waits, go; /* `waits`: somebody waits for the one who was stopped */
static _Thread_local const int *go_on = &go; /* what a thread waits for */
static _Thread_local const char *count_here; /* or how often it comes by, without stopping */
static _Thread_local unsigned counted;

static int is_set(const int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(int *flag, int value)
{
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

static void wait_for(const int *flag)
{
    while (!is_set(flag))
        sched_yield();
}

void pause_at(const char *where)
{
    if (strncmp(where, "waiting for", 11) == 0)
        set(&waits, 1);
    if (count_here && strcmp(where, count_here) == 0)
        counted++;
    if (!stop_here || strcmp(where, stop_here) != 0)
        return;
    stop_here = NULL;
    set(&stopped, 1);
    wait_for(go_on);
}

#endif
