/*
 * Bytes as answers of the helper that reads other processes: whatever they say, what comes out of them is within its
 * bounds, every text has its end, and it can be looked at and freed.
 */
#include "fuzz.h"
#include "outside/wire.h"

#include <string.h>

#define ENDED(array) must(memchr(array, '\0', sizeof(array)) != NULL)

/* One message from the front: kind, length, and what it tells. An odd kind brings a head of its own. */
static size_t make(const uint8_t *data, size_t size, char *message, size_t *length) {
    struct zr_told_head head = {data[0] >> 1, 0};
    size_t told = (size_t)data[1] | (size_t)data[2] << 8;

    told = told < size - 3 ? told : size - 3;
    head.size = (uint32_t)told;
    *length = 0;
    if (!(data[0] & 1)) {
        memcpy(message, &head, sizeof head);
        *length = sizeof head;
    }
    memcpy(message + *length, data + 3, told);
    *length += told;
    return told + 3;
}

static void look_at(const struct zr_answer *a) {
    must(a->children <= sizeof a->child / sizeof *a->child && a->length <= ZR_OUTSIDE_MOST + 1);
    must(!a->text || strlen(a->text) <= a->length);
    for (size_t i = 0; i < a->look.count; i++) {
        const struct zeroute_process *p = &a->look.process[i];

        ENDED(p->why);
        ENDED(p->path);
        ENDED(p->command);
        ENDED(p->run_id);
        ENDED(p->job_id);
        ENDED(p->rank);
        must((unsigned)p->state <= ZEROUTE_UNKNOWN && p->pid >= 0);
    }
    for (size_t i = 0; i < a->look.holders; i++) {
        const struct zr_process_memory *m = &a->look.holder[i].memory;

        must(m->card_count <= ZR_CARDS_MAX);
        for (unsigned c = 0; c < m->card_count; c++) {
            ENDED(m->cards[c].pdev);
            ENDED(m->cards[c].driver);
        }
    }
    must(a->memory.card_count <= ZR_CARDS_MAX);
    ENDED(a->library.file);
    ENDED(a->library.build_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char message[sizeof(struct zr_told_head) + 65536];
    struct zr_answer *a = calloc(1, sizeof *a);
    double start = fuzz_seconds();
    bool good = true;
    size_t length;

    must(a != NULL);
    while (good && size >= 3) {
        size_t used = make(data, size, message, &length);

        good = zr_told_take(a, message, length);
        data += used;
        size -= used;
    }
    look_at(a);
    zr_answer_free(a);
    free(a);
    must(fuzz_seconds() - start < 1);
    return 0;
}
