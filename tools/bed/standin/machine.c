/*
 * What the processes of one stand-in machine share: memory in use, buffers that were exported, the
 * counts. The state lives in a file of the machine's folder ($ZEROUTE_ROOT, or machine:DIR), mapped
 * by every process; without a folder each process is a machine of its own (forked children
 * included). A process that was killed is noticed by the next one that opens a card or runs out of
 * memory.
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROCESSES 128
#define SHARED 32768 /* a power of two: buffers that are exported at one time */

struct process {
    _Atomic int pid;
    uint64_t start_time;
    _Atomic uint64_t on_host;        /* pages of its buffers there */
    uint32_t held;                   /* shared buffers, counted once per card */
    _Atomic uint64_t vram[XS_CARDS]; /* of buffers that never left the process */
    _Atomic uint64_t gtt[XS_CARDS];  /* of buffers that VRAM had no room for */
};

struct shared {
    uint64_t inode; /* 0: never used; 1: was used */
    uint64_t bytes;
    uint32_t card, total;
    bool vram, mirrored;
    uint16_t holders[PROCESSES]; /* one for each card that a process has it on */
};

struct xs_machine {
    uint64_t magic;
    pthread_mutex_t lock;
    _Atomic uint64_t client_ids;
    _Atomic uint64_t gpu_active;
    _Atomic uint64_t vram[XS_CARDS];
    _Atomic uint64_t gtt[XS_CARDS];
    _Atomic uint32_t losses[XS_CARDS];
    _Atomic uint64_t counts[XS_COUNTS];
    struct process processes[PROCESSES];
    struct shared shared[SHARED];
};

#define MAGIC (0x78735f7374616e64ull ^ sizeof(struct xs_machine))

static _Atomic uint64_t early_counts[XS_COUNTS];
static struct xs_machine *machine;
static unsigned me; /* index of this process */
static bool joined;
static pthread_mutex_t join_lock = PTHREAD_MUTEX_INITIALIZER;

_Atomic uint64_t *xs_machine_counts(void) {
    return machine ? machine->counts : early_counts;
}

