/*
 * The map of record/: the record of what happens to memory (the settings `record` and `stacks`), in
 * the format of include/zeroute/record.h. Called by policy/ alone. Grouped by the file that defines
 * it.
 */
#ifndef ZEROUTE_RECORD_H
#define ZEROUTE_RECORD_H

#include "base/base.h"

#include <zeroute/record.h>

#pragma GCC visibility push(hidden)

/* --- write.c: the file, its chunks, events ---------------------------------------------------- */
static inline bool zr_recording(void) {
    return zr_config.record != NULL;
}
void zr_record_event(enum zeroute_record_type type, enum zr_kind kind, unsigned card,
                     const void *address, uint64_t size, uint64_t aux, unsigned flags,
                     uint32_t code);
/*
 * Appends an event; time, stack, duration, entry and via are filled in. The flags of a FAIL are who
 * refused. A number that is no card's, or a kind of memory that is on none, means no card. No lock;
 * about 100 ns without a stack.
 */
static inline void zr_record(enum zeroute_record_type type, enum zr_kind kind, unsigned card,
                             const void *address, uint64_t size, uint64_t aux, unsigned flags,
                             uint32_t code) {
    if (unlikely(zr_recording()))
        zr_record_event(type, kind, card, address, size, aux, flags, code);
}
/*
 * A call on this card begins: the duration of its next event counts from here. True: call
 * zr_record_card().
 */
bool zr_record_begin(struct zr_op *op, unsigned card);
/* Who refuses with this code, unless it was the limit. */
enum zeroute_record_refuser zr_record_refuser(uint32_t code);
/* The free that this operation has recorded is done. */
void zr_record_freed(struct zr_op *op);
/* Records a card and its memory, once. */
void zr_record_card(unsigned card, uint64_t memory);
void zr_record_fork_child(void);
void zr_record_thread_end(void);
void zr_record_process_end(void);

/*
 * Private to record/. Appends a record made of these parts; the first one begins with a head, which
 * is filled in. Returns its address, valid while the thread's chunk is mapped; NULL if there is no
 * room.
 */
struct zr_part {
    const void *at;
    size_t size;
};
void *zr_record_put(enum zeroute_record_type type, uint32_t id, const struct zr_part *part,
                    unsigned parts);
void zr_record_text(enum zeroute_record_text_id id, const char *text, size_t size);
void zr_record_lost_stack(void);
uint64_t zr_record_time(void);

/* --- stack.c: stacks and modules, each stored once (private to record/) ----------------------- */
/* The id of the calling thread's stack; 0 if there is none. */
uint32_t zr_stack(void);
/*
 * The id of this hash in the table of stacks and code objects, *fresh if it is new; 0 if the table
 * is full.
 */
uint32_t zr_stack_id(uint64_t hash, bool *fresh);
static inline uint64_t zr_stack_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}
void zr_stack_fork_child(void);

/* --- native.c: native frames (private to record/) --------------------------------------------- */
/*
 * Return addresses of the calling thread, innermost first, without those of this library at the
 * inner end. About 10 ns per frame seen before, microseconds for a new one. *cut: there are more,
 * or they cannot be unwound.
 */
size_t zr_native_frames(uint64_t *out, size_t most, uint8_t *cut);
/* Libraries were unloaded: forgets all rules, since other code may be loaded there. */
void zr_native_forget(void);

/* --- python.c: frames of CPython (private to record/) ----------------------------------------- */
/*
 * The calling thread's frames, innermost first. Without the GIL: they do not change while the
 * thread is in C.
 */
size_t zr_python_frames(struct zeroute_record_python *out, size_t most, uint8_t *cut);
void zr_python_again(void);
void zr_python_fork_child(void);

/* The file that is written, named as the setting does; "" if there is none. */
const char *zr_record_path(void);

#pragma GCC visibility pop

#endif
