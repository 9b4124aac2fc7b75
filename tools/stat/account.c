/*
 * What the cards hold for a process or a job, and what it is: blocks, images, imports, and the rest that no call shows;
 * and the host memory behind it. All of it is the view's.
 */
#include "stat/stat.h"

#include <string.h>

static uint64_t known(uint64_t n) {
    return n == ZR_ABSENT ? 0 : n;
}

/* ", 60 MiB in images" at the end of a text, unless there is none. */
static void add_part(char *text, size_t size, uint64_t bytes, const char *what) {
    char a[ZR_TEXT_SIZE];
    size_t used = strlen(text);

    if (bytes && bytes != ZR_ABSENT)
        snprintf(text + used, size - used, ", %s %s", zr_text_bytes(a, bytes), what);
}

/* --- cards ------------------------------------------------------------------------------------ */

/* The accounts of this device of all live processes as one; false: none has it open. */
static bool account_of(const struct zr_sheet *page, const char *pdev, struct zr_account *sum) {
    bool found = false;

    *sum = (struct zr_account){0};
    for (size_t i = 0; i < page->count; i++)
        for (unsigned n = 0; n < page->process[i]->accounts; n++) {
            const struct zr_account *a = &page->process[i]->account[n];
            if (strcmp(a->pdev, pdev) != 0 || a->vram == ZR_ABSENT)
                continue;
            found = true;
            sum->number = a->number;
            sum->vram += a->vram;
            sum->blocks += a->blocks;
            sum->images += a->images;
            sum->imported += a->imported;
            sum->unseen += known(a->unseen);
            sum->spilled += a->spilled;
        }
    return found;
}

static void show_account(FILE *out, const struct zr_card_view *card, const struct zr_account *a) {
    uint64_t blocks = a->blocks < a->vram ? a->blocks : a->vram;
    char label[16], text[256], x[ZR_TEXT_SIZE], y[ZR_TEXT_SIZE];
    bool overlap = a->unseen == 0 && a->imported; /* the kernel counts a buffer once, however often opened */

    snprintf(label, sizeof label, "card %u", a->number);
    snprintf(text, sizeof text, "%s of device memory, of which %s in blocks", zr_text_bytes(x, a->vram),
             zr_text_bytes(y, blocks));
    add_part(text, sizeof text, a->images, "in images");
    if (overlap)
        add_part(text, sizeof text, a->vram > blocks + a->images ? a->vram - blocks - a->images : 0,
                 "imported or unseen");
    else
        add_part(text, sizeof text, a->imported, "of other processes");
    add_part(text, sizeof text, a->unseen, "unseen (modules, command buffers, driver)");
    zr_line(out, label, "%s", text);
    if (zr_card_is_full(card))
        zr_line(out, "", "card %u is full: all processes together hold %s of %s", a->number,
                zr_text_bytes(x, card->ours + card->others), zr_text_bytes(y, card->vram));
    if (a->spilled)
        zr_line(out, "spilled", "%s of card %u went to host memory that cannot be swapped",
                zr_text_bytes(x, a->spilled), a->number);
}

static void show_cards(FILE *out, const struct zr_sheet *page) {
    struct zr_account sum;

    for (unsigned i = 0; page->view && i < page->view->card_count; i++)
        if (account_of(page, page->view->card[i].pdev, &sum) && (sum.vram || sum.blocks))
            show_account(out, &page->view->card[i], &sum);
}

/* Free memory as the driver reported it and as the program was told, with free_memory:checked. */
static void show_free(FILE *out, const struct zeroute_snapshot *s, unsigned n) {
    char name[64], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    snprintf(name, sizeof name, "device.%u.free_memory.driver_bytes", n);
    uint64_t driver = zeroute_value(s, name, ZR_ABSENT);
    snprintf(name, sizeof name, "device.%u.free_memory.told_bytes", n);
    uint64_t told = zeroute_value(s, name, ZR_ABSENT);
    if (driver != ZR_ABSENT && told != ZR_ABSENT)
        zr_line(out, "free memory", "card %u: the driver said %s, the program was told %s", n, zr_text_bytes(a, driver),
                zr_text_bytes(b, told));
}

/* --- what the process counts ------------------------------------------------------------------ */

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

/* --- host memory ------------------------------------------------------------------------------ */

static void show_growth(FILE *out, const struct zr_sheet *page) {
    struct zr_growth g;
    char text[ZR_GROWTH_TEXT];

    for (size_t i = 0; i < page->count; i++)
        for (unsigned k = 0; k < ZR_GROWTHS; k++)
            if (zr_grows(page->process[i], k, page->process[i]->trend[k].seen_ns, &g))
                zr_line(out, "growing", "%s: %s, while the allocations do not grow", zr_growth_kinds[k].what,
                        zr_growth_text(text, k, &g));
}

static uint64_t mirror_of(const struct zr_sheet *page) {
    uint64_t sum = ZR_ABSENT;

    for (size_t i = 0; i < page->count; i++)
        if (page->process[i]->mirror != ZR_ABSENT)
            sum = known(sum) + page->process[i]->mirror;
    return sum;
}

static bool any_lives(const struct zr_sheet *page) {
    for (size_t i = 0; i < page->count; i++)
        if (page->process[i]->process.state != ZEROUTE_FINISHED)
            return true;
    return false;
}

