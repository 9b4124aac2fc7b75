/*
 * One memory error per part, and legal programs that look like errors. Under check each error is reported, and a legal
 * program runs as without it. A part prints the offsets and addresses that a report must name.
 */
#include "sim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

static struct gpu gpu;
static ze_command_list_handle_t list; /* synchronous */

static void begin(void) {
    gpu = first_gpu();
    list = immediate(&gpu, 0, true);
}

static void end(void) {
    OK(zeCommandListDestroy(list));
    OK(zeContextDestroy(gpu.context));
}

/* The device writes. */
static void write_bytes(void *p, long offset, size_t length) {
    static const unsigned char value = 0x5a;

    OK(zeCommandListAppendMemoryFill(list, (char *)p + offset, &value, 1, length, NULL, 0, NULL));
}

static void read_bytes(unsigned char *to, const void *p, size_t length) {
    OK(zeCommandListAppendMemoryCopy(list, to, p, length, NULL, 0, NULL));
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void write_after_free(void) {
    begin();
    void *beside = on_card(&gpu, 0, 1000), *p = on_card(&gpu, 0, 4096), *behind = on_card(&gpu, 0, 1000);
    OK(zeMemFree(gpu.context, p));
    write_bytes(p, 128, 8);
    OK(zeMemFree(gpu.context, beside));
    OK(zeMemFree(gpu.context, behind));
    printf("block %p\n", p);
    end();
}

static void write_after_free_large(void) {
    begin();
    void *p = on_card(&gpu, 0, 5 * MIB);
    OK(zeMemFree(gpu.context, p));
    write_bytes(p, 3 * MIB + 5, 1);
    end();
}

static void write_after_free_host(void) {
    begin();
    void *p = NULL;
    OK(zeMemAllocHost(gpu.context, &host_desc, 4096, 0, &p));
    OK(zeMemFree(gpu.context, p));
    ((volatile char *)p)[77] = 1;
    end();
}

/* Freed memory that is held back makes room for a red zone, not for the block alone. */
static void overrun_full_card(void) {
    begin();
    size_t size = (size_t)(usable_memory(gpu.card[0]) / 4 * 3 / MIB * MIB);
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, size)));
    void *p = on_card(&gpu, 0, size);
    write_bytes(p, (long)size, 3);
    OK(zeMemFree(gpu.context, p));
    end();
}

/* There is room for the block, and none for its red zone. */
static void whole_card(void) {
    begin();
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, (size_t)usable_memory(gpu.card[0]))));
    end();
}

static void overrun(void) {
    begin();
    void *p = on_card(&gpu, 0, 1000);
    write_bytes(p, 0, 1003);
    OK(zeMemFree(gpu.context, p));
    end();
}

/* `zeroute ctl PID check` finds it while the block lives. The request is carried out in a call of ours. */
static void overrun_live(void) {
    char pid[16];
    int status = 0;
    size_t size = 0;
    void *base = NULL;
    begin();
    void *p = on_card(&gpu, 0, 1000);
    write_bytes(p, 0, 1003);
    snprintf(pid, sizeof pid, "%d", getpid());
    int tool = fork();
    if (tool == 0) {
        unsetenv("LD_PRELOAD");
        execl(getenv("ZEROUTE_TOOL"), "zeroute", "ctl", pid, "check", NULL);
        _exit(127);
    }
    while (waitpid(tool, &status, WNOHANG) == 0) {
        OK(zeMemGetAddressRange(gpu.context, p, &base, &size));
        pause_ms(1);
    }
    EXPECT(status == 0);
    printf("it was asked\n");
    fflush(stdout);
    OK(zeMemFree(gpu.context, p));
    end();
}

static void underrun(void) {
    begin();
    char *before = on_card(&gpu, 0, 960), *p = on_card(&gpu, 0, 960);
    write_bytes(p > before ? p : before, -4, 4);
    OK(zeMemFree(gpu.context, p));
    OK(zeMemFree(gpu.context, before));
    end();
}

