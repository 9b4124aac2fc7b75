/*
 * The map of the simulated GPU: a Level Zero driver that keeps "device" memory in sparse memfds and
 * carries commands out on threads. What crosses files, grouped by the file that defines it.
 *
 * Way of an allocation: memory.c -> pool.c (up to 1 MiB) -> backing.c -> machine.c (VRAM) ->
 * procfs.c. Way of a command: command.c -> queue.c (one thread each) -> execute.c -> event.c. Two
 * locks, always taken in this order: sim.memory (blocks, pools, accounting), sim.progress (queues,
 * commands, events). No lock is held while bytes move or time passes.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_CARDS 8
#define SIM_TILES 4
#define SIM_REGIONS 16
#define SIM_KIB ((size_t)1 << 10)
#define SIM_MIB ((size_t)1 << 20)
#define SIM_GIB ((size_t)1 << 30)
#define SIM_PAGE (64 * SIM_KIB) /* device page */
#define SIM_UNIT (2 * SIM_MIB)  /* slab, large page and grain of the address index */
#define SIM_GRAIN 512           /* default alignment inside a slab */
#define SIM_POOLED SIM_MIB      /* largest block that comes from a slab */

typedef void (*sim_function)(void);

/* What newer headers declare and the oldest does not. */
#define SIM_STYPE_DDI_HANDLES 0x00020027
#define SIM_STYPE_USABLE_MEMORY 0x00020041
#define SIM_STYPE_COUNTER_EVENTS 0x00020014
#define SIM_ADDRESS_NOT_FOUND ((ze_result_t)0x78000021)

struct sim_next { /* every extension structure starts like this */
    ze_structure_type_t stype;
    void *next;
};
struct sim_init_desc {
    ze_structure_type_t stype;
    const void *next;
    uint32_t flags; /* 1 GPU, 2 NPU */
};
struct sim_vector_width {
    ze_structure_type_t stype;
    void *next;
    uint32_t vector_width_size;
    uint32_t preferred[7], native[7];
};
struct sim_physical_properties {
    ze_structure_type_t stype;
    void *next;
    uint64_t id;
    uint64_t size;
};

struct sim_uuid {
    uint8_t id[16];
};

/* --- objects ---------------------------------------------------------------------------------- */

/* First in every object: newer loaders call through these tables (extension driver_ddi_handles). */
struct sim_object {
    const void *core, *tools, *sysman, *runtime;
};

struct sim_driver {
    struct sim_object object;
    struct sim_context *default_context;
};

struct sim_device { /* a card, or one tile of it */
    struct sim_object object;
    unsigned card;
    int tile; /* -1: the whole card */
    struct sim_device *root;
    struct sim_device *tiles;
    unsigned tile_count;
};

struct sim_context {
    struct sim_object object;
    uint32_t cards; /* a bit each */
    struct sim_pool *pools;
    struct sim_context *next; /* of all contexts; memory lock */
};

enum sim_kind { SIM_DEVICE, SIM_HOST, SIM_SHARED, SIM_VIRTUAL, SIM_PHYSICAL, SIM_IMPORTED };

/* What a real driver takes from the kernel: one buffer object with its address range. */
struct sim_backing {
    uintptr_t base;  /* of the mapping */
    size_t size;     /* of the mapping, whole pages */
    uintptr_t first; /* of the one block in it (not in a slab) */
    size_t asked;    /* its size as the caller gave it */
    uintptr_t span;  /* what is reserved around it */
    size_t span_size;
    enum sim_kind kind;
    int fd; /* -1: cannot be exported */
    uint64_t id;
    struct sim_device *device;
    struct sim_context *context;
    struct sim_slab *slab;
    struct sim_virtual *virtual;
    uint32_t resident;  /* cards, a bit each */
    uint32_t importers; /* cards other than the owner that imported it */
    bool exported, spilled;
    bool shares_card; /* imported from another process on the same card */
    void *mirror;
    unsigned pins; /* commands that move its bytes right now */
    bool dead;     /* freed while pinned: goes with the last pin */
};

struct sim_block {
    struct sim_backing *backing;
    uintptr_t base;
    size_t size;
    size_t offset; /* in the backing's file */
};

struct sim_state {
    pthread_mutex_t memory;
    pthread_mutex_t progress;
    pthread_cond_t changed; /* with progress; monotonic clock */
    struct sim_driver driver;
    struct sim_device cards[SIM_CARDS];
    unsigned visible[SIM_CARDS]; /* cards that ZE_AFFINITY_MASK leaves */
    unsigned visible_count;
    struct sim_context *contexts; /* memory lock */
    bool eager;                   /* EnableDeferBacking=0 was in force when the driver started */
    bool peerless;                /* ForceZeDeviceCanAccessPerReturnValue=0 likewise */
    atomic_bool ready;
};
extern struct sim_state sim;

