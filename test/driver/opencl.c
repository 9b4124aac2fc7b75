/*
 * A program that uses OpenCL, as OpenVINO does. Usage: opencl [ze] [hold]. It writes to a buffer of
 * 256 MiB and compares what comes back. `ze` allocates through Level Zero as well; `hold` waits for
 * the end of its input.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "ze_test.h"
#include <CL/cl.h>

enum { SIZE = 256 << 20, PART = 1 << 20 };

static cl_device_id device;
static cl_context cl;
static cl_command_queue queue;

static void open_device(void) {
    cl_platform_id platform;
    char version[256];
    cl_int error;

    EQUAL(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    EQUAL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, NULL), CL_SUCCESS);
    EQUAL(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL), CL_SUCCESS);
    puts(version);
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    EQUAL(error, CL_SUCCESS);
    queue = clCreateCommandQueueWithProperties(cl, device, NULL, &error);
    EQUAL(error, CL_SUCCESS);
}

static cl_mem new_buffer(void) {
    cl_int error;
    cl_mem buffer = clCreateBuffer(cl, CL_MEM_READ_WRITE, SIZE, NULL, &error);

    EQUAL(error, CL_SUCCESS);
    return buffer;
}

static void copy_there_and_back(cl_mem buffer) {
    char *there = malloc(PART), *back = calloc(1, PART);

    fill_random(there, PART, 1);
    for (size_t at = 0; at < SIZE; at += SIZE - PART)
        EQUAL(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, at, PART, there, 0, NULL, NULL), 0);
    EQUAL(clEnqueueReadBuffer(queue, buffer, CL_TRUE, SIZE - PART, PART, back, 0, NULL, NULL), 0);
    expect_bytes("a buffer of OpenCL", back, there, PART);
    free(there);
    free(back);
}

/* As adapter v2 frees: whether commands may still use the block is left to the driver. */
static void free_and_wait(void *block) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};

    CHECK(zeMemFreeExt(context, &desc, block));
}

static bool is_asked(int argc, char **argv, const char *what) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], what) == 0)
            return true;
    return false;
}

int main(int argc, char **argv) {
    cl_mem buffer;
    void *block = NULL;

    if (is_asked(argc, argv, "ze")) {
        start();
        block = new_device(0, 64 << 20);
    }
    open_device();
    buffer = new_buffer();
    copy_there_and_back(buffer);
    puts("done");
    fflush(stdout);
    while (is_asked(argc, argv, "hold") && getchar() != EOF) {
    }
    if (block)
        free_and_wait(block);
    return clReleaseMemObject(buffer);
}
