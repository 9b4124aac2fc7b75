/*
 * The program above a SYCL runtime (runtime/): device memory by SYCL's functions. What it gets is a block of the
 * driver, or a piece of one that a pool of ours holds.
 */
#include "program.h"
#include "runtime/runtime.h"

#include <dlfcn.h>

enum { PIECES = 1024, LISTS = 2 };

static struct piece {
    uintptr_t p;
    size_t size;
    int card;
    bool live, leaving;
    unsigned submitting;
} pieces[PIECES];
static int piece_count;
static int native_context;
static int adapter;
static bool there;
static bool allocating[TS_THREADS], doomed[TS_THREADS];
static unsigned inside[RUNTIME_CARDS];
static bool ending[RUNTIME_CARDS];
static ze_command_list_handle_t lists[LISTS]; /* the first executes in order */
static bool list_busy[LISTS];
static struct {
    __typeof__(&runtime_begin) begin;
    __typeof__(&runtime_end_pool) end_pool;
    __typeof__(&usm_alloc) alloc;
    __typeof__(&usm_free) free;
} runtime;

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);

    if (!found)
        ts_violation("the runtime lacks %s", name);
    return found;
}

void sycl_opens(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_handle_t devices[RUNTIME_CARDS] = {ts_device(0), ts_device(1)};
    ze_context_handle_t context = NULL;
    void *library;

    piece_count = 0;
    if (!(truth_setting->flags & SYCL))
        return;
    library = dlopen("$ORIGIN/sycl/libusm.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        ts_violation("%s", dlerror());
    *(void **)&runtime.begin = find(library, "runtime_begin");
    *(void **)&runtime.end_pool = find(library, "runtime_end_pool");
    *(void **)&runtime.alloc = find(library, "usm_alloc");
    *(void **)&runtime.free = find(library, "usm_free");
    if (zeContextCreate(ts_driver_handle(), &desc, &context))
        ts_violation("the runtime has no context");
    native_context = ts_context_number(context);
    there = true;
    adapter = 1 + (int)(program_seed % 2);
    runtime.begin(context, devices, adapter);
    for (int i = 0; i < LISTS; i++) {
        ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                         .flags = i == 0 ? 1 << 1 : 0,
                                         .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};

        if (zeCommandListCreateImmediate(context, ts_device(0), &queue, &lists[i]))
            ts_violation("the runtime has no list");
    }
}

/* --- what must hold ----------------------------------------------------------------------------------------------- */

void sycl_must_not_own(uintptr_t p, size_t size) {
    for (int i = 0; i < piece_count; i++) {
        const struct piece *u = &pieces[i];

        if (u->live && !u->leaving && p < u->p + u->size && u->p < p + size)
            ts_violation("an allocation returned %p (%zu bytes), but the program owns %p (%zu bytes) of SYCL's",
                         (void *)p, size, (void *)u->p, u->size);
    }
}

bool sycl_has_context(int context) {
    return there && context == native_context;
}

bool sycl_doom_allocations(void) {
    bool any = false;

    for (int i = 0; i < TS_THREADS; i++)
        if (allocating[i] && i != ts_self())
            doomed[i] = any = true;
    return any;
}

void sycl_block_goes(const struct ts_block *b) {
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].live && !pieces[i].leaving && pieces[i].p - b->base < b->size)
            ts_violation("%p was freed in the driver, but the program owns %p (%zu bytes), which lies in it",
                         (void *)b->base, (void *)pieces[i].p, pieces[i].size);
}

void sycl_add_up(int64_t *bytes, int64_t *blocks) {
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].live) {
            *bytes += (int64_t)pieces[i].size;
            *blocks += 1;
        }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static int do_usm_alloc(size_t size, size_t alignment, int card) {
    const struct ts_block *b;
    uintptr_t p;

    inside[card]++;
    allocating[ts_self()] = true;
    doomed[ts_self()] = false;
    p = (uintptr_t)runtime.alloc(size, alignment, card);
    allocating[ts_self()] = false;
    inside[card]--;
    if (!p || doomed[ts_self()])
        return -1;
    b = ts_block_around(p);
    if (!b || b->card != card || b->context != native_context || b->kind != TS_DEVICE || p + size > b->base + b->size)
        ts_violation("SYCL returned %p (%zu bytes), which lies in no block of card %d", (void *)p, size, card);
    if (alignment && p % alignment)
        ts_violation("SYCL returned %p, which is not aligned to %zu", (void *)p, alignment);
    truth_must_be_free(p, size);
    sycl_must_not_own(p, size);
    if (ts_device_uses_range(p, size))
        ts_violation("SYCL returned %p (%zu bytes), which a command still uses", (void *)p, size);
    if (piece_count == PIECES)
        ts_violation("more than %d allocations of SYCL", PIECES);
    pieces[piece_count] = (struct piece){.p = p, .size = size, .card = card, .live = true};
    return piece_count++;
}

