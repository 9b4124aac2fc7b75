/*
 * The part of the kernel's interface that the stand-in answers: ioctl numbers and layouts of the
 * generic DRM calls and of the xe driver (public header drm/xe_drm.h, Linux 7.2). Debian 12 has no
 * such header, so the facts are written down here; uapi_check.c compares them with the real header
 * where one is found.
 */
#ifndef XE_UAPI_H
#define XE_UAPI_H

#include <stdint.h>
#include <sys/ioctl.h>

#define XE_IOW(nr, type) _IOW('d', nr, type)
#define XE_IOWR(nr, type) _IOWR('d', nr, type)

/* --- generic DRM ------------------------------------------------------------------------------ */

struct xe_drm_version {
    int32_t major, minor, patch;
    uint32_t pad;
    uint64_t name_len;
    char *name;
    uint64_t date_len;
    char *date;
    uint64_t desc_len;
    char *desc;
};

struct xe_drm_gem_close {
    uint32_t handle;
    uint32_t pad;
};

#define XE_PRIME_CLOEXEC 02000000u
#define XE_PRIME_RDWR 02u
struct xe_drm_prime {
    uint32_t handle;
    uint32_t flags;
    int32_t fd;
};

struct xe_drm_get_cap {
    uint64_t capability;
    uint64_t value;
};

#define XE_SYNCOBJ_CREATE_SIGNALED (1u << 0)
struct xe_drm_syncobj_create {
    uint32_t handle;
    uint32_t flags;
};
struct xe_drm_syncobj_destroy {
    uint32_t handle;
    uint32_t pad;
};
/* The kernel took two more fields in later: an older caller sends 16 bytes, a newer one 24. */
struct xe_drm_syncobj_handle {
    uint32_t handle;
    uint32_t flags;
    int32_t fd;
    uint32_t pad;
};
#define XE_SYNCOBJ_WAIT_ALL (1u << 0)
struct xe_drm_syncobj_wait {
    uint64_t handles;
    int64_t timeout_nsec;
    uint32_t count_handles;
    uint32_t flags;
    uint32_t first_signaled;
    uint32_t pad;
};
struct xe_drm_syncobj_timeline_wait {
    uint64_t handles;
    uint64_t points;
    int64_t timeout_nsec;
    uint32_t count_handles;
    uint32_t flags;
    uint32_t first_signaled;
    uint32_t pad;
};
struct xe_drm_syncobj_array {
    uint64_t handles;
    uint32_t count_handles;
    uint32_t pad;
};
struct xe_drm_syncobj_timeline_array {
    uint64_t handles;
    uint64_t points;
    uint32_t count_handles;
    uint32_t flags;
};

/* Numbers of the calls; sizes differ between kernel versions, so calls are told by number alone. */
enum xe_drm_nr {
    XE_NR_VERSION = 0x00,
    XE_NR_GEM_CLOSE = 0x09,
    XE_NR_GET_CAP = 0x0c,
    XE_NR_PRIME_HANDLE_TO_FD = 0x2d,
    XE_NR_PRIME_FD_TO_HANDLE = 0x2e,
    XE_NR_SYNCOBJ_CREATE = 0xbf,
    XE_NR_SYNCOBJ_DESTROY = 0xc0,
    XE_NR_SYNCOBJ_HANDLE_TO_FD = 0xc1,
    XE_NR_SYNCOBJ_FD_TO_HANDLE = 0xc2,
    XE_NR_SYNCOBJ_WAIT = 0xc3,
    XE_NR_SYNCOBJ_RESET = 0xc4,
    XE_NR_SYNCOBJ_SIGNAL = 0xc5,
    XE_NR_SYNCOBJ_TIMELINE_WAIT = 0xca,
    XE_NR_SYNCOBJ_QUERY = 0xcb,
    XE_NR_SYNCOBJ_TIMELINE_SIGNAL = 0xcd,
    XE_NR_DEVICE_QUERY = 0x40,
    XE_NR_GEM_CREATE = 0x41,
    XE_NR_GEM_MMAP_OFFSET = 0x42,
    XE_NR_VM_CREATE = 0x43,
    XE_NR_VM_DESTROY = 0x44,
    XE_NR_VM_BIND = 0x45,
    XE_NR_EXEC_QUEUE_CREATE = 0x46,
    XE_NR_EXEC_QUEUE_DESTROY = 0x47,
    XE_NR_EXEC_QUEUE_GET_PROPERTY = 0x48,
    XE_NR_EXEC = 0x49,
    XE_NR_WAIT_USER_FENCE = 0x4a,
    XE_NR_OBSERVATION = 0x4b,
    XE_NR_MADVISE = 0x4c,
};

