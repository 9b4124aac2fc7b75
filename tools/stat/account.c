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

/* What the kernel counts for a live process on the card that it calls number n; ZR_ABSENT: not known. */
static uint64_t vram_now(const struct zeroute_snapshot *s, const struct zr_process_memory *memory, unsigned n) {
    const char *pdev;
    char key[24];

    snprintf(key, sizeof key, "card.%u.pci", n);
    pdev = zeroute_fact(s, key);
    for (unsigned i = 0; pdev && i < memory->card_count; i++)
        if (strcmp(memory->cards[i].pdev, pdev) == 0)
            return memory->cards[i].vram.total;
    return ZR_ABSENT;
}

static void show_card(FILE *out, const struct zeroute_snapshot *s, const struct zr_process_memory *memory, unsigned n) {
    uint64_t vram = vram_now(s, memory, n), blocks = of_card(s, n, "reserved_bytes.all.current");
    uint64_t images = of_card(s, n, "image_bytes"), imported = of_card(s, n, "imported_bytes"), seen;
    char label[16], text[256], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (vram == ZR_ABSENT || blocks == ZR_ABSENT)
        return;
    seen = blocks + images + imported;
    snprintf(label, sizeof label, "card %u", n);
    snprintf(text, sizeof text, "%s of device memory, of which %s in blocks", zr_text_bytes(a, vram),
             zr_text_bytes(b, blocks));
    add_part(text, sizeof text, images, "in images");
    if (vram < seen && imported) /* the kernel counts a buffer once, however often opened */
        add_part(text, sizeof text, vram > blocks + images ? vram - blocks - images : 0, "imported or unseen");
    else
        add_part(text, sizeof text, imported, "of other processes");
    add_part(text, sizeof text, vram > seen ? vram - seen : 0, "unseen (modules, command buffers, driver)");
    zr_line(out, label, "%s", text);
}

/* Of a live process, as the kernel sees it now. */
static void show_cards(FILE *out, const struct zeroute_snapshot *s) {
    struct zr_process_memory memory;

    if (s->processes > 1 || s->process.state != ZEROUTE_LIVE || !s->process.pid ||
        !zr_process_memory_read(s->process.pid, &memory))
        return;
    for (unsigned n = 0; n < CARDS; n++)
        show_card(out, s, &memory, n);
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

/* Free memory as the driver reported it and as the program was told, with free_memory:checked. */
static void show_free(FILE *out, const struct zeroute_snapshot *s, unsigned n) {
    uint64_t driver = of_card(s, n, "free_memory.driver_bytes"), told = of_card(s, n, "free_memory.told_bytes");
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (driver != ZR_ABSENT && told != ZR_ABSENT)
        zr_line(out, "free memory", "card %u: the driver said %s, the program was told %s", n, zr_text_bytes(a, driver),
                zr_text_bytes(b, told));
}

void zr_summary_account(FILE *out, const struct zeroute_snapshot *s) {
    show_cards(out, s);
    for (unsigned n = 0; n < CARDS; n++)
        show_free(out, s, n);
    show_objects(out, s);
    show_rounding(out, s);
}