/* Now, of processes that run. */
static void show_host(FILE *out, const struct zr_sheet *page) {
    const struct zr_view *m = page->view;
    uint64_t mirror = mirror_of(page);
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], by[160];

    if (m->host.available == ZR_ABSENT)
        return;
    if (m->host.gpu_active == ZR_ABSENT)
        zr_line(out, "host memory", "MemAvailable %s; GPUActive is not available (needs kernel 7.1)",
                zr_text_bytes(a, m->host.available));
    else
        zr_line(out, "host memory", "GPUActive %s, MemAvailable %s", zr_text_bytes(a, m->host.gpu_active),
                zr_text_bytes(b, m->host.available));
    if (mirror != ZR_ABSENT && mirror)
        zr_line(out, "mirror", "%s of host memory mirror its device memory (of the machine: %s by %s)",
                zr_text_bytes(a, mirror), zr_text_bytes(b, m->mirror), zr_lost_text(by, sizeof by, &m->lost));
}

static uint64_t lost_most(const struct zr_watched *w) {
    if (w->before.available == ZR_ABSENT || w->least_available == ZR_ABSENT)
        return ZR_ABSENT;
    return w->before.available > w->least_available ? w->before.available - w->least_available : 0;
}

/* What ends a mirror that peer residency has made; 'zeroute doctor' knows of other causes. */
static const char *mirror_remedy(const struct zr_sheet *page) {
    const struct zeroute_field *settings = zeroute_find(page->snapshot, "settings");
    uint64_t granted = zeroute_value(page->snapshot, "residency.peer.granted_calls", 0);

    if (settings && settings->text && strstr(settings->text, "residency:owner"))
        return ": 'zeroute doctor' looks for the cause";
    return granted ? ": run with --preset mitigate" : ": 'zeroute doctor' names the remedy";
}

/* The joint peak of several processes, where it is not known as well as their own peaks are. */
static void show_joint_peak(FILE *out, const struct zr_sheet *page) {
    uint64_t bound = zeroute_value(page->snapshot, "allocated_bytes.all.peak", 0), seen = page->watched->held.peak;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    for (size_t i = 0; i < page->count; i++)
        seen = page->process[i]->peak > seen ? page->process[i]->peak : seen;
    if (page->count > 1 && bound > seen)
        zr_line(out, "peak", "at most %s in use by all at one time; %s were seen", zr_text_bytes(a, bound),
                zr_text_bytes(b, seen));
}

/* While it ran, of a program that was watched: also what it never told by a call. */
static void show_watched(FILE *out, const struct zr_sheet *page) {
    const struct zr_watched *w = page->watched;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], c[ZR_TEXT_SIZE];
    uint64_t start = w->before.gpu_active, usm = zeroute_value(page->snapshot, "reserved_bytes.host.peak", 0);

    if (page->count == 1 && zr_watched_is_brief(w) && lost_most(w) != ZR_ABSENT && lost_most(w) < usm)
        zr_line(out, "host RAM", "at least %s more than before: its host USM", zr_text_bytes(a, usm));
    else if (w->active.known)
        zr_line(out, "host RAM", "peak %s more than before (GPUActive %s to %s)", zr_text_bytes(c, lost_most(w)),
                zr_text_bytes(a, start), zr_text_bytes(b, w->active.peak));
    else if (lost_most(w) != ZR_ABSENT)
        zr_line(out, "host RAM", "peak %s more than before (of %s that was available)", zr_text_bytes(c, lost_most(w)),
                zr_text_bytes(a, w->before.available));
    bool at_least;
    uint64_t mirror = zr_watched_mirror(w, zr_host_side_peak(page->snapshot), &at_least);
    if (mirror != ZR_ABSENT && mirror)
        zr_line(out, "mirror", "%s %s of RAM%s", at_least ? "at least" : "peak", zr_text_bytes(a, mirror),
                mirror_remedy(page));
    show_joint_peak(out, page);
}

static void show_process(FILE *out, const struct zr_process_view *v, bool verbose) {
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    for (unsigned i = 0; i < v->memory.card_count; i++)
        zr_line(out, i ? "" : "cards", "%s: VRAM %s, imported (GTT) %s", v->memory.cards[i].pdev,
                zr_text_bytes(a, v->memory.cards[i].vram.total), zr_text_bytes(b, v->memory.cards[i].gtt.total));
    if (!verbose || v->memory.rss == ZR_ABSENT)
        return;
    if (v->memory.cgroup_current == ZR_ABSENT)
        zr_line(out, "process", "VmRSS %s", zr_text_bytes(a, v->memory.rss));
    else
        zr_line(out, "process", "VmRSS %s, cgroup %s", zr_text_bytes(a, v->memory.rss),
                zr_text_bytes(b, v->memory.cgroup_current));
}

void zr_summary_account(FILE *out, const struct zr_sheet *page, bool verbose) {
    const struct zeroute_field *backing = zeroute_find(page->snapshot, "backing.in_force");

    show_cards(out, page);
    for (unsigned n = 0; n < ZR_CARDS_MAX; n++)
        show_free(out, page->snapshot, n);
    show_objects(out, page->snapshot);
    show_rounding(out, page->snapshot);
    show_growth(out, page);
    if (page->watched)
        show_watched(out, page);
    else if (page->view && any_lives(page))
        show_host(out, page);
    if (page->count == 1)
        show_process(out, page->process[0], verbose);
    if (backing && backing->text && *backing->text)
        zr_line(out, "backing", "%s", backing->text);
}
