/* Writes a record of N events, of the shape of a training run: steps that allocate and free, with some 300 stacks. */
#include "../record_file.h"

enum { STACKS = 300, FRAMES = 12, CODES = 40, SLOTS = 4096 };

static uint64_t state = 88172645463325252ull;
static uint64_t random_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv) {
    static const uint64_t sizes[] = {512, 65536, 1 << 20, 2 << 20, 2 << 20, 20 << 20, 20 << 20, 128 << 20};
    /* Two code units to a line, eight lines. */
    static const uint8_t table[] = {0xd9, 0, 0, 0xd9, 0, 0, 0xd9, 0, 0, 0xd9, 0, 0,
                                    0xd9, 0, 0, 0xd9, 0, 0, 0xd9, 0, 0, 0xd9, 0, 0};
    static uint64_t live[SLOTS];
    struct record_file f;
    uint64_t events = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000, time = 0;

    if (argc < 2)
        return 2;
    record_begin(&f, argv[1], 65536);
    record_text(&f, ZEROUTE_TEXT_COMMAND,
                "python\0train.py\0--steps\0"
                "100",
                28);
    record_text(&f, ZEROUTE_TEXT_ENTRIES, "zeMemAllocDevice\0zeMemFree", 27);
    record_card(&f, 0, 16ull << 30);
    record_card(&f, 1, 16ull << 30);
    for (uint32_t i = 1; i <= CODES; i++) {
        char file[64], name[64];
        snprintf(file, sizeof file, "/home/user/model/%s.py", i % 3 ? "layers" : "train");
        snprintf(name, sizeof name, "Layer%u.forward", i);
        record_code(&f, i, file, name, i * 10, table, sizeof table);
    }
    for (uint32_t i = 1; i <= STACKS; i++) {
        struct zeroute_record_python python[FRAMES];
        for (unsigned k = 0; k < FRAMES; k++)
            python[k] = (struct zeroute_record_python){k < 4 ? (uint32_t)(1 + (i / (1u << 2 * k)) % CODES) : k + 1,
                                                       (uint32_t)(4 * ((i >> k) & 7))};
        record_stack(&f, i, NULL, 0, python, FRAMES);
    }
    for (uint64_t i = 0; i < events; i++) {
        unsigned slot = (unsigned)(random_number() % SLOTS), phase = (unsigned)(i * 40 / events) % 4;
        unsigned thread = 1 + slot % 2;

        time += random_number() % 2000;
        if (i % (events / 20 + 1) == 0) {
            char text[32];
            snprintf(text, sizeof text, "step %u", (unsigned)(i / (events / 20 + 1)));
            record_mark(&f, 1, time, text);
        } else if (i % (events / 7 + 1) == 5) {
            struct zeroute_record_event *e = record_event(&f, 1, ZEROUTE_EVENT_FAIL, time, 0, 8ull << 30, 7);
            e->code = 0x70000003;
        } else if (live[slot]) {
            struct zeroute_record_event *e =
                record_event(&f, thread, ZEROUTE_EVENT_FREE, time, 0x100000000ull + ((uint64_t)slot << 28), 0, 0);
            e->card = slot % 2;
            live[slot] = 0;
        } else if (random_number() % 4 <= phase) {
            live[slot] = sizes[random_number() % 8] / (1 + phase);
            struct zeroute_record_event *e =
                record_event(&f, thread, ZEROUTE_EVENT_ALLOC, time, 0x100000000ull + ((uint64_t)slot << 28), live[slot],
                             1 + (uint32_t)((slot * 7 + phase * 31) % STACKS));
            e->card = slot % 2;
            e->duration = 200 + (uint32_t)(random_number() % 30000);
        }
    }
    record_end(&f);
    return 0;
}
