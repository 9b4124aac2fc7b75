/* Memory that is freed as a whole, and arrays that grow. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 << 10 };

struct piece {
    struct piece *next;
    size_t used, size;
    uint64_t data[];
};

struct zr_arena {
    struct piece *first;
};

struct zr_arena *zr_arena_new(void) {
    return calloc(1, sizeof(struct zr_arena));
}

void *zr_arena_get(struct zr_arena *a, size_t size) {
    size = (size + 7) & ~(size_t)7;
    if (!a->first || a->first->size - a->first->used < size) {
        size_t room = size > PIECE / 4 ? size : PIECE;
        struct piece *p = malloc(sizeof *p + room);

        if (!p)
            return NULL;
        p->used = 0;
        p->size = room;
        p->next = a->first;
        a->first = p;
    }
    void *got = (char *)a->first->data + a->first->used;
    a->first->used += size;
    return got;
}

char *zr_arena_text(struct zr_arena *a, const char *text, size_t size) {
    char *copy = zr_arena_get(a, size + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

void zr_arena_free(struct zr_arena *a) {
    while (a && a->first) {
        struct piece *next = a->first->next;
        free(a->first);
        a->first = next;
    }
    free(a);
}

bool zr_room(void *array, size_t *have, size_t used, size_t each) {
    void **a = array;

    if (used < *have)
        return true;
    size_t want = *have ? *have * 2 : 64;
    void *more = realloc(*a, want * each);
    if (!more)
        return false;
    *a = more;
    *have = want;
    return true;
}
