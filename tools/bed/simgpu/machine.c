/*
 * What the processes of one simulated machine share: VRAM, and the host memory that exports cost.
 * With ZEROUTE_ROOT set it is a file under it, else each process is a machine of its own. A process
 * holds a lock on its record, so the record of one that died is known by the missing lock and given
 * back.
 */
#include "simgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x73696d6770753033u
#define PROCESSES 256
#define ALL_CARDS (2 * SIM_CARDS) /* a second copy of the driver has cards of its own */

struct record {
    int32_t pid; /* 0: free */
    uint32_t client;
    uint64_t mirror, host; /* host: host USM, and the host side of shared USM */
    struct sim_usage usage[ALL_CARDS];
    char cgroup[64]; /* empty: the root */
};

struct machine {
    uint64_t magic;
    uint32_t clients, records; /* records: no record beyond this one was ever used */
    struct sim_host_memory host;
    struct record record[PROCESSES];
};

static struct machine *machine;
static struct record *mine;
static const char *root; /* NULL: private */
static int lock_fd = -1;
static unsigned first_card;
static int owner; /* the process that attached: not a child of its fork */

/* A program may close descriptors that are not its own: then it is alone with its own books. */
static void lock(void) {
    if (lock_fd >= 0)
        while (flock(lock_fd, LOCK_EX) != 0 && errno == EINTR)
            continue;
}

static void unlock(void) {
    if (lock_fd >= 0)
        flock(lock_fd, LOCK_UN);
}

static struct flock record_lock(unsigned i) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i + 1, .l_len = 1};
}

static bool is_alive(unsigned i) {
    struct flock probe = record_lock(i);
    return fcntl(lock_fd, F_OFD_GETLK, &probe) != 0 || probe.l_type != F_UNLCK;
}

/* Machine lock held. Give back what dead processes held; true: there was one. */
static bool bury_the_dead(void) {
    bool any = false;
    for (unsigned i = 0; lock_fd >= 0 && i < machine->records; i++) {
        struct record *record = &machine->record[i];
        if (record->pid == 0 || record == mine || is_alive(i))
            continue;
        sim_procfs_remove(root, record->pid);
        memset(record, 0, sizeof(*record));
        any = true;
    }
    return any;
}

static uint64_t host_bytes_used(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < machine->records; i++) {
        sum += machine->record[i].mirror + machine->record[i].host;
        for (unsigned card = 0; card < ALL_CARDS; card++)
            sum += machine->record[i].usage[card].system;
    }
    return sum;
}

static void publish_host(void) {
    if (root)
        sim_procfs_write_meminfo(root, &machine->host, host_bytes_used());
}

/*
 * A file costs up to a millisecond on a disk. What tells of exports is written at once, and with it
 * whatever waits: who exports has figures that agree. Large changes are, too: a limit that asks the
 * kernel must not find what was just freed. Other allocations are written at once if nothing was
 * for a while, else by a thread soon after.
 */
#define SOON 5000000 /* ns */
#define LARGE (UINT64_C(16) << 20)
static uint64_t written[SIM_CARDS]; /* VRAM of each card, as last written; memory lock */
static uint32_t stale;              /* cards, a bit each; memory lock */
static uint64_t last_write;
static bool writer_runs;

static void write_card(unsigned card) {
    sim_procfs_write_card(root, mine->client, first_card + card, &mine->usage[first_card + card]);
    written[card] = mine->usage[first_card + card].vram;
    stale &= ~(1u << card);
    last_write = sim_now();
}

static bool has_changed_much(unsigned card) {
    uint64_t now = mine->usage[first_card + card].vram;

    return now >= written[card] + LARGE || written[card] >= now + LARGE;
}

static void write_stale(void) {
    for (unsigned card = 0; root && card < SIM_CARDS; card++) {
        if (stale >> card & 1)
            write_card(card);
    }
}

static void *write_later(void *unused) {
    (void)unused;
    for (bool more = true; more;) {
        sim_spend(SOON);
        pthread_mutex_lock(&sim.memory);
        write_stale();
        more = writer_runs = root && sim_now() - last_write < 100 * (uint64_t)SOON;
        pthread_mutex_unlock(&sim.memory);
    }
    return NULL;
}

