/*
 * What pause:on costs, for bench_pause: "gate" prints the nanoseconds of entering and leaving the gate that each
 * submission passes; "rate MIB ROUNDS" the GiB per second of a pause and of a resume, beside copies of the same
 * blocks by the program through a host buffer. The gate is that of the preload, by itself.
 */
#include "../pause_ask.h"
#include "bench.h"
#include "pause/gate.c" /* NOLINT: what it measures */

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <string.h>

/* What gate.c needs of the rest. */
__thread struct zr_thread zr_thread;
static struct zr_settings settings;
struct zr_settings *zr_config_in_force = &settings;
void zr_gauge(enum zr_gauge g, uint64_t value) {
    (void)g;
    (void)value;
}
bool zr_pause_halts(void) {
    return false;
}
bool zr_thread_register(void) {
    zr_thread.attended = true;
    return true;
}
void *zr_piece(size_t bytes) {
    return calloc(1, bytes);
}
void zr_futex_wait(uint32_t *word, uint32_t seen, uint64_t ns) {
    (void)word;
    (void)seen;
    (void)ns;
}
void zr_futex_wake(uint32_t *word) {
    (void)word;
}

enum { TIMES = 2000000, TURNS = 21, CHUNK = 16 << 20, BLOCK = 64 << 20, MOST = 256 };

static double gate_ns(void) {
    double start = now_ns();

    for (int i = 0; i < TIMES; i++) {
        enum zr_gate gate = zr_gate_begin(ZR_GATE_WORK);

        __asm__ volatile("" ::: "memory");
        zr_gate_end(&gate);
    }
    return (now_ns() - start) / TIMES;
}

static void gate(void) {
    double off[TURNS], on[TURNS];

    for (int i = 0; i < TURNS; i++) {
        settings.pause = false;
        off[i] = gate_ns();
        settings.pause = true;
        on[i] = gate_ns();
    }
    printf("{\"off\": %.2f, \"on\": %.2f}\n", median(off, TURNS), median(on, TURNS));
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != ZE_RESULT_SUCCESS) {                                                                             \
            fprintf(stderr, "%s failed\n", #call);                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static ze_context_handle_t context;
static ze_command_list_handle_t list;
static char *through, *host;
static void *block[MOST];
static int blocks;

static void copy_all(bool out) {
    for (int b = 0; b < blocks; b++)
        for (size_t at = 0; at < BLOCK; at += CHUNK) {
            char *card = (char *)block[b] + at, *here = host + (size_t)b * BLOCK + at;

            if (!out)
                memcpy(through, here, CHUNK);
            OK(zeCommandListAppendMemoryCopy(list, out ? through : card, out ? card : through, CHUNK, NULL, 0, NULL));
            if (out)
                memcpy(here, through, CHUNK);
        }
}

static void ask(const char *request) {
    bool done;
    const char *reply = pause_ask(request, &done);

    if (!done) {
        fprintf(stderr, "%s\n", reply);
        exit(1);
    }
}

static double gib_per_s(double start) {
    return (double)blocks * BLOCK / (1 << 30) / ((now_ns() - start) / 1e9);
}

static void rate(int mib, int rounds) {
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_driver_handle_t driver;
    ze_device_handle_t card;
    uint32_t one = 1;
    double figure[4][64], start;
    const char *const name[] = {"copy_out", "copy_in", "pause", "resume"};

    blocks = mib / (BLOCK >> 20);
    OK(zeInit(0));
    OK(zeDriverGet(&one, &driver));
    OK(zeDeviceGet(driver, &one, &card));
    OK(zeContextCreate(driver, &context_desc, &context));
    OK(zeCommandListCreateImmediate(context, card, &queue, &list));
    OK(zeMemAllocHost(context, &host_desc, CHUNK, 64, (void **)&through));
    host = malloc((size_t)blocks * BLOCK);
    for (int b = 0; b < blocks; b++)
        OK(zeMemAllocDevice(context, &desc, BLOCK, 0, card, &block[b]));
    memset(host, 1, (size_t)blocks * BLOCK);
    copy_all(false);
    for (int r = 0; r < rounds; r++) {
        start = now_ns();
        copy_all(true);
        figure[0][r] = gib_per_s(start);
        start = now_ns();
        copy_all(false);
        figure[1][r] = gib_per_s(start);
        start = now_ns();
        ask("pause timeout=60s");
        figure[2][r] = gib_per_s(start);
        start = now_ns();
        ask("resume");
        figure[3][r] = gib_per_s(start);
    }
    for (int i = 0; i < 4; i++)
        printf("%s\"%s\": %.2f", i ? ", " : "{", name[i], median(figure[i], (size_t)rounds));
    printf("}\n");
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "rate") == 0)
        rate(atoi(argv[2]), atoi(argv[3]));
    else
        gate();
    return 0;
}
