/*
 * Native frames, found with the unwind tables of the loaded libraries (.eh_frame) and a cache.
 *
 * Only the stack pointer and rbp are tracked. That is enough for compiled code; a stack ends at the
 * few hand-written functions that need more. The rule for a return address (where its frame ends,
 * and where rbp was saved) is found once and kept in a lock-free table, so a frame costs a lookup
 * and two loads. Nothing outside the thread's own stack is read, whatever a table says.
 */
#include "base/dl.h"
#include "record/record.h"

#include <string.h>

/* --- rules ------------------------------------------------------------------------------------ */

/*
 * The canonical frame address (CFA, the stack pointer of the caller) and the caller's rbp. The
 * return address lies below the CFA. Packed into one word, so that it is stored at once: from bit 0
 * the kinds, then two offsets of 24 bits.
 */
enum cfa {
    CFA_UNKNOWN = 1,
    CFA_RSP,
    CFA_RBP,
    CFA_AT_RBP /* the word at rbp + offset */,
    CFA_END /* the outermost frame */
};
enum rbp {
    RBP_SAME,
    RBP_AT_CFA /* saved at CFA + offset */,
    RBP_AT_RBP /* at rbp + offset */,
    RBP_LOST
};
struct rule {
    unsigned cfa : 4, rbp : 4;
    int cfa_offset : 24, rbp_offset : 24;
};
_Static_assert(sizeof(struct rule) == 8, "a rule is stored at once");

/*
 * Written without a lock, and forgotten while others read and write: `check` says which address the
 * rule is for, so a slot whose two words are of different writers matches no address (as in a
 * lockless transposition table). No rule is 0, and no address has its top bits set.
 */
enum { SLOTS = 1 << 15, PROBES = 8 };
static struct {
    uint64_t check; /* atomic; ~(pc ^ rule) */
    uint64_t rule;  /* atomic; 0: free */
} cache[SLOTS];

/* --- unwind tables ---------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
};

static uint64_t reader_take(struct reader *r, size_t bytes) {
    uint64_t value = 0;

    if ((size_t)(r->end - r->at) < bytes) {
        r->at = r->end;
        return 0;
    }
    memcpy(&value, r->at, bytes);
    r->at += bytes;
    return value;
}

static uint64_t take_leb(struct reader *r, bool is_signed) {
    uint64_t value = 0, byte;
    unsigned shift = 0;

    do {
        byte = reader_take(r, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        shift += 7;
    } while (byte & 0x80 && r->at < r->end);
    if (is_signed && byte & 0x40 && shift < 64)
        value |= ~UINT64_C(0) << shift;
    return value;
}

#define ULEB(r) take_leb((r), false)
#define SLEB(r) ((int64_t)take_leb((r), true))

/*
 * A pointer of an encoding (DW_EH_PE_*): relative to where it stands, in 4 or 8 bytes, or absolute.
 */
static uintptr_t take_pointer(struct reader *r, uint8_t encoding) {
    uintptr_t here = (uintptr_t)r->at, value;

    switch (encoding & 0x0f) {
    case 0x0b: /* sdata4 */
        value = (uintptr_t)(int64_t)(int32_t)reader_take(r, 4);
        break;
    case 0x03: /* udata4 */
        value = (uintptr_t)reader_take(r, 4);
        break;
    default: /* absptr, udata8, sdata8 */
        value = (uintptr_t)reader_take(r, 8);
    }
    return (encoding & 0x70) == 0x10 ? here + value : value;
}

enum { RBP = 6, RSP = 7, RA = 16, DEEPEST = 8 };

struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint8_t encoding;
    bool augmented, is_signal;
    struct reader program;
};

/* At the length of an entry of .eh_frame: its contents, or false at the end. */
static bool open_entry(const uint8_t *at, struct reader *r) {
    uint32_t length;

    memcpy(&length, at, 4);
    *r = (struct reader){at + 4, at + 4 + length};
    return length && length < UINT32_C(0xfffffff0);
}

static bool read_cie(const uint8_t *at, struct cie *c) {
    struct reader r;
    const char *augmentation;

    *c = (struct cie){0};
    if (!open_entry(at, &r) || reader_take(&r, 4) != 0 || reader_take(&r, 1) > 3)
        return false;
    augmentation = (const char *)r.at;
    while (r.at < r.end && reader_take(&r, 1))
        ;
    c->code_align = ULEB(&r);
    c->data_align = SLEB(&r);
    if (ULEB(&r) != RA)
        return false;
    if (*augmentation == 'z') {
        uint64_t length = ULEB(&r);
        const uint8_t *program = r.at + length;

        c->augmented = true;
        for (const char *p = augmentation + 1; *p; p++) {
            if (*p == 'R')
                c->encoding = (uint8_t)reader_take(&r, 1);
            else if (*p == 'L')
                reader_take(&r, 1);
            else if (*p == 'P')
                take_pointer(&r, (uint8_t)reader_take(&r, 1));
            else if (*p == 'S')
                c->is_signal = true;
            else if (*p != 'B')
                return false;
        }
        r.at = program;
    } else if (*augmentation) {
        return false;
    }
    c->program = r;
    return r.at <= r.end;
}

