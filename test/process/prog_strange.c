/*
 * Programs do strange things around their memory: each of these works without us, and has to with us. One part per run,
 * named by the first argument; the process says nothing when all is well.
 */
#include "seccomp.h"
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;
static struct gpu gpu;
static char *program;

/* A few blocks of many sizes, by turns. */
static void churn(int times) {
    void *block[16] = {0};
    unsigned seed = 1;

    while (times-- > 0) {
        void **p;

        seed = seed * 1664525u + 1013904223u;
        p = &block[seed >> 28];
        if (*p)
            OK(zeMemFree(gpu.context, *p));
        *p = *p ? NULL : on_card(&gpu, 0, (size_t)4096 << (seed >> 10) % 12);
    }
    for (int i = 0; i < 16; i++)
        if (block[i])
            OK(zeMemFree(gpu.context, block[i]));
}

static void start(void) {
    gpu = first_gpu();
    churn(200);
}

static void *churn_in_thread(void *times) {
    churn((int)(intptr_t)times);
    return NULL;
}

static void threads(int count, int times) {
    pthread_t thread[4];

    for (; count > 0; count -= 4) {
        for (int i = 0; i < 4; i++)
            EXPECT(pthread_create(&thread[i], NULL, churn_in_thread, (void *)(intptr_t)times) == 0);
        for (int i = 0; i < 4; i++)
            EXPECT(pthread_join(thread[i], NULL) == 0);
    }
}

/* --- before main and after it ------------------------------------------------------------------------------------ */
static void *early;

__attribute__((constructor)) static void allocate_before_main(int argc, char **argv) {
    if (argc != 2 || strcmp(argv[1], "outside_main") != 0)
        return;
    start();
    early = on_card(&gpu, 0, 3 * MIB);
}

__attribute__((destructor)) static void free_after_main(void) {
    void *p = NULL;

    if (!early)
        return;
    (void)zeMemFree(gpu.context, early); /* the driver may be gone: whatever it says */
    if (zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, gpu.card[0], &p) == ZE_RESULT_SUCCESS)
        (void)zeMemFree(gpu.context, p);
}

static void outside_main(void) {
    churn(500);
}

/* --- descriptors and limits -------------------------------------------------------------------------------------- */
static void without_descriptors(void) {
    start();
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    churn(2000);
    threads(4, 500);
}

static void descriptors_closed_first(void) {
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    start();
}

static void limited(int what, rlim_t most) {
    struct rlimit limit = {most, most};

    EXPECT(setrlimit(what, &limit) == 0);
}

static void no_more_descriptors(void) {
    start();
    limited(RLIMIT_NOFILE, 3);
    churn(2000);
    threads(4, 500);
}

/* Whatever is written to one of our descriptors is in the program's own file then. */
static void own_file_under_every_number(void) {
    char name[] = "/tmp/zeroute-strange-XXXXXX";
    int own = mkstemp(name);
    struct stat s;

    EXPECT(own >= 0 && unlink(name) == 0 && write(own, "hello", 5) == 5);
    start();
    for (int fd = 3; fd < 1000; fd++)
        EXPECT(fd == own || dup2(own, fd) == fd);
    churn(2000);
    threads(4, 500);
    EXPECT(fstat(own, &s) == 0 && s.st_size == 5);
}

