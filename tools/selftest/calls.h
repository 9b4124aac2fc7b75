/*
 * The random sequence of Level Zero calls: what its operations share. The loader is opened as SYCL's runtimes open it;
 * so the calls pass whatever is preloaded, and a machine without a loader is told so.
 */
#ifndef ZEROUTE_TOOLS_SELFTEST_CALLS_H
#define ZEROUTE_TOOLS_SELFTEST_CALLS_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS 24
#define DEVICES 16
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The functions that the worker calls. */
#define ZR_SELFTEST_FUNCTIONS(X)                                                                                       \
    X(zeInit)                                                                                                          \
    X(zeDriverGet)                                                                                                     \
    X(zeDriverGetProperties)                                                                                           \
    X(zeDeviceGet)                                                                                                     \
    X(zeDeviceGetProperties)                                                                                           \
    X(zeDeviceGetMemoryProperties)                                                                                     \
    X(zeDeviceGetCommandQueueGroupProperties)                                                                          \
    X(zeContextCreate)                                                                                                 \
    X(zeContextCreateEx)                                                                                               \
    X(zeContextDestroy)                                                                                                \
    X(zeContextMakeMemoryResident)                                                                                     \
    X(zeContextEvictMemory)                                                                                            \
    X(zeCommandListCreateImmediate)                                                                                    \
    X(zeCommandListDestroy)                                                                                            \
    X(zeCommandListAppendMemoryCopy)                                                                                   \
    X(zeCommandListAppendMemoryFill)                                                                                   \
    X(zeCommandListAppendMemoryPrefetch)                                                                               \
    X(zeMemAllocDevice)                                                                                                \
    X(zeMemAllocHost)                                                                                                  \
    X(zeMemAllocShared)                                                                                                \
    X(zeMemFree)                                                                                                       \
    X(zeMemFreeExt)                                                                                                    \
    X(zeMemGetAllocProperties)                                                                                         \
    X(zeMemGetAddressRange)                                                                                            \
    X(zeMemGetIpcHandle)                                                                                               \
    X(zeMemOpenIpcHandle)                                                                                              \
    X(zeMemCloseIpcHandle)                                                                                             \
    X(zePhysicalMemCreate)                                                                                             \
    X(zePhysicalMemDestroy)                                                                                            \
    X(zeVirtualMemReserve)                                                                                             \
    X(zeVirtualMemFree)                                                                                                \
    X(zeVirtualMemMap)                                                                                                 \
    X(zeVirtualMemUnmap)                                                                                               \
    X(zeVirtualMemQueryPageSize)                                                                                       \
    X(zeVirtualMemSetAccessAttribute)                                                                                  \
    X(zeVirtualMemGetAccessAttribute)

struct zr_selftest_functions {
#define X(name) __typeof__(&name) name;
    ZR_SELFTEST_FUNCTIONS(X)
#undef X
    /* Loaders of some age lack these: NULL then. */
    ze_result_t (*zeDevicePciGetPropertiesExt)(ze_device_handle_t, ze_pci_ext_properties_t *);
    ze_result_t (*zeCommandListHostSynchronize)(ze_command_list_handle_t, uint64_t);
    ze_result_t (*zeMemPutIpcHandle)(ze_context_handle_t, ze_ipc_mem_handle_t);
    ze_context_handle_t (*zeDriverGetDefaultContext)(ze_driver_handle_t);
};
extern struct zr_selftest_functions ze;

enum kind { DEVICE, HOST, SHARED, KINDS };
extern const char *const zr_usm_kinds[KINDS];

struct slot {
    char *ptr;
    size_t size;
    enum kind kind;
    unsigned device, context;
    unsigned open_on;
    bool exported;
    ze_ipc_mem_handle_t ipc;
};

/* The one program of a worker. */
struct zr_calls {
    struct slot slots[SLOTS];
    ze_driver_handle_t driver;
    ze_device_handle_t devices[DEVICES];
    uint32_t device_count;
    ze_context_handle_t contexts[2];
    ze_command_list_handle_t lists[DEVICES];
    uint64_t budget; /* of all that is ever allocated: what anybody caches is bounded, too; 0: none */
    uint64_t taken;
};
extern struct zr_calls zr_calls;

/* --- level_zero.c ----------------------------------------------------------------------------- */
/* Finds the loader's functions and the first driver with graphics cards. Returns false with the reason in why. */
bool zr_level_zero_open(char *why, size_t size);
/* An immediate list on a group of engines that only copy, where there is one. */
ze_result_t zr_level_zero_list(ze_context_handle_t context, ze_device_handle_t device, ze_command_queue_mode_t mode,
                               ze_command_list_handle_t *list);

/* --- calls.c ---------------------------------------------------------------------------------- */
/* Begins the numbers of an operation, which are to be drawn whatever the answers are. */
void zr_calls_seed(uint64_t seed, unsigned i);
uint64_t zr_next(void);
uint64_t zr_below(uint64_t n);
size_t zr_some_size(void);
/* A block that is held, from this slot on, of this context (-1: of any); an empty slot where there is none. */
struct slot *zr_calls_held(uint64_t from, int context);
/* Whether so much more may be allocated. Says so if it may not. */
bool zr_calls_may_take(uint64_t bytes);
void zr_out(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* FNV-1a of the bytes that came back. */
uint64_t zr_hash_bytes(const void *bytes, size_t size);

/* --- odd.c: what a program seldom does -------------------------------------------------------- */
void zr_calls_chained(void);
void zr_calls_wrong(void);
void zr_calls_partly(void);
void zr_calls_few(void);
void zr_calls_pieces(void);
void zr_calls_shapes(void);
void zr_calls_elsewhere(void);
void zr_calls_anywhere(void);

/* --- busy.c: several threads, and frees while commands run ------------------------------------- */
void zr_calls_threads(void);
void zr_calls_early(void);

#endif