static void publish_card(unsigned card, bool at_once) {
    pthread_t thread;
    if (!root)
        return;
    stale |= 1u << card;
    if (at_once || has_changed_much(card) || sim_now() - last_write > SOON) {
        write_stale();
        return;
    }
    if (writer_runs)
        return;
    writer_runs = pthread_create(&thread, NULL, write_later, NULL) == 0;
    if (writer_runs)
        pthread_detach(thread);
    else
        write_card(card);
}

static struct machine *map_file(const char *path) {
    struct stat status;
    lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd < 0)
        return NULL;
    lock();
    struct machine *map = MAP_FAILED;
    if (fstat(lock_fd, &status) == 0 &&
        (status.st_size >= (off_t)sizeof(*map) || ftruncate(lock_fd, (off_t)sizeof(*map)) == 0))
        map = mmap(NULL, sizeof(*map), PROT_READ | PROT_WRITE, MAP_SHARED, lock_fd, 0);
    if (map != MAP_FAILED && map->magic != MAGIC) {
        memset(map, 0, sizeof(*map));
        sim_procfs_read_host(&map->host);
        map->magic = MAGIC;
    }
    unlock();
    return map == MAP_FAILED ? NULL : map;
}

static void take_record(void) {
    for (unsigned i = 0; i < PROCESSES && !mine; i++) {
        struct flock hold = record_lock(i);
        if (machine->record[i].pid == 0 && (lock_fd < 0 || fcntl(lock_fd, F_OFD_SETLK, &hold) == 0)) {
            mine = &machine->record[i];
            if (machine->records <= i)
                machine->records = i + 1;
        }
    }
    if (mine) {
        memset(mine, 0, sizeof(*mine));
        mine->pid = getpid();
        mine->client = ++machine->clients;
        snprintf(mine->cgroup, sizeof(mine->cgroup), "%s", sim_config.cgroup);
    }
}

static bool is_below(const struct record *record, const char *group, size_t length) {
    char next = strncmp(record->cgroup, group, length) == 0 ? record->cgroup[length] : 'x';
    return next == '/' || next == '\0';
}

static uint64_t group_used(const char *group, unsigned card) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < machine->records; i++)
        if (machine->record[i].pid && is_below(&machine->record[i], group, strlen(group)))
            sum += machine->record[i].usage[card].vram;
    return sum;
}

/* Machine lock held. The cgroup of this process, then those above it; false: there are no more. */
static bool next_group(char *group) {
    char *slash = strrchr(group, '/');
    if (!slash || slash == group)
        return false;
    *slash = '\0';
    return true;
}

/* Machine lock held. Beyond dmem.max the kernel evicts: there is no room in VRAM. */
static bool cgroups_have_room(unsigned card, size_t bytes) {
    char group[64];
    bool more = root && *mine->cgroup;
    for (snprintf(group, sizeof(group), "%s", mine->cgroup); more; more = next_group(group)) {
        uint64_t most = sim_cgroup_most(root, group, first_card + card);
        if (most != UINT64_MAX && group_used(group, first_card + card) + bytes > most)
            return false;
    }
    return true;
}

static void publish_cgroups(void) {
    char group[64];
    uint64_t used[ALL_CARDS];
    bool more = root && *mine->cgroup;
    for (snprintf(group, sizeof(group), "%s", mine->cgroup); more; more = next_group(group)) {
        for (unsigned card = 0; card < ALL_CARDS; card++)
            used[card] = group_used(group, card);
        sim_cgroup_write(root, group, used, first_card + (unsigned)sim_config.devices);
    }
}

void sim_machine_attach(void) {
    static char root_path[4000];
    char path[4096];
    const char *given = getenv("ZEROUTE_ROOT");
    first_card = sim_second() ? SIM_CARDS : 0;
    owner = getpid();
    if (given && *given && strlen(given) < sizeof(root_path)) {
        memcpy(root_path, given, strlen(given) + 1);
        root = root_path;
        snprintf(path, sizeof(path), "%s/simgpu-machine", root);
        machine = map_file(path);
        if (!machine)
            sim_say("cannot use %s: this process is a machine of its own", path);
    }
    if (!machine) {
        root = NULL;
        lock_fd = -1;
        machine = calloc(1, sizeof(*machine));
        if (!machine)
            abort();
    }
    lock();
    bury_the_dead();
    take_record();
    if (!mine) {
        static struct record spare;
        sim_say("more than %d processes on one machine: this one is not accounted", PROCESSES);
        mine = &spare;
        root = NULL;
    }
    for (unsigned card = 0; card < sim_config.devices; card++)
        publish_card(card, true);
    publish_cgroups();
    publish_host();
    unlock();
}