static void double_free(void) {
    begin();
    void *p = on_card(&gpu, 0, 4096);
    OK(zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
    end();
}

static void __attribute__((noinline)) free_twice(void) {
    void *p = on_card(&gpu, 0, 4096);
    OK(zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
}

static void double_free_thrice(void) {
    begin();
    for (int i = 0; i < 3; i++)
        free_twice();
    end();
}

static void interior_free(void) {
    begin();
    char *p = on_card(&gpu, 0, 4096);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    OK(zeMemFree(gpu.context, p));
    end();
}

static void foreign_free(void) {
    static char nothing[64];
    begin();
    void *p = on_card(&gpu, 0, 4096);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, nothing));
    OK(zeMemFree(gpu.context, p));
    end();
}

static void wrong_context(void) {
    begin();
    struct gpu other = gpu;
    use_driver(&other, gpu.driver);
    void *p = on_card(&gpu, 0, 4096);
    OK(zeMemFree(other.context, p));
    OK(zeContextDestroy(other.context));
    end();
}

static void context_live(void) {
    begin();
    on_card(&gpu, 0, 4096);
    end();
}

/* The driver may give a new context the handle of the one that is gone: its blocks are not told of again. */
static void context_live_once(void) {
    struct gpu other;
    begin();
    other = gpu;
    on_card(&gpu, 0, 4096);
    end();
    for (int i = 0; i < 4; i++) {
        use_driver(&other, gpu.driver);
        OK(zeContextDestroy(other.context));
    }
}

static void leak(void) {
    begin();
    on_card(&gpu, 0, 4096);
}

/* The three largest of these are named. */
static void leaks(void) {
    static const size_t size[] = {1000, 3 * MIB, 500, 2 * MIB, 2000, 600, 700};
    begin();
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
        on_card(&gpu, 0, size[i]);
}

/* Prints what the report must say of a block that lives beside p. */
static void must_be_told(const char *p, const char *beside) {
    size_t away = (size_t)(beside < p ? p - beside : beside - p) - 1000;
    printf("must be told:   %s it  %zu bytes away: %p, 1000 bytes, live\n", beside < p ? "before" : "behind", away,
           (const void *)beside);
}

/* Between the freed block and those that live on either side lie blocks that were freed before it. */
static void beside(void) {
    char *p[5];
    begin();
    for (int i = 0; i < 5; i++)
        p[i] = on_card(&gpu, 0, 1000);
    OK(zeMemFree(gpu.context, p[1]));
    OK(zeMemFree(gpu.context, p[3]));
    OK(zeMemFree(gpu.context, p[2]));
    write_bytes(p[2], 0, 1);
    must_be_told(p[2], p[0]);
    must_be_told(p[2], p[4]);
}

static void many(void) {
    begin();
    for (int i = 0; i < 14; i++) {
        void *p = on_card(&gpu, 0, 1000);
        write_bytes(p, 1000, 1);
        OK(zeMemFree(gpu.context, p));
    }
    end();
}

/* --- two processes ------------------------------------------------------------------------------------------------ */

/* Forked before Level Zero is touched: the parent exports, the child opens. Bytes through the pipes are their turns. */
static int to_child[2], to_parent[2];
static int importer;
static bool without_segment; /* the importer */

static void turn(int fd) {
    EXPECT(write(fd, "", 1) == 1);
}

static void await_turn(int fd) {
    char c;
    EXPECT(read(fd, &c, 1) == 1);
}

/* Returns the block, or in the child what it has opened `opens` times. */
static void *share(unsigned opens, ze_ipc_mem_handle_t *handle) {
    void *p = NULL;
    EXPECT(pipe(to_child) == 0 && pipe(to_parent) == 0);
    importer = fork() == 0;
    if (importer && without_segment)
        setenv("ZEROUTE_CONF", "check:all,check_wait:20s,stats:off", 1);
    begin();
    if (!importer) {
        p = on_card(&gpu, 0, 2 * MIB);
        OK(zeMemGetIpcHandle(gpu.context, p, handle));
        EXPECT(write(to_child[1], handle, sizeof *handle) == (ssize_t)sizeof *handle);
        await_turn(to_parent[0]);
        return p;
    }
    EXPECT(read(to_child[0], handle, sizeof *handle) == (ssize_t)sizeof *handle);
    for (unsigned i = 0; i < opens; i++)
        OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], *handle, 0, &p));
    turn(to_parent[1]);
    return p;
}

