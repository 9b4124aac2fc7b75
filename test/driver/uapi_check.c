/*
 * Compares xe_uapi.h with the kernel's own header, when the compiler was given a folder that has it
 * (make standin-uapi XE_HEADERS=DIR). Nothing here ends up in a program.
 */
#include "xe_uapi.h"

#include <fcntl.h>
#include <stddef.h>

#if __has_include(<drm/xe_drm.h>)
#define _DRM_MODE_H /* display modes: not our matter, and they want headers of their own */
#include <drm/xe_drm.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), "size of " #theirs)
#define SAME_PLACE(ours, theirs, field)                                                                                \
    _Static_assert(offsetof(struct ours, field) == offsetof(struct theirs, field), #theirs "." #field)
#define SAME_VALUE(ours, theirs) _Static_assert((ours) == (theirs), #theirs)
#define SAME_NUMBER(ours, theirs) _Static_assert((ours) == _IOC_NR(theirs), #theirs)

SAME_SIZE(xe_drm_version, drm_version);
SAME_SIZE(xe_drm_gem_close, drm_gem_close);
SAME_SIZE(xe_drm_prime, drm_prime_handle);
SAME_SIZE(xe_drm_get_cap, drm_get_cap);
SAME_SIZE(xe_drm_syncobj_create, drm_syncobj_create);
SAME_SIZE(xe_drm_syncobj_array, drm_syncobj_array);
SAME_SIZE(xe_drm_syncobj_timeline_array, drm_syncobj_timeline_array);
SAME_PLACE(xe_drm_syncobj_wait, drm_syncobj_wait, first_signaled);
SAME_PLACE(xe_drm_syncobj_timeline_wait, drm_syncobj_timeline_wait, first_signaled);
SAME_PLACE(xe_drm_syncobj_handle, drm_syncobj_handle, fd);

SAME_SIZE(xe_device_query, drm_xe_device_query);
SAME_SIZE(xe_engine_instance, drm_xe_engine_class_instance);
SAME_SIZE(xe_engine, drm_xe_engine);
SAME_SIZE(xe_mem_region, drm_xe_mem_region);
SAME_SIZE(xe_gt, drm_xe_gt);
SAME_SIZE(xe_topology_mask, drm_xe_query_topology_mask);
SAME_SIZE(xe_engine_cycles, drm_xe_query_engine_cycles);
SAME_SIZE(xe_uc_fw_version, drm_xe_query_uc_fw_version);
SAME_SIZE(xe_gem_create, drm_xe_gem_create);
SAME_SIZE(xe_gem_mmap_offset, drm_xe_gem_mmap_offset);
SAME_SIZE(xe_vm_create, drm_xe_vm_create);
SAME_SIZE(xe_vm_destroy, drm_xe_vm_destroy);
SAME_SIZE(xe_bind_op, drm_xe_vm_bind_op);
SAME_SIZE(xe_vm_bind, drm_xe_vm_bind);
SAME_SIZE(xe_exec_queue_create, drm_xe_exec_queue_create);
SAME_SIZE(xe_exec_queue_destroy, drm_xe_exec_queue_destroy);
SAME_SIZE(xe_exec_queue_get_property, drm_xe_exec_queue_get_property);
SAME_SIZE(xe_sync, drm_xe_sync);
SAME_SIZE(xe_exec, drm_xe_exec);
SAME_SIZE(xe_wait_user_fence, drm_xe_wait_user_fence);

SAME_PLACE(xe_device_query, drm_xe_device_query, data);
SAME_PLACE(xe_mem_region, drm_xe_mem_region, cpu_visible_used);
SAME_PLACE(xe_gt, drm_xe_gt, reference_clock);
SAME_PLACE(xe_gt, drm_xe_gt, far_mem_regions);
SAME_PLACE(xe_gt, drm_xe_gt, ip_ver_rev);
SAME_PLACE(xe_engine_cycles, drm_xe_query_engine_cycles, cpu_delta);
SAME_PLACE(xe_uc_fw_version, drm_xe_query_uc_fw_version, patch_ver);
SAME_PLACE(xe_gem_create, drm_xe_gem_create, handle);
SAME_PLACE(xe_gem_create, drm_xe_gem_create, cpu_caching);
SAME_PLACE(xe_gem_mmap_offset, drm_xe_gem_mmap_offset, offset);
SAME_PLACE(xe_vm_create, drm_xe_vm_create, vm_id);
SAME_PLACE(xe_bind_op, drm_xe_vm_bind_op, obj_offset);
SAME_PLACE(xe_bind_op, drm_xe_vm_bind_op, addr);
SAME_PLACE(xe_bind_op, drm_xe_vm_bind_op, flags);
SAME_PLACE(xe_vm_bind, drm_xe_vm_bind, bind);
SAME_PLACE(xe_vm_bind, drm_xe_vm_bind, syncs);
SAME_PLACE(xe_exec_queue_create, drm_xe_exec_queue_create, instances);
SAME_PLACE(xe_sync, drm_xe_sync, timeline_value);
SAME_PLACE(xe_exec, drm_xe_exec, address);
SAME_PLACE(xe_wait_user_fence, drm_xe_wait_user_fence, timeout);
SAME_PLACE(xe_wait_user_fence, drm_xe_wait_user_fence, exec_queue_id);

SAME_NUMBER(XE_NR_VERSION, DRM_IOCTL_VERSION);
SAME_NUMBER(XE_NR_GEM_CLOSE, DRM_IOCTL_GEM_CLOSE);
SAME_NUMBER(XE_NR_GET_CAP, DRM_IOCTL_GET_CAP);
SAME_NUMBER(XE_NR_PRIME_HANDLE_TO_FD, DRM_IOCTL_PRIME_HANDLE_TO_FD);
SAME_NUMBER(XE_NR_PRIME_FD_TO_HANDLE, DRM_IOCTL_PRIME_FD_TO_HANDLE);
SAME_NUMBER(XE_NR_SYNCOBJ_CREATE, DRM_IOCTL_SYNCOBJ_CREATE);
SAME_NUMBER(XE_NR_SYNCOBJ_DESTROY, DRM_IOCTL_SYNCOBJ_DESTROY);
SAME_NUMBER(XE_NR_SYNCOBJ_HANDLE_TO_FD, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD);
SAME_NUMBER(XE_NR_SYNCOBJ_FD_TO_HANDLE, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE);
SAME_NUMBER(XE_NR_SYNCOBJ_WAIT, DRM_IOCTL_SYNCOBJ_WAIT);
SAME_NUMBER(XE_NR_SYNCOBJ_RESET, DRM_IOCTL_SYNCOBJ_RESET);
SAME_NUMBER(XE_NR_SYNCOBJ_SIGNAL, DRM_IOCTL_SYNCOBJ_SIGNAL);
SAME_NUMBER(XE_NR_SYNCOBJ_TIMELINE_WAIT, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT);
SAME_NUMBER(XE_NR_SYNCOBJ_QUERY, DRM_IOCTL_SYNCOBJ_QUERY);
SAME_NUMBER(XE_NR_SYNCOBJ_TIMELINE_SIGNAL, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL);
SAME_NUMBER(XE_NR_DEVICE_QUERY, DRM_IOCTL_XE_DEVICE_QUERY);
SAME_NUMBER(XE_NR_GEM_CREATE, DRM_IOCTL_XE_GEM_CREATE);
SAME_NUMBER(XE_NR_GEM_MMAP_OFFSET, DRM_IOCTL_XE_GEM_MMAP_OFFSET);
SAME_NUMBER(XE_NR_VM_CREATE, DRM_IOCTL_XE_VM_CREATE);
SAME_NUMBER(XE_NR_VM_DESTROY, DRM_IOCTL_XE_VM_DESTROY);
SAME_NUMBER(XE_NR_VM_BIND, DRM_IOCTL_XE_VM_BIND);
SAME_NUMBER(XE_NR_EXEC_QUEUE_CREATE, DRM_IOCTL_XE_EXEC_QUEUE_CREATE);
SAME_NUMBER(XE_NR_EXEC_QUEUE_DESTROY, DRM_IOCTL_XE_EXEC_QUEUE_DESTROY);
SAME_NUMBER(XE_NR_EXEC_QUEUE_GET_PROPERTY, DRM_IOCTL_XE_EXEC_QUEUE_GET_PROPERTY);
SAME_NUMBER(XE_NR_EXEC, DRM_IOCTL_XE_EXEC);
SAME_NUMBER(XE_NR_WAIT_USER_FENCE, DRM_IOCTL_XE_WAIT_USER_FENCE);

SAME_VALUE(XE_QUERY_UC_FW_VERSION, DRM_XE_DEVICE_QUERY_UC_FW_VERSION);
SAME_VALUE(XE_QUERY_GT_TOPOLOGY, DRM_XE_DEVICE_QUERY_GT_TOPOLOGY);
SAME_VALUE(XE_QUERY_ENGINE_CYCLES, DRM_XE_DEVICE_QUERY_ENGINE_CYCLES);
SAME_VALUE(XE_CONFIG_MAX_EXEC_QUEUE_PRIORITY, DRM_XE_QUERY_CONFIG_MAX_EXEC_QUEUE_PRIORITY);
SAME_VALUE(XE_ENGINE_COMPUTE, DRM_XE_ENGINE_CLASS_COMPUTE);
SAME_VALUE(XE_TOPO_SIMD16_EU_PER_DSS, DRM_XE_TOPO_SIMD16_EU_PER_DSS);
SAME_VALUE(XE_GEM_DEFER_BACKING, DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING);
#ifdef DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION /* not in Debian 13 */
SAME_VALUE(XE_GEM_NO_COMPRESSION, DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION);
#endif
#ifdef DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER /* not in Debian 13 */
SAME_VALUE(XE_MMAP_OFFSET_PCI_BARRIER, DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER);
#endif
SAME_VALUE(XE_BIND_UNMAP_ALL, DRM_XE_VM_BIND_OP_UNMAP_ALL);
SAME_VALUE(XE_BIND_PREFETCH, DRM_XE_VM_BIND_OP_PREFETCH);
SAME_VALUE(XE_BIND_FLAG_NULL, DRM_XE_VM_BIND_FLAG_NULL);
SAME_VALUE(XE_SYNC_USER_FENCE, DRM_XE_SYNC_TYPE_USER_FENCE);
SAME_VALUE(XE_SYNC_FLAG_SIGNAL, DRM_XE_SYNC_FLAG_SIGNAL);
SAME_VALUE(XE_WAIT_LTE, DRM_XE_UFENCE_WAIT_OP_LTE);
SAME_VALUE(XE_WAIT_FLAG_ABSTIME, DRM_XE_UFENCE_WAIT_FLAG_ABSTIME);
SAME_VALUE(XE_PRIME_CLOEXEC, DRM_CLOEXEC);
SAME_VALUE(XE_VM_FAULT_MODE, DRM_XE_VM_CREATE_FLAG_FAULT_MODE);
#endif

/* A translation unit may not be empty. */
extern int xs_uapi_checked;
int xs_uapi_checked = 1;
