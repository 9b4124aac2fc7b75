/*
 * Which library a call came from. Each thread keeps what it learnt about return addresses in a
 * small direct-mapped table; the list of libraries is walked on a miss, and looked at again from
 * time to time because libraries come and go.
 */
#include "zeroute.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARIES 96u
#define NOT_NAMED (-2)
#define LOOK_AGAIN 1024u /* hits until a library that has gone is noticed */

struct library {
    char name[56];
    int calls, bytes;
};

__thread struct zr_sites *zr_sites;
static __thread bool thread_ended;
static struct zr_lock lock;
static struct library libraries[LIBRARIES];
static unsigned library_count;
static unsigned long long seen_generation;

extern char *program_invocation_short_name;

/* --- the libraries ---------------------------------------------------------------------------- */

struct search {
    uintptr_t address;
    unsigned long long generation;
    char name[56];
    bool found;
};

static const char *soname(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *d = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        const char *strings = NULL;
        ElfW(Xword) at = 0;
        for (; d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_STRTAB)
                strings = (const char *)d->d_un.d_ptr;
            else if (d->d_tag == DT_SONAME)
                at = d->d_un.d_val;
        }
        /* A table that was not relocated is not a pointer yet. */
        if (strings && at && (uintptr_t)strings > info->dlpi_addr)
            return strings + at;
    }
    return NULL;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *s = data;
    (void)size;
    s->generation = info->dlpi_adds + info->dlpi_subs;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || s->address < from || s->address >= from + p->p_memsz)
            continue;
        const char *name = info->dlpi_name && *info->dlpi_name ? soname(info)
                                                               : program_invocation_short_name;
        if (!name) {
            name = strrchr(info->dlpi_name, '/');
            name = name ? name + 1 : info->dlpi_name;
        }
        snprintf(s->name, sizeof s->name, "%s", name);
        s->found = true;
        return 1;
    }
    return 0;
}

static void look_up(const void *address, struct search *s)
{
    *s = (struct search){.address = (uintptr_t)address};
    dl_iterate_phdr(visit, s);
    if (!s->found)
        snprintf(s->name, sizeof s->name, "unknown");
}

/* The entry of a library, made at its first call; the last one stands for all that do not fit. */
static struct library *library(const char *name)
{
    unsigned n = 0;
    zr_lock(&lock);
    while (n < library_count && strcmp(libraries[n].name, name) != 0)
        n++;
    struct library *l = &libraries[n];
    if (n == library_count) {
        if (library_count + 1 < LIBRARIES)
            library_count++;
        else
            name = "others";
        snprintf(l->name, sizeof l->name, "%s", name);
        l->calls = l->bytes = NOT_NAMED;
    }
    zr_unlock(&lock);
    return l;
}

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void drop_table(void *unused)
{
    (void)unused;
    if (zr_sites)
        munmap(zr_sites, sizeof *zr_sites);
    zr_sites = NULL;
    thread_ended = true;
}

/* A thread that is ending, or has no memory, goes without a table and walks the list each time. */
static void make_table(void)
{
    if (thread_ended)
        return;
    struct zr_sites *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
    if (t == MAP_FAILED)
        return;
    if (__cxa_thread_atexit_impl(drop_table, NULL, &__dso_handle))
        munmap(t, sizeof *t);
    else
        zr_sites = t;
}

/* Where the counter of this number lies in every shard. */
static uint32_t offset_of(int number)
{
    return (uint32_t)(offsetof(struct zr_shard, dynamic) + (size_t)number * sizeof(uint64_t));
}

void zr_count_caller_slow(const void *address, uint64_t bytes)
{
    if (zr_shard_word == ZR_SHARD_OFF)
        return;
    int saved = errno;
    struct search s;
    char name[80];
    look_up(address, &s);
    struct library *l = library(s.name);
    struct zr_site site = {.address = address};
    zr_lock(&lock);
    if (l->calls == NOT_NAMED) {
        snprintf(name, sizeof name, "callers.%s.bytes", l->name);
        l->bytes = zr_named(name, "bytes", "bytes asked for by this library");
        snprintf(name, sizeof name, "callers.%s.calls", l->name);
        l->calls = zr_named(name, "", "calls from this library");
    }
    if (l->calls >= 0 && l->bytes >= 0) {
        site.calls = offset_of(l->calls);
        site.bytes = offset_of(l->bytes);
    }
    zr_unlock(&lock);
    zr_count_named(l->calls, 1);
    zr_count_named(l->bytes, bytes);
    if (!zr_sites)
        make_table();
    if (zr_sites && l->calls >= 0 && l->bytes >= 0) {
        if (zr_sites->generation != s.generation) {
            memset(zr_sites->site, 0, sizeof zr_sites->site);
            zr_sites->generation = s.generation;
        }
        zr_sites->countdown = LOOK_AGAIN;
        zr_sites->site[zr_site_of(address)] = site;
    }
    if (__atomic_exchange_n(&seen_generation, s.generation, __ATOMIC_RELAXED) != s.generation)
        zr_fingerprint_refresh();
    errno = saved;
}

static int first(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

bool zr_callers_moved(unsigned long long *seen)
{
    unsigned long long generation = 0;
    dl_iterate_phdr(first, &generation);
    if (generation == *seen)
        return false;
    *seen = generation;
    if (zr_sites)
        memset(zr_sites->site, 0, sizeof zr_sites->site);
    return true;
}

const char *zr_caller_name(const void *address)
{
    struct search s;
    int saved = errno;
    look_up(address, &s);
    errno = saved;
    return library(s.name)->name;
}

void zr_fork_child_callers(void)
{
    if (zr_sites)
        memset(zr_sites, 0, sizeof *zr_sites);
    lock = (struct zr_lock){0};
    library_count = 0;
    seen_generation = 0;
}
