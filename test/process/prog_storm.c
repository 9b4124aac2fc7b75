/*
 * Storms: the first argument names one, the second how often. Four threads allocate and free all the while. What must
 * hold: nothing hangs, each child does its work, and the parent's books say what the parent did. Prints how many
 * allocations the parent made; all are freed.
 */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 4, BLOCKS = 8 };

static struct gpu gpu;
static atomic_bool over;
static atomic_ullong made;
static pid_t parent;

static void work(unsigned seed) {
    void *p[BLOCKS] = {0};

    for (unsigned i = 0; i < BLOCKS; i++, made++)
        p[i] = on_card(&gpu, (seed + i) % gpu.cards, (size_t)(1 + (seed * 7 + i * 3) % 9) * MIB);
    for (unsigned i = 0; i < BLOCKS; i++)
        OK(i % 3 ? zeMemFree(gpu.context, p[i]) : free_with(&gpu, p[i], i % 2));
}

static void *busy(void *arg) {
    for (unsigned seed = (unsigned)(uintptr_t)arg; !over; seed += THREADS)
        work(seed);
    return NULL;
}

/*
 * In a child, and in a handler of signals, the driver's own locks may be held for ever, so it is asked for nothing that
 * it would lock for: it refuses these at once. Through us they go all the way, in a child with books of its own.
 */
static void refused_work(void) {
    void *p = NULL;

    for (int i = 0; i < BLOCKS; i++) {
        GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemAllocDevice(NULL, &device_desc, MIB, 0, gpu.card[0], &p));
        GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemFree(NULL, NULL));
    }
}

static void must_end(pid_t child, int code) {
    int status = 0;

    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* Every other child works, and of these every other one leaves by exit(), through all that is registered for it. */
static void forked(unsigned n) {
    pid_t child = fork();

    if (child == 0) {
        if (n % 2)
            refused_work();
        if (n % 4 == 3)
            exit(7);
        _exit(7);
    }
    must_end(child, 7);
}

static void vforked(unsigned n) {
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    pid_t child = vfork();

    (void)n;
    if (child == 0) {
        execv("/bin/true", argv);
        _exit(9);
    }
    must_end(child, 0);
}

static void spawned(unsigned n) {
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    pid_t child;

    (void)n;
    EXPECT(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
    must_end(child, 0);
}

/* A daemon: its parent is gone before it works, and it says by a pipe that it has. */
static void daemonised(unsigned n) {
    int ready[2];
    char c = 0;
    pid_t child;

    (void)n;
    EXPECT(pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork() > 0)
            _exit(7);
        refused_work();
        _exit(write(ready[1], "d", 1) == 1 ? 0 : 1);
    }
    close(ready[1]);
    must_end(child, 7);
    EXPECT(read(ready[0], &c, 1) == 1 && c == 'd');
    close(ready[0]);
}

static atomic_uint handled;

/* In the midst of anything: of a call of ours, too, and of the driver's. */
static void on_signal(int number) {
    (void)number;
    refused_work();
    handled++;
}

/* Ends only where pthreads lets it: between calls, so that what it holds is known. */
static void *until_cancelled(void *arg) {
    for (unsigned seed = (unsigned)(uintptr_t)arg;; seed++) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        work(seed);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        pthread_testcancel();
    }
    return NULL;
}

static void cancelled(unsigned n) {
    pthread_t thread;
    void *end = NULL;

    EXPECT(pthread_create(&thread, NULL, until_cancelled, (void *)(uintptr_t)n) == 0);
    if (n % 2)
        pause_ms(1);
    pthread_cancel(thread);
    EXPECT(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED);
}

/* A library that allocates comes and goes: another may lie in its place next time. */
static void closed(unsigned n) {
    char path[4096] = "";
    char *slash;
    ze_result_t (*free_it)(ze_context_handle_t, void *);
    void *library, *p = on_card(&gpu, n % gpu.cards, MIB);

    made++;
    EXPECT(readlink("/proc/self/exe", path, sizeof path - 16) > 0 && (slash = strrchr(path, '/')));
    memcpy(slash, "/libfreer.so", sizeof "/libfreer.so");
    library = dlopen(path, RTLD_NOW | (n % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
    EXPECT(library != NULL);
    *(void **)&free_it = dlsym(library, "free_it");
    EXPECT(free_it && free_it(gpu.context, p) == ZE_RESULT_SUCCESS);
    EXPECT(dlclose(library) == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*once)(unsigned);
    } storms[] = {{"fork", forked},      {"vfork", vforked},  {"spawn", spawned}, {"daemon", daemonised},
                  {"cancel", cancelled}, {"dlclose", closed}, {"signal", NULL}};
    unsigned times = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread[THREADS];

    parent = getpid();
    gpu = first_gpu();
    sigaction(SIGUSR1, &action, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, busy, (void *)(uintptr_t)i) == 0);
    for (size_t s = 0; argc > 1 && s < sizeof storms / sizeof *storms; s++) {
        if (strcmp(argv[1], storms[s].name) != 0)
            continue;
        for (unsigned n = 0; n < times; n++) {
            if (storms[s].once)
                storms[s].once(n);
            else
                for (unsigned before = handled; handled == before; pause_ms(1))
                    pthread_kill(thread[n % THREADS], SIGUSR1);
        }
    }
    over = true;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(getpid() == parent);
    printf("%llu\n", (unsigned long long)made);
    return 0;
}
