/* Small numbers for things: handles, address spaces, queues. The caller holds its own lock. */
#include "standin.h"

#include <stdlib.h>

uint32_t xs_table_add(struct xs_table *table, void *item) {
    if (table->free_count) {
        uint32_t id = table->free_ids[--table->free_count];
        table->items[id] = item;
        return id;
    }
    if (table->used + 1 >= table->size) {
        uint32_t size = table->size ? table->size * 2 : 64;
        void **items = realloc(table->items, size * sizeof(*items));
        if (!items)
            return 0;
        table->items = items;
        uint32_t *ids = realloc(table->free_ids, size * sizeof(*ids));
        if (!ids)
            return 0;
        table->free_ids = ids;
        table->size = size;
    }
    uint32_t id = ++table->used;
    table->items[id] = item;
    return id;
}

void *xs_table_get(const struct xs_table *table, uint32_t id) {
    return id && id <= table->used ? table->items[id] : NULL;
}

void *xs_table_take(struct xs_table *table, uint32_t id) {
    void *item = xs_table_get(table, id);
    if (item) {
        table->items[id] = NULL;
        table->free_ids[table->free_count++] = id;
    }
    return item;
}

void xs_table_free(struct xs_table *table) {
    free(table->items);
    free(table->free_ids);
    *table = (struct xs_table){0};
}