/*
 * The operands of each call frame instruction: u and s unsigned and signed (LEB128), o and f the
 * same in units of the data alignment, 1, 2, 4 bytes, p a pointer, e an expression.
 */
static const char *const operands[] = {"",   "p",  "1",  "2", "4",  "uo", "u", "u",
                                       "u",  "uu", "",   "",  "uu", "u",  "u", "e",
                                       "ue", "uf", "uf", "f", "uo", "uf", "ue"};

/*
 * Expressions that are known: rbp + *offset, and the word there (*deref), for frames with an
 * alignment of their own.
 */
static bool take_expression(struct reader *r, bool *deref, int64_t *offset) {
    uint64_t length = ULEB(r);
    struct reader e = {r->at, r->at + length};

    if (length > (uint64_t)(r->end - r->at))
        return false;
    r->at += length;
    if (reader_take(&e, 1) != 0x70 + RBP) /* DW_OP_breg6 */
        return false;
    *offset = SLEB(&e);
    *deref = e.at < e.end && reader_take(&e, 1) == 0x06;
    return e.at == e.end;
}

/* Three operations have forms that carry their first operand: the same without it. */
static uint8_t plain_operation(uint8_t op) {
    static const uint8_t plain[] = {0, 0x02, 0x05, 0x06}; /* advance_loc, offset, restore */

    return op >> 6 ? plain[op >> 6] : op;
}

static enum cfa cfa_by(int64_t number) {
    switch (number) {
    case RSP:
        return CFA_RSP;
    case RBP:
        return CFA_RBP;
    default:
        return CFA_UNKNOWN;
    }
}

/* Runs call frame instructions up to the row of `target`; false if one is not supported. */
static bool rule_run(struct reader r, const struct cie *c, uintptr_t pc, uintptr_t target,
                     const struct rule *initial, struct rule *rule) {
    struct rule kept[DEEPEST];
    unsigned depth = 0;

    while (r.at < r.end && pc <= target) {
        uint8_t op = (uint8_t)reader_take(&r, 1);
        int64_t x[3] = {op & 0x3f};
        unsigned n = op >> 6 != 0; /* these carry their first operand */
        bool known = true, deref = false;
        const char *kinds = op >> 6 == 2 ? "o" : "";

        op = plain_operation(op);
        if (!n && op == 0x2e) /* GNU_args_size */
            kinds = "u";
        else if (!n && op < sizeof operands / sizeof *operands)
            kinds = operands[op];
        else if (!n)
            return false;
        for (const char *k = kinds; *k; k++) {
            if (*k == 'e')
                known = take_expression(&r, &deref, &x[n]);
            else if (*k == 'p')
                x[n] = (int64_t)take_pointer(&r, c->encoding);
            else if (*k < 'a')
                x[n] = (int64_t)reader_take(&r, (size_t)(*k - '0'));
            else
                x[n] = (int64_t)take_leb(&r, *k == 's' || *k == 'f') *
                       (*k == 'o' || *k == 'f' ? c->data_align : 1);
            n++;
        }
        switch (op) {
        case 0x01: /* set_loc */
            pc = (uintptr_t)x[0];
            break;
        case 0x02: /* advance_loc, in all sizes */
        case 0x03:
        case 0x04:
            pc += (uintptr_t)x[0] * c->code_align;
            break;
        case 0x05: /* offset, offset_extended, _sf */
        case 0x11:
            if (x[0] == RA && x[1] != -8)
                return false;
            if (x[0] == RBP)
                *rule = (struct rule){rule->cfa, RBP_AT_CFA, rule->cfa_offset, (int)x[1]};
            break;
        case 0x06: /* restore */
            if (x[0] == RBP)
                *rule =
                    (struct rule){rule->cfa, initial->rbp, rule->cfa_offset, initial->rbp_offset};
            break;
        case 0x07: /* undefined: of the return address, in the outermost frame */
            rule->cfa = x[0] == RA ? CFA_END : rule->cfa;
            /* fall through */
        case 0x09: /* register, val_offset, val_offset_sf, val_expression */
        case 0x14:
        case 0x15:
        case 0x16:
            if (x[0] == RA)
                return op == 0x07;
            rule->rbp = x[0] == RBP ? RBP_LOST : rule->rbp;
            break;
        case 0x08: /* same_value */
            rule->rbp = x[0] == RBP ? RBP_SAME : rule->rbp;
            break;
        case 0x0a: /* remember_state */
            if (depth == DEEPEST)
                return false;
            kept[depth++] = *rule;
            break;
        case 0x0b: /* restore_state */
            if (depth == 0)
                return false;
            *rule = kept[--depth];
            break;
        case 0x0c: /* def_cfa, def_cfa_sf, def_cfa_register */
        case 0x12:
        case 0x0d:
            rule->cfa = cfa_by(x[0]);
            rule->cfa_offset = op == 0x0d ? rule->cfa_offset : (int)x[1];
            break;
        case 0x0e: /* def_cfa_offset, _sf */
        case 0x13:
            rule->cfa_offset = (int)x[0];
            break;
        case 0x0f: /* def_cfa_expression */
            rule->cfa = known && deref ? CFA_AT_RBP : CFA_UNKNOWN;
            rule->cfa_offset = (int)x[0];
            break;
        case 0x10: /* expression */
            if (x[0] == RA)
                return false;
            if (x[0] == RBP)
                *rule = (struct rule){rule->cfa, known && !deref ? RBP_AT_RBP : RBP_LOST,
                                      rule->cfa_offset, (int)x[1]};
            break;
        default:
            break;
        }
    }
    return true;
}