/*
 * Whether the program may free this. What the runtime's own pool would reuse at once must not be in use; more than that
 * only where the runtime has the driver wait for it, and the program has not vouched for its frees.
 */
static bool may_be_freed(const struct piece *u) {
    bool waits = u->size > RUNTIME_POOLS_UP_TO && adapter == 2 && !(truth_setting->flags & VOUCHES);

    return u->live && !u->leaving && !u->submitting && (waits || !ts_device_uses_range(u->p, u->size));
}

static void do_usm_free(struct actor *a, struct piece *u) {
    int card = u->card;

    ts_operation(a->index, "sycl::free %p (%zu bytes)", (void *)u->p, u->size);
    u->leaving = true;
    inside[card]++;
    runtime.free((void *)u->p);
    inside[card]--;
    u->live = false;
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static size_t some_usm_size(struct actor *a) {
    static const size_t sizes[] = {512, 5000, 64 << 10, 200 << 10, 300 << 10, 300 << 10, 512 << 10, 1 << 20, 3 << 20};

    if (draw(a) % 2)
        return sizes[program_seed % (sizeof sizes / sizeof *sizes)];
    return sizes[draw(a) % (sizeof sizes / sizeof *sizes)];
}

static int some_card(struct actor *a) {
    return draw(a) % 4 == 0;
}

static struct piece *some_piece(struct actor *a, bool (*fits)(const struct piece *u)) {
    struct piece *found = NULL;
    unsigned count = 0;

    for (int i = 0; i < piece_count; i++)
        if (fits(&pieces[i]) && draw(a) % ++count == 0)
            found = &pieces[i];
    return found;
}

void op_usm_alloc(struct actor *a) {
    static const size_t alignments[] = {0, 0, 0, 512, 64 << 10, 128 << 10};
    size_t size = some_usm_size(a), alignment = alignments[draw(a) % (sizeof alignments / sizeof *alignments)];
    int card = some_card(a);

    if (!there || ending[card])
        return;
    ts_operation(a->index, "sycl::aligned_alloc_device(%zu, %zu), card %d", alignment, size, card);
    do_usm_alloc(size, alignment, card);
}

void op_usm_free(struct actor *a) {
    struct piece *u = there ? some_piece(a, may_be_freed) : NULL;

    if (u)
        do_usm_free(a, u);
}

/* A block is used, perhaps waited for, freed, and its size asked for again. */
void op_usm_work(struct actor *a) {
    size_t size = some_usm_size(a);
    int i, list = (int)(draw(a) % LISTS), times = 1 + (int)(draw(a) % 2);

    if (!there || ending[0] || list_busy[list])
        return;
    ts_operation(a->index, "sycl::malloc_device(%zu) for work", size);
    i = do_usm_alloc(size, 0, 0);
    if (i < 0)
        return;
    while (times-- && !list_busy[list] && pieces[i].live && !pieces[i].leaving) {
        pieces[i].submitting++;
        list_busy[list] = true;
        ts_operation(a->index, "submit a command that uses %p", (void *)pieces[i].p);
        zeCommandListAppendMemoryFill(lists[list], (void *)pieces[i].p, "", 1, size, NULL, 0, NULL);
        list_busy[list] = false;
        pieces[i].submitting--;
    }
    if (draw(a) % 2)
        zeCommandListHostSynchronize(lists[list], draw(a) % 4 ? UINT64_MAX : 0);
    if (may_be_freed(&pieces[i]))
        do_usm_free(a, &pieces[i]);
    if (ending[0])
        return;
    ts_operation(a->index, "sycl::malloc_device(%zu) after work", size);
    do_usm_alloc(size, 0, 0);
}

void op_usm_wait(struct actor *a) {
    int list = (int)(draw(a) % LISTS);

    if (!there)
        return;
    ts_operation(a->index, "wait for the runtime's list %d", list);
    zeCommandListHostSynchronize(lists[list], draw(a) % 3 ? UINT64_MAX : 0);
}

static bool is_in_use(int card) {
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].live && pieces[i].card == card)
            return true;
    return inside[card] > 0;
}

/* With nothing allocated from it. */
void op_usm_end(struct actor *a) {
    int card = some_card(a);

    if (!there || ending[card] || is_in_use(card))
        return;
    ts_operation(a->index, "the pool of card %d ends", card);
    ending[card] = true;
    runtime.end_pool(card);
    ending[card] = false;
}

void sycl_closes(void) {
    struct actor a = {.random = program_seed + 3, .index = MOST_OPERATIONS};

    for (int i = 0; there && i < piece_count; i++)
        if (pieces[i].live)
            do_usm_free(&a, &pieces[i]);
    for (int card = 0; there && card < RUNTIME_CARDS; card++)
        if (draw(&a) % 2)
            runtime.end_pool(card);
    for (int i = 0; there && i < LISTS; i++)
        zeCommandListDestroy(lists[i]);
}
