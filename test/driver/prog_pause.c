/*
 * A program that pauses itself, or is paused, and looks whether anything is lost. Usage: pause CASE
 */
#include "ze_test.h"

#include "pause_ask.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Fails unless the answer begins so. */
static void ask(const char *request, const char *begins) {
    bool done;
    const char *reply = pause_ask(request, &done);
    if (strncmp(reply, begins, strlen(begins)) != 0 || done != (*begins == 'o')) {
        printf("%s: %s, not %s\n", request, reply, begins);
        fflush(stdout);
        _exit(1);
    }
}

static void ask_refused(const char *request, const char *because) {
    bool done;
    const char *reply = pause_ask(request, &done);
    if (done || strncmp(reply, "refused: ", 9) != 0 || !strstr(reply, because)) {
        printf("%s: %s, not refused because of %s\n", request, reply, because);
        fflush(stdout);
        _exit(1);
    }
}

static ze_command_list_handle_t list[CARDS];

static void fill(unsigned card, void *p, unsigned char with, size_t size) {
    CHECK(zeCommandListAppendMemoryFill(list[card], p, &with, 1, size, NULL, 0, NULL));
}

/* Read by this card, which may be another than the owner. */
static void holds(unsigned card, const void *p, unsigned char what, size_t size) {
    unsigned char *back = malloc(size);
    CHECK(zeCommandListAppendMemoryCopy(list[card], back, p, size, NULL, 0, NULL));
    for (size_t i = 0; i < size; i++)
        if (back[i] != what) {
            printf("byte %zu of %p is %d on card %u, not %d\n", i, p, back[i], card, what);
            fflush(stdout);
            _exit(1);
        }
    free(back);
}

static const size_t sizes[] = {4096, 64 * KIB, 65 * KIB, MIB, 2 * MIB, 3 * MIB + 17, 20 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct known {
    void *base, *owner;
    size_t size;
    ze_memory_allocation_properties_t properties;
};

static struct known ask_about(void *p) {
    struct known k = {.properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES}};
    CHECK(zeMemGetAddressRange(context, (char *)p + 100, &k.base, &k.size));
    CHECK(zeMemGetAllocProperties(context, (char *)p + 100, &k.properties, (void *)&k.owner));
    return k;
}

static void same_answers(const struct known *a, const struct known *b) {
    EQUAL(a->base == b->base && a->owner == b->owner, 1);
    EQUAL(a->size, b->size);
    EQUAL(a->properties.type, b->properties.type);
    EQUAL(a->properties.id, b->properties.id);
}

/* Blocks of all sizes on all cards, paused `times` times, read by the owner and by every peer. */
static void keeps(const char *to, int times) {
    void *p[CARDS][SIZES];
    struct known before[CARDS][SIZES], after;
    for (unsigned c = 0; c < card_count; c++)
        for (unsigned i = 0; i < SIZES; i++) {
            p[c][i] = new_device(c, sizes[i]);
            for (unsigned peer = 0; peer < card_count; peer++)
                CHECK(zeContextMakeMemoryResident(context, cards[peer], p[c][i], sizes[i]));
            fill(c, p[c][i], (unsigned char)(16 * c + i + 1), sizes[i]);
            before[c][i] = ask_about(p[c][i]);
            EQUAL(before[c][i].base == p[c][i], 1);
        }
    for (int t = 0; t < times; t++) {
        char request[300];
        snprintf(request, sizeof request, "pause to=%s", to);
        ask(request, "ok ");
        for (unsigned c = 0; c < card_count; c++)
            for (unsigned i = 0; i < SIZES; i++) {
                after = ask_about(p[c][i]);
                same_answers(&before[c][i], &after);
            }
        ask("resume", "ok resumed");
        for (unsigned c = 0; c < card_count; c++)
            for (unsigned i = 0; i < SIZES; i++) {
                bool gone = strcmp(to, "nothing") == 0 && sizes[i] >= 64 * KIB;
                unsigned char what = gone ? 0 : (unsigned char)(16 * c + i + 1 + t);
                for (unsigned peer = 0; peer < card_count; peer++)
                    holds(peer, p[c][i], what, sizes[i]);
                after = ask_about(p[c][i]);
                same_answers(&before[c][i], &after);
                fill(c, p[c][i], (unsigned char)(16 * c + i + 2 + t), sizes[i]);
            }
    }
    for (unsigned c = 0; c < card_count; c++)
        for (unsigned i = 0; i < SIZES; i++)
            CHECK(zeMemFree(context, p[c][i]));
}

