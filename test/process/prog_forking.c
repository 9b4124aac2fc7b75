/*
 * What is called while another thread forks, and a slow handler of the program (pthread_atfork) keeps it there: the
 * list of loaded libraries cannot be read then. Usage: forking PART [FILES].
 */
#include "way.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* --- the fork ----------------------------------------------------------------------------------------------------- */

static sem_t forking, go_on;
static pthread_t forker;
static bool slow;

static void before_fork(void) {
    if (!slow)
        return;
    sem_post(&forking);
    sem_wait(&go_on);
}

static void *fork_once(void *unused) {
    int pid = fork(), status;

    (void)unused;
    if (pid == 0)
        _exit(0);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    return NULL;
}

/* Handlers run in the reverse order of their registration: the preload's, which comes later, has run already. */
static void fork_begins(void) {
    slow = true;
    EXPECT(pthread_create(&forker, NULL, fork_once, NULL) == 0);
    sem_wait(&forking);
}

static void fork_ends(void) {
    sem_post(&go_on);
    EXPECT(pthread_join(forker, NULL) == 0);
}

/* --- what a fork must not change ---------------------------------------------------------------------------------- */

#define RUNTIME_MALLOC "_ZN4sycl3_V113malloc_deviceEmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE"
#define RUNTIME_FREE "_ZN4sycl3_V14freeEPvRKNS0_7contextERKNS0_6detail13code_locationE"
void *runtime_malloc(size_t size, const void *device, const void *context, const void *code) __asm__(RUNTIME_MALLOC);
void runtime_free(void *p, const void *context, const void *code) __asm__(RUNTIME_FREE);
extern int runtime_allocated, runtime_freed;

/* The program's own library calls the runtime for the first time while the fork is on. */
static void runtime_is_called(void) {
    int allocated = runtime_allocated, freed = runtime_freed;
    void *p = runtime_malloc(64, NULL, NULL, NULL);

    EXPECT(p && runtime_allocated == allocated + 1);
    runtime_free(p, NULL, NULL);
    EXPECT(runtime_freed == freed + 1);
}

static void runtime(void) {
    struct way way;

    WAY_BY_NAME(dlopen("libze_loader.so.1", RTLD_NOW));
    EXPECT(way_run(&way) == 0); /* the preload is awake, and looks out for forks */
    fork_begins();
    runtime_is_called();
    runtime_is_called();
    fork_ends();
    runtime_is_called();
}

static void loader(void) {
    void *handle = dlopen("libze_loader.so.1", RTLD_NOW);
    struct way way;

    runtime_is_called();
    fork_begins();
    WAY_BY_NAME(handle);
    fork_ends();
    EXPECT(way_run(&way) == 0);
}

static void adapter(const char *path) {
    typedef void *(*allocate)(ze_context_handle_t, ze_device_handle_t, size_t);
    typedef ze_result_t (*give_back)(ze_context_handle_t, void *);
    void *library = dlopen(path, RTLD_NOW);
    void *handle = dlopen("libze_loader.so.1", RTLD_NOW);
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t context;
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    uint32_t one = 1;
    allocate alloc;
    give_back back;
    struct way way;

    EXPECT(library && handle);
    *(void **)&alloc = dlsym(library, "adapter_alloc");
    *(void **)&back = dlsym(library, "adapter_free");
    WAY_BY_NAME(handle);
    EXPECT(way_run(&way) == 0);
    WAY_CHECK(way.zeDriverGet(&one, &driver));
    WAY_CHECK(way.zeDeviceGet(driver, &one, &device));
    WAY_CHECK(way.zeContextCreate(driver, &desc, &context));
    fork_begins();
    for (int i = 0; i < 8; i++) {
        void *p = alloc(context, device, (size_t)20 << 20);

        EXPECT(p);
        WAY_CHECK(back(context, p));
        if (i == 3)
            fork_ends();
    }
}

static void guard(const char *asker, const char *old_loader) {
    void *(*ask)(void *, const char *);
    void *(*open)(const char *);
    void *library = dlopen(asker, RTLD_NOW), *handle;

    EXPECT(library);
    *(void **)&open = dlsym(library, "gap_open");
    *(void **)&ask = dlsym(library, "gap_ask");
    handle = open(old_loader);
    runtime_is_called();
    fork_begins();
    EXPECT(ask(handle, "zeDeviceGetVectorWidthPropertiesExt"));
    fork_ends();
    EXPECT(ask(handle, "zeDeviceGetVectorWidthPropertiesExt"));
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";

    EXPECT(sem_init(&forking, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    EXPECT(pthread_atfork(before_fork, NULL, NULL) == 0);
    if (strcmp(part, "runtime") == 0)
        runtime();
    else if (strcmp(part, "loader") == 0)
        loader();
    else if (strcmp(part, "adapter") == 0 && argc > 2)
        adapter(argv[2]);
    else if (strcmp(part, "guard") == 0 && argc > 3)
        guard(argv[2], argv[3]);
    else
        return 2;
    return 0;
}