static void fewer_descriptors_for_a_while(void) {
    struct rlimit limit, few;

    start();
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    few = (struct rlimit){4, limit.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    churn(2000);
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    threads(4, 500);
}

/* As a service does that begins as root. */
static void another_user_and_another_root(void) {
    int status = 0;
    pid_t child;

    start();
    if (geteuid() == 0)
        EXPECT(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    churn(2000);
    threads(4, 500);
    child = fork();
    if (child == 0)
        _exit(zeMemFree(NULL, NULL) == ZE_RESULT_SUCCESS);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void little_address_space(void) {
    limited(RLIMIT_AS, 500 * MIB); /* of which blocks take 128 at most; threads would take much of it for malloc */
    start();
    churn(2000);
}

/* Without allocations: the simulated driver itself makes files. */
static void small_files(void) {
    limited(RLIMIT_FSIZE, 4096); /* SIGXFSZ would end it */
    gpu = first_gpu();
}

/* --- sandboxes ---------------------------------------------------------------------------------------------------- */
static void starts_without(unsigned call, unsigned code) {
    EXPECT(take_away(call, code));
    start();
    threads(8, 500);
}

static void no_madvise(void) {
    starts_without(SYS_madvise, EPERM);
}

static void no_random_numbers(void) {
    starts_without(SYS_getrandom, EPERM);
}

/* --- other programs ----------------------------------------------------------------------------------------------- */
static void ends_well(pid_t pid) {
    int status;

    EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    churn(100);
}

static void begun_by_vfork(void) {
    start();
    for (int i = 0; i < 3; i++) {
        pid_t pid = vfork();

        if (pid == 0) {
            execl(program, program, "outside_main", NULL);
            _exit(9);
        }
        ends_well(pid);
    }
}

static void spawned(void) {
    char *argv[] = {program, (char *)(uintptr_t) "outside_main", NULL};
    pid_t pid;

    start();
    for (int i = 0; i < 3; i++) {
        EXPECT(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0);
        ends_well(pid);
    }
    EXPECT(system("exit 3") == 3 << 8);
    churn(100);
}

static void replaced(void) {
    start();
    execl(program, program, "outside_main", NULL);
}

/* --- the loader, and threads -------------------------------------------------------------------------------------- */
static void loader_opened_and_closed(void) {
    start();
    for (int i = 0; i < 1000; i++) {
        void *loader = dlopen("libze_loader.so.1", RTLD_NOW | (i % 2 ? RTLD_GLOBAL : RTLD_LOCAL));
        ze_result_t (*release)(ze_context_handle_t, void *);

        EXPECT(loader != NULL);
        *(void **)&release = dlsym(loader, "zeMemFree");
        OK(release(gpu.context, on_card(&gpu, 0, 64 * KIB)));
        EXPECT(dlclose(loader) == 0);
    }
}

static void threads_come_and_go(void) {
    start();
    threads(2000, 20);
}

/* Long enough for what is done ten times a second. */
static void *churn_for_a_while(void *unused) {
    (void)unused;
    for (uint64_t end = now_ms() + 500; now_ms() < end;)
        churn(100);
    return NULL;
}

/* More than the card has, which some settings explain. */
static void *refused_and_churned(void *unused) {
    void *p = NULL;

    EXPECT(zeMemAllocDevice(gpu.context, &device_desc, 1024 * GIB, 0, gpu.card[0], &p) != ZE_RESULT_SUCCESS);
    return churn_for_a_while(unused);
}

static void small_stacks(void) {
    pthread_attr_t small;
    pthread_t thread;

    start();
    EXPECT(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 16384) == 0);
    EXPECT(pthread_create(&thread, &small, refused_and_churned, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* The destructors of keys run when ours for the thread have run. */
static void churn_at_the_end(void *block) {
    OK(zeMemFree(gpu.context, block));
    churn(20);
}

static pthread_key_t at_the_end;

static void *with_a_key(void *unused) {
    EXPECT(pthread_setspecific(at_the_end, on_card(&gpu, 0, MIB)) == 0);
    churn(20);
    return unused;
}

static void threads_that_end_with_a_free(void) {
    pthread_t thread;

    start();
    EXPECT(pthread_key_create(&at_the_end, churn_at_the_end) == 0);
    for (int i = 0; i < 50; i++) {
        EXPECT(pthread_create(&thread, NULL, with_a_key, NULL) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
    }
}

static void churn_once(void) {
    void *p = NULL;

    if (zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, gpu.card[0], &p) == ZE_RESULT_SUCCESS)
        (void)zeMemFree(gpu.context, p);
}

static void quick(void) {
    start();
    EXPECT(at_quick_exit(churn_once) == 0);
    quick_exit(0);
}

/* Older loaders lack it. */
extern ze_result_t newer(ze_context_handle_t, const void *, void *,
                         ze_ipc_mem_handle_t *) __asm__("zeMemGetIpcHandleWithProperties") __attribute__((weak));

/* With no descriptor to be had, so that whatever we look up meanwhile fails. The driver has a slab, and needs none. */
static void errno_and_dlerror_stay(void) {
    ze_ipc_mem_handle_t handle;
    void *p;

    gpu = first_gpu();
    on_card(&gpu, 0, 64 * KIB);
    limited(RLIMIT_NOFILE, 3);
    for (int i = 0; i < 400; i++) {
        errno = 42;
        OK(zeMemAllocDevice(gpu.context, &device_desc, 64 * KIB, 0, gpu.card[0], &p));
        EXPECT(errno == 42);
        OK(zeMemFree(gpu.context, p));
        EXPECT(errno == 42);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    if (newer)
        EXPECT(newer(NULL, NULL, NULL, &handle) != ZE_RESULT_SUCCESS && errno == 42);
    EXPECT(dlerror() == NULL);
}

static void signals_umask_and_locale_stay(void) {
    struct sigaction before[65] = {0}, now;
    sigset_t mask_before, mask;
    mode_t bits = umask(027);

    EXPECT(setlocale(LC_ALL, "C"));
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &before[i]);
    start();
    threads(4, 50);
    for (int i = 1; i < 65; i++)
        if (sigaction(i, NULL, &now) == 0)
            EXPECT(now.sa_handler == before[i].sa_handler && now.sa_flags == before[i].sa_flags);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int i = 1; i < 65; i++)
        EXPECT(sigismember(&mask, i) == sigismember(&mask_before, i));
    EXPECT(umask(bits) == 027);
    EXPECT(strcmp(setlocale(LC_ALL, NULL), "C") == 0);
}

static const struct part all[] = {PART(outside_main),
                                  PART(without_descriptors),
                                  PART(descriptors_closed_first),
                                  PART(no_more_descriptors),
                                  PART(own_file_under_every_number),
                                  PART(fewer_descriptors_for_a_while),
                                  PART(another_user_and_another_root),
                                  PART(little_address_space),
                                  PART(small_files),
                                  PART(no_madvise),
                                  PART(no_random_numbers),
                                  PART(begun_by_vfork),
                                  PART(spawned),
                                  PART(replaced),
                                  PART(loader_opened_and_closed),
                                  PART(threads_come_and_go),
                                  PART(threads_that_end_with_a_free),
                                  PART(small_stacks),
                                  PART(quick),
                                  PART(errno_and_dlerror_stay),
                                  PART(signals_umask_and_locale_stay),
                                  {NULL, NULL}};

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct part *part = all; part->name; part++)
            puts(part->name);
        return 0;
    }
    return run_part(all, argc, argv);
}
