/*
 * Random copies, fills and regions on the copy and on the compute engine, in every kind of list,
 * ordered by barriers, by events or by the list itself, against a model in the program's memory.
 *
 *   random [SEED [ROUNDS]]
 *
 * Left out because the driver itself gets it wrong: program memory as a source after a command of
 * the same round wrote to it (an immediate list reads it when the command is appended), shared
 * memory from another card than its own (the bytes stay where the program last saw them), an event
 * of an in-order list in another kind of list (a reset does not undo its counter).
 */
#include "ze_test.h"

#define BLOCKS 10
#define EVENTS 16
#define MOST 200000
#define IN_ORDER 2u /* of a queue; younger than the oldest headers */

enum kind { DEVICE, HOST, SHARED, PROGRAM, KINDS };

static struct block {
    uint8_t *bytes, *model;
    size_t size;
    enum kind kind;
    unsigned card;
    bool written; /* in this round */
} blocks[BLOCKS];

static struct way {
    ze_command_list_handle_t list, reader;
    ze_command_queue_handle_t queue; /* NULL: an immediate list */
    unsigned card;
    bool compute, in_order;
} ways[CARDS * 8];

static unsigned way_count;
static ze_event_handle_t event_sets[2][EVENTS]; /* those of in-order lists apart */
static uint64_t state;

static uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) % n;
}

static void new_ways(unsigned card) {
    for (unsigned i = 0; i < 8; i++) {
        struct way *w = &ways[way_count++];
        *w = (struct way){.card = card, .compute = i & 1, .in_order = (i & 6) == 2};
        uint32_t group = w->compute ? 0 : copy_group(card);
        ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                         .ordinal = group,
                                         .flags = w->in_order ? IN_ORDER : 0,
                                         .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
        ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .commandQueueGroupOrdinal = group};
        w->reader = new_list(card, copy_group(card));
        if (i < 4) {
            CHECK(zeCommandListCreateImmediate(context, cards[card], &queue, &w->list));
            continue;
        }
        CHECK(zeCommandQueueCreate(context, cards[card], &queue, &w->queue));
        CHECK(zeCommandListCreate(context, cards[card], &list, &w->list));
    }
}

static void give_back(const struct block *b) {
    if (b->kind == PROGRAM)
        free(b->bytes);
    else
        CHECK(zeMemFree(context, b->bytes));
    free(b->model);
}

static void take(struct block *b) {
    b->kind = (enum kind)below(KINDS);
    b->card = (unsigned)below(card_count);
    b->size = 1 + below(below(2) ? 5000 : MOST);
    b->bytes = b->kind == DEVICE   ? new_device(b->card, b->size)
               : b->kind == HOST   ? new_host(b->size)
               : b->kind == SHARED ? new_shared(b->card, b->size)
                                   : malloc(b->size);
    b->model = malloc(b->size);
    fill_random(b->model, b->size, (uint32_t)below(UINT32_MAX));
    if (b->kind == DEVICE)
        CHECK(zeCommandListAppendMemoryCopy(ways[b->card * 8].reader, b->bytes, b->model, b->size, NULL, 0, NULL));
    else
        memcpy(b->bytes, b->model, b->size);
}

static bool copy(const struct way *w, struct block *to, const struct block *from, ze_event_handle_t done,
                 uint32_t waits, ze_event_handle_t *wait) {
    size_t size = 1 + below(to->size < from->size ? to->size : from->size);
    size_t a = below(to->size - size + 1), b = below(from->size - size + 1);
    CHECK(zeCommandListAppendMemoryCopy(w->list, to->bytes + a, from->bytes + b, size, done, waits, wait));
    memcpy(to->model + a, from->model + b, size);
    return true;
}

/* The copy engine has patterns of one byte alone. */
static bool fill(const struct way *w, struct block *to, ze_event_handle_t done, uint32_t waits,
                 ze_event_handle_t *wait) {
    uint8_t pattern[128];
    size_t width = w->compute ? 1u << below(8) : 1;
    if (to->kind == PROGRAM || width > to->size)
        return false;
    fill_random(pattern, width, (uint32_t)below(UINT32_MAX));
    size_t size = width * (1 + below(to->size / width));
    size_t at = width * below((to->size - size) / width + 1);
    CHECK(zeCommandListAppendMemoryFill(w->list, to->bytes + at, pattern, width, size, done, waits, wait));
    for (size_t i = 0; i < size; i++)
        to->model[at + i] = pattern[i % width];
    return true;
}

struct box {
    ze_copy_region_t region;
    uint32_t pitch, slice;
};

static struct box new_box(uint32_t width, uint32_t height, uint32_t depth) {
    struct box box = {.pitch = width + (uint32_t)below(80)};
    box.region = (ze_copy_region_t){.originX = (uint32_t)below(box.pitch - width + 1),
                                    .originY = (uint32_t)below(4),
                                    .originZ = depth > 1 ? (uint32_t)below(2) : 0,
                                    .width = width,
                                    .height = height,
                                    .depth = depth};
    box.slice = box.pitch * (box.region.originY + height + (uint32_t)below(3));
    return box;
}

