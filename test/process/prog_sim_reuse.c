/* Memory that is freed while a command uses it: each way to free keeps its own promise
 * (copy_cost:150ms). */
#include "sim.h"

static struct gpu gpu;
static ze_command_list_handle_t list;

/* zeCommandListHostSynchronize is newer than the oldest loader. */
static void finish(void)
{
    ze_event_handle_t event = new_event(&gpu);
    OK(zeCommandListAppendSignalEvent(list, event));
    OK(zeEventHostSynchronize(event, UINT64_MAX));
    OK(zeEventDestroy(event));
}

static void free_with(void *p, unsigned policy)
{
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = policy};
    OK(zeMemFreeExt(gpu.context, &desc, p));
}

static void blocking_waits(size_t size)
{
    char *p = on_card(&gpu, 0, size), *other = on_card(&gpu, 0, size), back = 0;
    uint64_t start = now_ms();
    p[0] = 'p';
    OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, NULL, 0, NULL));
    free_with(other, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
    EXPECT(now_ms() - start < 140); /* no command uses that one */
    free_with(p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
    EXPECT(now_ms() - start >= 150 && back == 'p');
}

static void deferred_waits_behind_the_scenes(size_t size)
{
    char *p = on_card(&gpu, 0, size), back = 0;
    uint64_t held = figure(&gpu, "vram.0"), start = now_ms();
    p[0] = 'd';
    OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, NULL, 0, NULL));
    free_with(p, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE);
    EXPECT(now_ms() - start < 140);
    EXPECT(figure(&gpu, "vram.0") == held);
    char *q = on_card(&gpu, 0, size);
    EXPECT(q != p);
    q[0] = 'q';
    finish();
    EXPECT(back == 'd');
    OK(zeMemFree(gpu.context, q));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
}

/* The small block is reused at once, and the command reads at its end: the new owner's byte. */
static void an_early_free_shows(void)
{
    char *p = on_card(&gpu, 0, 512), back = 0;
    uint64_t start = now_ms();
    p[0] = 'o';
    OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, NULL, 0, NULL));
    OK(zeMemFree(gpu.context, p));
    EXPECT(now_ms() - start < 140);
    char *q = on_card(&gpu, 0, 512);
    EXPECT(q == p);
    q[0] = 'n';
    finish();
    EXPECT(back == 'n');
    OK(zeMemFree(gpu.context, q));
}

/* The large one is gone: nothing crashes, the fault is counted and said once. */
static void an_early_free_of_a_buffer_is_a_fault(void)
{
    char *p = on_card(&gpu, 0, 4 * MIB), back = 0;
    EXPECT(figure(&gpu, "faults") == 0);
    OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, NULL, 0, NULL));
    OK(zeMemFree(gpu.context, p));
    finish();
    EXPECT(back == 0 && figure(&gpu, "faults") == 1);
}

int main(void)
{
    gpu = first_gpu();
    list = immediate(&gpu, 0, false);
    blocking_waits(512);
    blocking_waits(4 * MIB);
    deferred_waits_behind_the_scenes(512);
    deferred_waits_behind_the_scenes(4 * MIB);
    an_early_free_shows();
    an_early_free_of_a_buffer_is_a_fault();
    OK(zeCommandListDestroy(list));
    return 0;
}
