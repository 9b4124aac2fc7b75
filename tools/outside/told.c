/* An answer of the helper, put together. The helper reads what others wrote, so it is not believed either. */
#include "outside/wire.h"

#include <stdlib.h>
#include <string.h>

/* Room for `more` entries of this size; false: too many, or no memory. */
static bool told_room(void **array, size_t *room, size_t count, size_t more, size_t size, size_t most) {
    size_t wanted = *room ? *room : 64;
    void *grown;

    if (more > most || count > most - more)
        return false;
    while (wanted < count + more)
        wanted *= 2;
    if (wanted == *room)
        return true;
    grown = realloc(*array, wanted * size);
    if (!grown)
        return false;
    *array = grown;
    *room = wanted;
    return true;
}

#define END_TEXT(array) ((array)[sizeof(array) - 1] = '\0')

/* A byte that is neither 0 nor 1 is no bool. */
static bool told_flag(const void *flag) {
    unsigned char byte;

    memcpy(&byte, flag, 1);
    return byte != 0;
}

static void bound_process(struct zeroute_process *p) {
    unsigned state;

    END_TEXT(p->why);
    END_TEXT(p->path);
    END_TEXT(p->command);
    END_TEXT(p->version);
    END_TEXT(p->run_id);
    END_TEXT(p->job_id);
    END_TEXT(p->rank);
    p->held = told_flag(&p->held);
    p->readable = told_flag(&p->readable);
    memcpy(&state, &p->state, sizeof state);
    if (state > ZEROUTE_UNKNOWN)
        p->state = ZEROUTE_UNKNOWN;
    if (p->pid < 0)
        p->pid = 0;
}

static void bound_memory(struct zr_process_memory *m) {
    if (m->card_count > ZR_CARDS_MAX)
        m->card_count = ZR_CARDS_MAX;
    for (unsigned i = 0; i < ZR_CARDS_MAX; i++) {
        END_TEXT(m->cards[i].pdev);
        END_TEXT(m->cards[i].driver);
    }
}

static bool take_segments(struct zr_answer *a, const char *bytes, size_t size) {
    struct zr_look *l = &a->look;
    size_t n = size / sizeof *l->process;

    if (size % sizeof *l->process ||
        !told_room((void **)&l->process, &a->process_room, l->count, n, sizeof *l->process, ZR_MOST_SEGMENTS))
        return false;
    if (n)
        memcpy(l->process + l->count, bytes, size);
    for (size_t i = 0; i < n; i++)
        bound_process(&l->process[l->count++]);
    return true;
}

static bool take_holders(struct zr_answer *a, const char *bytes, size_t size) {
    struct zr_look *l = &a->look;
    size_t n = size / sizeof *l->holder;

    if (size % sizeof *l->holder ||
        !told_room((void **)&l->holder, &a->holder_room, l->holders, n, sizeof *l->holder, ZR_MOST_HOLDERS))
        return false;
    if (n)
        memcpy(l->holder + l->holders, bytes, size);
    for (size_t i = 0; i < n; i++)
        bound_memory(&l->holder[l->holders++].memory);
    return true;
}

static bool take_text(struct zr_answer *a, const char *bytes, size_t size) {
    if (!told_room((void **)&a->text, &a->text_room, a->length, size + 1, 1, ZR_OUTSIDE_MOST + 1))
        return false;
    memcpy(a->text + a->length, bytes, size);
    a->length += size;
    a->text[a->length] = '\0';
    return true;
}

static bool take_children(struct zr_answer *a, const char *bytes, size_t size) {
    size_t most = sizeof a->child / sizeof *a->child, n = size / sizeof *a->child;

    if (size % sizeof *a->child || n > most - a->children)
        return false;
    memcpy(a->child + a->children, bytes, size);
    a->children += n;
    return true;
}

static bool take_library(struct zr_answer *a, const char *bytes, size_t size) {
    struct zr_outside_library *l = &a->library;

    if (size != sizeof *l)
        return false;
    memcpy(l, bytes, size);
    END_TEXT(l->file);
    END_TEXT(l->build_id);
    END_TEXT(l->driver);
    END_TEXT(l->compiler);
    END_TEXT(l->wheel);
    l->needs_loader = told_flag(&l->needs_loader);
    l->unversioned = told_flag(&l->unversioned);
    return true;
}

static bool take_end(struct zr_answer *a, const char *bytes, size_t size) {
    if (size != sizeof a->end)
        return false;
    memcpy(&a->end, bytes, size);
    a->ended = true;
    return true;
}

bool zr_told_take(struct zr_answer *a, const void *message, size_t size) {
    const char *bytes = (const char *)message + sizeof(struct zr_told_head);
    struct zr_told_head head;

    if (a->ended || size < sizeof head || size > ZR_TOLD_BYTES)
        return false;
    memcpy(&head, message, sizeof head);
    size -= sizeof head;
    if (head.size != size)
        return false;
    switch (head.kind) {
    case ZR_TOLD_SEGMENTS:
        return take_segments(a, bytes, size);
    case ZR_TOLD_HOLDERS:
        return take_holders(a, bytes, size);
    case ZR_TOLD_MEMORY:
        if (size != sizeof a->memory)
            return false;
        memcpy(&a->memory, bytes, size);
        bound_memory(&a->memory);
        return true;
    case ZR_TOLD_TEXT:
        return take_text(a, bytes, size);
    case ZR_TOLD_CHILDREN:
        return take_children(a, bytes, size);
    case ZR_TOLD_LIBRARY:
        return take_library(a, bytes, size);
    case ZR_TOLD_END:
        return take_end(a, bytes, size);
    default:
        return false;
    }
}

void zr_look_free(struct zr_look *look) {
    free(look->process);
    free(look->holder);
    *look = (struct zr_look){0};
}

void zr_answer_free(struct zr_answer *a) {
    zr_look_free(&a->look);
    free(a->text);
    a->text = NULL;
}
