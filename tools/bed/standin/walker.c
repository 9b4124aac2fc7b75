/*
 * Kernels. The driver copies and fills on the compute engine with kernels of its own; those are
 * carried out here, in bulk, by what they do. Any other kernel does nothing but is done: its
 * post-sync write happens, with times where they are asked for.
 */
#include "standin.h"

#include <string.h>

struct launch {
    struct xs_context *context;
    const uint32_t *command;
    struct xs_kernel kernel;
    uint64_t items[3], group[3]; /* work items in all, and per group */
};

/* Arguments up to inline_size travel in the command, the rest in memory. */
static uint64_t payload(const struct launch *launch, unsigned offset, unsigned size) {
    const uint32_t *command = launch->command;
    uint64_t value = 0;
    bool inlined = command[4] >> 25 & 1;
    unsigned inline_size = inlined ? launch->kernel.inline_size : 0;
    if (offset + size <= inline_size) {
        memcpy(&value, (const uint8_t *)&command[32] + offset, size);
        return value;
    }
    uint64_t data = launch->context->general_base + (command[3] & ~63u);
    xs_vm_read(launch->context->vm, data + offset - inline_size, &value, size);
    return value;
}

static uint64_t argument_part(const struct launch *launch, unsigned index, unsigned byte, unsigned size) {
    return payload(launch, launch->kernel.arguments[index].offset + byte, size);
}

static uint64_t argument(const struct launch *launch, unsigned index) {
    unsigned size = launch->kernel.arguments[index].size;
    return argument_part(launch, index, 0, size > 8 ? 8 : size);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void copy(const struct launch *launch, uint64_t to, uint64_t from, uint64_t bytes) {
    xs_take_time(launch->context, bytes);
    xs_move(launch->context->vm, to, from, bytes);
    xs_count(XS_C_kernel_copies, 1);
    xs_count(XS_C_copy_bytes, bytes);
}

static void fill(const struct launch *launch, uint64_t to, uint64_t pattern, unsigned width, uint64_t bytes) {
    uint8_t data[256];
    width = width ? (unsigned)least(width, sizeof(data)) : 1;
    xs_take_time(launch->context, bytes);
    xs_vm_read(launch->context->vm, pattern, data, width);
    xs_fill(launch->context->vm, to, data, width, bytes);
    xs_count(XS_C_kernel_fills, 1);
    xs_count(XS_C_fill_bytes, bytes);
}

/* dst, src, number of elements, offset of dst, offset of src */
static void copy_region(const struct launch *l, unsigned element) {
    copy(l, argument(l, 0) + argument(l, 3), argument(l, 1) + argument(l, 4),
         least(argument(l, 2), l->items[0]) * element);
}

/* src, dst, offset of src, offset of dst */
static void copy_buffer(const struct launch *l, unsigned element) {
    copy(l, argument(l, 1) + argument(l, 3), argument(l, 0) + argument(l, 2), l->items[0] * element);
}

/* dst, offset, pattern, length of the pattern in elements */
static void fill_pattern(const struct launch *l, unsigned element) {
    fill(l, argument(l, 0) + argument(l, 1), argument(l, 2), (unsigned)argument(l, 3) * element, l->items[0] * element);
}

/* dst, offset, pattern as long as a group, offset of the pattern */
static void fill_group(const struct launch *l, unsigned element) {
    (void)element;
    uint64_t offset = l->kernel.arguments[3].size ? argument(l, 3) : 0;
    fill(l, argument(l, 0) + argument(l, 1), argument(l, 2) + offset, (unsigned)l->group[0], l->items[0]);
}

/* dst, offset, a number: of 32 bits, four per item, or of 8 bits, one per item */
static void fill_immediate(const struct launch *l, unsigned element) {
    uint32_t value = (uint32_t)argument(l, 2);
    uint64_t bytes = l->items[0] * element;
    xs_take_time(l->context, bytes);
    xs_fill(l->context->vm, argument(l, 0) + argument(l, 1), (uint8_t *)&value, element == 1 ? 1 : 4, bytes);
    xs_count(XS_C_kernel_fills, 1);
    xs_count(XS_C_fill_bytes, bytes);
}

/* src, dst, origins (x, y or x, y, z), pitches (row or row, slice) */
static void copy_rectangle(const struct launch *l, unsigned element) {
    bool three = strstr(l->kernel.name, "3d") != NULL;
    unsigned word = l->kernel.arguments[2].size / (three ? 4 : 2);
    uint64_t at[2][3] = {{0}}, pitch[2][2] = {{0}};
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < (three ? 3u : 2u); i++)
            at[side][i] = argument_part(l, 2 + side, i * word, word);
        for (unsigned i = 0; i < (three ? 2u : 1u); i++)
            pitch[side][i] = argument_part(l, 4 + side, i * word, word);
    }
    uint64_t width = l->items[0] * element;
    xs_take_time(l->context, width * l->items[1] * l->items[2]);
    for (uint64_t z = 0; z < l->items[2]; z++) {
        for (uint64_t y = 0; y < l->items[1]; y++) {
            uint64_t from = argument(l, 0) + at[0][0] + (y + at[0][1]) * pitch[0][0] + (z + at[0][2]) * pitch[0][1];
            uint64_t to = argument(l, 1) + at[1][0] + (y + at[1][1]) * pitch[1][0] + (z + at[1][2]) * pitch[1][1];
            if (!xs_move(l->context->vm, to, from, width))
                return;
        }
    }
    xs_count(XS_C_kernel_copies, 1);
    xs_count(XS_C_copy_bytes, width * l->items[1] * l->items[2]);
}

