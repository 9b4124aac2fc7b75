/*
 * Two threads and one block in a process that only observes, one after the other as told here: the preload with places
 * to stop at (test/pause.h) stops the thread that owns the block in the middle of its free, and another one frees the
 * same block. One of them succeeds. And two threads that have one heap one after the other, or blocks that the driver
 * evicts together, where blocks are kept. One part per run, named by the first argument.
 */
#include "seccomp.h"
#include "sim.h"
#include "turns.h"

#include <pthread.h>

#define ALONE "before a block is parked by its owner alone"
#define TOGETHER "before a block is parked"

static struct gpu gpu;

/* --- the one whose blocks they are: a thread that frees until it is stopped, once and then once more ------------- */
static struct {
    pthread_t thread;
    void *p;
    const char *stop;
    ze_result_t result;
    int begin, done, end;
} owner;

/* The first frees are timed, and go another way. */
static void free_until_stopped(void)
{
    for (int i = 0; i < 100000; i++) {
        __atomic_store_n(&owner.p, on_card(&gpu, 0, 64 * KIB), __ATOMIC_RELEASE);
        stop_here = owner.stop;
        owner.result = zeMemFree(gpu.context, owner.p);
        if (!stop_here)
            return;
        OK(owner.result);
    }
    EXPECT(!"stopped");
}

static void *be_owner(void *unused)
{
    while (!is_set(&owner.end)) {
        if (is_set(&owner.begin)) {
            set(&owner.begin, 0);
            free_until_stopped();
            set(&owner.done, 1);
        }
        sched_yield();
    }
    return unused;
}

static void stop_owner(const char *where)
{
    owner.stop = where;
    set(&owner.done, 0), set(&stopped, 0), set(&go, 0);
    set(&owner.begin, 1);
    wait_for(&stopped);
}

static ze_result_t let_owner_go(void)
{
    set(&go, 1);
    wait_for(&owner.done);
    return owner.result;
}

/* --- and a stranger, who frees the block that the owner is about to free ------------------------------------------ */
struct stranger {
    pthread_t thread;
    void *p;
    ze_result_t result;
    int done;
};

static void *free_it(void *arg)
{
    struct stranger *s = arg;

    s->result = zeMemFree(gpu.context, s->p);
    set(&s->done, 1);
    return NULL;
}

static void begin(struct stranger *s)
{
    s->p = __atomic_load_n(&owner.p, __ATOMIC_ACQUIRE);
    EXPECT(pthread_create(&s->thread, NULL, free_it, s) == 0);
}

static ze_result_t end(struct stranger *s)
{
    EXPECT(pthread_join(s->thread, NULL) == 0);
    return s->result;
}

/* The owner has seen that the block is live, and is about to say by a plain store that it is not. */
static void owner_is_waited_for(bool sandbox)
{
    struct stranger stranger = {0};
    ze_result_t one, other;

    stop_owner(ALONE);
    EXPECT(!sandbox || take_membarrier_away());
    begin(&stranger);
    while (!is_set(&waits) && !is_set(&stranger.done))
        sched_yield();
    EXPECT(!is_set(&stranger.done));
    one = let_owner_go();
    other = end(&stranger);
    printf("%#x %#x\n", (unsigned)one, (unsigned)other);
    EXPECT((one == ZE_RESULT_SUCCESS) + (other == ZE_RESULT_SUCCESS) == 1);
}

/* From then on it is a compare-and-swap: whoever was faster has it. */
static void faster_one_has_it(void)
{
    struct stranger stranger = {0};

    stop_owner(TOGETHER);
    begin(&stranger);
    OK(end(&stranger));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, let_owner_go());
}

static void in_turn(void)
{
    owner_is_waited_for(false);
    faster_one_has_it();
}

static void sandboxed_later(void)
{
    owner_is_waited_for(true);
    faster_one_has_it();
}

/* From the beginning: see main. */
static void sandboxed(void)
{
    faster_one_has_it();
}

/*
 * --- a thread that ends: our part of it is over, and it goes on allocating. By then its heap is the owner's, who is
 * inside; whoever destroys a context must wait for him all the same. With blocks kept, and no statistics.
 */
static struct {
    pthread_key_t key;
    int ending, go_on, gone, done;
} ended;

static __attribute__((noinline)) void *ask(void)
{
    void *p = on_card(&gpu, 0, 64 * KIB);

    __asm__ volatile("" : "+r"(p));
    return p;
}

static void ask_once_more(void *unused)
{
    (void)unused;
    set(&ended.ending, 1);
    wait_for(&ended.go_on);
    EXPECT(ask());
    set(&ended.gone, 1);
}

static void *ask_and_end(void *unused)
{
    EXPECT(pthread_setspecific(ended.key, &ended) == 0);
    for (int i = 0; i < 20; i++)
        OK(zeMemFree(gpu.context, ask()));
    return unused;
}

static void *destroy(void *context)
{
    OK(zeContextDestroy(context));
    set(&ended.done, 1);
    return NULL;
}

static void heap_changes_hands(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    pthread_t ending, destroyer;

    OK(zeContextCreate(gpu.driver, &desc, &other));
    EXPECT(pthread_key_create(&ended.key, ask_once_more) == 0);
    EXPECT(pthread_create(&ending, NULL, ask_and_end, NULL) == 0);
    wait_for(&ended.ending);
    stop_owner("before a store");
    set(&ended.go_on, 1);
    wait_for(&ended.gone);
    EXPECT(pthread_create(&destroyer, NULL, destroy, other) == 0);
    while (!is_set(&waits) && !is_set(&ended.done))
        sched_yield();
    EXPECT(!is_set(&ended.done));
    OK(let_owner_go());
    EXPECT(pthread_join(destroyer, NULL) == 0 && pthread_join(ending, NULL) == 0);
}

/*
 * --- a thread that evicts a block from a card, and is stopped before it can say so: another one of the same slab of
 * the driver's has gone with it. With blocks kept.
 */
static void *evict(void *p)
{
    stop_here = "after an eviction";
    OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, 64 * KIB));
    return NULL;
}

static void evicted_meanwhile(void)
{
    void *p = on_card(&gpu, 0, 64 * KIB), *other = on_card(&gpu, 0, 64 * KIB);
    pthread_t thread;

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 64 * KIB));
    EXPECT(pthread_create(&thread, NULL, evict, other) == 0);
    wait_for(&stopped);
    EXPECT((residency(&gpu, p) & 2) == 0);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 64 * KIB));
    EXPECT(residency(&gpu, p) & 2);
    set(&go, 1);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static const struct part all[] = {PART(heap_changes_hands), PART(evicted_meanwhile), PART(in_turn),
                                  PART(sandboxed_later),    PART(sandboxed),         {NULL, NULL}};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "sandboxed") == 0)
        EXPECT(take_membarrier_away());
    gpu = first_gpu();
    EXPECT(pthread_create(&owner.thread, NULL, be_owner, NULL) == 0);
    if (run_part(all, argc, argv) != 0)
        return 2;
    set(&owner.end, 1);
    return pthread_join(owner.thread, NULL);
}
