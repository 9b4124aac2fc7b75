/*
 * Work for the tests of `zeroute run`: run_work MODE...
 *   alloc N        N device blocks of 1 MiB, all freed
 *   keep N         N device blocks of 1 MiB, kept
 *   host N         N MiB of host USM, kept
 *   wait           says "ready PID" and reads a line
 *   closefrom      closes every descriptor from 3 on
 *   fork, raw, vfork, spawn   a child of that kind; `fork` and `raw` allocate 2 blocks in it
 *   exec           another image of this program takes over, for the modes that follow
 *   fork2          a fork whose child does nothing with the device
 *   peer           a block of the first card, made resident on the second
 *   steady         a thread that asks for a block every few milliseconds, and frees what it gets
 *   busy, calm     two threads that allocate and free until `calm`
 *   threads N      N threads at once, 10 blocks each
 *   toomuch        asks for a block of 1 MiB, which must be refused
 *   die            kills itself with SIGKILL
 */
#include <level_zero/ze_api.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

extern char **environ;
static ze_context_handle_t context;
static ze_device_handle_t device;
static atomic_bool stop;
static pthread_t busy_thread[2];
static char *self;

static void check(bool good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "run_work: %s\n", what);
    _exit(3);
}

static void start(void) {
    ze_driver_handle_t driver;
    uint32_t one = 1;
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    if (context)
        return;
    check(zeInit(0) == ZE_RESULT_SUCCESS, "zeInit");
    check(zeDriverGet(&one, &driver) == ZE_RESULT_SUCCESS, "zeDriverGet");
    one = 1;
    check(zeDeviceGet(driver, &one, &device) == ZE_RESULT_SUCCESS, "zeDeviceGet");
    check(zeContextCreate(driver, &desc, &context) == ZE_RESULT_SUCCESS, "zeContextCreate");
}

static void *get(void) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;
    check(zeMemAllocDevice(context, &desc, MIB, 0, device, &p) == ZE_RESULT_SUCCESS && p, "alloc");
    return p;
}

static void alloc(long n, bool keep) {
    void *p[1000];
    start();
    for (long i = 0; i < n; i++)
        p[i] = get();
    for (long i = 0; i < n && !keep; i++)
        check(zeMemFree(context, p[i]) == ZE_RESULT_SUCCESS, "free");
}

static void host(long mib) {
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *p = NULL;
    start();
    check(zeMemAllocHost(context, &desc, (size_t)mib * MIB, 0, &p) == ZE_RESULT_SUCCESS && p, "host");
}

static void refused(void) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;
    start();
    ze_result_t result = zeMemAllocDevice(context, &desc, MIB, 0, device, &p);
    check(result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY || result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "refused");
}

static atomic_uint at_work; /* threads that have allocated */

static void *busy(void *unused) {
    (void)unused;
    for (bool first = true; !atomic_load(&stop); first = false) {
        check(zeMemFree(context, get()) == ZE_RESULT_SUCCESS, "free");
        if (first)
            atomic_fetch_add(&at_work, 1);
    }
    return NULL;
}

static void peer(void) {
    ze_driver_handle_t driver;
    ze_device_handle_t two[2] = {NULL, NULL};
    uint32_t one = 1, count = 2;
    start();
    check(zeDriverGet(&one, &driver) == ZE_RESULT_SUCCESS && zeDeviceGet(driver, &count, two) == ZE_RESULT_SUCCESS &&
              count == 2,
          "two cards");
    check(zeContextMakeMemoryResident(context, two[1], get(), MIB) == ZE_RESULT_SUCCESS, "resident");
}

static void *steady(void *unused) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    (void)unused;
    for (void *p = NULL;; usleep(5000))
        if (zeMemAllocDevice(context, &desc, MIB, 0, device, &p) == ZE_RESULT_SUCCESS)
            check(zeMemFree(context, p) == ZE_RESULT_SUCCESS, "free");
    return NULL;
}

static void *ten(void *unused) {
    (void)unused;
    for (int i = 0; i < 10; i++)
        check(zeMemFree(context, get()) == ZE_RESULT_SUCCESS, "free");
    return NULL;
}

static void threads(long n) {
    pthread_t t[512];
    start();
    for (long i = 0; i < n; i++)
        check(pthread_create(&t[i], NULL, ten, NULL) == 0, "thread");
    for (long i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

static void wait_for(pid_t child, int expected) {
    int status = -1;
    check(child > 0 && waitpid(child, &status, 0) == child, "wait");
    check(WIFEXITED(status) && WEXITSTATUS(status) == expected, "the child did not end well");
}

static void family(const char *mode) {
    char *const truth[] = {self, NULL};
    pid_t child;
    if (strcmp(mode, "fork") == 0 || strcmp(mode, "raw") == 0) {
        child = *mode == 'f' ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            alloc(2, true);
            _exit(4);
        }
        wait_for(child, 4);
    } else if (strcmp(mode, "fork2") == 0) {
        child = fork();
        if (child == 0)
            _exit(5);
        wait_for(child, 5);
    } else if (strcmp(mode, "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            execv(self, truth);
            _exit(9);
        }
        wait_for(child, 0);
    } else if (strcmp(mode, "spawn") == 0) {
        check(posix_spawn(&child, self, NULL, NULL, truth, environ) == 0, "spawn");
        wait_for(child, 0);
    } else {
        check(false, "unknown mode");
    }
}

int main(int argc, char **argv) {
    char line[64];
    self = realpath("/proc/self/exe", NULL);
    for (int i = 1; i < argc; i++) {
        const char *mode = argv[i];
        if (strcmp(mode, "alloc") == 0 || strcmp(mode, "keep") == 0) {
            alloc(strtol(argv[++i], NULL, 10), *mode == 'k');
        } else if (strcmp(mode, "host") == 0) {
            host(strtol(argv[++i], NULL, 10));
        } else if (strcmp(mode, "threads") == 0) {
            threads(strtol(argv[++i], NULL, 10));
        } else if (strcmp(mode, "wait") == 0) {
            printf("ready %d\n", getpid());
            fflush(stdout);
            check(fgets(line, sizeof line, stdin) != NULL, "nobody is there");
        } else if (strcmp(mode, "closefrom") == 0) {
            for (int fd = 3; fd < 4096; fd++)
                close(fd);
        } else if (strcmp(mode, "peer") == 0) {
            peer();
        } else if (strcmp(mode, "steady") == 0) {
            pthread_t thread;
            start();
            check(pthread_create(&thread, NULL, steady, NULL) == 0, "thread");
        } else if (strcmp(mode, "busy") == 0) {
            start();
            for (int t = 0; t < 2; t++)
                check(pthread_create(&busy_thread[t], NULL, busy, NULL) == 0, "thread");
            while (atomic_load(&at_work) < 2)
                sched_yield();
        } else if (strcmp(mode, "calm") == 0) {
            atomic_store(&stop, true);
            for (int t = 0; t < 2; t++)
                pthread_join(busy_thread[t], NULL);
        } else if (strcmp(mode, "toomuch") == 0) {
            refused();
        } else if (strcmp(mode, "die") == 0) {
            kill(getpid(), SIGKILL);
        } else if (strcmp(mode, "exec") == 0) {
            argv[i] = argv[0];
            execv(self, argv + i);
            _exit(9);
        } else {
            family(mode);
        }
    }
    free(self);
    return 0;
}