static void join(void) {
    int status = 0;
    EXPECT(wait(&status) > 0 && status == 0);
}

static void ipc_freed_open(void) {
    ze_ipc_mem_handle_t handle;
    unsigned char byte = 0;
    void *p = share(1, &handle);
    if (!importer) {
        write_bytes(p, 0, 1);
        OK(zeMemFree(gpu.context, p));
        turn(to_child[1]);
        join();
    } else {
        await_turn(to_child[0]);
        read_bytes(&byte, p, 1);
        EXPECT(byte == 0x5a); /* what the importer reads is not changed */
        OK(zeMemCloseIpcHandle(gpu.context, p));
    }
    end();
}

/* Under check_exported:poison. */
static void ipc_poisoned(void) {
    ze_ipc_mem_handle_t handle;
    unsigned char byte = 0;
    void *p = share(1, &handle);
    if (!importer) {
        write_bytes(p, 0, 1);
        OK(zeMemFree(gpu.context, p));
        turn(to_child[1]);
        join();
    } else {
        await_turn(to_child[0]);
        read_bytes(&byte, p, 1);
        EXPECT(byte == 0xff);
        OK(zeMemCloseIpcHandle(gpu.context, p));
    }
    end();
}

/* The importer does nothing more, and has its own stderr: the exporter waits for what is told there. */
static void ipc_told_at_once(void) {
    static char text[8192];
    ze_ipc_mem_handle_t handle;
    size_t used = 0;
    ssize_t n;
    int told[2];
    EXPECT(pipe(told) == 0);
    void *p = share(1, &handle);
    if (importer) {
        dup2(told[1], 2);
        turn(to_parent[1]);
        await_turn(to_child[0]);
        _exit(0);
    }
    await_turn(to_parent[0]);
    OK(zeMemFree(gpu.context, p));
    while (!strstr(text, "opened     by thread") && (n = read(told[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    printf("told by the importer: %s\n", text);
    turn(to_child[1]);
    join();
    end();
}

/* What is said of a process without a segment. */
static void ipc_no_segment(void) {
    ze_ipc_mem_handle_t handle;
    without_segment = true;
    void *p = share(1, &handle);
    if (importer) {
        await_turn(to_child[0]);
        OK(zeMemCloseIpcHandle(gpu.context, p));
    } else {
        OK(zeMemFree(gpu.context, p));
        turn(to_child[1]);
        join();
    }
    end();
}

static void ipc_half_closed(void) {
    ze_ipc_mem_handle_t handle;
    void *p = share(2, &handle);
    if (importer) {
        OK(zeMemCloseIpcHandle(gpu.context, p));
        turn(to_parent[1]);
        await_turn(to_child[0]);
        exit(0);
    }
    await_turn(to_parent[0]);
    OK(zeMemFree(gpu.context, p));
    turn(to_child[1]);
    join();
    end();
}

static void ipc_unclosed(void) {
    ze_ipc_mem_handle_t handle;
    void *p = share(2, &handle);
    if (importer) {
        OK(zeMemCloseIpcHandle(gpu.context, p));
        exit(0);
    }
    join();
    OK(zeMemFree(gpu.context, p));
    end();
}

/* Intel's driver opens a handle that it has opened before, whatever has become of the block. */
static void ipc_opened_late(void) {
    ze_ipc_mem_handle_t handle;
    void *p = share(1, &handle);
    if (importer) {
        OK(zeMemCloseIpcHandle(gpu.context, p));
        turn(to_parent[1]);
        await_turn(to_child[0]);
        OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &p));
        exit(0);
    }
    await_turn(to_parent[0]);
    OK(zeMemFree(gpu.context, p));
    turn(to_child[1]);
    join();
    end();
}

static void ipc_clean(void) {
    ze_ipc_mem_handle_t handle;
    void *p = share(1, &handle);
    if (!importer) {
        join();

        OK(zeMemFree(gpu.context, p));
    } else {
        OK(zeMemCloseIpcHandle(gpu.context, p));
    }
    end();
}

/* Taken back, where the loader can. Intel's driver gives the next handle the same number. */
static void put_handle(ze_ipc_mem_handle_t handle) {
    ze_result_t (*put)(ze_context_handle_t, ze_ipc_mem_handle_t);
    void *address = dlsym(RTLD_DEFAULT, "zeMemPutIpcHandle");
    memcpy(&put, &address, sizeof put);
    if (put)
        OK(put(gpu.context, handle));
}

/* Handles of two blocks have the same bytes. One is closed by the importer, then freed; the other one is still open. */
static void ipc_same_bytes(void) {
    ze_ipc_mem_handle_t handle;
    void *first = share(1, &handle), *second = NULL;
    if (!importer) {
        second = on_card(&gpu, 0, 2 * MIB);
        put_handle(handle);
        OK(zeMemGetIpcHandle(gpu.context, second, &handle));
        EXPECT(write(to_child[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
        await_turn(to_parent[0]);
        OK(zeMemFree(gpu.context, second));
        turn(to_child[1]);
        join();
        OK(zeMemFree(gpu.context, first));
    } else {
        EXPECT(read(to_child[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
        OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &second));
        OK(zeMemCloseIpcHandle(gpu.context, second));
        turn(to_parent[1]);
        await_turn(to_child[0]);
        pause_ms(100); /* it looks at what it has open every 50 ms */
        OK(zeMemCloseIpcHandle(gpu.context, first));
    }
    end();
}

/* Under check:guard: the driver's own answer, and the block is the program's as before. */
static void refused_free(void) {
    begin();
    void *p = on_card(&gpu, 0, 1000);
    GIVES(ZE_RESULT_ERROR_DEVICE_LOST, zeMemFree(gpu.context, p));
    write_bytes(p, 0, 1000);
    OK(zeMemFree(gpu.context, p));
    end();
}

/* Physical memory on the host is known by its handle: what lies there is the driver's own. */
static void physical_on_host(void) {
    enum { ON_HOST = 2 };
    ze_physical_mem_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .flags = (ze_physical_mem_flags_t)ON_HOST, .size = 2 * MIB};
    ze_physical_mem_handle_t physical[4];
    begin();
    for (int i = 0; i < 4; i++)
        OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical[i]));
    pause_ms(20);
    for (int i = 0; i < 4; i++) {
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, physical[i])); /* no memory of ours */
        OK(zePhysicalMemDestroy(gpu.context, physical[i]));
    }
    end();
}

/* What check does not hold back leaves the books once. */
static void booked_once(void) {
    begin();
    for (int i = 0; i < 8; i++)
        OK(zeMemFree(gpu.context, on_card(&gpu, 0, 4 * MIB)));
    end();
}

/*
 * A program that has closed its standard streams before anything is exported: what it prints, and opens, must not
 * meet a file of ours there.
 */
static void streams_closed(void) {
    enum { STREAMS = 3, ABOVE = 100 };
    ze_ipc_mem_handle_t handle;
    begin();
    void *p = on_card(&gpu, 0, 2 * MIB);
    for (int fd = 0; fd < STREAMS; fd++) {
        EXPECT(fcntl(fd, F_DUPFD, ABOVE + fd) == ABOVE + fd);
        close(fd);
    }
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    for (int fd = 0; fd < STREAMS; fd++) {
        char link[32], file[128] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, file, sizeof file - 1);
        EXPECT(dup2(ABOVE + fd, fd) == fd);
        EXPECT(length <= 0 || !strstr(file, "/zeroute-"));
    }
    OK(zeMemFree(gpu.context, p));
    end();
}