static uint64_t start_time_of(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    char *p = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static void lock(void) {
    if (pthread_mutex_lock(&machine->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&machine->lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&machine->lock);
}

static void sub(_Atomic uint64_t *from, uint64_t bytes) {
    atomic_fetch_sub_explicit(from, bytes, memory_order_relaxed);
}

/* Lock held. */
static void release(struct shared *s, unsigned process, unsigned count) {
    s->holders[process] = (uint16_t)(s->holders[process] - count);
    s->total -= count;
    machine->processes[process].held -= count;
    if (s->total)
        return;
    if (s->vram)
        sub(&machine->vram[s->card], s->bytes);
    if (s->mirrored) {
        sub(&machine->gpu_active, s->bytes);
        xs_procfs_meminfo(atomic_load(&machine->gpu_active));
    }
    s->inode = 1;
}

/* Lock held. What a process held goes back, as the kernel would do it. */
static void bury(unsigned index) {
    struct process *p = &machine->processes[index];
    for (unsigned card = 0; card < XS_CARDS; card++) {
        sub(&machine->vram[card], atomic_exchange(&p->vram[card], 0));
        sub(&machine->gtt[card], atomic_exchange(&p->gtt[card], 0));
    }
    sub(&machine->gpu_active, atomic_exchange(&p->on_host, 0));
    for (unsigned i = 0; i < SHARED && p->held; i++) {
        struct shared *s = &machine->shared[i];
        if (s->inode > 1 && s->holders[index])
            release(s, index, s->holders[index]);
    }
    xs_procfs_meminfo(atomic_load(&machine->gpu_active));
    xs_procfs_forget(p->pid);
    atomic_store(&p->pid, 0);
}

/* Lock held. */
static void bury_the_dead(void) {
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct process *p = &machine->processes[i];
        int pid = atomic_load(&p->pid);
        if (pid && !(joined && i == me) && start_time_of(pid) != p->start_time)
            bury(i);
    }
}

static bool prepare(struct xs_machine *m) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    bool fine = !pthread_mutex_init(&m->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    m->magic = MAGIC;
    return fine;
}

static struct xs_machine *map_state(void) {
    char path[600];
    int fd = -1;
    if (xs_config.machine[0]) {
        mkdir(xs_config.machine, 0755);
        snprintf(path, sizeof(path), "%s/xe-standin.machine", xs_config.machine);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            xs_say("%s: %s: this process is a machine of its own", path, strerror(errno));
    }
    if (fd < 0)
        fd = memfd_create("xe-standin.machine", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    flock(fd, LOCK_EX);
    struct xs_machine *m = MAP_FAILED;
    if (!ftruncate(fd, sizeof(*m)))
        m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m != MAP_FAILED && m->magic != MAGIC) {
        memset(m, 0, offsetof(struct xs_machine, shared));
        if (ftruncate(fd, offsetof(struct xs_machine, shared)) || ftruncate(fd, sizeof(*m)) || !prepare(m))
            m = MAP_FAILED;
    }
    flock(fd, LOCK_UN); /* the mapping would keep it */
    close(fd);
    return m == MAP_FAILED ? NULL : m;
}

void xs_machine_open(void) {
    pthread_mutex_lock(&join_lock);
    if (joined) {
        pthread_mutex_unlock(&join_lock);
        return;
    }
    if (!machine)
        machine = map_state();
    if (!machine) {
        xs_say("no memory for the machine's state");
        abort();
    }
    lock();
    bury_the_dead();
    for (me = 0; me < PROCESSES && atomic_load(&machine->processes[me].pid); me++)
        ;
    if (me == PROCESSES) {
        xs_say("more than %d processes on one machine", PROCESSES);
        abort();
    }
    machine->processes[me].start_time = start_time_of(getpid());
    atomic_store(&machine->processes[me].pid, (int)getpid());
    joined = true;
    xs_procfs_open();
    xs_procfs_meminfo(atomic_load(&machine->gpu_active));
    unlock();
    xs_counts_open();
    pthread_mutex_unlock(&join_lock);
}

void xs_machine_leave(void) {
    if (!joined)
        return;
    lock();
    bury(me);
    unlock();
    joined = false;
}

/* The child holds nothing; it joins anew when it opens a card. */
void xs_machine_forked(void) {
    joined = false;
    pthread_mutex_init(&join_lock, NULL);
}

uint64_t xs_machine_client_id(void) {
    return atomic_fetch_add(&machine->client_ids, 1) + 1;
}

static bool take(unsigned card, uint64_t bytes) {
    uint64_t used = atomic_load_explicit(&machine->vram[card], memory_order_relaxed);
    do {
        if (bytes > xs_config.vram || used > xs_config.vram - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&machine->vram[card], &used, used + bytes));
    atomic_fetch_add_explicit(&machine->processes[me].vram[card], bytes, memory_order_relaxed);
    return true;
}

bool xs_vram_take(unsigned card, uint64_t bytes) {
    if (take(card, bytes))
        return true;
    lock();
    bury_the_dead();
    unlock();
    return take(card, bytes);
}

void xs_vram_give(unsigned card, uint64_t bytes) {
    if (!joined)
        return;
    sub(&machine->processes[me].vram[card], bytes);
    sub(&machine->vram[card], bytes);
}

void xs_gtt_take(unsigned card, uint64_t bytes) {
    uint64_t used = atomic_fetch_add(&machine->gtt[card], bytes) + bytes;
    atomic_fetch_add(&machine->processes[me].gtt[card], bytes);
    if (!xs_config.gtt || used <= xs_config.gtt || used - bytes > xs_config.gtt)
        return; /* it fits, or the card was lost before */
    lock();
    bury_the_dead();
    unlock();
    if (atomic_load(&machine->gtt[card]) <= xs_config.gtt)
        return;
    atomic_fetch_add(&machine->losses[card], 1);
    xs_count(XS_C_cards_lost, 1);
    xs_say("card %u is lost: %llu MiB of buffers beyond its memory, and host pages for %llu MiB", card,
           (unsigned long long)(used >> 20), (unsigned long long)(xs_config.gtt >> 20));
    xs_event_bump_all();
}

void xs_gtt_give(unsigned card, uint64_t bytes) {
    if (!joined)
        return;
    sub(&machine->processes[me].gtt[card], bytes);
    sub(&machine->gtt[card], bytes);
}

uint32_t xs_losses(unsigned card) {
    return atomic_load_explicit(&machine->losses[card], memory_order_relaxed);
}

/* Looks for the dead, but not more often than ten times a second: it reads a file per process. */
uint64_t xs_vram_used(unsigned card) {
    static _Atomic uint64_t next_look;
    uint64_t now = xs_now(), next = atomic_load(&next_look);
    if (now >= next && atomic_compare_exchange_strong(&next_look, &next, now + 100000000)) {
        lock();
        bury_the_dead();
        unlock();
    }
    return atomic_load(&machine->vram[card]);
}

uint64_t xs_gpu_active(void) {
    return atomic_load(&machine->gpu_active);
}

void xs_host_pages(int64_t bytes) {
    if (!joined)
        return;
    lock();
    atomic_fetch_add(&machine->processes[me].on_host, (uint64_t)bytes);
    atomic_fetch_add(&machine->gpu_active, (uint64_t)bytes);
    xs_procfs_meminfo(atomic_load(&machine->gpu_active));
    unlock();
}

/* Lock held. The entry of a buffer, or a free place for it; NULL: the table is full. */
static struct shared *find(uint64_t inode) {
    struct shared *place = NULL;
    for (unsigned i = 0; i < SHARED; i++) {
        struct shared *s = &machine->shared[(inode * 0x9e3779b97f4a7c15ull + i) & (SHARED - 1)];
        if (s->inode == inode)
            return s;
        if (s->inode <= 1 && !place)
            place = s;
        if (!s->inode)
            break;
    }
    return place;
}

/* Lock held. */
static bool hold(uint64_t inode, unsigned card, uint64_t bytes, bool vram, bool mirrored) {
    struct shared *s = find(inode);
    if (!s) {
        xs_say("more than %d shared buffers: the books are no longer right", SHARED);
        return false;
    }
    bool fresh = s->inode != inode;
    if (fresh) {
        *s = (struct shared){.inode = inode, .bytes = bytes, .card = card, .vram = vram};
        s->mirrored = mirrored;
    }
    s->holders[me]++;
    s->total++;
    machine->processes[me].held++;
    if (fresh && mirrored) {
        atomic_fetch_add(&machine->gpu_active, bytes);
        xs_procfs_meminfo(atomic_load(&machine->gpu_active));
        xs_count(XS_C_mirrored, 1);
        xs_count(XS_C_mirrored_bytes, bytes);
    }
    return fresh;
}

/* The charge stays on the card; it is only no longer the process's own. */
void xs_share_export(uint64_t inode, unsigned card, uint64_t bytes, bool vram, bool mirrored) {
    lock();
    hold(inode, card, bytes, vram, mirrored);
    if (vram)
        sub(&machine->processes[me].vram[card], bytes);
    unlock();
}

/* Fresh here means that the exporter is gone, or on another machine: the memory is in use all the same. */
void xs_share_import(uint64_t inode, unsigned card, uint64_t bytes, bool vram, bool mirrored) {
    lock();
    if (hold(inode, card, bytes, vram, mirrored) && vram)
        atomic_fetch_add(&machine->vram[card], bytes);
    unlock();
}

void xs_share_release(uint64_t inode) {
    if (!joined)
        return;
    lock();
    struct shared *s = find(inode);
    if (s && s->inode == inode && s->holders[me])
        release(s, me, 1);
    unlock();
}