/* --- config.c: ZE_SIMGPU ---------------------------------------------------------------------- */
struct sim_fault {
    char function[64];
    uint64_t nth; /* 0: every call */
    uint32_t code;
};
#define SIM_FAULTS 8
#define SIM_HANGS UINT32_MAX /* for a code: the call never returns */
enum sim_setting_kind { SIM_NUMBER, SIM_BYTES, SIM_TIME, SIM_FLAG, SIM_TEXT, SIM_KERNEL, SIM_FAIL };
struct sim_config {
#define SIM_NUMBER(name) uint64_t name;
#define SIM_BYTES(name) uint64_t name;
#define SIM_TIME(name) uint64_t name; /* ns */
#define SIM_FLAG(name) bool name;
#define SIM_KERNEL(name) unsigned name; /* 6.18 is 618 */
#define SIM_TEXT(name) char name[64];
#define SIM_FAIL(name) struct sim_fault name[SIM_FAULTS];
#define SIM_SETTING(name, kind, ...) kind(name)
#include "bed/simgpu/settings.def"
#undef SIM_SETTING
#undef SIM_NUMBER
#undef SIM_BYTES
#undef SIM_TIME
#undef SIM_FLAG
#undef SIM_KERNEL
#undef SIM_TEXT
#undef SIM_FAIL
};
extern struct sim_config sim_config;
void sim_config_load(void);
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Let the time of a call pass: spins below 100 us, where a sleep would be too long. */
void sim_spend(uint64_t ns);
uint64_t sim_now(void); /* ns, monotonic */
int sim_second(void);   /* is this the copy of the library that reads ZE_SIMGPU2? */

/* --- tables.c --------------------------------------------------------------------------------- */
void sim_tables_init(void);
/* Give an object the tables that a loader may call through. */
void sim_object_init(struct sim_object *object);
ze_result_t sim_unsupported(void);
/* The entry point of that name, for zeDriverGetExtensionFunctionAddress; NULL: none. */
sim_function sim_function_named(const char *name);
bool sim_is_function(const char *name);
uint64_t sim_calls(const char *name); /* with count:on or a fault on it; else 0 */

/* --- driver.c --------------------------------------------------------------------------------- */
void sim_start(void); /* once: configuration, cards, machine */

/* --- device.c --------------------------------------------------------------------------------- */
void sim_devices_init(void);
void sim_modules_init(void);
uint32_t sim_visible_cards(void);                  /* a bit each */
unsigned sim_bus(const struct sim_device *device); /* PCI */
static inline struct sim_device *sim_device(ze_device_handle_t handle) {
    return (struct sim_device *)handle;
}

/* --- residency.c: contexts, residency, and the export that it takes --------------------------- */
static inline struct sim_context *sim_context(ze_context_handle_t handle) {
    return (struct sim_context *)handle;
}
struct sim_context *sim_context_new(uint32_t cards);
/* Memory lock held. The buffer is exported, and imported on `card` when that is not its owner (-1:
 * only exported). With mirror:on its host pages are taken, once. */
void sim_export(struct sim_backing *backing, int card);
void sim_unexport(struct sim_backing *backing);
/* Cards that the block is resident on, a bit each; tests find it as extension "zeSimgpuResidency". */
uint32_t sim_residency(const void *p);

/* --- backing.c: buffers, their addresses, the index ------------------------------------------- */
/* Memory lock held. Reserve, back and index `size` bytes; VRAM is charged for SIM_DEVICE. fd >= 0:
 * map that file from `offset` on instead of new memory (the descriptor is then ours). */
ze_result_t sim_backing_new(enum sim_kind kind, struct sim_context *context, struct sim_device *device, size_t size,
                            size_t alignment, int fd, struct sim_backing **out);
void sim_backing_free(struct sim_backing *backing);
struct sim_backing *sim_backing_at(uintptr_t address);
void sim_backing_index(struct sim_backing *backing, struct sim_backing *value);
/* Address space alone: `size` bytes at `alignment` (+ `shift`), in whole units of the index. */
bool sim_reserve(size_t size, size_t alignment, size_t shift, struct sim_backing *backing);
/* Keep the mapping under [p, p+size) while bytes move. *gone: it was the driver's memory and is freed. */
struct sim_backing *sim_pin(const void *p, size_t size, bool *gone);
void sim_unpin(struct sim_backing *backing);
static inline size_t sim_round(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

/* --- pool.c: blocks up to 1 MiB from 2 MiB slabs; memory lock held ---------------------------- */
ze_result_t sim_pool_alloc(enum sim_kind kind, struct sim_context *context, struct sim_device *device, size_t size,
                           size_t alignment, void **out);
void sim_pool_free(struct sim_backing *backing, uintptr_t base);
bool sim_pool_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out);
bool sim_pool_trim(struct sim_device *device); /* empty slabs go back; true: there was one */
void sim_pool_forget(struct sim_context *context);

