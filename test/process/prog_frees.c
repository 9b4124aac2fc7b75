/*
 * Frees that are wrong, each by another library than the allocation's, twice: prints the driver's answers. The
 * arguments name them. What came of it is in the segment, and on stderr.
 */
#include "sim.h"

ze_result_t free_it(ze_context_handle_t context, void *p);

static struct gpu gpu;

static ze_context_handle_t new_context(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t context;

    OK(zeContextCreate(gpu.driver, &desc, &context));
    return context;
}

static ze_result_t twice(void) {
    void *p = on_card(&gpu, 0, 4 * MIB);

    OK(zeMemFree(gpu.context, p));
    return free_it(gpu.context, p);
}

static ze_result_t interior(void) {
    char *p = on_card(&gpu, 0, 4 * MIB);
    ze_result_t result = free_it(gpu.context, p + 4096);

    if (result != ZE_RESULT_SUCCESS) /* else Intel's driver takes it for freed */
        OK(zeMemFree(gpu.context, p));
    return result;
}

static ze_result_t foreign(void) {
    void *p = malloc(4096);
    ze_result_t result = free_it(gpu.context, p);

    free(p);
    return result;
}

static ze_result_t context(void) {
    ze_context_handle_t other = new_context();
    ze_result_t result = free_it(other, on_card(&gpu, 0, 4 * MIB));

    OK(zeContextDestroy(other));
    return result;
}

static void *orphan(ze_context_handle_t *gone) {
    void *p = NULL;

    *gone = new_context();
    OK(zeMemAllocDevice(*gone, &device_desc, 4 * MIB, 0, gpu.card[0], &p));
    OK(zeContextDestroy(*gone));
    return p;
}

static ze_result_t orphaned(void) {
    ze_context_handle_t gone;
    void *p = orphan(&gone);

    return free_it(gpu.context, p);
}

static ze_result_t destroyed(void) {
    ze_context_handle_t gone;
    void *p = orphan(&gone);

    return free_it(gone, p);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        ze_result_t (*free)(void);
    } ways[] = {{"twice", twice},     {"interior", interior}, {"foreign", foreign},
                {"context", context}, {"orphaned", orphaned}, {"destroyed", destroyed}};

    gpu = first_gpu();
    for (int i = 1; i < argc; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int times = 0; times < 2 && strcmp(argv[i], ways[w].name) == 0; times++)
                printf("%s %#x\n", ways[w].name, (unsigned)ways[w].free());
    return 0;
}