/* --- what the card is ------------------------------------------------------------------------- */

enum xe_query {
    XE_QUERY_ENGINES = 0,
    XE_QUERY_MEM_REGIONS = 1,
    XE_QUERY_CONFIG = 2,
    XE_QUERY_GT_LIST = 3,
    XE_QUERY_HWCONFIG = 4,
    XE_QUERY_GT_TOPOLOGY = 5,
    XE_QUERY_ENGINE_CYCLES = 6,
    XE_QUERY_UC_FW_VERSION = 7,
};

struct xe_device_query {
    uint64_t extensions;
    uint32_t query;
    uint32_t size;
    uint64_t data;
    uint64_t reserved[2];
};

enum xe_engine_class {
    XE_ENGINE_RENDER = 0,
    XE_ENGINE_COPY = 1,
    XE_ENGINE_VIDEO_DECODE = 2,
    XE_ENGINE_VIDEO_ENHANCE = 3,
    XE_ENGINE_COMPUTE = 4,
};

struct xe_engine_instance {
    uint16_t engine_class;
    uint16_t engine_instance;
    uint16_t gt_id;
    uint16_t pad;
};

struct xe_engine {
    struct xe_engine_instance instance;
    uint64_t reserved[3];
};

enum { XE_REGION_SYSTEM = 0, XE_REGION_VRAM = 1 };

struct xe_mem_region {
    uint16_t mem_class;
    uint16_t instance;
    uint32_t min_page_size;
    uint64_t total_size;
    uint64_t used;
    uint64_t cpu_visible_size;
    uint64_t cpu_visible_used;
    uint64_t reserved[6];
};

#define XE_CONFIG_FLAG_HAS_VRAM (1u << 0)
enum xe_config {
    XE_CONFIG_REV_AND_DEVICE_ID = 0,
    XE_CONFIG_FLAGS = 1,
    XE_CONFIG_MIN_ALIGNMENT = 2,
    XE_CONFIG_VA_BITS = 3,
    XE_CONFIG_MAX_EXEC_QUEUE_PRIORITY = 4,
    XE_CONFIG_PARAMS = 5,
};

struct xe_gt {
    uint16_t type;
    uint16_t tile_id;
    uint16_t gt_id;
    uint16_t pad[3];
    uint32_t reference_clock;
    uint64_t near_mem_regions;
    uint64_t far_mem_regions;
    uint16_t ip_ver_major;
    uint16_t ip_ver_minor;
    uint16_t ip_ver_rev;
    uint16_t pad2;
    uint64_t reserved[7];
};

/* Engines, regions, config and GTs come as a count, a pad and then the items. */
struct xe_query_head {
    uint32_t count;
    uint32_t pad;
};

enum {
    XE_TOPO_DSS_GEOMETRY = 1,
    XE_TOPO_DSS_COMPUTE = 2,
    XE_TOPO_L3_BANK = 3,
    XE_TOPO_EU_PER_DSS = 4,
    XE_TOPO_SIMD16_EU_PER_DSS = 5,
};
struct xe_topology_mask {
    uint16_t gt_id;
    uint16_t type;
    uint32_t num_bytes;
};

struct xe_engine_cycles {
    struct xe_engine_instance eci;
    int32_t clockid;
    uint32_t width;
    uint64_t engine_cycles;
    uint64_t cpu_timestamp;
    uint64_t cpu_delta;
};

struct xe_uc_fw_version {
    uint16_t uc_type;
    uint16_t pad;
    uint32_t branch_ver;
    uint32_t major_ver;
    uint32_t minor_ver;
    uint32_t patch_ver;
    uint32_t pad2;
    uint64_t reserved;
};

/* --- buffers ---------------------------------------------------------------------------------- */

#define XE_GEM_DEFER_BACKING (1u << 0)
#define XE_GEM_SCANOUT (1u << 1)
#define XE_GEM_NEEDS_VISIBLE_VRAM (1u << 2)
#define XE_GEM_NO_COMPRESSION (1u << 3)

struct xe_gem_create {
    uint64_t extensions;
    uint64_t size;
    uint32_t placement; /* one bit per region instance */
    uint32_t flags;
    uint32_t vm_id;
    uint32_t handle;
    uint16_t cpu_caching;
    uint16_t pad[3];
    uint64_t reserved[2];
};

