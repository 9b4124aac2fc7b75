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

/* Check fills and reads blocks when it likes, so there is no pausing with it. */
static inline bool zr_pausing(void) {
    return unlikely(zr_config.pause && zr_config.check == ZR_CHECK_NONE);
}

/* --- gate.c: where calls wait ----------------------------------------------------------------- */
enum zr_gate {
    ZR_GATE_WORK,  /* closed during a pause: what gives a device work, or takes memory */
    ZR_GATE_BOOKS, /* closed while memory is moved: frees */
    ZR_GATES
};
/*
 * Waits while the gate is closed, then is inside until it leaves. One that is inside already
 * passes. Who is inside BOOKS does not enter WORK. 10 ns for both.
 */
void zr_gate_enter(enum zr_gate which);
void zr_gate_leave(enum zr_gate which);
/* The same with pause:off does nothing; ZR_WITHIN leaves by a cleanup handler. */
static inline enum zr_gate zr_gate_begin(enum zr_gate which) {
    if (likely(!zr_pausing()))
        return ZR_GATES;
    zr_gate_enter(which);
    return which;
}
static inline void zr_gate_end(const enum zr_gate *which) {
    if (unlikely(*which != ZR_GATES))
        zr_gate_leave(*which);
}
#define ZR_WITHIN(gate)                                                                            \
    enum zr_gate within __attribute__((cleanup(zr_gate_end), unused)) = zr_gate_begin(gate)

/* --- blocks.c: blocks that can be given up ---------------------------------------------------- */
/*
 * How much is reserved where this many bytes are asked for: whole pages of the device, 2 MiB from 2
 * MiB on and 64 KiB from 64 KiB on. The same number for a request that is not served so.
 */
size_t zr_pause_held(const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                     ze_device_handle_t device);
/*
 * The part of zeMemAllocDevice that is the driver's, by reserving, creating and mapping. *served:
 * false if the request is none that can be served so, and the result is to be ignored.
 */
ze_result_t zr_pause_alloc(struct zr_op *op, ze_context_handle_t context,
                           const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                           ze_device_handle_t device, void **out, bool *served);
/*
 * The driver's part of a free. Returns false if this is none of these blocks. One that commands may
 * still use is freed by the thread of ours once none can; `exported`: the caller waits for that.
 */
bool zr_pause_free(const void *ptr, bool exported);
/* Answers about such a block; false: ask the driver, before or after a pause. */
bool zr_pause_properties(const void *ptr, ze_memory_allocation_properties_t *properties,
                         ze_device_handle_t *device);
bool zr_pause_range(const void *ptr, void **base, size_t *size);
/* A block was made resident on a device, or evicted from it. */
void zr_pause_resident(const void *ptr, ze_context_handle_t context, ze_device_handle_t device,
                       bool resident);
/*
 * Before a context is destroyed: what was freed in it, and what we have made in it; and after it.
 */
void zr_pause_context_ends(ze_context_handle_t context);
void zr_pause_context_gone(ze_context_handle_t context);
/* Frees what waits for idle devices, if they come to rest soon. Returns whether there was any. */
bool zr_pause_settle(void);

/* --- kernels.c: arguments of kernels ---------------------------------------------------------- */
/* A pointer was set as an argument; a kernel was destroyed. */
void zr_pause_argument(const void *kernel, uint32_t index, const void *value, zr_function below);
void zr_pause_kernel_gone(const void *kernel);

/* --- session.c: pausing and resuming ---------------------------------------------------------- */
/* Carried out by the thread of ours: the answer to a request, as described above. */
bool zr_pause_request(const char *rest, char *reply, size_t size);
bool zr_resume_request(const char *rest, char *reply, size_t size);
/* For as long as the process runs it cannot be paused any more, because of this. */
void zr_pause_never(const char *why);
void zr_pause_fork_child(void);
void zr_gate_thread_end(void);

#pragma GCC visibility pop

#endif
