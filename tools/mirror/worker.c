/*
 * The process that is measured: `zeroute mirror-worker`, started by mirror-test under the preload.
 * It prints info DRIVER|DEVICE|VRAM, then step ... for the baseline and after every step, then data
 * WORD, and stop REASON when it ended early. It frees nothing: its end does.
 */
#include "mirror/mirror.h"

#include "common/common.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void print_amount(FILE *to, uint64_t bytes) {
    if (bytes == ZR_ABSENT)
        fputs(" -", to);
    else
        fprintf(to, " %" PRIu64, bytes);
}

static void print_step(FILE *to, const struct zr_mirror_step *step) {
    const uint64_t amounts[] = {step->device,           step->host.total, step->host.available, step->host.gpu_active,
                                step->host.gpu_reclaim, step->rss,        step->imports,        step->vram};

    fputs("step", to);
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        print_amount(to, amounts[i]);
    fputc('\n', to);
    fflush(to);
}

bool zr_mirror_parse_step(const char *line, struct zr_mirror_step *step) {
    uint64_t *const amounts[] = {
        &step->device,           &step->host.total, &step->host.available, &step->host.gpu_active,
        &step->host.gpu_reclaim, &step->rss,        &step->imports,        &step->vram};

    if (strncmp(line, "step ", 5))
        return false;
    line += 4;
    step->host.unaccounted = ZR_ABSENT;
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
        char *end;

        if (*line++ != ' ')
            return false;
        if (*line == '-') {
            *amounts[i] = ZR_ABSENT;
            line++;
            continue;
        }
        *amounts[i] = strtoull(line, &end, 10);
        if (end == line)
            return false;
        line = end;
    }
    return true;
}

static void sample(struct zr_mirror_step *step, uint64_t device_bytes) {
    struct zr_process_memory memory;

    memset(step, 0, sizeof *step);
    step->device = device_bytes;
    step->imports = step->vram = step->rss = ZR_ABSENT;
    zr_meminfo_read(&step->host);
    if (!zr_process_memory_read(getpid(), &memory))
        return;
    step->rss = memory.rss;
    for (unsigned i = 0; i < memory.card_count; i++) {
        const struct zr_card_use *card = &memory.cards[i];

        if (card->gtt.total != ZR_ABSENT)
            step->imports = (step->imports == ZR_ABSENT ? 0 : step->imports) + card->gtt.total;
        if (card->vram.total != ZR_ABSENT)
            step->vram = (step->vram == ZR_ABSENT ? 0 : step->vram) + card->vram.total;
    }
}

/* Whether one more step could take the machine below what is to be kept. */
static bool too_little_left(const struct zr_mirror_plan *plan, char *why, size_t size) {
    struct zr_meminfo now;
    char left[32], keep[32];

    if (!zr_meminfo_read(&now) || now.available == ZR_ABSENT) {
        snprintf(why, size, "MemAvailable cannot be read: a step might use up host memory");
        return true;
    }
    if (now.available >= plan->keep && now.available - plan->keep >= plan->step)
        return false;
    snprintf(why, size, "%s of host memory left, %s are kept (--keep) and a step may take %.0f MiB more",
             zr_text_bytes(left, now.available), zr_text_bytes(keep, plan->keep), (double)plan->step / (1 << 20));
    return true;
}

static void stop(const char *why) {
    printf("stop %s\n", why);
    fflush(stdout);
}

struct block {
    void *memory;
    unsigned card;
    bool written;
};

static const char *check_data(const struct zr_mirror_route *route, const struct zr_mirror_plan *plan,
                              const struct block *blocks, unsigned count) {
    unsigned checked = 0;

    for (unsigned i = 0; i < count; i++) {
        bool same = false;

        if (!blocks[i].written || !route->verify(blocks[i].card, blocks[i].memory, plan->step, i, &same))
            continue;
        if (!same)
            return "damaged";
        checked++;
    }
    return count && checked == count ? "intact" : "unchecked";
}

static void walk(const struct zr_mirror_plan *plan, struct zr_mirror_route *route) {
    struct block blocks[ZR_STEPS_MAX];
    uint64_t on_card[ZR_CARDS_MAX] = {0}, device = 0;
    struct zr_mirror_step step;
    char why[256];
    unsigned done = 0;

    sample(&step, 0);
    print_step(stdout, &step);
    for (; done < plan->count; done++) {
        unsigned card = done % route->cards;

        if (too_little_left(plan, why, sizeof why)) {
            stop(why);
            break;
        }
        if (route->vram != ZR_ABSENT && on_card[card] + plan->step > route->vram / 10 * 9) {
            stop("the card is nearly full");
            break;
        }
        blocks[done] = (struct block){route->allocate(plan, card, plan->step, why, sizeof why), card, false};
        if (!blocks[done].memory) {
            stop(why);
            break;
        }
        blocks[done].written = route->write && route->write(card, blocks[done].memory, plan->step, done);
        on_card[card] += plan->step;
        device += plan->step;
        sample(&step, device);
        print_step(stdout, &step);
    }
    printf("data %s\n", route->verify ? check_data(route, plan, blocks, done) : "unchecked");
    fflush(stdout);
}

/* zeroute mirror-worker ROUTE SHARE CARDS COUNT STEP KEEP */
int zr_cmd_mirror_worker(int argc, char **argv) {
    struct zr_mirror_plan plan = {.label = ""};
    struct zr_mirror_route route = {.vram = ZR_ABSENT};
    struct rlimit files;
    char why[256] = "";

    if (argc != 7) {
        fprintf(stderr, "zeroute mirror-worker: it is a part of zeroute mirror-test: use that\n");
        return 2;
    }
    plan.route = argv[1];
    plan.share = (enum zr_share)strtoul(argv[2], NULL, 10);
    plan.cards = (unsigned)strtoul(argv[3], NULL, 10);
    plan.count = (unsigned)strtoul(argv[4], NULL, 10);
    plan.step = strtoull(argv[5], NULL, 10);
    plan.keep = strtoull(argv[6], NULL, 10);
    if (plan.count > ZR_STEPS_MAX || plan.cards > ZR_CARDS_MAX || !plan.cards)
        return 2;
    /* every shared buffer is a descriptor */
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (!(strcmp(plan.route, "native") ? zr_mirror_open_sycl : zr_mirror_open_native)(&plan, &route, why, sizeof why)) {
        stop(why);
        return 0;
    }
    printf("info %s|%s|%" PRIu64 "\n", route.driver, route.device, route.vram);
    walk(&plan, &route);
    /* no tear-down: it is not what is measured, and a runtime's may take long */
    fflush(stdout);
    _exit(0);
}
