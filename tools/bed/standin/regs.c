/*
 * The registers of a command streamer that commands move values through: general purpose registers,
 * the predicate, the clock. The three engines have them at different places; here each queue has
 * one set. Registers of the rest of the chip read as 0 ("idle, done").
 */
#include "standin.h"

#define RENDER_BASE 0x2000u
#define COMPUTE_BASE 0x1a000u
#define COPY_BASE 0x22000u
#define GPR 0x2600u
#define PREDICATE_RESULT 0x2418u
#define PREDICATE_RESULT_2 0x23bcu
#define TIMESTAMP 0x2358u
#define TIMESTAMP_UPPER 0x235cu
#define CONTEXT_TIMESTAMP 0x23a8u
#define QUEUE_TIMESTAMP 0x24c0u
#define QUEUE_TIMESTAMP_UPPER 0x24c4u

static uint32_t local(uint32_t offset) {
    offset &= 0x7ffffcu;
    uint32_t base = offset & ~0xfffu;
    if (base == COMPUTE_BASE || base == COPY_BASE)
        return RENDER_BASE | (offset & 0xfffu);
    return offset;
}

static uint32_t *slot(struct xs_regs *regs, uint32_t offset) {
    for (unsigned i = 0; i < XS_REGISTERS; i++) {
        unsigned at = (offset / 4 + i) % XS_REGISTERS;
        if (regs->offset[at] == offset || !regs->offset[at]) {
            regs->offset[at] = offset;
            return &regs->value[at];
        }
    }
    return &regs->value[0];
}

uint32_t xs_reg_read(struct xs_regs *regs, uint32_t offset) {
    offset = local(offset);
    if ((offset & ~0xfffu) != RENDER_BASE)
        return 0;
    switch (offset) {
    case TIMESTAMP:
    case CONTEXT_TIMESTAMP:
    case QUEUE_TIMESTAMP:
        return (uint32_t)xs_clock_cycles();
    case TIMESTAMP_UPPER:
    case QUEUE_TIMESTAMP_UPPER:
        return (uint32_t)(xs_clock_cycles() >> 32);
    default:
        return *slot(regs, offset);
    }
}

void xs_reg_write(struct xs_regs *regs, uint32_t offset, uint32_t value) {
    offset = local(offset);
    if ((offset & ~0xfffu) == RENDER_BASE)
        *slot(regs, offset) = value;
}

uint64_t xs_gpr_read(struct xs_regs *regs, unsigned n) {
    return *slot(regs, GPR + n * 8) | (uint64_t)*slot(regs, GPR + n * 8 + 4) << 32;
}

void xs_gpr_write(struct xs_regs *regs, unsigned n, uint64_t value) {
    *slot(regs, GPR + n * 8) = (uint32_t)value;
    *slot(regs, GPR + n * 8 + 4) = (uint32_t)(value >> 32);
}

/* MI_SET_PREDICATE: whether the commands that follow are skipped. */
void xs_reg_predicate(struct xs_regs *regs, unsigned mode) {
    enum { NEVER, RESULT_2_CLEAR, RESULT_2_SET, RESULT_CLEAR, RESULT_SET, ALWAYS = 15 };
    bool result = *slot(regs, PREDICATE_RESULT) & 1;
    bool result_2 = *slot(regs, PREDICATE_RESULT_2) & 1;
    switch (mode) {
    case RESULT_2_CLEAR:
        regs->predicate = !result_2;
        break;
    case RESULT_2_SET:
        regs->predicate = result_2;
        break;
    case RESULT_CLEAR:
        regs->predicate = !result;
        break;
    case RESULT_SET:
        regs->predicate = result;
        break;
    default:
        regs->predicate = mode == ALWAYS;
        break;
    }
}

/* --- MI_MATH ---------------------------------------------------------------------------------- */

enum operand { SRC_A = 0x20, SRC_B = 0x21, ACCUMULATOR = 0x31, ZERO_FLAG = 0x32, CARRY_FLAG = 0x33 };

enum alu {
    ALU_LOAD = 0x080,
    ALU_LOAD_INVERTED = 0x480,
    ALU_LOAD_0 = 0x081,
    ALU_LOAD_1 = 0x481,
    ALU_ADD = 0x100,
    ALU_SUB = 0x101,
    ALU_AND = 0x102,
    ALU_OR = 0x103,
    ALU_XOR = 0x104,
    ALU_SHL = 0x105,
    ALU_SHR = 0x106,
    ALU_SAR = 0x107,
    ALU_STORE = 0x180,
    ALU_STORE_INVERTED = 0x580,
};

struct unit {
    uint64_t a, b, accumulator;
    bool zero, carry;
};

static void compute(struct unit *u, unsigned operation) {
    u->carry = false;
    switch (operation) {
    case ALU_ADD:
        u->carry = __builtin_add_overflow(u->a, u->b, &u->accumulator);
        break;
    case ALU_SUB:
        u->carry = __builtin_sub_overflow(u->a, u->b, &u->accumulator);
        break;
    case ALU_AND:
        u->accumulator = u->a & u->b;
        break;
    case ALU_OR:
        u->accumulator = u->a | u->b;
        break;
    case ALU_XOR:
        u->accumulator = u->a ^ u->b;
        break;
    case ALU_SHL:
        u->accumulator = u->a << (u->b & 63);
        break;
    case ALU_SHR:
        u->accumulator = u->a >> (u->b & 63);
        break;
    case ALU_SAR:
        u->accumulator = (uint64_t)((int64_t)u->a >> (u->b & 63));
        break;
    default:
        xs_count(XS_C_unknown_commands, 1);
    }
    u->zero = !u->accumulator;
}

static uint64_t result_of(const struct unit *u, unsigned operand) {
    switch (operand) {
    case ACCUMULATOR:
        return u->accumulator;
    case ZERO_FLAG:
        return u->zero ? UINT64_MAX : 0;
    case CARRY_FLAG:
        return u->carry ? UINT64_MAX : 0;
    default:
        return 0;
    }
}

void xs_reg_math(struct xs_regs *regs, const uint32_t *instructions, unsigned count) {
    struct unit u = {0};
    for (unsigned i = 0; i < count; i++) {
        unsigned operation = instructions[i] >> 20;
        unsigned first = instructions[i] >> 10 & 0x3ff, second = instructions[i] & 0x3ff;
        uint64_t *source = first == SRC_A ? &u.a : &u.b;
        switch (operation) {
        case ALU_LOAD:
            *source = xs_gpr_read(regs, second & 15);
            break;
        case ALU_LOAD_INVERTED:
            *source = ~xs_gpr_read(regs, second & 15);
            break;
        case ALU_LOAD_0:
            *source = 0;
            break;
        case ALU_LOAD_1:
            *source = UINT64_MAX;
            break;
        case ALU_STORE:
            xs_gpr_write(regs, first & 15, result_of(&u, second));
            break;
        case ALU_STORE_INVERTED:
            xs_gpr_write(regs, first & 15, ~result_of(&u, second));
            break;
        case 0: /* no-op and fences: values are where they belong at once */
        case 1:
        case 2:
            break;
        default:
            compute(&u, operation);
        }
    }
}