__attribute__((destructor)) static void leave(void) {
    if (!mine || getpid() != owner)
        return;
    pthread_mutex_lock(&sim.memory);
    lock();
    memset(mine->usage, 0, sizeof(mine->usage));
    mine->mirror = mine->host = 0;
    mine->pid = 0;
    if (root) {
        publish_cgroups();
        publish_host();
        sim_procfs_remove(root, owner);
    }
    root = NULL; /* threads that still run change nothing that others see */
    unlock();
    pthread_mutex_unlock(&sim.memory);
}

static uint64_t vram_used(unsigned card) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < machine->records; i++)
        sum += machine->record[i].usage[first_card + card].vram;
    return sum;
}

bool sim_machine_take(unsigned card, size_t bytes, bool spill, bool *spilled) {
    struct sim_usage *usage = &mine->usage[first_card + card];
    bool fits = true;
    lock();
    *spilled = spill;
    if (spill) {
        usage->system += bytes;
        publish_host();
    } else {
        fits = vram_used(card) + bytes <= sim_config.vram ||
               (bury_the_dead() && vram_used(card) + bytes <= sim_config.vram);
        fits = fits && cgroups_have_room(card, bytes);
        if (fits)
            usage->vram += bytes;
    }
    if (fits) {
        publish_card(card, spill || *mine->cgroup);
        publish_cgroups();
    }
    unlock();
    return fits;
}

void sim_machine_give(unsigned card, size_t bytes, bool spilled) {
    struct sim_usage *usage = &mine->usage[first_card + card];
    lock();
    if (spilled) {
        usage->system -= bytes;
        publish_host();
    } else {
        usage->vram -= bytes;
    }
    publish_card(card, spilled || *mine->cgroup);
    publish_cgroups();
    unlock();
}

void sim_machine_host(int64_t bytes) {
    lock();
    mine->host += (uint64_t)bytes;
    publish_host();
    unlock();
}

void sim_machine_mirror(int64_t bytes) {
    lock();
    bury_the_dead();
    mine->mirror += (uint64_t)bytes;
    publish_host();
    write_stale();
    unlock();
}

void sim_machine_import(unsigned card, bool same_card, int64_t bytes) {
    struct sim_usage *usage = &mine->usage[first_card + card];
    lock();
    *(same_card ? &usage->shared : &usage->gtt) += (uint64_t)bytes;
    publish_card(card, true);
    unlock();
}

uint64_t sim_machine_free(unsigned card) {
    pthread_mutex_lock(&sim.memory);
    lock();
    uint64_t used = vram_used(card);
    unlock();
    pthread_mutex_unlock(&sim.memory);
    if (strcmp(sim_config.says_free, "zero") == 0)
        return 0;
    if (strcmp(sim_config.says_free, "total") == 0 || strcmp(sim_config.says_free, "double") == 0)
        return sim_config.vram * (sim_config.says_free[0] == 'd' ? 2 : 1);
    return used < sim_config.vram ? sim_config.vram - used : 0;
}

/* vram.N, system.N, gtt.N of this process on card N; mirror; faults; calls.FUNCTION (count:on). */
uint64_t sim_query(const char *what) {
    const char *dot = strchr(what, '.');
    unsigned card = dot ? (unsigned)strtoul(dot + 1, NULL, 10) : 0;
    uint64_t value = UINT64_MAX;
    if (strncmp(what, "calls.", 6) == 0)
        return sim_calls(what + 6);
    if (strcmp(what, "faults") == 0)
        return sim_faults();
    if (!mine || card >= SIM_CARDS)
        return value;
    pthread_mutex_lock(&sim.memory);
    const struct sim_usage *usage = &mine->usage[first_card + card];
    if (strcmp(what, "mirror") == 0)
        value = mine->mirror;
    else if (strncmp(what, "vram.", 5) == 0)
        value = usage->vram;
    else if (strncmp(what, "system.", 7) == 0)
        value = usage->system;
    else if (strncmp(what, "gtt.", 4) == 0)
        value = usage->gtt;
    pthread_mutex_unlock(&sim.memory);
    return value;
}
