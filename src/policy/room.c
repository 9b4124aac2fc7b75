/* Out of memory: what is cached goes back to the driver, and the call is tried again. */
#include "check/check.h"
#include "pause/pause.h"
#include "policy/policy.h"

/*
 * Other threads may take what was given back: try several times, but not for ever. Nor is what they
 * are giving back waited for without end; a refusal is worse than a wait, and a machine under load
 * keeps a thread from the driver for long.
 */
enum { MOST_TRIES = 16, OTHERS_MS = 2000, STEP_MS = 10 };

uint64_t zr_policy_trim(unsigned number) {
    unsigned account = number == ZR_UNKNOWN_DEVICE ? (unsigned)ZR_ACCOUNTS : number;
    uint64_t bytes =
        zr_pending_drain(account, NULL) + zr_cache_trim(account, NULL) + zr_pools_trim(account);

    if (zr_checking())
        bytes += zr_check_drain(NULL);
    if (zr_pausing())
        (void)zr_pause_settle();
    if (bytes) {
        zr_count(ZR_F_CACHE_TRIMS, 1);
        zr_count(ZR_F_CACHE_TRIMMED_BYTES, bytes);
        zr_record(ZEROUTE_EVENT_TRIM, ZR_KIND_DEVICE, number, NULL, bytes, 0, 0,
                  zr_op_rooms(zr_op_innermost()) ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                                                 : ZE_RESULT_SUCCESS);
    }
    return bytes + zr_hold_look(true);
}

/* Waits until something of what other threads are giving back has reached the driver. */
static void await_others(const struct zr_room *room) {
    for (unsigned ms = 0; ms < OTHERS_MS && zr_cache_withdrawals() == room->withdrawals;
         ms += STEP_MS)
        if (zr_cache_await(STEP_MS))
            return;
}

ZR_COLD bool zr_room_made(struct zr_room *room, ze_result_t result) {
    uint64_t bytes;

    if (!zr_is_short(result) || room->tries == MOST_TRIES || zr_op_rooms(room->op) > 1)
        return false;
    room->tries++;
    if (result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        bytes = zr_policy_trim(ZR_UNKNOWN_DEVICE); /* cached host memory belongs to no device */
    else
        bytes = zr_policy_trim(room->number);
    if (!bytes)
        await_others(room);
    if (!bytes && zr_cache_withdrawals() == room->withdrawals)
        return false;
    room->withdrawals = zr_cache_withdrawals();
    zr_count(ZR_F_CACHE_RETRIES, 1);
    return true;
}
