/* Many threads allocate, copy, compare and free on all cards at once. Argument: threads, rounds. */
#include "ze_test.h"

#include <pthread.h>

static int rounds;

static void *work(void *arg) {
    unsigned me = (unsigned)(uintptr_t)arg, card = me % card_count;
    unsigned peer = (card + 1) % card_count;
    ze_command_list_handle_t list = new_list(card, me / card_count % 2 ? copy_group(card) : 0);
    for (int round = 0; round < rounds; round++) {
        size_t size = (size_t)1 << (4 + (me * 7 + (unsigned)round * 5) % 19);
        uint8_t *from = malloc(size), *to = calloc(1, size);
        fill_random(from, size, me * 1000 + (unsigned)round);
        void *device = new_device(card, size), *other = new_device(peer, size);
        CHECK(zeCommandListAppendMemoryCopy(list, device, from, size, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list, other, device, size, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list, to, other, size, NULL, 0, NULL));
        expect_bytes("a thread's bytes", to, from, size);
        CHECK(zeMemFree(context, device));
        CHECK(zeMemFree(context, other));
        free(from);
        free(to);
    }
    CHECK(zeCommandListDestroy(list));
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 16;
    rounds = argc > 2 ? atoi(argv[2]) : 20;
    count = count > 64 ? 64 : count;
    start();
    for (unsigned i = 0; i < count; i++)
        EQUAL(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < count; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