#define XE_MMAP_OFFSET_PCI_BARRIER (1u << 0)
struct xe_gem_mmap_offset {
    uint64_t extensions;
    uint32_t handle;
    uint32_t flags;
    uint64_t offset;
    uint64_t reserved[2];
};

/* --- address spaces --------------------------------------------------------------------------- */

#define XE_VM_SCRATCH_PAGE (1u << 0)
#define XE_VM_LR_MODE (1u << 1)
#define XE_VM_FAULT_MODE (1u << 2)

struct xe_vm_create {
    uint64_t extensions;
    uint32_t flags;
    uint32_t vm_id;
    uint64_t reserved[2];
};
struct xe_vm_destroy {
    uint32_t vm_id;
    uint32_t pad;
    uint64_t reserved[2];
};

enum xe_bind_op_kind {
    XE_BIND_MAP = 0,
    XE_BIND_UNMAP = 1,
    XE_BIND_MAP_USERPTR = 2,
    XE_BIND_UNMAP_ALL = 3,
    XE_BIND_PREFETCH = 4,
};
#define XE_BIND_FLAG_READONLY (1u << 0)
#define XE_BIND_FLAG_IMMEDIATE (1u << 1)
#define XE_BIND_FLAG_NULL (1u << 2)
#define XE_BIND_FLAG_CPU_ADDR_MIRROR (1u << 5)
#define XE_BIND_FLAG_DECOMPRESS (1u << 7)

struct xe_bind_op {
    uint64_t extensions;
    uint32_t obj;
    uint16_t pat_index;
    uint16_t pad;
    uint64_t obj_offset; /* or the user pointer */
    uint64_t range;
    uint64_t addr;
    uint32_t op;
    uint32_t flags;
    uint32_t prefetch_region;
    uint32_t pad2;
    uint64_t reserved[3];
};

struct xe_vm_bind {
    uint64_t extensions;
    uint32_t vm_id;
    uint32_t exec_queue_id;
    uint32_t pad;
    uint32_t num_binds;
    union {
        struct xe_bind_op bind;
        uint64_t vector_of_binds;
    };
    uint32_t pad2;
    uint32_t num_syncs;
    uint64_t syncs;
    uint64_t reserved[2];
};

/* --- queues and fences ------------------------------------------------------------------------ */

struct xe_exec_queue_create {
    uint64_t extensions;
    uint16_t width;
    uint16_t num_placements;
    uint32_t vm_id;
    uint32_t flags;
    uint32_t exec_queue_id;
    uint64_t instances;
    uint64_t reserved[2];
};
struct xe_exec_queue_destroy {
    uint32_t exec_queue_id;
    uint32_t pad;
    uint64_t reserved[2];
};
#define XE_EXEC_QUEUE_PROPERTY_BAN 0
struct xe_exec_queue_get_property {
    uint64_t extensions;
    uint32_t exec_queue_id;
    uint32_t property;
    uint64_t value;
    uint64_t reserved[2];
};

enum xe_sync_type {
    XE_SYNC_SYNCOBJ = 0,
    XE_SYNC_TIMELINE_SYNCOBJ = 1,
    XE_SYNC_USER_FENCE = 2,
};
#define XE_SYNC_FLAG_SIGNAL (1u << 0)

struct xe_sync {
    uint64_t extensions;
    uint32_t type;
    uint32_t flags;
    union {
        uint32_t handle;
        uint64_t addr;
    };
    uint64_t timeline_value;
    uint64_t reserved[2];
};

struct xe_exec {
    uint64_t extensions;
    uint32_t exec_queue_id;
    uint32_t num_syncs;
    uint64_t syncs;
    uint64_t address;
    uint16_t num_batch_buffer;
    uint16_t pad[3];
    uint64_t reserved[2];
};

enum xe_wait_op {
    XE_WAIT_EQ = 0,
    XE_WAIT_NEQ = 1,
    XE_WAIT_GT = 2,
    XE_WAIT_GTE = 3,
    XE_WAIT_LT = 4,
    XE_WAIT_LTE = 5,
};
#define XE_WAIT_FLAG_ABSTIME (1u << 0)

struct xe_wait_user_fence {
    uint64_t extensions;
    uint64_t addr;
    uint16_t op;
    uint16_t flags;
    uint32_t pad;
    uint64_t value;
    uint64_t mask;
    int64_t timeout;
    uint32_t exec_queue_id;
    uint32_t pad2;
    uint64_t reserved[2];
};

#endif