/* --- legal programs ----------------------------------------------------------------------------------------------- */

/* Everything that is done above, done right; with every kind of memory and every kind of free. */
static void clean(void) {
    unsigned char bytes[4096];
    begin();
    for (unsigned round = 0; round < 20; round++) {
        void *p[4] = {on_card(&gpu, 0, 1000), on_card(&gpu, gpu.cards - 1, 4096), NULL, NULL}, *base = NULL;
        size_t size = 0;
        OK(zeMemAllocHost(gpu.context, &host_desc, 3000, 0, &p[2]));
        OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, 5000, 0, gpu.card[0], &p[3]));
        write_bytes(p[0], 0, 1000);
        memset(p[2], 1, 3000);
        memset(p[3], 2, 5000);
        read_bytes(bytes, p[0], 1000);
        for (int i = 0; i < 1000; i++)
            EXPECT(bytes[i] == 0x5a);
        OK(zeMemGetAddressRange(gpu.context, (char *)p[0] + 999, &base, &size));
        EXPECT(base == p[0] && size == 1000);
        OK(zeMemGetAddressRange(gpu.context, p[3], &base, &size));
        EXPECT(base == p[3] && size == 5000);
        EXPECT(zeMemGetAddressRange(gpu.context, (char *)p[0] + 1001, &base, &size) != ZE_RESULT_SUCCESS ||
               base != p[0]);
        OK(zeMemFree(gpu.context, p[0]));
        EXPECT(zeMemGetAddressRange(gpu.context, p[0], &base, &size) != ZE_RESULT_SUCCESS);
        OK(free_with(&gpu, p[1], round % 3));
        OK(free_with(&gpu, p[2], 0));
        OK(zeMemFree(gpu.context, p[3]));
    }
    end();
}