/* Of all packets of an event: the first start and the last end. */
static void span_of(struct xs_vm *vm, uint64_t address, uint64_t packets, unsigned width, uint64_t times[4]) {
    for (uint64_t i = 0; i < packets * 4; i++) {
        unsigned what = i % 4; /* context start, global start, context end, global end */
        uint64_t value = 0;
        xs_vm_read(vm, address + i * width, &value, width);
        if (i < 4 || (what < 2 ? value < times[what] : value > times[what]))
            times[what] = value;
    }
}

/* For each event: address, packets, dwords of a time. Then dst, offsets in it or none, a switch. */
static void query_times(const struct launch *l, unsigned with_offsets) {
    struct xs_vm *vm = l->context->vm;
    bool global_alone = argument(l, 2 + with_offsets);
    for (uint64_t i = 0; i < l->items[0]; i++) {
        uint64_t event[3] = {0}, t[4] = {0}, at = i * 32;
        xs_vm_read(vm, argument(l, 0) + i * sizeof(event), event, sizeof(event));
        if (with_offsets)
            xs_vm_read(vm, argument(l, 2) + i * 8, &at, 8);
        span_of(vm, event[0], event[1] ? event[1] : 1, event[2] == 1 ? 4 : 8, t);
        const uint64_t out[4] = {t[1], t[3], t[global_alone ? 1 : 0], t[global_alone ? 3 : 2]};
        xs_vm_write(vm, argument(l, 1) + at, out, sizeof(out));
    }
}

static const struct {
    const char *name;
    void (*run)(const struct launch *launch, unsigned element);
    unsigned element; /* bytes that one work item handles; of the last two: has offsets */
} kernels[] = {
    {"CopyBufferToBufferSideRegion", copy_region, 1},
    {"CopyBufferToBufferMiddleRegion", copy_region, 16},
    {"CopyBufferToBufferBytes", copy_buffer, 1},
    {"CopyBufferToBufferLeftLeftover", copy_buffer, 1},
    {"CopyBufferToBufferRightLeftover", copy_buffer, 1},
    {"CopyBufferToBufferMiddle", copy_buffer, 16},
    {"FillBufferMiddle", fill_pattern, 4},
    {"FillBufferLeftLeftover", fill_pattern, 1},
    {"FillBufferRightLeftover", fill_pattern, 1},
    {"FillBufferBytes", fill_group, 1},
    {"FillBufferSSHOffset", fill_group, 1},
    {"FillBufferImmediate", fill_immediate, 16},
    {"FillBufferImmediateLeftOver", fill_immediate, 1},
    {"CopyBufferRectBytes2d", copy_rectangle, 1},
    {"CopyBufferRectBytes3d", copy_rectangle, 1},
    {"CopyBufferRectBytesMiddle2d", copy_rectangle, 16},
    {"CopyBufferRectBytesMiddle3d", copy_rectangle, 16},
    {"QueryKernelTimestamps", query_times, 0},
    {"QueryKernelTimestampsWithOffsets", query_times, 1},
};

static void run_kernel(struct xs_context *context, const uint32_t *command) {
    struct launch launch = {.context = context, .command = command};
    launch.kernel = xs_kernel_at(context->vm, context->instruction_base + (command[19] & ~63u));
    if (!launch.kernel.name[0])
        return;
    /* The command has the group's size only where the chip is to number the work items. */
    bool told = launch.kernel.group.size >= 12;
    for (unsigned i = 0; i < 3; i++) {
        launch.group[i] =
            told ? payload(&launch, launch.kernel.group.offset + i * 4, 4) : (command[6] >> 10 * i & 0x3ff) + 1;
        launch.items[i] = launch.group[i] * command[7 + i];
    }
    for (unsigned i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
        if (!strcmp(launch.kernel.name, kernels[i].name)) {
            kernels[i].run(&launch, kernels[i].element);
            return;
        }
    }
    if (xs_config.log)
        xs_say("kernel %s does nothing here", launch.kernel.name);
}

void xs_walker(struct xs_context *context, const uint32_t *command) {
    uint64_t start = xs_clock_cycles();
    unsigned operation = command[27] & 3;
    uint64_t address = (command[28] | (uint64_t)command[29] << 32) & XS_ADDRESS_MASK;
    xs_count(XS_C_walkers, 1);
    run_kernel(context, command);
    if (operation == 3) { /* context start, global start, context end, global end */
        uint64_t end = xs_clock_cycles() + 1;
        uint64_t times[4] = {start, start, end, end};
        for (unsigned i = 0; i < 4; i++)
            xs_vm_write(context->vm, address + i * 8, &times[i], 8);
    } else if (operation == 1) {
        xs_vm_write(context->vm, address, &command[30], 8);
    }
}
