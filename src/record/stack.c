/*
 * Stacks, code objects and modules: each is stored in the record once.
 *
 * One lock-free table of hashes tells what is stored already. Equal 64-bit hashes are taken for
 * equal things; the index in the table is the id.
 */
#include "record/record.h"

#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 1 << 18, PROBES = 64 };
static uint64_t *stack_table;      /* atomic: of hashes, 0 for a free place */
static uint64_t stored_generation; /* atomic: of the libraries that were stored */

uint32_t zr_stack_id(uint64_t hash, bool *fresh) {
    uint64_t *t = __atomic_load_n(&stack_table, __ATOMIC_ACQUIRE), *expected = NULL;

    *fresh = false;
    if (unlikely(!t)) {
        t = zr_pages(SLOTS * sizeof *t);
        if (!t)
            return 0;
        if (!__atomic_compare_exchange_n(&stack_table, &expected, t, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE)) {
            zr_pages_back(t, SLOTS * sizeof *t);
            t = expected;
        }
    }
    hash |= hash == 0;
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned slot = ((unsigned)(hash >> 32) + i) & (SLOTS - 1);
        uint64_t there = __atomic_load_n(&t[slot], __ATOMIC_RELAXED);

        if (!there && __atomic_compare_exchange_n(&t[slot], &there, hash, false, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED)) {
            *fresh = true;
            return slot + 1;
        }
        if (there == hash)
            return slot + 1;
    }
    return 0;
}

/* --- modules ---------------------------------------------------------------------------------- */

/* A module is stored once for each address that it is loaded at. */
static bool store_module(const struct zr_elf *elf, void *unused) {
    struct zeroute_record_module m = {.time = zr_record_time(),
                                      .start = elf->start,
                                      .end = elf->end,
                                      .bias = elf->bias,
                                      .build_id_size = elf->build_id_size};
    char program[PATH_MAX] = "";
    const char *path = elf->path;
    uint64_t hash = zr_stack_mix(elf->start, elf->end);
    bool fresh;
    uint32_t id;

    (void)unused;
    if (!*path)
        path = readlink("/proc/self/exe", program, sizeof program - 1) > 0 ? program : "";
    memcpy(m.build_id, elf->build_id, sizeof m.build_id);
    for (const char *p = path; *p; p++)
        hash = zr_stack_mix(hash, (uint8_t)*p);
    for (unsigned i = 0; i < elf->build_id_size; i++)
        hash = zr_stack_mix(hash, elf->build_id[i]);
    id = zr_stack_id(hash, &fresh);
    if (fresh)
        zr_record_put(ZEROUTE_RECORD_MODULE, id,
                      (const struct zr_part[]){{&m, sizeof m}, {path, strlen(path) + 1}}, 2);
    return false;
}

/*
 * Before a new stack: stores the libraries that were loaded since. While a thread forks they cannot
 * be listed: then the next new stack does it. Threads that do it at once store each library once
 * (zr_stack_id).
 */
static void store_modules(void) {
    uint64_t now;

    if (!zr_elf_generation(&now) || __atomic_load_n(&stored_generation, __ATOMIC_RELAXED) == now)
        return;
    zr_native_forget();
    zr_python_again();
    if (zr_elf_each(store_module, NULL) != ZR_LIST_BUSY)
        __atomic_store_n(&stored_generation, now, __ATOMIC_RELAXED);
}

/* --- stacks ----------------------------------------------------------------------------------- */

uint32_t zr_stack(void) {
    uint64_t native[ZEROUTE_RECORD_NATIVE_MOST], hash = 1;
    struct zeroute_record_python python[ZEROUTE_RECORD_PYTHON_MOST];
    struct zeroute_record_stack s = {0};
    bool fresh;
    uint32_t id;

    s.native = (uint16_t)zr_native_frames(native, ZEROUTE_RECORD_NATIVE_MOST, &s.native_cut);
    for (unsigned i = 0; i < s.native; i++)
        hash = zr_stack_mix(hash, native[i]);
    if (zr_config.stacks == ZR_STACKS_PYTHON) {
        s.python = (uint16_t)zr_python_frames(python, ZEROUTE_RECORD_PYTHON_MOST, &s.python_cut);
        for (unsigned i = 0; i < s.python; i++)
            hash = zr_stack_mix(hash, (uint64_t)python[i].code << 32 | python[i].where);
    }
    if (!s.native && !s.python)
        return 0;
    id = zr_stack_id(hash, &fresh);
    if (likely(!fresh)) {
        if (!id)
            zr_record_lost_stack();
        return id;
    }
    zr_thread_attend(); /* not below dl_iterate_phdr: both take locks of the dynamic linker */
    store_modules();
    s.time = zr_record_time();
    zr_record_put(ZEROUTE_RECORD_STACK, id,
                  (const struct zr_part[]){{&s, sizeof s},
                                           {native, s.native * sizeof *native},
                                           {python, s.python * sizeof *python}},
                  3);
    return id;
}

void zr_stack_fork_child(void) {
    /*
     * Nothing is stored in the child's file yet; its parent's table costs it no memory of its own.
     */
    stack_table = NULL;
    stored_generation = 0;
}