/* The free comes before the command that reads the block is done: it reads what was there. Policy 0: zeMemFree. */
static void free_under_its_reader(size_t size, uint32_t policy, void (*meanwhile)(void)) {
    static unsigned char out[4 * MIB];
    begin();
    ze_command_list_handle_t later = immediate(&gpu, 0, false);
    ze_event_handle_t go = new_event(&gpu), done = new_event(&gpu);
    void *p = on_card(&gpu, 0, size), *q = on_card(&gpu, 0, size);
    write_bytes(p, 0, size);
    OK(zeCommandListAppendMemoryCopy(later, q, p, size, done, 1, &go));
    OK(policy ? free_with(&gpu, p, policy) : zeMemFree(gpu.context, p));
    if (meanwhile)
        meanwhile();
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
    read_bytes(out, q, size);
    for (size_t i = 0; i < size; i++)
        EXPECT(out[i] == 0x5a);
    OK(zeMemFree(gpu.context, q));
    OK(zeCommandListDestroy(later));
    end();
}

/* What v1 adapters let programs do. */
static void in_flight(void) {
    free_under_its_reader(1 * MIB, 0, NULL);
}

/* The list waits for what this very thread does after the frees; the blocks themselves are not in use. */
static void free_while_waiting(ze_command_list_handle_t later, size_t size) {
    ze_event_handle_t go = new_event(&gpu), done = new_event(&gpu);
    void *q = on_card(&gpu, 0, 4 * MIB); /* of its own, not in a slab with others: BLOCKING waits for the slab */
    static const unsigned char one = 1;
    OK(zeCommandListAppendMemoryFill(later, q, &one, 1, 4 * MIB, done, 1, &go));
    for (uint32_t i = 0; i < 12; i++) {
        void *p = on_card(&gpu, 0, size);
        OK(i % 4 == 2 ? zeMemFree(gpu.context, p) : free_with(&gpu, p, (i + 1) % 4)); /* BLOCKING first */
    }
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
    OK(zeMemFree(gpu.context, q));
    OK(zeCommandListDestroy(later));
    end();
}

static void waits_for_us(void) {
    begin();
    free_while_waiting(immediate(&gpu, 0, false), 4096);
}

/* On the engine that check works through as well: its commands come behind those that wait. */
static void waits_for_us_copying(void) {
    ze_command_queue_group_properties_t group[8] = {0};
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t later;
    uint32_t groups = 8;
    begin();
    OK(zeDeviceGetCommandQueueGroupProperties(gpu.card[0], &groups, group));
    while (group[desc.ordinal].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE && desc.ordinal < groups - 1)
        desc.ordinal++;
    OK(zeCommandListCreateImmediate(gpu.context, gpu.card[0], &desc, &later));
    free_while_waiting(later, 4 * MIB);
}

static void drain_everything(void) {
    struct gpu other = gpu;
    use_driver(&other, gpu.driver);
    OK(zeContextDestroy(other.context));
    usable_memory(gpu.card[0]);
}

/* What DEFER leaves to its reader stays for it, even when a context goes or free memory is asked for meanwhile. */
static void deferred(void) {
    free_under_its_reader(4 * MIB, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE, drain_everything);
}

