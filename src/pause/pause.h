/*
 * The map of pause/: a program's device memory given back and returned (the setting `pause`).
 * Called by policy/ and ze/ alone; hook/start.c has its end and its fork. Without the setting each
 * call costs one predictable branch.
 *
 * How a process is paused and resumed, for whoever asks (`zeroute ctl`, `zeroute pause`):
 *
 *   request      pause to=host|nothing|DIR timeout=10s     each word may be missing
 *                resume wait=0|1
 *   answer       "ok ..." (ZEROUTE_CARRIED_OUT) or "refused: REASON" (ZEROUTE_REFUSED)
 *
 * `to` (default host) is where the contents go: to memory of the process, to nothing (they read as
 * zero afterwards), or to a file without a name in DIR, an absolute path. `timeout` (default 10s)
 * is how long the program may take to come to rest. The answer to `pause` comes when the memory has
 * been given up, and of a process that is paused already at once; that to `resume` when the program
 * runs again. With wait=1 a resume that finds no room answers "ok waiting: REASON" and is tried
 * again until it succeeds, or until the next request of either kind. Whoever has asked may go away
 * meanwhile: what it asked for is carried out.
 *
 * With pause:on every request is read by a thread of ours, so that a process that calls nothing
 * answers, too; it looks every 20 ms. Fields of the segment, absent with pause:off:
 *
 *   pause.state          0 running, 1 pausing, 2 paused, 3 resuming
 *   pause.since_ns       when that state began (CLOCK_REALTIME)
 *   pause.bytes          device memory that is given up now; during 1 and 3 what was moved so far
 *   pause.host_bytes     host memory that holds contents now
 *   pause.kept_bytes     device memory that stays on the card during a pause: blocks below 64 KiB,
 *                        and those that other calls have made
 *   pause.waiting        threads of the program that are held at the gate
 *   pause.count          pauses that succeeded; pause.refused: that did not; pause.resumes
 *   pause.reason         text: why the last request was refused or waits
 *
 * What happens to calls while a process is paused: what gives a device work, takes or exports 64
 * KiB of device memory and more, changes residency or sets an argument of a kernel waits at the
 * gate. Frees, questions and all else are answered; a block that is freed drops its contents.
 */
#ifndef ZEROUTE_PAUSE_H
#define ZEROUTE_PAUSE_H

#include "cache/cache.h"
#include "driver/driver.h"

#pragma GCC visibility push(hidden)

static inline bool zr_pausing(void) {
    return unlikely(zr_config.pause);
}

#pragma GCC visibility pop

#endif
