/*
 * Memory that is freed while a command uses it: each way to free keeps its own promise. The command
 * waits for a gate, so a free that returns before the gate opens did not wait for it.
 */
#include "sim.h"
#include <pthread.h>

static struct gpu gpu;
static ze_command_list_handle_t list;
static ze_event_handle_t gate, done;

/* A command that will read the first byte of p into back. */
static void start_reading(const char *p, char *back) {
    OK(zeEventHostReset(gate));
    OK(zeEventHostReset(done));
    OK(zeCommandListAppendMemoryCopy(list, back, p, 1, done, 1, &gate));
}

static void finish(void) {
    OK(zeEventHostSignal(gate));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
}

static void *open_gate_soon(void *unused) {
    (void)unused;
    pause_ms(50);
    OK(zeEventHostSignal(gate));
    return NULL;
}

static void blocking_waits(size_t size) {
    char *p = on_card(&gpu, 0, size), *other = on_card(&gpu, 0, size), back = 0;
    pthread_t thread;
    p[0] = 'p';
    start_reading(p, &back);
    OK(free_with(&gpu, other, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)); /* nobody uses it */
    GIVES(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
    EXPECT(pthread_create(&thread, NULL, open_gate_soon, NULL) == 0);
    OK(free_with(&gpu, p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE));
    OK(zeEventQueryStatus(done));
    EXPECT(back == 'p');
    pthread_join(thread, NULL);
}

static void deferred_waits_behind_the_scenes(size_t size) {
    char *p = on_card(&gpu, 0, size), back = 0;
    uint64_t held = figure(&gpu, "vram.0");
    p[0] = 'd';
    start_reading(p, &back);
    OK(free_with(&gpu, p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE));
    EXPECT(figure(&gpu, "vram.0") == held);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
    char *q = on_card(&gpu, 0, size);
    EXPECT(q != p);
    q[0] = 'q';
    finish();
    EXPECT(back == 'd');
    OK(zeMemFree(gpu.context, q));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
}

/* The small block is reused at once, and the command reads at its end: the new owner's byte. */
static void an_early_free_shows(void) {
    char *p = on_card(&gpu, 0, 512), back = 0;
    p[0] = 'o';
    start_reading(p, &back);
    OK(zeMemFree(gpu.context, p));
    char *q = on_card(&gpu, 0, 512);
    EXPECT(q == p);
    q[0] = 'n';
    finish();
    EXPECT(back == 'n');
    OK(zeMemFree(gpu.context, q));
}

/* The large one is gone: nothing crashes, the fault is counted and said once. */
static void an_early_free_of_a_buffer_is_a_fault(void) {
    char *p = on_card(&gpu, 0, 4 * MIB), back = 0;
    EXPECT(figure(&gpu, "faults") == 0);
    start_reading(p, &back);
    OK(zeMemFree(gpu.context, p));
    finish();
    EXPECT(back == 0 && figure(&gpu, "faults") == 1);
}

int main(void) {
    gpu = first_gpu();
    list = immediate(&gpu, 0, false);
    gate = new_event(&gpu);
    done = new_event(&gpu);
    blocking_waits(512);
    blocking_waits(4 * MIB);
    deferred_waits_behind_the_scenes(512);
    deferred_waits_behind_the_scenes(4 * MIB);
    an_early_free_shows();
    an_early_free_of_a_buffer_is_a_fault();
    OK(zeCommandListDestroy(list));
    OK(zeEventDestroy(gate));
    OK(zeEventDestroy(done));
    return 0;
}
