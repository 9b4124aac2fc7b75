/*
 * Blocks, images, views, modules, lists, queues, event pools and imported pointers come and go at random on every
 * card. At the end some are left, and the program prints what it holds by its own count and what the stand-in says
 * the cards hold:
 *
 *   unseen [SEED [STEPS]]
 */
#include "ze_test.h"

#include <time.h>

enum kind { DEVICE, SHARED, HOST, IMAGE, VIEW, MODULE, LIST, IMMEDIATE, QUEUE, POOL, POINTER, KINDS };
static const char *const names[KINDS] = {"device", "shared",    "host",  "image", "view",   "module",
                                         "list",   "immediate", "queue", "pool",  "pointer"};
enum { HELD = 200 };

static struct held {
    enum kind kind;
    unsigned card;
    uint64_t bytes;
    void *handle;
    bool there, viewed;
    unsigned of; /* the image of a view */
} held[HELD];

/* A kernel that does nothing. */
static const uint32_t spirv[] = {0x07230203,
                                 0x00010000,
                                 0,
                                 5,
                                 0,
                                 2 << 16 | 17,
                                 4,
                                 2 << 16 | 17,
                                 6,
                                 3 << 16 | 14,
                                 2,
                                 2,
                                 4 << 16 | 15,
                                 6,
                                 1,
                                 0x6b,
                                 2 << 16 | 19,
                                 2,
                                 3 << 16 | 33,
                                 3,
                                 2,
                                 5 << 16 | 54,
                                 2,
                                 1,
                                 0,
                                 3,
                                 2 << 16 | 248,
                                 4,
                                 1 << 16 | 253,
                                 1 << 16 | 56};

static ze_result_t (*import)(ze_driver_handle_t, void *, size_t);
static ze_result_t (*release)(ze_driver_handle_t, void *);
static uint64_t state;

static uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    return (z ^ (z >> 31)) % n;
}

static ze_image_desc_t image_of(unsigned seed) {
    return (ze_image_desc_t){.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC,
                             .type = ZE_IMAGE_TYPE_2D,
                             .format = {.layout = ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, .type = ZE_IMAGE_FORMAT_TYPE_UNORM},
                             .width = 64 + seed % 1000,
                             .height = 64 + seed % 700,
                             .depth = 1};
}

static uint64_t image_size(void *image) {
    ze_image_memory_properties_exp_t p = {.stype = ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES};
    CHECK(zeImageGetMemoryPropertiesExp(image, &p));
    return p.size;
}

static bool view(struct held *h) {
    h->of = (unsigned)below(HELD);
    struct held *image = &held[h->of];
    ze_image_desc_t desc = image_of((unsigned)image->bytes);
    if (!image->there || image->kind != IMAGE || image->card != h->card)
        return false;
    return zeImageViewCreateExp(context, cards[h->card], &desc, image->handle, (void *)&h->handle) == ZE_RESULT_SUCCESS;
}

static void take(struct held *h) {
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_event_pool_desc_t pool = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 1 + (uint32_t)below(100)};
    ze_module_desc_t module = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                               .format = ZE_MODULE_FORMAT_IL_SPIRV,
                               .inputSize = sizeof(spirv),
                               .pInputModule = (const uint8_t *)spirv};
    unsigned seed = (unsigned)below(100000);
    ze_image_desc_t image = image_of(seed);
    *h = (struct held){.kind = (enum kind)below(below(20) ? MODULE : KINDS), .card = (unsigned)below(card_count)};
    ze_device_handle_t card = cards[h->card];
    h->there = true;
    switch (h->kind) {
    case DEVICE:
    case SHARED:
    case HOST:
        h->bytes = 1 + below(below(3) ? 3000000 : 30000000);
        h->handle = h->kind == DEVICE   ? new_device(h->card, h->bytes)
                    : h->kind == SHARED ? new_shared(h->card, h->bytes)
                                        : new_host(h->bytes);
        break;
    case IMAGE:
        CHECK(zeImageCreate(context, card, &image, (void *)&h->handle));
        h->bytes = image_size(h->handle);
        break;
    case VIEW:
        h->there = view(h);
        held[h->of].viewed |= h->there;
        break;
    case MODULE:
        CHECK(zeModuleCreate(context, card, &module, (void *)&h->handle, NULL));
        h->bytes = sizeof(spirv);
        break;
    case LIST:
        CHECK(zeCommandListCreate(context, card, &list, (void *)&h->handle));
        break;
    case IMMEDIATE:
        CHECK(zeCommandListCreateImmediate(context, card, &queue, (void *)&h->handle));
        break;
    case QUEUE:
        CHECK(zeCommandQueueCreate(context, card, &queue, (void *)&h->handle));
        break;
    case POOL:
        CHECK(zeEventPoolCreate(context, &pool, 0, NULL, (void *)&h->handle));
        break;
    case POINTER:
        h->bytes = 4096 * (1 + below(300));
        h->handle = aligned_alloc(4096, h->bytes);
        CHECK(import(driver, h->handle, h->bytes));
        break;
    case KINDS:
        break;
    }
}

static void give(struct held *h) {
    switch (h->kind) {
    case DEVICE:
    case SHARED:
    case HOST:
        CHECK(zeMemFree(context, h->handle));
        break;
    case IMAGE:
        if (h->viewed)
            return;
        /* fall through */
    case VIEW:
        CHECK(zeImageDestroy(h->handle));
        break;
    case MODULE:
        CHECK(zeModuleDestroy(h->handle));
        break;
    case LIST:
    case IMMEDIATE:
        CHECK(zeCommandListDestroy(h->handle));
        break;
    case QUEUE:
        CHECK(zeCommandQueueDestroy(h->handle));
        break;
    case POOL:
        CHECK(zeEventPoolDestroy(h->handle));
        break;
    case POINTER:
        CHECK(release(driver, h->handle));
        free(h->handle);
        break;
    case KINDS:
        break;
    }
    h->there = false;
}

static uint64_t counted(const char *name) {
    char line[128];
    uint64_t value = 0;
    FILE *f = fopen(getenv("XE_STANDIN_COUNTS") ? getenv("XE_STANDIN_COUNTS") : "/dev/null", "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
            value = strtoull(line + strlen(name), NULL, 10);
    }
    if (f)
        fclose(f);
    return value;
}

int main(int argc, char **argv) {
    unsigned steps = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    start();
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexDriverImportExternalPointer", (void **)&import));
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexDriverReleaseImportedPointer", (void **)&release));
    while (steps--) {
        struct held *h = &held[below(HELD)];
        if (h->there)
            give(h);
        else
            take(h);
    }
    /* A sample is due every tenth of a second, at the next call that is timed. */
    for (int i = 0; i < 8; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
        uint32_t regions = 0;
        CHECK(zeDeviceGetMemoryProperties(cards[0], &regions, NULL));
    }
    for (unsigned card = 0; card < card_count; card++) {
        for (unsigned kind = 0; kind < KINDS; kind++) {
            uint64_t bytes = 0, count = 0;
            for (unsigned i = 0; i < HELD; i++) {
                if (!held[i].there || held[i].kind != kind || held[i].card != card)
                    continue;
                bytes += held[i].bytes;
                count++;
            }
            printf("%s.%u %llu %llu\n", names[kind], card, (unsigned long long)bytes, (unsigned long long)count);
        }
    }
    printf("vram %llu\n", (unsigned long long)(counted("gem_create_vram_bytes") - counted("gem_free_vram_bytes")));
    fflush(stdout);
    _Exit(0);
}
