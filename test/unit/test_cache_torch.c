/* Split blocks beside PyTorch's own rules: the same places, pass by pass, so no more is held. */
#include "cache/cache.h"
#include "suite.h"
#include "torch_model.h"

#include <string.h>

enum { LIVE = 200, PROGRAMS = 60, EVENTS = 1500, PASSES = 12 };
static const uint64_t first_address = (uint64_t)1 << 44;

static struct { uint64_t next, held, calls; } driver;

static struct zr_block *driver_alloc(void *arg, size_t size, int *code) {
    struct zr_block *b = zr_block_new();

    (void)arg;
    zr_block_place(b, (uintptr_t)driver.next, size, size);
    ck_assert(zr_map_insert(b));
    driver.next += size;
    driver.held += size;
    driver.calls++;
    *code = 0;
    return b;
}

static void driver_free(void *arg, struct zr_block *b) {
    (void)arg;
    driver.held -= b->held;
    driver.calls++;
    zr_block_recycle(zr_map_take((void *)b->base));
}

static uint64_t random_state;

static uint64_t draw(uint64_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

/* Sizes as PyTorch asks for tensors and segments; programs differ in which, in how many live and in what goes first. */
static uint64_t draw_size(uint64_t program) {
    const uint64_t mib = (uint64_t)1 << 20;

    switch (program % 7) {
    case 0:
        return 512 * (1 + draw((uint64_t)1 << draw(16)));
    case 1:
        return 2 * mib * (1 + draw(40));
    case 2:
        return draw(10) < 4 ? 2 * mib : draw(3) ? 20 * mib : 2 * mib * (6 + draw(60));
    case 3:
        return (uint64_t)300 << (1 + draw(17));
    case 4: /* so near to each other that they share a bin */
        return draw(3) ? 90 * mib + 512 * draw(40) : 190 * mib;
    case 5: /* scalars among tensors: few enough to be placed like everything else */
        return draw(2) ? 1 + draw(256) : 512 * (1 + draw(1500));
    default:
        return 1000000 + draw(30 * mib);
    }
}

struct event {
    uint32_t slot;
    uint64_t bytes; /* 0: a free */
};
static struct event event[EVENTS + LIVE];
static size_t events;

/* `always`: one block lives from the beginning to the end. */
static void make_program(uint64_t program, bool always) {
    uint32_t live[LIVE], free_slot[LIVE];
    size_t lives = 0, frees = 0, most = 5 + program * 13 % (LIVE - 10);

    random_state = program * 77 + 1;
    events = 0;
    for (uint32_t i = LIVE; i-- > 0;)
        free_slot[frees++] = i;
    if (always)
        event[events++] = (struct event){free_slot[--frees], 512};
    while (events < EVENTS) {
        if (lives && (lives == most || draw(5) < 2)) {
            size_t i = program % 3 == 0 ? lives - 1 : program % 3 == 1 ? 0 : draw(lives);

            event[events++] = (struct event){live[i], 0};
            free_slot[frees++] = live[i];
            memmove(&live[i], &live[i + 1], (--lives - i) * sizeof *live);
        } else {
            live[lives++] = free_slot[--frees];
            event[events++] = (struct event){live[lives - 1], draw_size(program)};
        }
        if (!always && draw(200) == 0) /* everything, now and then */
            for (; lives && events < EVENTS; free_slot[frees++] = live[lives])
                event[events++] = (struct event){live[--lives], 0};
    }
}

static struct zr_pool *new_pool(void) {
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};

    memset(&driver, 0, sizeof driver);
    driver.next = first_address;
    return zr_pool_new(&backing, 0);
}

START_TEST(every_block_lies_where_pytorchs_rules_place_it) {
    struct torch_model torch = {0};
    struct torch_block *theirs[LIVE] = {0};
    void *ours[LIVE] = {0};
    struct zr_pool *pool = new_pool();
    size_t size;
    bool grew;

    make_program((uint64_t)_i, true);
    for (size_t i = 0; i < events; i++) {
        uint32_t slot = event[i].slot;

        if (event[i].bytes) {
            ck_assert_int_eq(zr_pool_malloc(pool, event[i].bytes, 0, &ours[slot], &grew), 0);
            theirs[slot] = torch_malloc(&torch, event[i].bytes);
            ck_assert_uint_eq((uintptr_t)ours[slot] - first_address, theirs[slot]->at);
        } else {
            ck_assert_int_eq(zr_pool_free(pool, ours[slot], &size), ZR_FREED);
            torch_free(&torch, theirs[slot]);
            theirs[slot] = NULL;
        }
    }
    ck_assert_uint_eq(driver.held, torch.held);
    zr_pool_delete(pool);
    for (int i = 0; i < LIVE; i++)
        if (theirs[i])
            torch_free(&torch, theirs[i]);
    torch_end(&torch);
}
END_TEST

/* The events, from nothing to nothing, in both. */
static void run_both(struct zr_pool *pool, struct torch_model *torch) {
    struct torch_block *theirs[LIVE] = {0};
    void *ours[LIVE] = {0};
    size_t size;
    bool grew;

    for (size_t i = 0; i < events + LIVE; i++) {
        uint32_t slot = i < events ? event[i].slot : (uint32_t)(i - events);

        if (i < events && event[i].bytes) {
            ck_assert_int_eq(zr_pool_malloc(pool, event[i].bytes, 0, &ours[slot], &grew), 0);
            theirs[slot] = torch_malloc(torch, event[i].bytes);
        } else if (ours[slot]) {
            ck_assert_int_eq(zr_pool_free(pool, ours[slot], &size), ZR_FREED);
            torch_free(torch, theirs[slot]);
            ours[slot] = theirs[slot] = NULL;
        }
    }
}

/* A pass may start with other chunks free than the one before, so the second one may still need a segment. */
START_TEST(a_program_that_repeats_itself_soon_calls_the_driver_no_more) {
    struct zr_pool *pool = new_pool();
    struct torch_model torch = {0};
    uint64_t calls = 0;

    make_program((uint64_t)_i, false);
    for (int pass = 0; pass < PASSES; pass++) {
        calls = driver.calls;
        run_both(pool, &torch);
        ck_assert_uint_eq(driver.calls, torch.calls);
        ck_assert_uint_eq(driver.held, torch.held);
    }
    ck_assert_uint_eq(driver.calls, calls);
    zr_pool_delete(pool);
    torch_end(&torch);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache torch");
    TCase *c = tcase_create("torch");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, every_block_lies_where_pytorchs_rules_place_it, 0, PROGRAMS);
    tcase_add_loop_test(c, a_program_that_repeats_itself_soon_calls_the_driver_no_more, 0, PROGRAMS);
    return run_suite(suite);
}
