/*
 * A program that asks for device memory as PyTorch does, beside another one that fills the card and empties it.
 *
 *   torch segments SECONDS SEED      tensors of random size and life, cut out of segments by PyTorch's rules
 *   torch expandable SECONDS SEED    the same out of one reserved range, mapped piece by piece (expandable_segments)
 *   torch filler SECONDS SEED        takes as much as it is given, gives some of it back, and so on; it ends before its
 *                                    time as soon as there is a file $UNTIL
 *
 * On out of memory it frees every segment without a tensor and asks once more; if that fails too it drops half of its
 * tensors, as a training loop that catches the exception. Each segment is filled with a byte of its own, and looked at
 * before it is given back. Exit code: 0 it came to its end, 3 the device was lost, 1 bytes were wrong.
 */
#include "ze_test.h"

#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define RANGE ((size_t)128 << 30)

enum { SEGMENTS = 4096, TENSORS = 2048, LOOKED_AT = 1 << 16 };

struct segment {
    char *base; /* NULL: unused */
    size_t size, used;
    unsigned live; /* tensors */
    unsigned char mark;
    ze_physical_mem_handle_t physical;
};

static struct segment segment[SEGMENTS];
static struct { struct segment *in; /* NULL: unused */ } tensor[TENSORS];
static ze_command_list_handle_t list;
static bool expandable;
static char *range;
static struct { unsigned long asked, refused, retried, raised, wrong; } count;

static uint64_t state;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void report(const char *how) {
    printf("%s: asked %lu, refused %lu, retried %lu, raised %lu, wrong %lu\n", how, count.asked, count.refused,
           count.retried, count.raised, count.wrong);
    fflush(stdout);
}