static size_t row_of(const struct box *box, uint32_t y, uint32_t z) {
    return (size_t)(box->region.originZ + z) * box->slice + (size_t)(box->region.originY + y) * box->pitch +
           box->region.originX;
}

static bool region(const struct way *w, struct block *to, const struct block *from, ze_event_handle_t done,
                   uint32_t waits, ze_event_handle_t *wait) {
    uint32_t width = 1 + (uint32_t)below(60), height = 1 + (uint32_t)below(12);
    uint32_t depth = below(2) ? 1 : 1 + (uint32_t)below(4);
    struct box a = new_box(width, height, depth), b = new_box(width, height, depth);
    if (row_of(&a, height - 1, depth - 1) + width > to->size || row_of(&b, height - 1, depth - 1) + width > from->size)
        return false;
    CHECK(zeCommandListAppendMemoryCopyRegion(w->list, to->bytes, &a.region, a.pitch, depth > 1 ? a.slice : 0,
                                              from->bytes, &b.region, b.pitch, depth > 1 ? b.slice : 0, done, waits,
                                              wait));
    for (uint32_t z = 0; z < depth; z++) {
        for (uint32_t y = 0; y < height; y++)
            memcpy(to->model + row_of(&a, y, z), from->model + row_of(&b, y, z), width);
    }
    return true;
}

static bool usable(const struct way *w, const struct block *b) {
    return b->kind != SHARED || b->card == w->card;
}

/* The last event is signalled when all is done. */
static void finish(const struct way *w) {
    ze_event_handle_t *events = event_sets[w->in_order];
    CHECK(zeCommandListAppendBarrier(w->list, events[EVENTS - 1], 0, NULL));
    if (w->queue) {
        CHECK(zeCommandListClose(w->list));
        CHECK(zeCommandQueueExecuteCommandLists(w->queue, 1, (void *)&w->list, NULL));
        CHECK(zeCommandQueueSynchronize(w->queue, 20 * SECOND));
        CHECK(zeCommandListReset(w->list));
    }
    CHECK(zeEventHostSynchronize(events[EVENTS - 1], 20 * SECOND));
    CHECK(zeEventHostReset(events[EVENTS - 1]));
}

static void round_of_commands(const struct way *w) {
    ze_event_handle_t *events = event_sets[w->in_order];
    unsigned chained = 0, count = 1 + (unsigned)below(10);
    bool chain = below(2);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i].written = false;
    for (unsigned tries = 0; count && tries < 1000; tries++) {
        struct block *to = &blocks[below(BLOCKS)], *from = &blocks[below(BLOCKS)];
        if (to == from || !usable(w, to) || !usable(w, from) || (from->kind == PROGRAM && from->written))
            continue;
        ze_event_handle_t done = chain ? events[chained] : NULL;
        ze_event_handle_t *wait = chained ? &events[chained - 1] : NULL;
        uint64_t what = below(10);
        bool made = what < 5   ? copy(w, to, from, done, wait != NULL, wait)
                    : what < 8 ? fill(w, to, done, wait != NULL, wait)
                               : region(w, to, from, done, wait != NULL, wait);
        if (!made)
            continue;
        to->written = true;
        count--;
        chained += chain;
        if (!chain && !w->in_order)
            CHECK(zeCommandListAppendBarrier(w->list, NULL, 0, NULL));
    }
    finish(w);
    for (unsigned i = 0; i < chained; i++) {
        CHECK(zeEventQueryStatus(events[i]));
        CHECK(zeEventHostReset(events[i]));
    }
}

static void compare(const struct way *w, unsigned number) {
    static uint8_t back[MOST];
    static const char *const names[KINDS] = {"device", "host", "shared", "program"};
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *b = &blocks[i];
        const uint8_t *bytes = b->bytes;
        if (b->kind == DEVICE) {
            CHECK(zeCommandListAppendMemoryCopy(ways[below(way_count)].reader, back, b->bytes, b->size, NULL, 0, NULL));
            bytes = back;
        }
        char what[128];
        snprintf(what, sizeof(what), "round %u, card %u, %s%s %s list: %s memory of card %u", number, w->card,
                 w->in_order ? "in-order " : "", w->compute ? "compute" : "copy", w->queue ? "regular" : "immediate",
                 names[b->kind], b->card);
        expect_bytes(what, bytes, b->model, b->size);
    }
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 60;
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    start();
    for (unsigned card = 0; card < card_count; card++)
        new_ways(card);
    new_events(event_sets[0], EVENTS, 0);
    new_events(event_sets[1], EVENTS, 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        take(&blocks[i]);
    for (unsigned i = 0; i < rounds; i++) {
        const struct way *w = &ways[below(way_count)];
        round_of_commands(w);
        compare(w, i);
        struct block *b = &blocks[below(BLOCKS)];
        give_back(b);
        take(b);
    }
    puts("done");
    return 0;
}
