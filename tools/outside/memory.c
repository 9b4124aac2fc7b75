/* What the kernel counts for a process: resident memory, its cgroup, and what it holds on each card (fdinfo). */
#include "outside/wire.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIPTORS = 16384, PROCESSES = 32768, TURNS = 8 };

/* --- fdinfo ----------------------------------------------------------------------------------- */

struct client {
    char pdev[32];
    char id[32];
};

static void add_absent(uint64_t *sum, uint64_t bytes) {
    *sum = *sum == ZR_ABSENT ? bytes : *sum + bytes;
}

/* xe names its regions vram0, vram1, gtt, system, stolen; i915 local0, system0, stolen-local0. */
static struct zr_region *region_named(struct zr_card_use *card, const char *name, size_t length) {
    while (length && isdigit((unsigned char)name[length - 1]))
        length--;
    if ((length == 4 && !strncmp(name, "vram", 4)) || (length == 5 && !strncmp(name, "local", 5)))
        return &card->vram;
    if (length == 3 && !strncmp(name, "gtt", 3))
        return &card->gtt;
    if (length == 6 && !strncmp(name, "system", 6))
        return &card->system;
    return NULL;
}

static struct zr_card_use *card_of(struct zr_process_memory *out, const char *pdev, const char *driver) {
    struct zr_card_use *card;

    for (unsigned i = 0; i < out->card_count; i++) {
        if (!strcmp(out->cards[i].pdev, pdev))
            return &out->cards[i];
    }
    if (out->card_count == ZR_CARDS_MAX)
        return NULL;
    card = &out->cards[out->card_count++];
    memset(card, 0, sizeof *card);
    snprintf(card->pdev, sizeof card->pdev, "%s", pdev);
    snprintf(card->driver, sizeof card->driver, "%s", driver);
    card->vram = card->gtt = card->system = (struct zr_region){ZR_ABSENT, ZR_ABSENT};
    return card;
}

static void copy_value(char *to, size_t size, const char *value) {
    if (value)
        snprintf(to, size, "%s", value);
}

static void add_regions(struct zr_card_use *card, char *text) {
    char *rest = text, *line;

    while ((line = zr_next_line(&rest))) {
        bool total = !strncmp(line, "drm-total-", 10);
        bool resident = !strncmp(line, "drm-resident-", 13);
        char *colon = strchr(line, ':');
        const char *name = line + (total ? 10 : 13);
        struct zr_region *region;
        uint64_t bytes;

        if (!(total || resident) || !colon)
            continue;
        region = region_named(card, name, (size_t)(colon - name));
        if (region && zr_amount_of(colon + 1, &bytes))
            add_absent(total ? &region->total : &region->resident, bytes);
    }
}

/* Two descriptors of one client carry the same numbers: the pair of card and client id tells them
 * apart. A kernel without client ids gets every descriptor counted. */
static bool seen_before(struct client **seen, size_t *count, const char *pdev, const char *id) {
    struct client *more;

    if (!*id)
        return false;
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp((*seen)[i].pdev, pdev) && !strcmp((*seen)[i].id, id))
            return true;
    }
    more = realloc(*seen, (*count + 1) * sizeof **seen);
    if (!more)
        return true;
    *seen = more;
    snprintf(more[*count].pdev, sizeof more->pdev, "%s", pdev);
    snprintf(more[*count].id, sizeof more->id, "%s", id);
    ++*count;
    return false;
}

static void add_descriptor(struct zr_process_memory *out, struct client **seen, size_t *count, const char *path) {
    char pdev[32] = "", driver[16] = "", id[32] = "";
    char *text = zr_reading_text(path, ZR_OUTSIDE_BYTES, NULL), *copy, *rest, *line;
    struct zr_card_use *card;

    if (!text)
        return;
    copy = strdup(text);
    for (rest = copy; copy && (line = zr_next_line(&rest));) {
        copy_value(pdev, sizeof pdev, zr_value_of(line, "drm-pdev"));
        copy_value(driver, sizeof driver, zr_value_of(line, "drm-driver"));
        copy_value(id, sizeof id, zr_value_of(line, "drm-client-id"));
        if (zr_value_of(line, "exp_name"))
            out->dmabuf_fds++;
    }
    free(copy);
    if (*driver && !seen_before(seen, count, pdev, id) && (card = card_of(out, pdev, driver))) {
        card->clients++;
        add_regions(card, text);
    }
    free(text);
}

