#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Which slot an id has: open addressing; ids of freed blocks stay and get another slot when they come again. */
struct id {
    uint64_t id;
    uint32_t slot;
    uint8_t state; /* 0 never seen, 1 allocated, 2 freed */
};

struct reader {
    struct zr_trace *trace;
    struct id *ids;
    size_t id_room, id_count;
    size_t event_room;
    uint32_t *free_slots;
    size_t free_count, slot_room;
    uint64_t *bytes; /* of each slot */
    uint64_t live;
};

static struct id *find_id(struct reader *r, uint64_t id) {
    size_t at = id * 0x9e3779b97f4a7c15u >> 20 & (r->id_room - 1);

    while (r->ids[at].state && r->ids[at].id != id)
        at = (at + 1) & (r->id_room - 1);
    return &r->ids[at];
}

static bool grow_ids(struct reader *r) {
    struct id *old = r->ids;
    size_t room = r->id_room;

    r->id_room = room ? room * 2 : 4096;
    r->ids = calloc(r->id_room, sizeof *r->ids);
    if (!r->ids) {
        r->ids = old;
        r->id_room = room;
        return false;
    }
    for (size_t i = 0; i < room; i++)
        if (old[i].state)
            *find_id(r, old[i].id) = old[i];
    free(old);
    return true;
}

static bool add_event(struct reader *r, uint32_t slot, uint64_t bytes) {
    struct zr_trace *t = r->trace;

    if (t->events == r->event_room) {
        size_t room = r->event_room ? r->event_room * 2 : 4096;
        void *grown = realloc(t->event, room * sizeof *t->event);

        if (!grown)
            return false;
        t->event = grown;
        r->event_room = room;
    }
    t->event[t->events++] = (struct zr_trace_event){bytes, slot};
    return true;
}

static bool new_slot(struct reader *r, uint32_t *slot) {
    if (r->free_count) {
        *slot = r->free_slots[--r->free_count];
        return true;
    }
    if (r->trace->slots >= r->slot_room) {
        size_t room = r->slot_room ? r->slot_room * 2 : 1024;
        void *bytes = realloc(r->bytes, room * sizeof *r->bytes), *slots;

        if (!bytes)
            return false;
        r->bytes = bytes;
        slots = realloc(r->free_slots, room * sizeof *r->free_slots);
        if (!slots)
            return false;
        r->free_slots = slots;
        r->slot_room = room;
    }
    *slot = r->trace->slots++;
    return true;
}

