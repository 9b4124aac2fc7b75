/*
 * The command decoder: walks a batch through the address space and carries out what orders and
 * moves data. Encodings are those of Xe2 (public command definitions of Intel's compute runtime).
 * State that only matters to kernels is skipped; a command that is not known is counted and skipped
 * by its length.
 */
#include "standin.h"

#include <sched.h>
#include <string.h>

#define LEVELS 3
#define LONGEST 1026 /* dwords: MI_STORE_DATA_IMM at its longest */

struct walk {
    struct xs_context *context;
    uint64_t at;           /* where the next command stands */
    uint64_t back[LEVELS]; /* where batches of the level above go on */
    unsigned level;
    struct xs_span span; /* what is mapped around it */
    uint64_t span_start;
    uint32_t spill[LONGEST]; /* a command that crosses a binding's end */
    bool done;
};

enum command_type { TYPE_MI = 0, TYPE_BLIT = 2, TYPE_PIPE = 3, TYPE_EXEC = 5 };

enum mi_opcode {
    MI_NOOP = 0x00,
    MI_SET_PREDICATE = 0x01,
    MI_USER_INTERRUPT = 0x02,
    MI_ARB_CHECK = 0x05,
    MI_BATCH_BUFFER_END = 0x0a,
    MI_MATH = 0x1a,
    MI_SEMAPHORE_WAIT = 0x1c,
    MI_STORE_DATA_IMM = 0x20,
    MI_LOAD_REGISTER_IMM = 0x22,
    MI_STORE_REGISTER_MEM = 0x24,
    MI_FLUSH_DW = 0x26,
    MI_REPORT_PERF_COUNT = 0x28,
    MI_LOAD_REGISTER_MEM = 0x29,
    MI_LOAD_REGISTER_REG = 0x2a,
    MI_COPY_MEM_MEM = 0x2e,
    MI_ATOMIC = 0x2f,
    MI_BATCH_BUFFER_START = 0x31,
    MI_CONDITIONAL_BATCH_BUFFER_END = 0x36,
};

enum blit_opcode { BLOCK_COPY = 0x41, FAST_COLOR = 0x44, MEM_COPY = 0x5a, MEM_SET = 0x5b };

static uint64_t address_at(const uint32_t *command, unsigned index) {
    return (command[index] | (uint64_t)command[index + 1] << 32) & XS_ADDRESS_MASK & ~3ull;
}

/* --- fetching --------------------------------------------------------------------------------- */

static unsigned length_of(uint32_t first) {
    switch (first >> 29) {
    case TYPE_MI: {
        unsigned opcode = first >> 23 & 0x3f;
        if (opcode < 0x10)
            return 1;
        unsigned mask = opcode == MI_STORE_DATA_IMM ? 0x3ff : opcode == MI_FLUSH_DW ? 0x3f : 0xff;
        return (first & mask) + 2;
    }
    case TYPE_BLIT:
    case TYPE_EXEC:
        return (first & 0xff) + 2;
    case TYPE_PIPE:
        if ((first & 0x1f000000) == 0x09000000) /* PIPELINE_SELECT and its kin */
            return 1;
        return (first & 0xff) + 2;
    default:
        return 0;
    }
}

static bool reach(struct walk *walk) {
    if (walk->span.at && walk->at - walk->span_start < walk->span.length)
        return true;
    xs_vm_unpin(&walk->span);
    walk->span_start = walk->at;
    return xs_vm_pin(walk->context->vm, walk->at, &walk->span);
}

/* The next command, whole; NULL when there is none to be had. */
static const uint32_t *fetch(struct walk *walk, unsigned *length) {
    if (!reach(walk)) {
        xs_vm_fault(walk->at, "no commands");
        return NULL;
    }
    uint64_t inside = walk->at - walk->span_start;
    const uint32_t *command = (const void *)(walk->span.at + inside);
    *length = length_of(__atomic_load_n(command, __ATOMIC_ACQUIRE));
    if (!*length) {
        xs_count(XS_C_unknown_commands, 1);
        if (xs_config.log)
            xs_say("0x%08x at 0x%llx is no command", *command, (unsigned long long)walk->at);
        return NULL;
    }
    if (inside + *length * 4ull <= walk->span.length)
        return command;
    if (!xs_vm_read(walk->context->vm, walk->at, walk->spill, *length * 4ull))
        return NULL;
    return walk->spill;
}

