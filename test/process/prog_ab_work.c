/*
 * A program to compare: takes device memory on the first card, makes it resident on every card as a SYCL
 * runtime does, fills and reads it, and prints a checksum and a score. Arguments are name=value:
 *   blocks, mib      how much memory
 *   hold             milliseconds that it stays allocated
 *   resident         0: on the owner alone
 *   sycl_drops       1: under route:sycl no peer residency is asked, the mistake of the withdrawn report
 *   score, noise     the score is around this, by so many percent
 *   wrong            1: the checksum is wrong, faster though it may be
 * AB_EFFECT (percent) is added to the score; AB_COUNT names a file that counts the runs, the seed of the noise.
 */
#include <level_zero/ze_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CARDS = 8, BLOCKS = 256 };

static void check(ze_result_t result, const char *what) {
    if (result == ZE_RESULT_SUCCESS)
        return;
    fprintf(stderr, "%s: %#x\n", what, (unsigned)result);
    exit(1);
}
#define CHECK(call) check(call, #call)

static double option(int argc, char **argv, const char *name, double fallback) {
    size_t n = strlen(name);

    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, n) && argv[i][n] == '=')
            return atof(argv[i] + n + 1);
    return fallback;
}

/* Which run this is: the number in the file, which goes up by one. */
static unsigned count_up(void) {
    const char *path = getenv("AB_COUNT");
    unsigned n = 0;
    FILE *f = path ? fopen(path, "r") : NULL;

    if (f && fscanf(f, "%u", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%u\n", n + 1);
        fclose(f);
    }
    return n;
}

static double normal(unsigned seed) {
    unsigned short state[3] = {(unsigned short)seed, (unsigned short)(seed >> 16), 0x330e};

    for (int i = 0; i < 16; i++)
        erand48(state);
    return sqrt(-2 * log(1 - erand48(state))) * cos(6.283185307179586 * erand48(state));
}

int main(int argc, char **argv) {
    unsigned blocks = (unsigned)option(argc, argv, "blocks", 4);
    size_t size = (size_t)(option(argc, argv, "mib", 4) * 1048576);
    const char *conf = getenv("ZEROUTE_CONF"), *effect = getenv("AB_EFFECT");
    bool dropped = option(argc, argv, "sycl_drops", 0) && conf && strstr(conf, "route:sycl");
    bool resident = option(argc, argv, "resident", 1) && !dropped;
    ze_driver_handle_t driver;
    ze_device_handle_t card[CARDS];
    ze_context_handle_t context;
    ze_command_list_handle_t list;
    uint32_t one = 1, cards = CARDS;
    void *block[BLOCKS];
    unsigned long sum = 0;

    CHECK(zeInit(0));
    CHECK(zeDriverGet(&one, &driver));
    CHECK(zeDeviceGet(driver, &cards, card));
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    CHECK(zeContextCreate(driver, &context_desc, &context));
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, card[0], &queue, &list));
    for (unsigned i = 0; i < blocks && i < BLOCKS; i++) {
        ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
        unsigned pattern = i * 2654435761u, back[64];
        CHECK(zeMemAllocDevice(context, &desc, size, 0, card[0], &block[i]));
        for (uint32_t c = 0; c < cards && (resident || c == 0); c++)
            CHECK(zeContextMakeMemoryResident(context, card[c], block[i], size));
        CHECK(zeCommandListAppendMemoryFill(list, block[i], &pattern, sizeof pattern, sizeof back, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list, back, block[i], sizeof back, NULL, 0, NULL));
        for (size_t k = 0; k < sizeof back / sizeof *back; k++)
            sum = sum * 31 + back[k];
    }
    usleep((useconds_t)(1000 * option(argc, argv, "hold", 0)));
    for (unsigned i = 0; i < blocks && i < BLOCKS; i++)
        CHECK(zeMemFree(context, block[i]));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
    printf("checksum 0x%lx\n", sum + (option(argc, argv, "wrong", 0) ? 1 : 0));
    double score = option(argc, argv, "score", 0);
    if (score != 0)
        fprintf(stderr, "score: %.9g\n",
                score * (1 + (effect ? atof(effect) : 0) / 100) *
                    (1 + option(argc, argv, "noise", 0) / 100 * normal(count_up() + 1)));
    return 0;
}
