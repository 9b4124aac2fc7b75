/* The stand-in's commands, in batches written by hand. */
#include "raw.h"

static void commands_write_copy_and_fill(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint64_t a = 1ull << 40, b = 2ull << 40;
    uint32_t first = create(fd, 2 * MIB, VRAM, 0), second = create(fd, 2 * MIB, VRAM, 0);
    char *from = map(fd, first, 2 * MIB), *to = map(fd, second, 2 * MIB);
    EQUAL(bind_at(&g, first, a, 2 * MIB, XE_BIND_MAP), 0);
    EQUAL(bind_at(&g, second, b, 2 * MIB, XE_BIND_MAP), 0);
    for (unsigned i = 0; i < 2 * MIB; i++)
        from[i] = (char)(i * 7 + i / 1000);
    /* MEM_COPY of a million bytes, MEM_SET of 100 behind them, MI_STORE_DATA_IMM of a quadword */
    RUN(&g, 0x56800008, 999999, 0, 0, 0, LOW(a + 3), HIGH(a + 3), LOW(b + 1), HIGH(b + 1), 0, /* */
        0x56c00005, 99, 0, 0, LOW(b + 1000001), HIGH(b), 0x5a000000,                          /* */
        0x10200003, LOW(DATA), HIGH(DATA), 0x11111111, 0x22222222);
    EQUAL(memcmp(to + 1, from + 3, 1000000), 0);
    EQUAL(to[0], 0);
    EQUAL(to[1000001], 0x5a);
    EQUAL(to[1000100], 0x5a);
    EQUAL(to[1000101], 0);
    EQUAL(WORD(&g, 0), 0x11111111);
    EQUAL(WORD(&g, 1), 0x22222222);
    munmap(from, 2 * MIB);
    munmap(to, 2 * MIB);
    destroy(fd, first);
    destroy(fd, second);
    gone(&g);
    close(fd);
}

static void registers_count_and_jump(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COMPUTE);
    WORD(&g, 0) = 40;
    /*
     * GPR0 = memory, GPR1 = 2, GPR2 = GPR0 + GPR1, stored; then GPR3 = (GPR0 - GPR0 is zero), which
     * goes to the predicate: the store behind is skipped, the one after it is not.
     */
    RUN(&g, 0x14800002, 0x1a600, LOW(DATA), HIGH(DATA), 0x11000003, 0x1a604, 0, 0x1a608, 2, 0x11000001, 0x1a60c, 0,
        0x0d000003, 0x08008000, 0x08008401, 0x10000000, 0x18000831, /* */
        0x12000002, 0x1a610, LOW(DATA + 4), HIGH(DATA), 0x0d000003, 0x08008000, 0x08008400, 0x10100000, 0x18000c32,
        0x15000001, 0x1a618, 0x1a3bc, 0x00800002, 0x10000002, LOW(DATA + 8), HIGH(DATA), 1, 0x00800000, 0x10000002,
        LOW(DATA + 12), HIGH(DATA), 1);
    EQUAL(WORD(&g, 1), 42);
    EQUAL(WORD(&g, 2), 0);
    EQUAL(WORD(&g, 3), 1);
    gone(&g);
    close(fd);
}

static void a_semaphore_waits_for_the_program(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint32_t batch[] = {0x0e000003 | 1 << 15 | 1 << 12,
                              5,
                              LOW(DATA),
                              HIGH(DATA),
                              0, /* polls until word 0 >= 5 */
                              0x10000002,
                              LOW(DATA + 4),
                              HIGH(DATA),
                              9,
                              0x05000000};
    memcpy(g.commands, batch, sizeof(batch));
    EQUAL(submit(&g), 0);
    EQUAL(finish(&g, 20000000), -ETIME);
    EQUAL(WORD(&g, 1), 0);
    __atomic_store_n(&WORD(&g, 0), 5, __ATOMIC_RELEASE);
    EQUAL(finish(&g, 10000000000), 0);
    EQUAL(WORD(&g, 1), 9);
    gone(&g);
    close(fd);
}

static void a_waiting_queue_can_be_destroyed(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    g.commands[0] = 0x0e000003 | 1 << 15 | 4 << 12;
    g.commands[1] = 1;
    g.commands[2] = LOW(DATA);
    g.commands[3] = HIGH(DATA);
    EQUAL(submit(&g), 0);
    gone(&g);
    close(fd);
}

