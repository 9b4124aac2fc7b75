/*
 * A program on a runtime that has its adapters inside (swallowed.c). Usage: swallow LIBRARY PART.
 *   v1, v2   allocates, copies and frees as that adapter does
 *   host     the same with host memory, adapter v1
 *   leak     frees nothing
 *   missing  calls what the loader may lack, twice
 *   all      v1, v2, host and missing
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { ROUNDS = 4, SIZE = 5 << 20 };

static int (*start)(void), (*missing)(void), (*copy)(void *, size_t), (*give_back)(int, void *);
static void *(*take)(char, size_t);

static void look_up(void *library) {
    *(void **)&start = dlsym(library, "swallowed_start");
    *(void **)&missing = dlsym(library, "swallowed_missing");
    *(void **)&copy = dlsym(library, "swallowed_copy");
    *(void **)&take = dlsym(library, "swallowed_alloc");
    *(void **)&give_back = dlsym(library, "swallowed_free");
    EXPECT(start && missing && copy && take && give_back);
}

static void rounds(char kind, int adapter) {
    for (int i = 0; i < ROUNDS; i++) {
        void *p = take(kind, SIZE);

        EXPECT(p && copy(p, SIZE) == 0);
        EXPECT(give_back(adapter, p) == 0);
    }
}

static int is(const char *part, const char *name) {
    return strcmp(part, name) == 0 || strcmp(part, "all") == 0;
}

int main(int argc, char **argv) {
    const char *part = argc > 2 ? argv[2] : "";
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

    EXPECT(library);
    look_up(library);
    EXPECT(start() == 0);
    if (is(part, "v1"))
        rounds('d', 1);
    if (is(part, "v2"))
        rounds('d', 2);
    if (is(part, "host"))
        rounds('h', 1);
    if (strcmp(part, "leak") == 0)
        EXPECT(take('d', SIZE) && take('d', SIZE));
    if (is(part, "missing"))
        EXPECT(missing() == 0);
    puts("done");
    return 0;
}
