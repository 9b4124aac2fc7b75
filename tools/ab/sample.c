/* Memory seen from outside: samples while a run is under way, and the baseline between runs. */
#include "ab/ab.h"
#include "common/common.h"
#include "outside/outside.h"
#include "view/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 1024 };

static double known(uint64_t v) {
    return v == ZR_ABSENT ? NAN : (double)v;
}

static void see_card(struct zr_ab_watch *w, const char *pdev, double gtt) {
    size_t i = 0;

    while (i < w->n_cards && strcmp(w->card[i].pdev, pdev))
        i++;
    if (i == sizeof(w->card) / sizeof(*w->card))
        return;
    if (i == w->n_cards) {
        snprintf(w->card[i].pdev, sizeof(w->card[i].pdev), "%s", pdev);
        w->card[i].peak = 0;
        w->n_cards++;
    }
    w->card[i].peak = fmax(w->card[i].peak, gtt);
}

static bool of_the_stack(const char *name) {
    static const char *const prefixes[] = {"libze_",    "libsycl",   "libur_", "libpi_", "libumf",  "libigc",
                                           "libigdgmm", "libigdfcl", "libccl", "libc10", "libtorch"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

/* Without the preload, /proc/PID/maps tells which libraries are loaded. */
static void see_libraries(struct zr_ab_watch *w, pid_t pid) {
    char *text, *rest, *line;

    text = rest = zr_outside_text(pid, ZR_FILE_MAPS, ZR_OUTSIDE_MOST, NULL);
    while (text && (line = strsep(&rest, "\n"))) {
        char *file = strchr(line, '/'), *name = file ? strrchr(file, '/') + 1 : NULL;
        if (!name || !of_the_stack(name))
            continue;
        char *key = zr_ab_text("library.%s.path", name);
        zr_pairs_set(&w->libraries, key, file);
        free(key);
    }
    free(text);
}

/* No bound yet: what is lost is known at the end. */
static const struct zr_lost everything = {.bytes = UINT64_MAX - 1, .by = ZR_LOST_GPU_ACTIVE};

/* One process and all below it, added to the sample. */
static void see_tree(struct zr_ab_watch *w, struct zr_ab_sample *s, pid_t pid, unsigned depth, bool libraries) {
    struct zr_process_memory m;
    int child[CHILDREN];

    if (zr_outside_memory(pid, &m)) {
        s->rss += m.rss == ZR_ABSENT ? 0 : (double)m.rss;
        for (unsigned c = 0; c < m.card_count; c++) {
            const struct zr_card_use *card = &m.cards[c];
            if (card->vram.total != ZR_ABSENT)
                s->vram = (isnan(s->vram) ? 0 : s->vram) + (double)card->vram.total;
            if (card->gtt.total != ZR_ABSENT) {
                s->imports = (isnan(s->imports) ? 0 : s->imports) + (double)card->gtt.total;
                see_card(w, card->pdev, (double)card->gtt.total);
            }
        }
        uint64_t mirrored = zr_mirror_of(&m, &everything);
        if (mirrored != ZR_ABSENT)
            s->mirrored = (isnan(s->mirrored) ? 0 : s->mirrored) + (double)mirrored;
    }
    if (libraries)
        see_libraries(w, pid);
    size_t children = depth < 8 ? zr_outside_children(pid, child, CHILDREN) : 0;
    for (size_t i = 0; i < children; i++)
        see_tree(w, s, child[i], depth + 1, libraries);
}

/* fmax and fmin take the number where the other is NaN. */
static void keep(struct zr_ab_watch *w, const struct zr_ab_sample *s) {
    if (!w->sample) {
        w->sample = zr_ab_more(NULL, ZR_AB_SAMPLES, sizeof(*w->sample));
        w->most = (struct zr_ab_sample){0, NAN, NAN, NAN, NAN, NAN, NAN};
        w->every = 1;
    }
    w->most.gpu_active = fmax(w->most.gpu_active, s->gpu_active);
    w->most.mem_available = fmin(w->most.mem_available, s->mem_available);
    w->most.rss = fmax(w->most.rss, s->rss);
    w->most.vram = fmax(w->most.vram, s->vram);
    w->most.imports = fmax(w->most.imports, s->imports);
    w->most.mirrored = fmax(w->most.mirrored, s->mirrored);
    if (w->taken++ % w->every)
        return;
    if (w->n == ZR_AB_SAMPLES) {
        for (size_t i = 0; i < ZR_AB_SAMPLES / 2; i++)
            w->sample[i] = w->sample[2 * i];
        w->n = ZR_AB_SAMPLES / 2;
        w->every *= 2;
    }
    w->sample[w->n++] = *s;
}

void zr_ab_sample(struct zr_ab_watch *w, pid_t pid, double t, bool processes, bool libraries) {
    struct zr_ab_sample s = {t, NAN, NAN, NAN, NAN, NAN, NAN};
    struct zr_meminfo m;

    if (zr_meminfo_read(&m)) {
        s.gpu_active = known(m.gpu_active);
        s.mem_available = known(m.available);
    }
    if (processes) {
        s.rss = 0;
        see_tree(w, &s, pid, 0, libraries);
        w->looks++;
        w->last = s;
    } else { /* looked at more rarely than the machine: as they were */
        s.rss = w->last.rss;
        s.vram = w->last.vram;
        s.imports = w->last.imports;
        s.mirrored = w->last.mirrored;
    }
    keep(w, &s);
}

/* Room for what the rest of the machine does meanwhile: 2 % of its memory, and 16 MiB of GPU pages. */
static bool at_baseline(const struct zr_ab_running *how, const struct zr_meminfo *m) {
    double active = known(m->gpu_active), available = known(m->available), total = known(m->total);

    return !(active > how->base_active + 16 * 1048576.0) &&
           !(available < how->base_available - fmax(0.02 * total, 64 * 1048576.0));
}

bool zr_ab_settle(struct zr_ab_running *how, double *waited) {
    double start = zr_clock_seconds();
    struct zr_meminfo m;

    *waited = 0;
    if (!zr_meminfo_read(&m))
        return true;
    if (isnan(how->base_available)) {
        how->base_available = known(m.available);
        how->base_active = known(m.gpu_active);
        return true;
    }
    while (!at_baseline(how, &m)) {
        *waited = zr_clock_seconds() - start;
        if (*waited >= how->settle || zr_ab_interrupted)
            return zr_ab_interrupted;
        usleep(20000);
        if (!zr_meminfo_read(&m))
            return true;
    }
    return true;
}