static void a_batch_may_call_another(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COMPUTE);
    g.commands[0x4000 / 4] = 0x10000002;
    g.commands[0x4004 / 4] = LOW(DATA);
    g.commands[0x4008 / 4] = HIGH(DATA);
    g.commands[0x400c / 4] = 3;
    g.commands[0x4010 / 4] = 0x05000000;
    RUN(&g, 0x18c00001, LOW(BATCH_AT + 0x4000), HIGH(BATCH_AT),     /* second level: comes back */
        0x17840709, LOW(DATA), HIGH(DATA), 4, 0, 0, 0, 0, 0, 0, 0); /* MI_ATOMIC: add 4 */
    EQUAL(WORD(&g, 0), 7);
    gone(&g);
    close(fd);
}

static void program_memory_can_be_bound(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    const uint64_t at = 3ull << 40;
    uint8_t *mine = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct xe_vm_bind b = {
        .vm_id = g.vm,
        .num_binds = 1,
        .bind = {.obj_offset = (uintptr_t)mine, .addr = at, .range = 8192, .op = XE_BIND_MAP_USERPTR}};
    EQUAL(CALL(fd, XE_NR_VM_BIND, &b), 0);
    RUN(&g, 0x56c00005, 8191, 0, 0, LOW(at), HIGH(at), 0xee000000);
    EQUAL(mine[0], 0xee);
    EQUAL(mine[8191], 0xee);
    munmap(mine, 8192); /* gone: the card's write is lost, the process lives */
    RUN(&g, 0x56c00005, 8191, 0, 0, LOW(at), HIGH(at), 0xee000000);
    gone(&g);
    close(fd);
}

static int64_t banned(const struct gpu *g, uint32_t queue) {
    struct xe_exec_queue_get_property p = {.exec_queue_id = queue, .property = XE_EXEC_QUEUE_PROPERTY_BAN, .value = 77};
    int error = CALL(g->fd, XE_NR_EXEC_QUEUE_GET_PROPERTY, &p);
    return error ? error : (int64_t)p.value;
}

/* Whoever waits is told, and the other queues of the address space go on. */
static void expect_banned(struct gpu *g) {
    struct xe_wait_user_fence w = {.addr = (uintptr_t)&WORD(g, 100),
                                   .op = XE_WAIT_NEQ,
                                   .mask = UINT64_MAX,
                                   .timeout = 10000000000,
                                   .exec_queue_id = g->queue};
    EQUAL(submit(g), 0);
    EQUAL(CALL(g->fd, XE_NR_WAIT_USER_FENCE, &w), -EIO);
    EQUAL(banned(g, g->queue), 1);
    EQUAL(submit(g), -ECANCELED);
    uint32_t first = g->queue, second = queue_on(g->fd, g->vm, XE_ENGINE_COPY);
    EQUAL(banned(g, second), 0);
    g->queue = second;
    RUN(g, 0x10000002, LOW(DATA), HIGH(DATA), 8);
    EQUAL(WORD(g, 0), 8);
    EQUAL(banned(g, second), 0);
    struct xe_exec_queue_destroy q = {.exec_queue_id = first};
    EQUAL(CALL(g->fd, XE_NR_EXEC_QUEUE_DESTROY, &q), 0);
    EQUAL(banned(g, first), -ENOENT);
}

static void a_jump_to_nowhere_bans_the_queue(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    EQUAL(banned(&g, g.queue), 0);
    memcpy(g.commands, (const uint32_t[]){0x18800001, 0, 7 << 8}, 12);
    expect_banned(&g);
    gone(&g);
    close(fd);
}

static void a_write_to_nowhere_bans_the_queue(void) {
    int fd = card(0);
    struct gpu g = gpu_on(fd, XE_ENGINE_COPY);
    memcpy(g.commands, (const uint32_t[]){0x10000002, 0, 7 << 8, 1, 0x05000000}, 20);
    expect_banned(&g);
    gone(&g);
    close(fd);
}

static void a_scratch_page_swallows_it(void) {
    int fd = card(0);
    struct gpu g = gpu_with(fd, XE_ENGINE_COPY, XE_VM_LR_MODE | XE_VM_SCRATCH_PAGE);
    RUN(&g, 0x10000002, 0, 7 << 8, 1, 0x10000002, LOW(DATA), HIGH(DATA), 8);
    EQUAL(WORD(&g, 0), 8);
    EQUAL(banned(&g, g.queue), 0);
    gone(&g);
    close(fd);
}

#define PROMISES(P)                                                                                                    \
    P(commands_write_copy_and_fill)                                                                                    \
    P(registers_count_and_jump)                                                                                        \
    P(a_semaphore_waits_for_the_program)                                                                               \
    P(a_waiting_queue_can_be_destroyed)                                                                                \
    P(a_batch_may_call_another)                                                                                        \
    P(program_memory_can_be_bound)                                                                                     \
    P(a_jump_to_nowhere_bans_the_queue)                                                                                \
    P(a_write_to_nowhere_bans_the_queue)                                                                               \
    P(a_scratch_page_swallows_it)

KEEP_PROMISES
