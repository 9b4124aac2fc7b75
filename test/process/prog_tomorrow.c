/*
 * Asks a loader of tomorrow (lib_tomorrow.c) for functions that give a device work. Usage: tomorrow LIBRARY PART.
 *   known   a function that everybody knows
 *   name    one that nobody knows yet
 *   table   a table of an API that is to come
 *   many    the same function of five loaders, copies of the library
 */
#include "expect.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { LOADERS = 5, NEWER = 1 << 16 | 99 };

static void ask(const char *file, const char *name) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    EXPECT(library && dlsym(library, name));
}

static void ask_for_table(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *table[128] = {0};
    int (*get)(int version, void **table);

    EXPECT(library);
    *(void **)&get = dlsym(library, "zeGetCommandListProcAddrTable");
    EXPECT(get && get(NEWER, table) == 0);
}

static void ask_a_copy(const char *file) {
    char folder[] = "/tmp/zeroute-tomorrow.XXXXXX", copy[64];
    int from = open(file, O_RDONLY), to;

    EXPECT(from >= 0 && mkdtemp(folder));
    snprintf(copy, sizeof copy, "%s/libze_loader.so.1", folder);
    to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0700);
    EXPECT(to >= 0 && sendfile(to, from, NULL, 1 << 20) > 0);
    close(to);
    close(from);
    ask(copy, "zeCommandListAppendBarrier");
    EXPECT(unlink(copy) == 0 && rmdir(folder) == 0);
}

int main(int argc, char **argv) {
    const char *part = argc > 2 ? argv[2] : "";

    EXPECT(argc > 2);
    if (strcmp(part, "known") == 0)
        ask(argv[1], "zeCommandListAppendBarrier");
    if (strcmp(part, "name") == 0)
        ask(argv[1], "zeCommandListAppendTomorrow");
    if (strcmp(part, "table") == 0)
        ask_for_table(argv[1]);
    for (int i = 0; i < LOADERS && strcmp(part, "many") == 0; i++)
        ask_a_copy(argv[1]);
    return 0;
}