/* What a call answers; the end of the program where the device is gone. */
static ze_result_t answer(ze_result_t result) {
    if (result == ZE_RESULT_SUCCESS || result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
        result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        return result;
    report(result == ZE_RESULT_ERROR_DEVICE_LOST ? "device lost" : "failed");
    fprintf(stderr, "torch: 0x%x\n", (unsigned)result);
    _Exit(3);
}

static size_t segment_size(size_t n) {
    if (n <= MIB)
        return 2 * MIB;
    if (n < 10 * MIB)
        return 20 * MIB;
    return (n + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* --- the two ways to a segment ---------------------------------------------------------------- */

static bool allocate(struct segment *s) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;

    if (answer(zeMemAllocDevice(context, &desc, s->size, 512, cards[0], &p)) != ZE_RESULT_SUCCESS)
        return false;
    s->base = p;
    CHECK(zeContextMakeMemoryResident(context, cards[0], p, s->size));
    return true;
}

/* Each segment has a part of the range of its own. */
static bool map(struct segment *s) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = s->size};
    char *at = range + (size_t)(s - segment) * (RANGE / SEGMENTS);
    ze_result_t result;

    if (answer(zePhysicalMemCreate(context, cards[0], &desc, &s->physical)) != ZE_RESULT_SUCCESS)
        return false;
    result = answer(zeVirtualMemMap(context, at, s->size, s->physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    if (result != ZE_RESULT_SUCCESS) {
        CHECK(zePhysicalMemDestroy(context, s->physical));
        return false;
    }
    s->base = at;
    return true;
}

static bool grab(struct segment *s) {
    bool done;

    count.asked++;
    done = expandable ? map(s) : allocate(s);
    count.refused += !done;
    return done;
}

static void give_back(struct segment *s) {
    static unsigned char bytes[LOOKED_AT];

    answer(zeCommandListAppendMemoryCopy(list, bytes, s->base, LOOKED_AT, NULL, 0, NULL));
    for (size_t i = 0; i < LOOKED_AT; i++)
        if (bytes[i] != s->mark) {
            count.wrong++;
            break;
        }
    if (expandable) {
        answer(zeVirtualMemUnmap(context, s->base, s->size));
        answer(zePhysicalMemDestroy(context, s->physical));
    } else {
        answer(zeMemFree(context, s->base));
    }
    s->base = NULL;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static void empty_cache(void) {
    for (struct segment *s = segment; s < segment + SEGMENTS; s++)
        if (s->base && !s->live)
            give_back(s);
}

static void drop(unsigned i) {
    struct segment *s = tensor[i].in;

    tensor[i].in = NULL;
    if (--s->live == 0)
        s->used = 0;
}

static struct segment *new_segment(size_t size) {
    static unsigned char marks;
    struct segment *s = segment;

    while (s < segment + SEGMENTS - 1 && s->base)
        s++;
    *s = (struct segment){.size = size, .mark = ++marks};
    if (!grab(s)) {
        count.retried++;
        empty_cache();
        if (!grab(s))
            return NULL;
    }
    if (answer(zeCommandListAppendMemoryFill(list, s->base, &s->mark, 1, LOOKED_AT, NULL, 0, NULL)) !=
        ZE_RESULT_SUCCESS) {
        report("device lost: a command was refused"); /* that is what the driver may say, too */
        _Exit(3);
    }
    return s;
}

static void new_tensor(unsigned i) {
    size_t n = (1 + next_random() % 4096) * 512, size;
    struct segment *s = segment;

    if (next_random() % 2)
        n = (1 + next_random() % 12) * MIB;
    size = segment_size(n);
    while (s < segment + SEGMENTS && !(s->base && s->size == size && s->size - s->used >= n))
        s++;
    if (s == segment + SEGMENTS)
        s = new_segment(size);
    if (!s) {
        count.raised++;
        for (unsigned j = 0; j < TENSORS; j += 2)
            if (tensor[j].in)
                drop(j);
        return;
    }
    s->used += n;
    s->live++;
    tensor[i].in = s;
}

static void train(double end) {
    while (now() < end) {
        unsigned i = (unsigned)(next_random() % TENSORS);

        if (tensor[i].in)
            drop(i);
        else
            new_tensor(i);
        if (next_random() % 2000 == 0)
            empty_cache();
    }
    for (unsigned i = 0; i < TENSORS; i++)
        if (tensor[i].in)
            drop(i);
    empty_cache();
}

static void fill_and_empty(double end) {
    static void *block[SEGMENTS];
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_device_memory_properties_t card = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    const char *until = getenv("UNTIL");
    uint32_t one = 1;
    unsigned held = 0;
    size_t size;

    CHECK(zeDeviceGetMemoryProperties(cards[0], &one, &card));
    size = card.totalSize / 120 / (2 * MIB) * (2 * MIB); /* all of it, and some more */
    while (now() < end && !(until && access(until, F_OK) == 0)) {
        unsigned wanted = (unsigned)(next_random() % 128);
        bool more = true;

        while (held < wanted && more) {
            count.asked++;
            more = answer(zeMemAllocDevice(context, &desc, size, 0, cards[0], &block[held])) == ZE_RESULT_SUCCESS;
            held += more;
            count.refused += !more;
        }
        while (held > wanted)
            CHECK(zeMemFree(context, block[--held]));
        nanosleep(&(struct timespec){.tv_nsec = (long)(next_random() % 20000000)}, NULL);
    }
    while (held)
        CHECK(zeMemFree(context, block[--held]));
}

int main(int argc, char **argv) {
    double end;

    if (argc < 4)
        return 2;
    expandable = strcmp(argv[1], "expandable") == 0;
    state = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    start();
    list = new_list(0, copy_group(0));
    if (expandable)
        CHECK(zeVirtualMemReserve(context, NULL, RANGE, (void **)&range));
    end = now() + strtod(argv[2], NULL);
    if (strcmp(argv[1], "filler") == 0)
        fill_and_empty(end);
    else
        train(end);
    report("done");
    if (expandable)
        CHECK(zeVirtualMemFree(context, range, RANGE));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
    return count.wrong != 0;
}