/* --- memory interface commands ---------------------------------------------------------------- */

static bool compare(uint64_t memory, unsigned operation, uint64_t data) {
    switch (operation) {
    case 0:
        return memory > data;
    case 1:
        return memory >= data;
    case 2:
        return memory < data;
    case 3:
        return memory <= data;
    case 4:
        return memory == data;
    default:
        return memory != data;
    }
}

/*
 * The program may store the awaited value at any time, and nobody tells. So: look a few times, give
 * the processor away a few times, then sleep, at first for microseconds, after some idling for a
 * millisecond. Writes by other queues end the sleep at once.
 */
static void semaphore_wait(struct walk *walk, const uint32_t *command) {
    struct xs_context *context = walk->context;
    unsigned operation = command[0] >> 12 & 7;
    bool is_register = command[0] >> 16 & 1, indirect = command[0] >> 17 & 1;
    uint32_t data = indirect ? (uint32_t)xs_gpr_read(&context->regs, 0) : command[1];
    uint64_t address = address_at(command, 2);
    uint64_t nap = 5000, slept = 0;
    for (unsigned round = 0; !context->stop && !xs_context_is_banned(context); round++) {
        uint32_t seen = xs_event_seen(address), memory = 0;
        if (is_register)
            memory = xs_reg_read(&context->regs, (uint32_t)address);
        else if (!xs_vm_read(context->vm, address, &memory, 4))
            break;
        if (compare(memory, operation, data))
            break;
        if (round < 64) {
            __builtin_ia32_pause();
        } else if (round < 80) {
            sched_yield();
        } else {
            xs_event_wait(address, seen, nap);
            slept += nap;
            uint64_t most = slept > 20000000 ? 1000000 : 100000;
            nap = nap + nap / 4 < most ? nap + nap / 4 : most;
        }
    }
    /* The commands behind it may have been written a moment ago. */
    atomic_thread_fence(memory_order_acquire);
}

static void atomic_operation(struct walk *walk, const uint32_t *command) {
    struct xs_context *context = walk->context;
    unsigned opcode = command[0] >> 8 & 0xff;
    bool wide = opcode & 0x20, inlined = command[0] >> 18 & 1, returns = command[0] >> 16 & 1;
    uint64_t address = address_at(command, 1);
    uint64_t first = xs_gpr_read(&context->regs, 0), second = xs_gpr_read(&context->regs, 1);
    if (inlined) {
        first = command[3] | (uint64_t)command[5] << 32;
        second = command[4] | (uint64_t)command[6] << 32;
    }
    struct xs_span span;
    if (!xs_vm_pin(context->vm, address, &span)) {
        xs_vm_fault(address, "no word to operate on");
        return;
    }
    uint64_t old, next;
    uint64_t mask = wide ? UINT64_MAX : UINT32_MAX;
    do {
        old = 0;
        memcpy(&old, span.at, wide ? 8 : 4);
        switch (opcode & 0x1f) {
        case 0x01:
            next = old & first;
            break;
        case 0x02:
            next = old | first;
            break;
        case 0x03:
            next = old ^ first;
            break;
        case 0x04:
            next = first;
            break;
        case 0x05:
            next = old + 1;
            break;
        case 0x06:
            next = old - 1;
            break;
        case 0x07:
            next = old + first;
            break;
        case 0x08:
            next = old - first;
            break;
        case 0x0c:
            next = old > first ? old : first;
            break;
        case 0x0d:
            next = old < first ? old : first;
            break;
        case 0x0e:
            next = (old & mask) == (first & mask) ? second : old;
            break;
        default:
            xs_count(XS_C_unknown_commands, 1);
            next = old;
        }
    } while (wide ? !__sync_bool_compare_and_swap((uint64_t *)(void *)span.at, old, next)
                  : !__sync_bool_compare_and_swap((uint32_t *)(void *)span.at, (uint32_t)old, (uint32_t)next));
    xs_vm_unpin(&span);
    if (returns)
        xs_gpr_write(&context->regs, 0, old & mask);
    xs_event_bump(address);
}