/* Frees during a pause, and allocations after it at the same addresses. */
static void frees(void) {
    void *p[8], *q;
    for (unsigned i = 0; i < 8; i++) {
        p[i] = new_device(0, 3 * MIB);
        fill(0, p[i], (unsigned char)i, 3 * MIB);
    }
    ask("pause to=host timeout=5s", "ok ");
    for (unsigned i = 0; i < 8; i += 2)
        CHECK(zeMemFree(context, p[i]));
    q = new_device(0, 1000); /* small ones go through */
    CHECK(zeMemFree(context, q));
    ask("pause", "ok paused already");
    ask("resume wait=0", "ok resumed");
    ask("resume", "ok it runs");
    for (unsigned i = 1; i < 8; i += 2) {
        holds(0, p[i], (unsigned char)i, 3 * MIB);
        CHECK(zeMemFree(context, p[i]));
    }
    for (unsigned i = 0; i < 8; i++) {
        p[i] = new_device(0, 3 * MIB);
        fill(0, p[i], (unsigned char)(i + 50), 3 * MIB);
    }
    for (unsigned i = 0; i < 8; i++) {
        holds(0, p[i], (unsigned char)(i + 50), 3 * MIB);
        CHECK(zeMemFree(context, p[i]));
    }
}

/* Threads that copy all the time, each in blocks of its own, while the process is paused again and again. */
static bool stop;
struct worker {
    pthread_t thread;
    unsigned card, number;
    unsigned long rounds;
};