/* A decimal number that ends at a comma or at the end of the line; *at moves behind it. */
static bool number(const char **at, uint64_t *out) {
    const char *p = *at;
    uint64_t n = 0;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');

        if (n > (UINT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    if (*p && *p != ',')
        return false;
    *at = *p ? p + 1 : p;
    *out = n;
    return true;
}

/* More than any card has, and as much as the allocator takes for a size: beyond it every allocation fails. */
#define MOST_LIVE ((uint64_t)1 << 45)

static const char *allocate(struct reader *r, uint64_t id, uint64_t bytes) {
    struct zr_trace *t = r->trace;
    struct id *known;
    uint32_t slot;

    if (r->id_count * 2 >= r->id_room && !grow_ids(r))
        return "out of memory";
    known = find_id(r, id);
    if (known->state == 1)
        return "this id is allocated already: expected its free first";
    if (bytes >= MOST_LIVE - r->live)
        return "too much is allocated at once: expected less than 2^45 bytes";
    if (!new_slot(r, &slot) || !add_event(r, slot, bytes))
        return "out of memory";
    r->id_count += known->state == 0;
    *known = (struct id){id, slot, 1};
    r->bytes[slot] = bytes;
    r->live += bytes;
    if (r->live > t->peak_live)
        t->peak_live = r->live;
    t->allocations++;
    return NULL;
}

static const char *release(struct reader *r, uint64_t id, size_t line) {
    struct zr_trace *t = r->trace;
    struct id *known = r->id_room ? find_id(r, id) : NULL;

    if (!known || known->state != 1) {
        if (t->unknown_frees++ == 0)
            t->first_unknown_line = line;
        return NULL;
    }
    if (!add_event(r, known->slot, ZR_TRACE_FREE))
        return "out of memory";
    known->state = 2;
    r->live -= r->bytes[known->slot];
    r->free_slots[r->free_count++] = known->slot;
    t->frees++;
    return NULL;
}

/* What is wrong with a line, or NULL. */
static const char *one_line(struct reader *r, const char *text, size_t line) {
    uint64_t id, bytes = 0, stream, time;
    char op = text[0];

    if ((op != 'a' && op != 'f') || text[1] != ',')
        return "expected a, (allocate) or f, (free) first";
    text += 2;
    if (!number(&text, &id))
        return "expected a number as id";
    if (op == 'a' && (!number(&text, &bytes) || bytes >= MOST_LIVE))
        return "expected a number of bytes below 2^45";
    if (op == 'f' && !(*text == ',' ? (text++, true) : !*text || number(&text, &bytes)))
        return "expected a number of bytes or nothing";
    if (*text && !number(&text, &stream))
        return "expected a number as stream";
    if (*text && !number(&text, &time))
        return "expected a number as time_us";
    if (*text)
        return "expected nothing behind op,id,bytes,stream,time_us";
    return op == 'a' ? allocate(r, id, bytes) : release(r, id, line);
}

static size_t commas_in(const char *text) {
    size_t n = 0;

    while ((text = strchr(text, ',')) != NULL)
        text++, n++;
    return n;
}

bool zr_trace_read(struct zr_trace *t, FILE *in, char *why, size_t size) {
    struct reader r = {.trace = t};
    const char *wrong = NULL;
    char text[256];
    size_t line = 0, fewest[] = {0, 0}; /* commas in a line that has an end: of allocations and the head, of frees */

    *t = (struct zr_trace){0};
    while (!wrong && fgets(text, sizeof text, in)) {
        size_t length = strlen(text), commas = commas_in(text), *fewer = &fewest[text[0] == 'f'];

        line++;
        if (length && text[length - 1] == '\n') {
            text[--length] = 0;
            if (commas && (commas < *fewer || *fewer == 0))
                *fewer = commas;
        } else if (length == sizeof text - 1) {
            wrong = "the line is too long: expected op,id,bytes,stream,time_us";
        } else if (!feof(in)) {
            wrong = "a byte is 0: expected text, op,id,bytes,stream,time_us";
        } else if (commas < *fewer) {
            wrong = "the file ends within this line: expected op,id,bytes,stream,time_us";
        }
        if (length && text[length - 1] == '\r')
            text[--length] = 0;
        if (line == 1 && strncmp(text, "\xef\xbb\xbf", 3) == 0) /* as some editors begin a file */
            memmove(text, text + 3, (length -= 3) + 1);
        if (line == 1 && strncmp(text, "op,", 3) == 0) {
            if (strcmp(text, "op,id,bytes,stream,time_us") != 0)
                wrong = "expected the columns op,id,bytes,stream,time_us";
            continue;
        }
        if (!wrong && length)
            wrong = one_line(&r, text, line);
    }
    if (!wrong && ferror(in))
        snprintf(why, size, "cannot be read: expected a file of lines op,id,bytes,stream,time_us");
    else if (wrong)
        snprintf(why, size, "line %zu: %s", line, wrong);
    else if (t->events == 0)
        snprintf(why, size, "no events: expected lines of op,id,bytes,stream,time_us");
    t->left = t->allocations - t->frees;
    free(r.ids);
    free(r.free_slots);
    free(r.bytes);
    return !wrong && !ferror(in) && t->events != 0;
}

void zr_trace_free(struct zr_trace *t) {
    free(t->event);
    t->event = NULL;
}

/* --- traces of our own ------------------------------------------------------------------------ */

struct maker {
    FILE *out;
    uint64_t random, id, time;
};

static uint64_t draw(struct maker *m, uint64_t below) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (m->random >> 33) % below;
}

static uint64_t make(struct maker *m, uint64_t bytes) {
    fprintf(m->out, "a,%" PRIu64 ",%" PRIu64 ",0,%" PRIu64 "\n", ++m->id, bytes ? bytes : 1, m->time += 3);
    return m->id;
}

static void drop(struct maker *m, uint64_t id) {
    fprintf(m->out, "f,%" PRIu64 ",,0,%" PRIu64 "\n", id, m->time += 2);
}

enum { LAYERS = 12, WIDTH = 640, HEADS = 10, STEPS = 6, SAVED = 8, GRADIENTS = 4 };

/* Weights for good; activations from the forward to the backward pass; sequences of another length each step. */
static void make_tensors(struct maker *m) {
    static const unsigned weights[] = {3, 1, 4, 4};
    const uint64_t square = (uint64_t)WIDTH * WIDTH * 4;

    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < 4; j++) {
            make(m, square * weights[j]);
            make(m, (uint64_t)WIDTH * weights[j] * 4);
        }
    for (int step = 0; step < STEPS; step++) {
        uint64_t length = 128 + draw(m, 512), row = length * WIDTH * 4 * 4;
        uint64_t saved[LAYERS][SAVED], gradient[LAYERS][GRADIENTS], x = make(m, row);

        for (int i = 0; i < LAYERS; i++) {
            uint64_t score, q[3];

            saved[i][0] = make(m, row);
            saved[i][1] = make(m, row * 3);
            for (int j = 0; j < 3; j++)
                q[j] = make(m, row);
            score = make(m, length * length * HEADS * 4 * 4);
            saved[i][2] = make(m, length * length * HEADS * 4 * 4);
            drop(m, score);
            saved[i][3] = make(m, row);
            drop(m, q[0]);
            drop(m, q[1]);
            saved[i][4] = q[2];
            saved[i][5] = make(m, row * 4);
            saved[i][6] = make(m, row * 4);
            saved[i][7] = make(m, length * 16);
        }
        for (int i = LAYERS; i-- > 0;) {
            for (int j = 0; j < SAVED; j++) {
                uint64_t work = draw(m, 2) ? make(m, row) : 0;

                drop(m, saved[i][j]);
                if (work)
                    drop(m, work);
            }
            for (int j = 0; j < GRADIENTS; j++)
                gradient[i][j] = make(m, square * weights[j]);
        }
        drop(m, x);
        for (int i = 0; i < LAYERS; i++)
            for (int j = 0; j < GRADIENTS; j++)
                drop(m, gradient[i][j]);
    }
}

/* What PyTorch requests below its own cache: now and then a segment, all freed by empty_cache. */
static void make_segments(struct maker *m) {
    enum { MOST = 400 };
    const uint64_t mib = (uint64_t)1 << 20;
    uint64_t live[MOST];

    for (int round = 0; round < 20; round++) {
        size_t count = 0, target = 50 + draw(m, MOST - 50);

        while (count < target) {
            uint64_t kind = draw(m, 10);

            live[count++] = make(m, kind < 4 ? 2 * mib : kind < 8 ? 20 * mib : 2 * mib * (6 + draw(m, 60)));
            if (draw(m, 5) == 0) {
                size_t at = draw(m, count);

                drop(m, live[at]);
                live[at] = live[--count];
            }
        }
        while (count)
            drop(m, live[--count]);
    }
}

bool zr_trace_make(FILE *out, const char *shape, uint64_t seed) {
    struct maker m = {.out = out, .random = seed * 2 + 1};
    bool tensors = strcmp(shape, "tensors") == 0;

    if (!tensors && strcmp(shape, "segments") != 0)
        return false;
    fputs("op,id,bytes,stream,time_us\n", out);
    if (tensors)
        make_tensors(&m);
    else
        make_segments(&m);
    return true;
}
