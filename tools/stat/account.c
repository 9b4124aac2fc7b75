/* What the cards hold for a process, and what it is: blocks, images, imports, and the rest that no call shows. */
#include "stat/stat.h"

#include <string.h>

#define CARDS 16

static uint64_t of_card(const struct zeroute_snapshot *s, unsigned n, const char *figure) {
    char name[64];

    snprintf(name, sizeof name, "device.%u.%s", n, figure);
    return zeroute_value(s, name, ZR_ABSENT);
}

/* ", 60 MiB in images" at the end of a text, unless there is none. */
static void add_part(char *text, size_t size, uint64_t bytes, const char *what) {
    char a[ZR_TEXT_SIZE];
    size_t used = strlen(text);

    if (bytes && bytes != ZR_ABSENT)
        snprintf(text + used, size - used, ", %s %s", zr_text_bytes(a, bytes), what);
}

static void show_card(FILE *out, const struct zeroute_snapshot *s, unsigned n) {
    uint64_t vram = of_card(s, n, "vram_bytes"), unseen = of_card(s, n, "unseen_bytes");
    uint64_t images = of_card(s, n, "image_bytes"), imported = of_card(s, n, "imported_bytes"), blocks;
    char label[16], text[256], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (vram == ZR_ABSENT || unseen == ZR_ABSENT || (s->process.state != ZEROUTE_LIVE && unseen < UINT64_C(16) << 20))
        return;
    bool overlap = unseen == 0 && imported; /* the kernel counts a buffer once, however often opened */
    if (overlap)
        blocks = of_card(s, n, "reserved_bytes.all.current");
    else
        blocks = vram - (unseen + images + imported); /* as they were when the kernel was asked */
    snprintf(label, sizeof label, "card %u", n);
    snprintf(text, sizeof text, "%s of device memory, of which %s in blocks", zr_text_bytes(a, vram),
             zr_text_bytes(b, blocks));
    add_part(text, sizeof text, images, "in images");
    if (overlap)
        add_part(text, sizeof text, vram > blocks + images ? vram - blocks - images : 0, "imported or unseen");
    else
        add_part(text, sizeof text, imported, "of other processes");
    add_part(text, sizeof text, unseen, "unseen (modules, command buffers, driver)");
    zr_line(out, label, "%s", text);
}

/* "24 images, 2 modules": what the process has now. */
static void show_objects(FILE *out, const struct zeroute_snapshot *s) {
    static const struct {
        const char *field, *what;
    } kinds[] = {{"image.all.current", "image"},
                 {"module.all.current", "module"},
                 {"event_pool.all.current", "event pool"},
                 {"command_list.all.current", "command list"},
                 {"command_queue.all.current", "command queue"},
                 {"host_pointer.all.current", "imported pointer"},
                 {"ipc.open", "open IPC handle"}};
    char text[256] = "", a[ZR_TEXT_SIZE];
    size_t used = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t n = zeroute_value(s, kinds[i].field, 0);

        if (n && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s%s", used ? ", " : "",
                                     zr_text_count(a, n), kinds[i].what, n == 1 ? "" : "s");
    }
    if (used)
        zr_line(out, "objects", "%s", text);
}

/* Pinned memory that a caching allocator above us has rounded up: most of it lies in exact powers of two. */
static void show_rounding(FILE *out, const struct zeroute_snapshot *s) {
    uint64_t host = zeroute_value(s, "allocated_bytes.host.peak", 0);
    uint64_t rounded = zeroute_value(s, "allocated_bytes.host_power_of_two.peak", 0);
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (rounded >= UINT64_C(64) << 20 && rounded >= host / 4 * 3)
        zr_line(out, "pinned memory",
                "at its peak %s of %s in blocks of an exact power of two: PyTorch rounds up unless "
                "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:1",
                zr_text_bytes(a, rounded), zr_text_bytes(b, host));
}

/* Free memory as the driver reported it and as the program was told, with free_memory:checked; and spills. */
static void show_free(FILE *out, const struct zeroute_snapshot *s, unsigned n) {
    uint64_t driver = of_card(s, n, "free_memory.driver_bytes"), told = of_card(s, n, "free_memory.told_bytes");
    uint64_t spilled = of_card(s, n, "spilled_bytes");
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (driver != ZR_ABSENT && told != ZR_ABSENT)
        zr_line(out, "free memory", "card %u: the driver said %s, the program was told %s", n, zr_text_bytes(a, driver),
                zr_text_bytes(b, told));
    if (spilled != ZR_ABSENT && spilled)
        zr_line(out, "spilled", "%s of card %u went to host memory that cannot be swapped: run with --preset safe",
                zr_text_bytes(a, spilled), n);
}

static void show_growth(FILE *out, const struct zeroute_snapshot *s) {
    struct zr_growth g;
    char text[ZR_GROWTH_TEXT];

    for (unsigned k = 0; k < ZR_GROWTHS; k++)
        if (zr_growth_of(s, k, &g))
            zr_line(out, "growing", "%s: %s, while the allocations do not grow", zr_growth_kinds[k].what,
                    zr_growth_text(text, k, &g));
}

void zr_summary_account(FILE *out, const struct zeroute_snapshot *s) {
    for (unsigned n = 0; n < CARDS; n++)
        show_card(out, s, n);
    for (unsigned n = 0; n < CARDS; n++)
        show_free(out, s, n);
    show_objects(out, s);
    show_rounding(out, s);
    show_growth(out, s);
}