static void *work(void *arg) {
    struct worker *w = arg;
    ze_command_list_handle_t mine = new_list(w->card, copy_group(w->card));
    unsigned char value = (unsigned char)w->number;
    unsigned char *back = malloc(2 * MIB);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t size = (w->rounds % 3 + 1) * 300 * KIB;
        unsigned char *a = new_device(w->card, size), *b = new_device((w->card + 1) % card_count, size);
        value = (unsigned char)(value + 3);
        CHECK(zeContextMakeMemoryResident(context, cards[w->card], b, size));
        CHECK(zeCommandListAppendMemoryFill(mine, a, &value, 1, size, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(mine, b, a, size, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(mine, back, b, size, NULL, 0, NULL));
        for (size_t i = 0; i < size; i++)
            if (back[i] != value) {
                printf("round %lu, byte %zu of %p: %d, not %d\n", w->rounds, i, (void *)b, back[i], value);
                fflush(stdout);
                _exit(1);
            }
        CHECK(zeMemFree(context, a));
        CHECK(zeMemFree(context, b));
        w->rounds++;
    }
    free(back);
    CHECK(zeCommandListDestroy(mine));
    return NULL;
}

static void threads(int times) {
    struct worker w[3] = {{0}};
    void *kept = new_device(0, 8 * MIB);
    fill(0, kept, 77, 8 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        w[i] = (struct worker){.card = i % card_count, .number = i};
        pthread_create(&w[i].thread, NULL, work, &w[i]);
    }
    for (int t = 0; t < times; t++) {
        bool done;
        const char *reply = pause_ask("pause timeout=20s", &done);
        if (!done) {
            printf("pause: %s\n", reply);
            exit(1);
        }
        ask("resume", "ok resumed");
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        EQUAL(w[i].rounds > 0, 1);
    }
    holds(0, kept, 77, 8 * MIB);
}

/* VRAM that the kernel counts for this process, in MiB, all cards together; what is read is the bed's. */
static unsigned long long vram(void) {
    char path[600];
    unsigned long long sum = 0, n;
    snprintf(path, sizeof path, "%s/proc/%d/fdinfo", getenv("ZEROUTE_ROOT"), (int)getpid());
    DIR *d = opendir(path);
    EQUAL(d != NULL, 1);
    for (struct dirent *e; (e = readdir(d));) {
        char file[900], line[200];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        FILE *f = *e->d_name == '.' ? NULL : fopen(file, "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "drm-total-vram0: %llu", &n) == 1)
                sum += strstr(line, "KiB") ? n << 10 : strstr(line, "MiB") ? n << 20 : n;
        if (f)
            fclose(f);
    }
    closedir(d);
    return sum >> 20;
}

/* By the kernel's own count, with blocks that every card has made resident. */
static void gives_up(void) {
    void *p[CARDS];
    unsigned long long before, paused, after;
    for (unsigned c = 0; c < card_count; c++) {
        p[c] = new_device(c, 100 * MIB);
        for (unsigned peer = 0; peer < card_count; peer++)
            CHECK(zeContextMakeMemoryResident(context, cards[peer], p[c], 100 * MIB));
        fill(c, p[c], (unsigned char)(c + 1), 100 * MIB);
    }
    before = vram();
    ask("pause", "ok ");
    paused = vram();
    ask("resume", "ok ");
    for (unsigned c = 0; c < card_count; c++)
        holds((c + 1) % card_count, p[c], (unsigned char)(c + 1), 100 * MIB);
    after = vram();
    printf("VRAM: %llu MiB, paused %llu MiB, resumed %llu MiB\n", before, paused, after);
    EQUAL(before >= 100 * card_count, 1);
    EQUAL(before - paused >= 90 * card_count, 1); /* the driver keeps a little of what our copies took */
    EQUAL(after >= 100 * card_count && after <= before + 10 * card_count, 1);
}

static void is_off(void) {
    bool done;
    void *p = new_device(0, 2 * MIB);
    fill(0, p, 3, 2 * MIB);
    for (int i = 0; i < 2; i++) { /* read at the program's next call */
        char *map = pause_segment();
        struct zeroute_segment_header *h = (void *)map;
        struct zeroute_segment_control *c = (void *)(map + h->control_offset);
        snprintf(c->text, sizeof c->text, i ? "resume" : "pause");
        __atomic_store_n(&c->request, 7u + (unsigned)i, __ATOMIC_SEQ_CST);
        CHECK(zeMemFree(context, new_device(0, 4096)));
        EQUAL(__atomic_load_n(&c->answer, __ATOMIC_SEQ_CST), 7u + (unsigned)i);
        done = c->code == ZEROUTE_CARRIED_OUT;
        EQUAL(done, false);
        EQUAL(strstr(c->reply, "pause:on") != NULL, 1);
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

static void closed_list(void) {
    void *p = new_device(0, 2 * MIB);
    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = copy_group(0)};
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .commandQueueGroupOrdinal = copy_group(0)};
    ze_command_list_handle_t later;
    ze_command_queue_handle_t queue;
    unsigned char nine = 9;
    CHECK(zeCommandQueueCreate(context, cards[0], &queue_desc, &queue));
    CHECK(zeCommandListCreate(context, cards[0], &desc, &later));
    ask("pause", "ok ");
    ask("resume", "ok resumed");
    CHECK(zeCommandListAppendMemoryFill(later, p, &nine, 1, 2 * MIB, NULL, 0, NULL));
    ask_refused("pause", "1 command list");
    CHECK(zeCommandListClose(later));
    ask_refused("pause", "1 command list");
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &later, NULL));
    CHECK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    ask_refused("pause", "1 command list");
    holds(0, p, 9, 2 * MIB);
    CHECK(zeCommandListReset(later));
    ask("pause", "ok ");
    ask("resume", "ok resumed");
    holds(0, p, 9, 2 * MIB);
    CHECK(zeCommandListAppendMemoryFill(later, p, &nine, 1, 2 * MIB, NULL, 0, NULL));
    CHECK(zeCommandListDestroy(later));
    ask("pause", "ok ");
    ask("resume", "ok resumed");
    CHECK(zeCommandQueueDestroy(queue));
}

static void exported(void) {
    void *p = new_device(0, 2 * MIB);
    ze_ipc_mem_handle_t handle;
    CHECK(zeMemGetIpcHandle(context, p, &handle));
    ask_refused("pause", "IPC handle");
    fill(0, p, 5, 2 * MIB);
    holds(0, p, 5, 2 * MIB);
    CHECK(zeMemFree(context, p));
    ask("pause", "ok ");
    ask("resume", "ok resumed");
}

/* A command that waits for an event that the program signals later. */
static void busy(void) {
    void *p = new_device(0, 2 * MIB);
    ze_event_handle_t event[1];
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = copy_group(0)};
    ze_command_list_handle_t waits;
    unsigned char nine = 9;
    fill(0, p, 1, 2 * MIB);
    new_events(event, 1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    CHECK(zeCommandListCreateImmediate(context, cards[0], &desc, &waits));
    CHECK(zeCommandListAppendMemoryFill(waits, p, &nine, 1, 2 * MIB, NULL, 1, event));
    ask_refused("pause timeout=200ms", "rest in time");
    CHECK(zeEventHostSignal(event[0]));
    ask("pause", "ok ");
    ask("resume", "ok resumed");
    holds(0, p, 9, 2 * MIB);
}