static void post_sync(struct xs_context *context, unsigned operation, uint64_t address, uint64_t data) {
    enum { NOTHING, IMMEDIATE, DEPTH, TIMESTAMP };
    if (operation == TIMESTAMP)
        data = xs_clock_cycles();
    if (operation != NOTHING && operation != DEPTH)
        xs_vm_write(context->vm, address, &data, 8);
}

static void store_data(struct walk *walk, const uint32_t *command, unsigned length) {
    uint64_t address = address_at(command, 1);
    bool wide = command[0] >> 21 & 1;
    for (unsigned i = 3; i + wide < length; i += 1 + wide) {
        xs_vm_write(walk->context->vm, address, &command[i], wide ? 8 : 4);
        address += wide ? 8 : 4;
    }
}

static void batch_start(struct walk *walk, const uint32_t *command, unsigned length) {
    bool second_level = command[0] >> 22 & 1, indirect = command[0] >> 18 & 1;
    if (second_level && walk->level < LEVELS)
        walk->back[walk->level++] = walk->at + length * 4ull;
    walk->at = address_at(command, 1);
    if (indirect)
        xs_vm_read(walk->context->vm, walk->at, &walk->at, 8);
    walk->at &= XS_ADDRESS_MASK;
}

static void batch_end(struct walk *walk) {
    if (walk->level)
        walk->at = walk->back[--walk->level];
    else
        walk->done = true;
}

static void conditional_end(struct walk *walk, const uint32_t *command) {
    uint32_t memory = 0;
    xs_vm_read(walk->context->vm, address_at(command, 2), &memory, 4);
    if (!compare(memory, command[0] >> 12 & 7, command[1]))
        batch_end(walk);
}

static void load_registers(struct xs_regs *regs, const uint32_t *command, unsigned length) {
    for (unsigned i = 1; i + 1 < length; i += 2)
        xs_reg_write(regs, command[i], command[i + 1]);
}

/* walk->at already stands behind the command, unless the command is a jump. */
static void memory_interface(struct walk *walk, const uint32_t *command, unsigned length) {
    struct xs_context *context = walk->context;
    struct xs_regs *regs = &context->regs;
    uint32_t value;
    switch (command[0] >> 23 & 0x3f) {
    case MI_SET_PREDICATE:
        xs_reg_predicate(regs, command[0] & 15);
        break;
    case MI_USER_INTERRUPT:
        xs_event_bump(XS_ANY_ADDRESS);
        break;
    case MI_BATCH_BUFFER_END:
        batch_end(walk);
        break;
    case MI_MATH:
        xs_reg_math(regs, command + 1, length - 1);
        break;
    case MI_SEMAPHORE_WAIT:
        semaphore_wait(walk, command);
        break;
    case MI_STORE_DATA_IMM:
        store_data(walk, command, length);
        break;
    case MI_LOAD_REGISTER_IMM:
        load_registers(regs, command, length);
        break;
    case MI_STORE_REGISTER_MEM:
        value = xs_reg_read(regs, command[1]);
        xs_vm_write(context->vm, address_at(command, 2), &value, 4);
        break;
    case MI_FLUSH_DW:
        if (length >= 5)
            post_sync(context, command[0] >> 14 & 3, address_at(command, 1) & ~7ull,
                      command[3] | (uint64_t)command[4] << 32);
        break;
    case MI_LOAD_REGISTER_MEM:
        value = 0;
        xs_vm_read(context->vm, address_at(command, 2), &value, 4);
        xs_reg_write(regs, command[1], value);
        break;
    case MI_LOAD_REGISTER_REG:
        xs_reg_write(regs, command[2], xs_reg_read(regs, command[1]));
        break;
    case MI_COPY_MEM_MEM:
        xs_vm_read(context->vm, address_at(command, 3), &value, 4);
        xs_vm_write(context->vm, address_at(command, 1), &value, 4);
        break;
    case MI_ATOMIC:
        atomic_operation(walk, command);
        break;
    case MI_BATCH_BUFFER_START:
        walk->at -= length * 4ull;
        batch_start(walk, command, length);
        break;
    case MI_CONDITIONAL_BATCH_BUFFER_END:
        conditional_end(walk, command);
        break;
    default: /* order of execution is what it is: nothing to flush, arbitrate or fence */
        break;
    }
}

