/* What a command does when its time has come. */
#include "simgpu.h"

#include <string.h>

static atomic_ulong faults;

uint64_t sim_faults(void) {
    return atomic_load(&faults);
}

/* The memory under the operand was freed before the command ran: a real card would fault. */
static void fault(const struct sim_operand *operand) {
    if (atomic_fetch_add(&faults, 1) == 0)
        sim_say("a command used %zu bytes at %#lx that were freed before it ran", operand->size,
                (unsigned long)operand->at);
}

void sim_context_gone(void) {
    if (atomic_fetch_add(&faults, 1) == 0)
        sim_say("memory was freed through a context that is gone");
}

static void fill_bytes(char *to, size_t size, const char *pattern, size_t pattern_size) {
    if (pattern_size == 1) {
        memset(to, *pattern, size);
        return;
    }
    size_t done = pattern_size < size ? pattern_size : size;
    memcpy(to, pattern, done);
    while (done < size) {
        size_t more = done < size - done ? done : size - done;
        memcpy(to + done, to, more);
        done += more;
    }
}

static void copy_region(const struct sim_command *command) {
    const ze_copy_region_t *to = &command->to, *from = &command->from;
    for (uint32_t z = 0; z < (to->depth ? to->depth : 1); z++) {
        for (uint32_t y = 0; y < to->height; y++) {
            char *target = (char *)command->target + (size_t)(z + to->originZ) * command->slice +
                           (size_t)(y + to->originY) * command->pitch + to->originX;
            const char *source = (const char *)command->source + (size_t)(z + from->originZ) * command->source_slice +
                                 (size_t)(y + from->originY) * command->source_pitch + from->originX;
            memmove(target, source, to->width);
        }
    }
}

/* copy_loses: one copy arrives without its last page. */
static size_t bytes_that_arrive(size_t size) {
    enum { PAGE = 4096 };
    static atomic_ulong copies;

    if (!sim_config.copy_loses || size < PAGE || atomic_fetch_add(&copies, 1) + 1 != sim_config.copy_loses)
        return size;
    return size - PAGE;
}

static void move_bytes(const struct sim_command *command) {
    switch (command->kind) {
    case SIM_COPY:
        memmove(command->target, command->source, bytes_that_arrive(command->operand[0].size));
        break;
    case SIM_FILL:
        fill_bytes(command->target, command->operand[0].size, command->pattern, command->pattern_size);
        break;
    case SIM_REGION:
        copy_region(command);
        break;
    case SIM_STAMP: {
        uint64_t now = sim_now();
        memcpy(command->target, &now, sizeof(now));
        break;
    }
    case SIM_TIMES:
        for (uint32_t i = 0; i < command->wait_count; i++) {
            size_t offset = command->offsets ? command->offsets[i] : i * sizeof(ze_kernel_timestamp_result_t);
            sim_event_times(command->waits[i], (void *)((char *)command->target + offset));
        }
        break;
    default:
        break;
    }
}

void sim_execute(const struct sim_command *command) {
    if (command->kind == SIM_RESET) {
        sim_event_set(command->subject, false);
        return;
    }
    if (command->kind == SIM_CALL_HOST) {
        command->host_function(command->target);
        return;
    }
    if (command->kind == SIM_NOTHING)
        return;
    struct sim_backing *pinned[2] = {NULL, NULL};
    bool lost = false;
    for (int i = 0; i < 2; i++) {
        const struct sim_operand *operand = &command->operand[i];
        bool gone = false;
        if (!operand->size || !operand->ours)
            continue;
        pinned[i] = sim_pin((void *)operand->at, operand->size, &gone);
        if (gone || !pinned[i]) {
            fault(operand);
            lost = true;
        }
    }
    if (!lost)
        move_bytes(command);
    sim_unpin(pinned[0]);
    sim_unpin(pinned[1]);
}