static void no_room(void) {
    void *p = new_device(0, 2 * MIB);
    fill(0, p, 3, 2 * MIB);
    ask_refused("pause to=/nowhere/at/all", "folder");
    ask_refused("pause to=here", "to=FOLDER");
    ask_refused("pause loudly", "to=FOLDER");
    if (getenv("PAUSE_FULL")) {
        char request[300];
        snprintf(request, sizeof request, "pause to=%s", getenv("PAUSE_FULL"));
        ask_refused(request, "not enough room");
    }
    holds(0, p, 3, 2 * MIB);
}

/* Somebody else has taken the card meanwhile. */
static void no_way_back(void) {
    void *p = new_device(0, 64 * MIB), *other = NULL;
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t alone;
    ze_device_mem_alloc_desc_t small = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *taken[20000];
    unsigned count = 0;
    CHECK(zeContextCreate(driver, &desc, &alone));
    fill(0, p, 42, 64 * MIB);
    ask("pause", "ok ");
    /* Blocks below 64 KiB go through. */
    while (count < 20000 && zeMemAllocDevice(alone, &small, 60 * KIB, 64 * KIB, cards[0], &other) == ZE_RESULT_SUCCESS)
        taken[count++] = other;
    EQUAL(count < 20000, 1);
    ask_refused("resume", "card 0");
    ask("resume wait=1", "ok waiting");
    for (unsigned i = 0; i < count; i++)
        CHECK(zeMemFree(alone, taken[i]));
    for (int i = 0; i < 1000; i++) {
        bool done;
        if (strstr(pause_ask("resume", &done), "ok"))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    holds(0, p, 42, 64 * MIB);
}

/* --- what happens to a paused process --------------------------------------------------------- */

static void forks(void) {
    void *p = new_device(0, 8 * MIB);
    int status;
    fill(0, p, 8, 8 * MIB);
    ask("pause", "ok ");
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    waitpid(child, &status, 0);
    EQUAL(WEXITSTATUS(status), 7);
    child = fork();
    if (child == 0)
        exit(6); /* with exit handlers */
    waitpid(child, &status, 0);
    EQUAL(WIFEXITED(status) && WEXITSTATUS(status) == 6, 1);
    ask("resume", "ok resumed");
    holds(0, p, 8, 8 * MIB);
}

static volatile sig_atomic_t signalled;
static void on_signal(int n) {
    (void)n;
    signalled++;
}

static void *submit_while_paused(void *p) {
    fill(0, p, 66, 4 * MIB);
    return NULL;
}

/* A thread that submits waits, and takes signals meanwhile. */
static void waits(void) {
    void *p = new_device(0, 4 * MIB);
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    fill(0, p, 33, 4 * MIB);
    ask("pause", "ok ");
    pthread_create(&thread, NULL, submit_while_paused, p);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        pthread_kill(thread, SIGUSR1);
    }
    EQUAL(pthread_tryjoin_np(thread, NULL) != 0, 1);
    EQUAL(signalled > 0, 1);
    ask("resume", "ok resumed");
    pthread_join(thread, NULL);
    holds(0, p, 66, 4 * MIB);
}

static void exits(void) {
    void *p = new_device(0, 4 * MIB);
    fill(0, p, 33, 4 * MIB);
    ask("pause", "ok ");
    exit(0); /* by its handlers, paused */
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    int times = argc > 3 ? atoi(argv[3]) : 3;
    start();
    for (unsigned c = 0; c < card_count; c++)
        list[c] = new_list(c, copy_group(c));
    if (strcmp(which, "keeps") == 0)
        keeps(argc > 2 ? argv[2] : "host", times);
    else if (strcmp(which, "frees") == 0)
        frees();
    else if (strcmp(which, "threads") == 0)
        threads(argc > 2 ? atoi(argv[2]) : 20);
    else if (strcmp(which, "closed_list") == 0)
        closed_list();
    else if (strcmp(which, "exported") == 0)
        exported();
    else if (strcmp(which, "busy") == 0)
        busy();
    else if (strcmp(which, "no_room") == 0)
        no_room();
    else if (strcmp(which, "no_way_back") == 0)
        no_way_back();
    else if (strcmp(which, "forks") == 0)
        forks();
    else if (strcmp(which, "waits") == 0)
        waits();
    else if (strcmp(which, "gives_up") == 0)
        gives_up();
    else if (strcmp(which, "is_off") == 0)
        is_off();
    else if (strcmp(which, "reserves_elsewhere") == 0) {
        fill(0, new_device(0, 2 * MIB), 1, 2 * MIB);
        ask_refused("pause", "does not reserve");
    } else if (strcmp(which, "exits") == 0)
        exits();
    else
        return 2;
    return 0;
}