/* --- the other units -------------------------------------------------------------------------- */

static void blit(struct xs_context *context, const uint32_t *command) {
    switch (command[0] >> 22 & 0x7f) {
    case MEM_COPY:
        xs_blit_memcopy(context, command);
        break;
    case MEM_SET:
        xs_blit_memset(context, command);
        break;
    case BLOCK_COPY:
        xs_blit_copy(context, command);
        break;
    case FAST_COLOR:
        xs_blit_color(context, command);
        break;
    default:
        xs_count(XS_C_unknown_commands, 1);
    }
}

static void pipe(struct xs_context *context, const uint32_t *command, unsigned length) {
    enum { PIPE_CONTROL = 0x7a00, COMPUTE_WALKER = 0x7208, STATE_BASE_ADDRESS = 0x6101 };
    switch (command[0] >> 16) {
    case PIPE_CONTROL:
        if (length >= 6 && !(command[1] >> 23 & 1))
            post_sync(context, command[1] >> 14 & 3, address_at(command, 2), command[4] | (uint64_t)command[5] << 32);
        break;
    case STATE_BASE_ADDRESS:
        if (command[1] & 1)
            context->general_base = address_at(command, 1) & ~0xfffull;
        if (length > 11 && command[10] & 1)
            context->instruction_base = address_at(command, 10) & ~0xfffull;
        break;
    default:
        if ((command[0] >> 16 & 0xfffc) == COMPUTE_WALKER && length >= 40)
            xs_walker(context, command);
        break;
    }
}

/*
 * A batch that runs into nothing, or touches an address where nothing is, is the end of its queue:
 * the kernel bans it, and the driver, which asks now and then while it waits, reports a lost
 * device.
 */
void xs_batch_run(struct xs_context *context, uint64_t address) {
    struct walk walk = {.context = context, .at = address & XS_ADDRESS_MASK};
    xs_vm_faulted(context->vm); /* a fence before it is not its fault */
    while (!walk.done && !context->stop && !xs_context_is_banned(context)) {
        unsigned length;
        const uint32_t *command = fetch(&walk, &length);
        if (!command) {
            context->banned = true;
            break;
        }
        walk.at += length * 4ull;
        uint32_t first = command[0];
        bool is_predicate = first >> 23 == MI_SET_PREDICATE;
        if (xs_unlikely(xs_config.log))
            xs_say("card %u engine %u: %08x (%u) at 0x%llx", context->card, context->engine_class, first, length,
                   (unsigned long long)walk.at - length * 4ull);
        if (context->regs.predicate && !is_predicate)
            continue;
        switch (first >> 29) {
        case TYPE_MI:
            memory_interface(&walk, command, length);
            break;
        case TYPE_BLIT:
            blit(context, command);
            break;
        case TYPE_PIPE:
            pipe(context, command, length);
            break;
        default:
            break;
        }
        if (xs_unlikely(xs_vm_faulted(context->vm)))
            context->banned = true;
    }
    if (context->banned)
        xs_say("card %u: a queue of engine class %u is banned at 0x%llx", context->card, context->engine_class,
               (unsigned long long)walk.at);
    xs_vm_unpin(&walk.span);
}