/* --- memory.c --------------------------------------------------------------------------------- */
/* Memory lock held. The block that holds the address. */
bool sim_find(const void *p, struct sim_block *out);
void sim_release(const struct sim_block *block);
/* Memory lock not held: free what waited for its commands (zeMemFreeExt with DEFER_FREE). */
void sim_free_deferred(void);
size_t sim_max_alloc(void);

/* --- event.c ---------------------------------------------------------------------------------- */
struct sim_event_slot { /* in the pool's memory, which processes may share */
    atomic_bool signalled;
    uint64_t start, end; /* progress lock */
};
struct sim_event {
    struct sim_object object;
    struct sim_event_pool *pool;
    struct sim_event_slot *slot;
    uint32_t signal_scope, wait_scope;
    bool shared;        /* another process may signal it */
    bool counter_based; /* unsignalled again when a command is to signal it */
};
struct sim_fence {
    struct sim_object object;
    atomic_bool signalled;
};
void sim_event_set(struct sim_event *event, bool signalled);
void sim_event_times(struct sim_event *event, ze_kernel_timestamp_result_t *out);
/* Progress lock held. Wait for any change, at most until the deadline; false: it has passed. */
bool sim_wait_changed(uint64_t deadline, bool poll);
uint64_t sim_deadline(uint64_t timeout);

/* --- queue.c, execute.c, command.c ------------------------------------------------------------ */
enum sim_command_kind {
    SIM_NOTHING, /* only its events */
    SIM_COPY,
    SIM_FILL,
    SIM_REGION,
    SIM_STAMP, /* the time */
    SIM_TIMES, /* of events */
    SIM_RESET, /* an event */
    SIM_CALL_HOST,
};
struct sim_operand {
    uintptr_t at;
    size_t size;
    bool ours; /* memory of the driver, not the program's own */
};
struct sim_command {
    enum sim_command_kind kind;
    atomic_uint references;
    uint64_t cost; /* ns */
    struct sim_operand operand[2];
    void *target;
    const void *source;
    const char *pattern;
    size_t pattern_size;
    const size_t *offsets;
    ze_copy_region_t to, from;
    uint32_t pitch, slice, source_pitch, source_slice;
    void (*host_function)(void *);
    struct sim_event *subject, *signal;
    struct sim_event **waits;
    uint32_t wait_count;
};
struct sim_queue *sim_queue_new(struct sim_context *context, struct sim_device *device,
                                const ze_command_queue_desc_t *desc);
void sim_queue_free(struct sim_queue *queue);
ze_result_t sim_queue_submit(struct sim_queue *queue, struct sim_command *const *commands, size_t count,
                             struct sim_fence *fence);
ze_result_t sim_queue_wait(struct sim_queue *queue, uint64_t timeout);
void sim_command_drop(struct sim_command *command);
/* Does a command that is under way name a byte of the range? Takes the progress lock. */
bool sim_in_use(uintptr_t base, size_t size);
void sim_wait_unused(uintptr_t base, size_t size);
void sim_execute(const struct sim_command *command);
uint64_t sim_faults(void);   /* commands whose memory was gone when they ran, and the like */
void sim_context_gone(void); /* a fault: memory is freed through it */

/* --- ipc.c ------------------------------------------------------------------------------------ */
int sim_open_fd_of(int pid, int fd);
/* All that is behind the descriptor, as Intel's driver does it. */
ze_result_t sim_import_fd(struct sim_context *context, struct sim_device *device, int fd, void **out);

/* --- virtual.c -------------------------------------------------------------------------------- */
bool sim_virtual_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out);

/* --- machine.c: what the processes of one simulated machine share; memory lock held ----------- */
void sim_machine_attach(void); /* no lock held */
bool sim_machine_take(unsigned card, size_t bytes, bool spill, bool *spilled);
void sim_machine_give(unsigned card, size_t bytes, bool spilled);
void sim_machine_host(int64_t bytes); /* that the program asked for on the host */
void sim_machine_mirror(int64_t bytes);
/* A buffer of another card (system memory charged to this one), or of this card in another process. */
void sim_machine_import(unsigned card, bool same_card, int64_t bytes);
uint64_t sim_machine_free(unsigned card); /* free VRAM; takes the memory lock */
/* A figure by name, for tests; they find it as extension function "zeSimgpuQuery". */
uint64_t sim_query(const char *what);

