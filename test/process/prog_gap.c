/*
 * What an adapter, and anybody else, gets from a loader for every row of guard.def.
 *   gap LOADER ASKER old|new guarded|bare
 * One line per row that is not as promised; exit code 0 if all are.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNSUPPORTED_FEATURE = 0x78000003 };
enum answer { UNSUPPORTED, COUNT_ZERO, CONTEXT, ZERO, ALL_ONES, NOTHING, HOST_SYNCHRONIZE, ROOT_DEVICE };

static const struct row {
    const char *name;
    enum answer answer;
} rows[] = {
#define ZR_GAP(name, since, answer) {#name, answer},
#include "hook/guard.def"
#undef ZR_GAP
};

/* Functions that no loader of these tests has: they stay absent, whoever asks. */
static const char *const absent[] = {"zeInitDrivers", "zelLoaderGetContext", "zetMetricTracerCreateExp",
                                     "zeNoSuchFunctionAtAll"};

/* Names that are ours anyway, whatever the loader has. */
static bool has_hook(const char *name) {
    static const char *const hooks[] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
#define ZR_TABLE(table, getter, ...) #getter,
#include "base/tables.def"
#undef ZR_TABLE
    };

    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (strcmp(hooks[i], name) == 0)
            return true;
    return strstr(name, "Synchronize") != NULL; /* a wait tells that the device was lost */
}

static int wrong;

static void complain(const char *name, const char *what) {
    wrong++;
    printf("%s: %s\n", name, what);
}

/* The stub's answer, in the kind of result that the function has. */
static void call(const struct row *row, void *f, int (*contexts)(void)) {
    char driver, device;
    uint32_t count = 5;
    void *root = &device;

    switch (row->answer) {
    case UNSUPPORTED:
        if (((int (*)(void *, void *, void *))(uintptr_t)f)(&driver, &device, &count) != UNSUPPORTED_FEATURE)
            complain(row->name, "does not say unsupported");
        break;
    case COUNT_ZERO:
        if (((int (*)(void *, uint32_t *, void *))(uintptr_t)f)(&device, &count, NULL) != 0 || count != 0)
            complain(row->name, "does not set the count to 0");
        break;
    case CONTEXT: {
        void *(*get)(void *) = (void *(*)(void *))(uintptr_t)f;
        void *first = get(&driver);

        if (!first || get(&driver) != first || contexts() != 1)
            complain(row->name, "is not one context per driver, kept");
        break;
    }
    case ZERO:
        if (((void *(*)(void *))(uintptr_t)f)(&device) != NULL)
            complain(row->name, "is not null");
        break;
    case ALL_ONES:
        if (((uint32_t(*)(void *))(uintptr_t)f)(&device) != UINT32_MAX)
            complain(row->name, "is not UINT32_MAX");
        break;
    case NOTHING:
        ((void (*)(void))(uintptr_t)f)();
        break;
    case HOST_SYNCHRONIZE:
        if (((int (*)(void *, uint64_t))(uintptr_t)f)(&device, 0) != UNSUPPORTED_FEATURE)
            complain(row->name, "does not say unsupported where there is no driver");
        break;
    case ROOT_DEVICE:
        if (((int (*)(void *, void **))(uintptr_t)f)(&device, &root) != 0 || root != NULL)
            complain(row->name, "does not say that a root device has no root");
        break;
    }
}

/* A child of fork lists in its own segment what it calls itself, and that alone. It ends without a word. */
static void call_in_child(const struct row *row, void *f) {
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        call(row, f, NULL);
        _exit(wrong != 0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0)
        complain(row->name, "is not answered in a child");
    printf("child %d called %s\n", (int)pid, row->name);
}

int main(int argc, char **argv) {
    const struct row *unsupported = NULL;
    void *its_stub = NULL;
    void *asker, *loader;
    void *(*open_loader)(const char *);
    void *(*ask)(void *, const char *);
    int (*contexts)(void);

    if (argc != 5) {
        fprintf(stderr, "usage: gap LOADER ASKER old|new guarded|bare\n");
        return 2;
    }
    asker = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (!asker) {
        fprintf(stderr, "gap: %s\n", dlerror());
        return 2;
    }
    open_loader = (void *(*)(const char *))(uintptr_t)dlsym(asker, "gap_open");
    ask = (void *(*)(void *, const char *))(uintptr_t)dlsym(asker, "gap_ask");
    loader = open_loader(argv[1]);
    if (!loader) {
        fprintf(stderr, "gap: %s\n", dlerror());
        return 2;
    }
    contexts = (int (*)(void))(uintptr_t)dlsym(loader, "gap_contexts");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *own = dlsym(loader, rows[i].name); /* this program is nobody's adapter */
        void *f = ask(loader, rows[i].name);

        if (strcmp(argv[3], "new") == 0) {
            Dl_info where;

            if (!f || f != own || !dladdr(f, &where) ||
                !strstr(where.dli_fname, has_hook(rows[i].name) ? "libzeroute" : "libze_loader"))
                complain(rows[i].name, "is not the loader's own although the loader has it");
        } else if (strcmp(argv[4], "bare") == 0) {
            if (f)
                complain(rows[i].name, "is there for somebody who may probe for NULL");
        } else if (!f) {
            complain(rows[i].name, "is missing");
        } else {
            if (dlerror())
                complain(rows[i].name, "leaves an error behind");
            call(&rows[i], f, contexts);
            if (rows[i].answer == UNSUPPORTED) {
                unsupported = &rows[i];
                its_stub = f;
            }
        }
    }
    if (unsupported)
        call_in_child(unsupported, its_stub);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (ask(loader, absent[i]))
            complain(absent[i], "is answered although its callers check for NULL");
    return wrong != 0;
}