/* --- finding the rule of an address ----------------------------------------------------------- */

/* The entry for pc by the sorted table of .eh_frame_hdr, in the one form that linkers write. */
static const uint8_t *find_entry(const uint8_t *hdr, uintptr_t pc) {
    struct reader r = {hdr + 4, hdr + 16};
    uint32_t count, low = 0;
    const int32_t *pairs;

    if (hdr[0] != 1 || hdr[2] != 0x03 || hdr[3] != 0x3b)
        return NULL;
    take_pointer(&r, hdr[1]);
    count = (uint32_t)reader_take(&r, 4);
    pairs = (const int32_t *)(const void *)r.at;
    for (uint32_t high = count; low < high;) {
        uint32_t middle = low + (high - low) / 2;

        if ((uintptr_t)hdr + (uintptr_t)(intptr_t)pairs[2 * (size_t)middle] <= pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? hdr + pairs[2 * (size_t)(low - 1) + 1] : NULL;
}

/*
 * The rule of an address, by the unwind table of its library. pc: within the call, not behind it.
 * Some microseconds.
 */
static struct rule rule_in(const struct zr_elf *elf, uintptr_t pc) {
    static const struct rule unknown = {.cfa = CFA_UNKNOWN};
    struct rule rule = unknown, initial;
    const uint8_t *entry = elf->unwind ? find_entry(elf->unwind, pc) : NULL;
    uintptr_t start, size;
    struct reader r;
    struct cie c;
    int32_t back;

    if (!entry || !open_entry(entry, &r))
        return unknown;
    back = (int32_t)reader_take(&r, 4);
    if (!back || !read_cie(entry + 4 - back, &c) || c.is_signal)
        return unknown;
    start = take_pointer(&r, c.encoding);
    size = take_pointer(&r, c.encoding & 0x0f);
    if (pc - start >= size)
        return unknown;
    if (c.augmented) {
        uint64_t length = ULEB(&r);

        r.at += length <= (uint64_t)(r.end - r.at) ? length : (uint64_t)(r.end - r.at);
    }
    if (!rule_run(c.program, &c, 0, UINTPTR_MAX, &rule, &rule))
        return unknown;
    initial = rule;
    if (rule.cfa != CFA_END && !rule_run(r, &c, start, pc, &initial, &rule))
        return unknown;
    return rule;
}

/* Whether a slot holds the rule of this address; `free` where it holds nothing. */
static bool is_rule_of(unsigned slot, uintptr_t pc, uint64_t *word, bool *free) {
    *word = __atomic_load_n(&cache[slot].rule, __ATOMIC_RELAXED);
    *free = *word == 0;
    return !*free && __atomic_load_n(&cache[slot].check, __ATOMIC_RELAXED) == ~(pc ^ *word);
}

static void keep_rule(unsigned slot, uintptr_t pc, const struct rule *rule) {
    uint64_t word;

    memcpy(&word, rule, sizeof word);
    __atomic_store_n(&cache[slot].rule, word, __ATOMIC_RELAXED);
    __atomic_store_n(&cache[slot].check, ~(pc ^ word), __ATOMIC_RELAXED);
}

/*
 * Where the library cannot be found now the stack ends here, this time. Where no slot is free the
 * first is replaced.
 */
static ZR_COLD struct rule find_rule(uintptr_t pc, unsigned slot) {
    struct rule rule = {.cfa = CFA_UNKNOWN};
    struct zr_elf elf;
    enum zr_answer answer = zr_elf_find((const void *)(pc - 1), &elf);

    if (answer == ZR_LIST_FOUND)
        rule = rule_in(&elf, pc - 1);
    if (answer != ZR_LIST_BUSY)
        keep_rule(slot, pc, &rule);
    return rule;
}

static struct rule rule_of(uintptr_t pc) {
    unsigned first = (unsigned)(zr_stack_mix(0, pc) >> 40) & (SLOTS - 1);
    struct rule rule;
    uint64_t word;
    bool free;

    for (unsigned i = 0; i < PROBES; i++) {
        unsigned slot = (first + i) & (SLOTS - 1);

        if (likely(is_rule_of(slot, pc, &word, &free))) {
            memcpy(&rule, &word, sizeof rule);
            return rule;
        }
        if (free)
            return find_rule(pc, slot);
    }
    return find_rule(pc, first);
}

void zr_native_forget(void) {
    for (unsigned i = 0; i < SLOTS; i++) {
        __atomic_store_n(&cache[i].rule, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&cache[i].check, 0, __ATOMIC_RELAXED);
    }
}

/* --- walking ---------------------------------------------------------------------------------- */

/* Once for a stack. */
static ZR_COLD bool find_stack(uintptr_t sp) {
    uintptr_t low = 0, high = 0;
    bool found = zr_mapping(sp, sp + 1, &low, &high) >= 0;

    zr_thread.record.stack_start = low;
    zr_thread.record.stack_end = found ? high : 0;
    return found;
}

static uintptr_t own_start, own_end; /* of this library */

static ZR_COLD void find_own(void) {
    struct zr_elf elf;

    if (zr_elf_find((const void *)(uintptr_t)zr_native_frames, &elf) == ZR_LIST_FOUND) {
        own_start = elf.start;
        __atomic_store_n(&own_end, elf.end, __ATOMIC_RELEASE);
    }
}

/* A word of the stack above sp. */
static ZR_BEFORE_SANITIZERS bool stack_load(uintptr_t at, uintptr_t sp, uintptr_t *out) {
    if (at < sp || at > zr_thread.record.stack_end - sizeof *out)
        return false;
    *out = *(const uintptr_t *)at;
    return true;
}

/*
 * Steps from a frame to its caller's. Returns false if there is none, or with *cut set if it cannot
 * be found.
 */
static bool frame_step(uintptr_t *pc, uintptr_t *sp, uintptr_t *rbp, uint8_t *cut) {
    struct rule rule = rule_of(*pc);
    uintptr_t cfa = 0, saved = *rbp;
    bool good = true;

    if (rule.cfa == CFA_END)
        return false;
    *cut = 1;
    if (rule.cfa == CFA_RSP)
        cfa = *sp + (uintptr_t)(intptr_t)rule.cfa_offset;
    else if (rule.cfa == CFA_RBP)
        cfa = *rbp + (uintptr_t)(intptr_t)rule.cfa_offset;
    else if (rule.cfa != CFA_AT_RBP ||
             !stack_load(*rbp + (uintptr_t)(intptr_t)rule.cfa_offset, *sp, &cfa))
        return false;
    if (rule.rbp == RBP_AT_CFA)
        good = stack_load(cfa + (uintptr_t)(intptr_t)rule.rbp_offset, *sp, &saved);
    else if (rule.rbp == RBP_AT_RBP)
        good = stack_load(*rbp + (uintptr_t)(intptr_t)rule.rbp_offset, *sp, &saved);
    else if (rule.rbp == RBP_LOST)
        saved = 0; /* the stack ends at a frame that needs it */
    if (!good || cfa <= *sp || !stack_load(cfa - sizeof *pc, *sp, pc))
        return false;
    *sp = cfa;
    *rbp = saved;
    *cut = 0;
    return *pc != 0;
}

__attribute__((noinline)) size_t zr_native_frames(uint64_t *out, size_t most, uint8_t *cut) {
    /* Where rbp was saved, below the return address. */
    uintptr_t *frame = __builtin_frame_address(0);
    uintptr_t rbp = frame[0], pc = frame[1], sp = (uintptr_t)(frame + 2);
    size_t count = 0;

    *cut = 0;
    if (unlikely(!__atomic_load_n(&own_end, __ATOMIC_ACQUIRE)))
        find_own();
    if (unlikely(sp - zr_thread.record.stack_start >=
                 zr_thread.record.stack_end - zr_thread.record.stack_start) &&
        !find_stack(sp))
        return 0;
    do {
        if (count == most) {
            *cut = 1;
            break;
        }
        if (count || pc - own_start >= own_end - own_start)
            out[count++] = pc;
    } while (frame_step(&pc, &sp, &rbp, cut));
    return count;
}