/* Sockets, pipes and files tell nothing of cards. A laid-out or simulated machine has no such links. */
static bool may_be_of_a_card(pid_t pid, const char *name) {
    char path[64], target[64];
    ssize_t n;

    if (getenv("ZEROUTE_ROOT"))
        return true;
    snprintf(path, sizeof path, "/proc/%d/fd/%.16s", (int)pid, name);
    n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return true;
    target[n] = '\0';
    return strstr(target, "dri/") || strstr(target, "renderD") || !strncmp(target, "/dmabuf", 7) ||
           !strncmp(target, "anon_inode:", 11);
}

static void read_descriptors(pid_t pid, struct zr_process_memory *out) {
    char folder[4096], path[4400];
    struct client *seen = NULL;
    size_t count = 0;
    struct dirent *entry;
    DIR *listing = opendir(zr_root_path(folder, sizeof folder, "/proc/%d/fdinfo", (int)pid));

    if (!listing) {
        out->fdinfo_error = errno;
        return;
    }
    for (int i = 0; i < DESCRIPTORS && (entry = readdir(listing)); i++) {
        if (entry->d_name[0] == '.' || !may_be_of_a_card(pid, entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        add_descriptor(out, &seen, &count, path);
    }
    free(seen);
    closedir(listing);
}

/* --- cgroup and the process itself ------------------------------------------------------------ */

static uint64_t number_in(const char *path) {
    char *text = zr_reading_text(path, ZR_OUTSIDE_BYTES, NULL);
    uint64_t n = ZR_ABSENT;

    if (text)
        zr_amount_of(text, &n);
    free(text);
    return n;
}

/* A process in a container names its group relative to a root that is mounted elsewhere: the group
 * is looked for below the mount, then at the mount itself. */
static bool cgroup_file(char *path, size_t size, const char *mount, const char *group, const char *file) {
    zr_root_path(path, size, "/sys/fs/cgroup%s%s/%s", mount, strcmp(group, "/") ? group : "", file);
    if (!access(path, R_OK))
        return true;
    zr_root_path(path, size, "/sys/fs/cgroup%s/%s", mount, file);
    return !access(path, R_OK);
}

static void read_cgroup_at(struct zr_process_memory *out, const char *mount, const char *group, const char *current,
                           const char *limit) {
    char path[4096];

    if (cgroup_file(path, sizeof path, mount, group, current))
        out->cgroup_current = number_in(path);
    if (cgroup_file(path, sizeof path, mount, group, limit))
        out->cgroup_limit = number_in(path);
    /* Version 1 writes "no limit" as the largest multiple of a page. */
    if (out->cgroup_limit != ZR_ABSENT && out->cgroup_limit >= (UINT64_C(1) << 62))
        out->cgroup_limit = ZR_ABSENT;
}

static void read_cgroup(pid_t pid, struct zr_process_memory *out) {
    char path[4096];
    char *text = zr_reading_text(zr_root_path(path, sizeof path, "/proc/%d/cgroup", (int)pid), ZR_OUTSIDE_BYTES, NULL);
    char *rest = text, *line;
    const char *unified = NULL, *memory = NULL;

    while (text && (line = zr_next_line(&rest))) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        if (!controllers[1])
            unified = group;
        else if (!strcmp(controllers + 1, "memory") || strstr(controllers, ",memory") ||
                 strstr(controllers, ":memory,"))
            memory = group;
    }
    if (memory)
        read_cgroup_at(out, "/memory", memory, "memory.usage_in_bytes", "memory.limit_in_bytes");
    else if (unified)
        read_cgroup_at(out, "", unified, "memory.current", "memory.max");
    free(text);
}

bool zr_process_memory_read(pid_t pid, struct zr_process_memory *out) {
    char path[4096];
    char *text = zr_reading_text(zr_root_path(path, sizeof path, "/proc/%d/status", (int)pid), ZR_OUTSIDE_BYTES, NULL);
    char *rest = text, *line;

    memset(out, 0, sizeof *out);
    out->rss = out->cgroup_current = out->cgroup_limit = ZR_ABSENT;
    if (!text)
        return false;
    while ((line = zr_next_line(&rest))) {
        const char *value = zr_value_of(line, "VmRSS");

        if (value)
            zr_amount_of(value, &out->rss);
    }
    free(text);
    read_cgroup(pid, out);
    read_descriptors(pid, out);
    return true;
}

/* --- all processes ---------------------------------------------------------------------------- */

/* Those that held a card at the last look, by pid. */
static int *held_before;
static size_t held_count;

static int by_number(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static bool is_among(const int *sorted, size_t count, int pid) {
    return count && bsearch(&pid, sorted, count, sizeof pid, by_number);
}

static size_t list_numbers(int **out) {
    char path[4096];
    struct dirent *e;
    size_t count = 0;
    int *pid = malloc(PROCESSES * sizeof *pid);
    DIR *d = pid ? opendir(zr_root_path(path, sizeof path, "/proc")) : NULL;

    while (d && count < PROCESSES && (e = readdir(d)))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            pid[count++] = (int)strtol(e->d_name, NULL, 10);
    if (d)
        closedir(d);
    if (count)
        qsort(pid, count, sizeof *pid, by_number);
    *out = pid;
    return count;
}

/* The processes of live segments, sorted. */
static size_t list_published(const struct zeroute_list *list, int **out) {
    size_t count = 0;
    int *pid = list ? calloc(list->count + 1, sizeof *pid) : NULL;

    for (size_t i = 0; pid && i < list->count; i++)
        if (list->process[i].pid && list->process[i].state != ZEROUTE_FINISHED)
            pid[count++] = list->process[i].pid;
    if (count)
        qsort(pid, count, sizeof *pid, by_number);
    *out = pid;
    return count;
}

/* Returns whether the process holds a card. So many are told as there is room for. */
static bool tell_holder(int pid, bool published, size_t *room) {
    struct zr_holder h = {.pid = pid};

    zr_reading_user(pid, &h.uid); /* a simulated machine may list processes that are not there: user 0 */
    if (zr_helper_is_stuck(pid, h.uid, 0))
        return false;
    zr_helper_at(pid, h.uid, 0);
    if (!zr_process_memory_read(pid, &h.memory))
        return false;
    bool holds = h.memory.card_count || h.memory.dmabuf_fds;
    if (*room && (holds || published)) {
        zr_helper_tell(ZR_TOLD_HOLDERS, &h, sizeof h);
        --*room;
    }
    return holds;
}

void zr_memory_tell_holders(enum zr_thoroughness how, const struct zeroute_list *list) {
    static unsigned looks;
    int *pid, *published;
    size_t count = list_numbers(&pid), published_count = list_published(list, &published), holding = 0;
    size_t room = ZR_MOST_HOLDERS;
    int *holder = calloc(count + published_count + 1, sizeof *holder);

    for (size_t i = 0; holder && i < count; i++) {
        bool has_segment = is_among(published, published_count, pid[i]);
        bool its_turn = how == ZR_LOOK_NOW || !looks || (unsigned)pid[i] % TURNS == looks % TURNS;
        if (!has_segment && !its_turn && !is_among(held_before, held_count, pid[i]))
            continue;
        if (tell_holder(pid[i], has_segment, &room))
            holder[holding++] = pid[i];
    }
    for (size_t i = 0; i < published_count; i++) /* those that a simulated machine does not list */
        if (!is_among(pid, count, published[i]))
            tell_holder(published[i], true, &room);
    free(pid);
    free(published);
    free(held_before);
    held_before = holder;
    held_count = holder ? holding : 0;
    looks++;
}
