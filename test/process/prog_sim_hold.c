/*
 * Holds device memory: sim_hold MIB exit|kill|fail|nest MIB HOW. `fail`: the memory must not be
 * had; `kill`: ends as a killed process; `nest`: another process asks while this one holds.
 */
#include "sim.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    EXPECT(argc >= 3);
    struct gpu gpu = first_gpu();
    size_t size = (size_t)atol(argv[1]) * MIB;
    ze_ipc_mem_handle_t handle;
    void *p = NULL;
    bool fails = strcmp(argv[2], "fail") == 0;
    GIVES(fails ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_SUCCESS,
          zeMemAllocDevice(gpu.context, &device_desc, size, 0, gpu.card[0], &p));
    if (!fails)
        OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    if (strcmp(argv[2], "kill") == 0)
        raise(SIGKILL);
    if (strcmp(argv[2], "nest") == 0) {
        pid_t child = fork();
        if (child == 0) {
            execv("/proc/self/exe", argv + 2); /* the word before the child's own arguments */
            _exit(127);
        }
        int status;
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