static ze_event_handle_t signalled;
static void *signal_later(void *ms) {
    pause_ms((long)(intptr_t)ms);
    OK(zeEventHostSignal(signalled));
    return NULL;
}

/* A free that blocks returns when the reader is done, and not before. */
static void blocking(void) {
    enum { SIZE = 1 << 20 };
    static unsigned char out[SIZE];
    pthread_t thread;
    begin();
    ze_command_list_handle_t later = immediate(&gpu, 0, false);
    ze_event_handle_t done = new_event(&gpu);
    void *p = on_card(&gpu, 0, SIZE), *q = on_card(&gpu, 0, SIZE);
    signalled = new_event(&gpu);
    write_bytes(p, 0, SIZE);
    OK(zeCommandListAppendMemoryCopy(later, q, p, SIZE, done, 1, &signalled));
    EXPECT(pthread_create(&thread, NULL, signal_later, (void *)(intptr_t)200) == 0);
    OK(free_with(&gpu, p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE));
    OK(zeEventQueryStatus(done));
    read_bytes(out, q, SIZE);
    for (int i = 0; i < SIZE; i++)
        EXPECT(out[i] == 0x5a);
    pthread_join(thread, NULL);
    OK(zeMemFree(gpu.context, q));
    OK(zeCommandListDestroy(later));
    end();
}

/* The quarantine goes before the program is told that memory is short. */
static void full_card(void) {
    begin();
    uint64_t room = usable_memory(gpu.card[0]);
    for (int i = 0; i < 6; i++) {
        void *p = on_card(&gpu, 0, (size_t)(room / 4 * 3));
        OK(zeMemFree(gpu.context, p));
    }
    EXPECT(usable_memory(gpu.card[0]) >= room / 10 * 9);
    end();
}

static void forks(void) {
    begin();
    void *p = on_card(&gpu, 0, 4096);
    OK(zeMemFree(gpu.context, p));
    int pid = fork(), status = 0;
    if (pid == 0)
        exit(0);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    p = on_card(&gpu, 0, 4096);
    OK(zeMemFree(gpu.context, p));
    end();
}

static void *work(void *unused) {
    struct gpu own = gpu;
    for (int i = 0; i < 60; i++) {
        void *p = on_card(&own, 0, 512 + (size_t)i * 100), *q = on_card(&own, 0, 70000);
        OK(zeMemFree(own.context, p));
        OK(free_with(&own, q, (uint32_t)i % 3));
    }
    return unused;
}

static void threads(void) {
    pthread_t thread[4];
    begin();
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&thread[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    end();
}

int main(int argc, char **argv) {
    static const struct part parts[] = {PART(write_after_free),
                                        PART(write_after_free_large),
                                        PART(write_after_free_host),
                                        PART(overrun),
                                        PART(overrun_full_card),
                                        PART(overrun_live),
                                        PART(underrun),
                                        PART(double_free),
                                        PART(double_free_thrice),
                                        PART(interior_free),
                                        PART(foreign_free),
                                        PART(wrong_context),
                                        PART(context_live),
                                        PART(context_live_once),
                                        PART(leak),
                                        PART(leaks),
                                        PART(beside),
                                        PART(many),
                                        PART(ipc_freed_open),
                                        PART(ipc_poisoned),
                                        PART(ipc_told_at_once),
                                        PART(ipc_no_segment),
                                        PART(ipc_half_closed),
                                        PART(ipc_unclosed),
                                        PART(ipc_opened_late),
                                        PART(ipc_clean),
                                        PART(ipc_same_bytes),
                                        PART(refused_free),
                                        PART(physical_on_host),
                                        PART(booked_once),
                                        PART(streams_closed),
                                        PART(clean),
                                        PART(in_flight),
                                        PART(waits_for_us),
                                        PART(waits_for_us_copying),
                                        PART(deferred),
                                        PART(blocking),
                                        PART(full_card),
                                        PART(whole_card),
                                        PART(forks),
                                        PART(threads),
                                        {NULL, NULL}};
    return run_part(parts, argc > 2 ? 2 : argc, argv); /* the rest is for reports to show */
}