/* --- procfs.c: what a reader would find in /proc, under ZEROUTE_ROOT -------------------------- */
struct sim_usage { /* of one process on one card, in bytes */
    uint64_t vram, shared, system, gtt;
};
struct sim_host_memory {
    uint64_t total_kib, free_kib, available_kib;
};
void sim_procfs_read_host(struct sim_host_memory *host); /* of the real machine */
void sim_procfs_write_meminfo(const char *root, const struct sim_host_memory *host, uint64_t used);
void sim_procfs_write_card(const char *root, unsigned client, unsigned card, const struct sim_usage *usage);
void sim_procfs_remove(const char *root, int pid);
void sim_make_folders(char *path); /* all above the last slash */

/* --- cgroup.c: the controller dmem, under ZEROUTE_ROOT ---------------------------------------- */
uint64_t sim_cgroup_most(const char *root, const char *group, unsigned card); /* UINT64_MAX: no limit */
void sim_cgroup_write(const char *root, const char *group, const uint64_t *used, unsigned cards);

/* --- the entry points ------------------------------------------------------------------------- */
ze_result_t sim_zeInitDrivers(uint32_t *, ze_driver_handle_t *, const struct sim_init_desc *);
ze_result_t sim_zesInit(uint32_t);
ze_result_t sim_zesDriverGet(uint32_t *, zes_driver_handle_t *);
ze_result_t sim_zesDeviceGet(zes_driver_handle_t, uint32_t *, zes_device_handle_t *);
ze_result_t sim_zesDriverGetDeviceByUuidExp(zes_driver_handle_t, struct sim_uuid, zes_device_handle_t *, ze_bool_t *,
                                            uint32_t *);
ze_result_t sim_zeMemPutIpcHandle(ze_context_handle_t, ze_ipc_mem_handle_t);
ze_result_t sim_zeMemGetIpcHandleWithProperties(ze_context_handle_t, const void *, void *, ze_ipc_mem_handle_t *);
ze_result_t sim_zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t, ze_ipc_mem_handle_t, uint64_t *);
ze_result_t sim_zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t, uint64_t, ze_ipc_mem_handle_t *);
ze_result_t sim_zePhysicalMemGetProperties(ze_context_handle_t, ze_physical_mem_handle_t,
                                           struct sim_physical_properties *);
ze_result_t sim_zeDriverGetLastErrorDescription(ze_driver_handle_t, const char **);
ze_context_handle_t sim_zeDriverGetDefaultContext(ze_driver_handle_t);
ze_result_t sim_zeDeviceGetRootDevice(ze_device_handle_t, ze_device_handle_t *);
ze_result_t sim_zeDeviceGetVectorWidthPropertiesExt(ze_device_handle_t, uint32_t *, struct sim_vector_width *);
ze_result_t sim_zeDeviceSynchronize(ze_device_handle_t);
ze_result_t sim_zeEventPoolPutIpcHandle(ze_context_handle_t, ze_ipc_event_pool_handle_t);
ze_result_t sim_zeEventPoolGetContextHandle(ze_event_pool_handle_t, ze_context_handle_t *);
ze_result_t sim_zeEventPoolGetFlags(ze_event_pool_handle_t, ze_event_pool_flags_t *);
ze_result_t sim_zeEventGetEventPool(ze_event_handle_t, ze_event_pool_handle_t *);
ze_result_t sim_zeEventGetSignalScope(ze_event_handle_t, ze_event_scope_flags_t *);
ze_result_t sim_zeEventGetWaitScope(ze_event_handle_t, ze_event_scope_flags_t *);
ze_result_t sim_zeCommandQueueGetOrdinal(ze_command_queue_handle_t, uint32_t *);
ze_result_t sim_zeCommandQueueGetIndex(ze_command_queue_handle_t, uint32_t *);
ze_result_t sim_zeCommandListHostSynchronize(ze_command_list_handle_t, uint64_t);
ze_result_t sim_zeCommandListGetDeviceHandle(ze_command_list_handle_t, ze_device_handle_t *);
ze_result_t sim_zeCommandListGetContextHandle(ze_command_list_handle_t, ze_context_handle_t *);
ze_result_t sim_zeCommandListGetOrdinal(ze_command_list_handle_t, uint32_t *);
ze_result_t sim_zeCommandListImmediateGetIndex(ze_command_list_handle_t, uint32_t *);
ze_result_t sim_zeCommandListIsImmediate(ze_command_list_handle_t, ze_bool_t *);
ze_result_t sim_zeCommandListAppendHostFunction(ze_command_list_handle_t, void (*)(void *), void *, void *,
                                                ze_event_handle_t, uint32_t, ze_event_handle_t *);
ze_result_t sim_zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t, uint32_t,
                                                            ze_command_list_handle_t *, ze_event_handle_t, uint32_t,
                                                            ze_event_handle_t *);

#define SIM_CALL(since, function) __typeof__(function) sim_##function;
#include "tables.def"

#endif
