/*
 * The stand-in xe device: a preload that answers /dev/dri/renderD128... and the xe ioctls for one
 * to four made-up Battlemage cards, so that Intel's own driver starts on it. It shares nothing with
 * libzeroute; its names start with xs_. This header is the map: prototypes by the file that has
 * them.
 *
 * Way of a call: open.c (libc names) -> ioctl.c (by number) -> query, gem, prime, vm, queue,
 * syncobj. Way of a command: queue.c (a thread) -> batch.c (decoder) -> blit.c, regs.c, walker.c
 * (kernels, which zebin.c recognises) -> vm.c (addresses).
 */
#ifndef XE_STANDIN_H
#define XE_STANDIN_H

#include "xe_uapi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define XS_CARDS 4
#define XS_FIRST_RENDER 128
#define XS_CLOCK_HZ 19200000u
#define XS_CLOCK_BITS 36
#define XS_PAGE 4096u
#define XS_VRAM_PAGE 65536u

#define XS_PUBLIC __attribute__((visibility("default")))
#define xs_likely(x) __builtin_expect(!!(x), 1)
#define xs_unlikely(x) __builtin_expect(!!(x), 0)

/* --- config.c: XE_STANDIN="key:value,..." ----------------------------------------------------- */
struct xs_config {
    unsigned cards;
    uint64_t vram;       /* bytes per card */
    unsigned kernel[2];  /* 6, 18 */
    bool mirror;         /* an exported deferred buffer costs host pages; from 6.18 on unless set */
    bool touch;          /* ... and really takes them */
    int says_used;       /* of VRAM, when asked: 0 the truth, 1 nothing, 2 all of it */
    bool spill;          /* a buffer that VRAM has no room for goes to the host */
    uint64_t gtt;        /* of host pages that a card's buffers beyond VRAM may take; 0: no bound */
    bool faults;         /* address spaces with page faults are offered */
    bool log;            /* every ioctl on stderr */
    uint64_t copy_loses; /* this copy of a page and more leaves out its last page; 0: none */
    uint64_t copy_hangs; /* at this copy of a page and more the engine stops for good; 0: none */
    uint64_t copy_cost;  /* ns that a large copy or fill takes at least */
    uint64_t copy_floor; /* bytes from which it is large */
    uint32_t device_id;
    char root[512];    /* where the /proc-style files go: $ZEROUTE_ROOT, may be empty */
    char machine[512]; /* folder of the state shared between processes, may be empty */
    char counts[512];  /* file of the counts, may be empty */
};
extern struct xs_config xs_config;
void xs_config_load(void);
void xs_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- counts.c --------------------------------------------------------------------------------- */
enum xs_count {
#define XS_COUNT(name) XS_C_##name,
#include "counts.def"
#undef XS_COUNT
    XS_COUNTS
};
void xs_counts_open(void);
void xs_count(enum xs_count what, uint64_t n); /* about 20 ns with a file, 5 ns without */

/* --- machine.c: what the processes of one stand-in machine share ------------------------------ */
struct xs_machine;
void xs_machine_open(void);  /* once per process, at the first open of a card */
void xs_machine_leave(void); /* at exit */
void xs_machine_forked(void);
_Atomic uint64_t *xs_machine_counts(void); /* XS_COUNTS of them */
uint64_t xs_machine_client_id(void);
bool xs_vram_take(unsigned card, uint64_t bytes); /* false: full */
void xs_vram_give(unsigned card, uint64_t bytes);
uint64_t xs_vram_used(unsigned card);
/*
 * A buffer beyond VRAM. It is made, whatever its size, as on a real card; but where `gtt` is exceeded the card is lost
 * for everybody who has it open.
 */
void xs_gtt_take(unsigned card, uint64_t bytes);
void xs_gtt_give(unsigned card, uint64_t bytes);
uint32_t xs_losses(unsigned card); /* how often the card was lost */
uint64_t xs_gpu_active(void);
void xs_host_pages(int64_t bytes); /* of a buffer that is in host memory, by placement or because VRAM is full */
/* A buffer that left its process, or came in: the machine keeps it until the last holder lets go. */
void xs_share_export(uint64_t inode, unsigned card, uint64_t bytes, bool vram, bool mirrored);
void xs_share_import(uint64_t inode, unsigned card, uint64_t bytes, bool vram, bool mirrored);
void xs_share_release(uint64_t inode);

/* --- procfs.c: $ZEROUTE_ROOT/proc ------------------------------------------------------------- */
enum xs_memory { XS_VRAM, XS_GTT, XS_SYSTEM, XS_MEMORIES };
struct xs_fdinfo {
    char *text; /* mapped file, or NULL without a root */
    int fd;
    _Atomic uint64_t bytes[XS_MEMORIES];
    unsigned place[XS_MEMORIES][2]; /* where total and resident stand in the text */
};
void xs_procfs_open(void);
void xs_procfs_meminfo(uint64_t gpu_active);
void xs_procfs_forget(pid_t pid);
void xs_fdinfo_open(struct xs_fdinfo *info, int fd, unsigned card, uint64_t client_id);
void xs_fdinfo_close(struct xs_fdinfo *info);
void xs_fdinfo_add(struct xs_fdinfo *info, enum xs_memory kind, int64_t bytes);
void xs_format_number(char *place, unsigned width, uint64_t value);
void xs_pci_address(unsigned card, char out[16]);

/* --- table.c: small numbers for things, as the kernel hands them out -------------------------- */
struct xs_table {
    void **items;
    uint32_t *free_ids;
    uint32_t size, used, free_count;
};
uint32_t xs_table_add(struct xs_table *table, void *item); /* 0: no memory; ids start at 1 */
void *xs_table_get(const struct xs_table *table, uint32_t id);
void *xs_table_take(struct xs_table *table, uint32_t id);
void xs_table_free(struct xs_table *table);

/* --- open.c: the libc names ------------------------------------------------------------------- */
struct xs_client { /* one open of a card */
    unsigned card;
    uint32_t losses; /* as it was opened: after another one every queue of it is banned */
    uint64_t id;
    _Atomic int refs; /* descriptors, and calls under way */
    pthread_mutex_t lock;
    struct xs_table buffers, vms, queues, syncobjs;
    struct xs_bo *shared; /* exported or imported here, by inode */
    struct xs_fdinfo info;
    struct xs_client *next_forgotten; /* of a parent's, in a forked child */
};
struct xs_client *xs_client_of(int fd); /* borrowed: give back with xs_client_put */
void xs_client_put(struct xs_client *client);

/* --- ioctl.c ---------------------------------------------------------------------------------- */
int xs_ioctl(struct xs_client *client, unsigned long request, void *arg); /* 0 or -errno */

/* --- query.c ---------------------------------------------------------------------------------- */
int xs_device_query(struct xs_client *client, struct xe_device_query *query);
int xs_version(struct xs_client *client, struct xe_drm_version *version);
uint64_t xs_clock_cycles(void); /* the card's timestamp counter, XS_CLOCK_BITS wide */
uint64_t xs_now(void);          /* CLOCK_MONOTONIC, ns */

/* --- gem.c ------------------------------------------------------------------------------------ */
struct xs_bo {
    _Atomic uint32_t refs; /* handle, bindings, commands under way */
    int fd;                /* the memfd, -1 until somebody looks at the bytes */
    int mirror_fd;         /* touch:on: the host pages that the kernel would fill */
    uint64_t size;
    uint32_t flags;
    uint32_t handle;
    uint8_t owner;              /* card whose memory it is */
    enum xs_memory kind;        /* as this client sees it */
    bool vram, shared, on_host; /* on_host: its host pages count as GPUActive */
    bool spilled;               /* VRAM had no room for it */
    uint64_t inode;
    struct xs_client *client;
    struct xs_bo *next_shared;
    pthread_mutex_t lock;
    void *_Atomic map; /* the executor's view, made at first use */
};
int xs_gem_create(struct xs_client *client, struct xe_gem_create *create);
int xs_gem_mmap_offset(struct xs_client *client, struct xe_gem_mmap_offset *arg);
int xs_gem_close(struct xs_client *client, uint32_t handle);
void *xs_gem_mmap(struct xs_client *client, void *addr, size_t length, int prot, int flags, off_t offset);
struct xs_bo *xs_bo_get(struct xs_client *client, uint32_t handle); /* with a reference */
int xs_bo_fd(struct xs_bo *bo); /* the memfd, made now if need be; -1: none to be had */
struct xs_bo *xs_bo_new(struct xs_client *client, int fd, uint64_t size);
void xs_bo_ref(struct xs_bo *bo);
void xs_bo_unref(struct xs_bo *bo);
void *xs_bo_map(struct xs_bo *bo); /* NULL: no address space left */

/* --- prime.c ---------------------------------------------------------------------------------- */
int xs_prime_export(struct xs_client *client, struct xe_drm_prime *arg);
int xs_prime_import(struct xs_client *client, struct xe_drm_prime *arg);
void xs_prime_forget(struct xs_bo *bo);
int xs_memfd_new(unsigned card, bool vram, uint32_t flags);

/* --- vm.c ------------------------------------------------------------------------------------- */
struct xs_vm;
struct xs_span { /* bytes of one binding, as the executor sees them */
    uint8_t *at;
    uint64_t length;
    struct xs_bo *bo; /* held; NULL for a user pointer */
    bool user;
};
int xs_vm_create(struct xs_client *client, struct xe_vm_create *create);
int xs_vm_destroy(struct xs_client *client, uint32_t id);
int xs_vm_bind(struct xs_client *client, struct xe_vm_bind *bind);
struct xs_vm *xs_vm_get(struct xs_client *client, uint32_t id); /* with a reference */
void xs_vm_ref(struct xs_vm *vm);
void xs_vm_unref(struct xs_vm *vm);
/* A command met an address where nothing is. Counted, and remembered for the calling thread. */
void xs_vm_fault(uint64_t address, const char *what);
bool xs_vm_faulted(const struct xs_vm *vm);                               /* since the last time this thread asked */
bool xs_vm_pin(struct xs_vm *vm, uint64_t address, struct xs_span *span); /* false: nothing bound */
void xs_vm_unpin(struct xs_span *span);
bool xs_vm_read(struct xs_vm *vm, uint64_t address, void *out, size_t length);
bool xs_vm_write(struct xs_vm *vm, uint64_t address, const void *in, size_t length);

/* --- queue.c: exec queues, user fences -------------------------------------------------------- */
struct xs_queue;
int xs_queue_create(struct xs_client *client, struct xe_exec_queue_create *create);
int xs_queue_destroy(struct xs_client *client, uint32_t id);
int xs_queue_exec(struct xs_client *client, struct xe_exec *exec);
int xs_queue_property(struct xs_client *client, struct xe_exec_queue_get_property *arg);
int xs_wait_user_fence(struct xs_client *client, struct xe_wait_user_fence *wait);
void xs_queue_drop(struct xs_queue *queue); /* the client is going away */
int xs_signal_syncs(struct xs_client *client, uint64_t syncs, uint32_t count);

/* --- event.c: sleeping until somebody wrote something ----------------------------------------- */
#define XS_ANY_ADDRESS 0
#define XS_ADDRESS_MASK ((1ull << 48) - 1)
uint32_t xs_event_seen(uint64_t address);
void xs_event_wait(uint64_t address, uint32_t seen, uint64_t ns);
void xs_event_bump(uint64_t address); /* a few ns when nobody sleeps */
void xs_event_bump_all(void);

/* --- syncobj.c -------------------------------------------------------------------------------- */
struct xs_syncobj;
int xs_syncobj_ioctl(struct xs_client *client, unsigned number, void *arg);
int xs_syncobj_signal(struct xs_client *client, uint32_t handle, uint64_t point);
bool xs_syncobj_done(struct xs_client *client, uint32_t handle, uint64_t point);
void xs_syncobj_drop(struct xs_syncobj *syncobj);

/* --- regs.c: the registers a command streamer has --------------------------------------------- */
#define XS_REGISTERS 256
struct xs_regs {
    uint32_t offset[XS_REGISTERS];
    uint32_t value[XS_REGISTERS];
    bool predicate; /* MI_SET_PREDICATE: commands are skipped */
};
uint32_t xs_reg_read(struct xs_regs *regs, uint32_t offset);
void xs_reg_write(struct xs_regs *regs, uint32_t offset, uint32_t value);
uint64_t xs_gpr_read(struct xs_regs *regs, unsigned n);
void xs_gpr_write(struct xs_regs *regs, unsigned n, uint64_t value);
void xs_reg_predicate(struct xs_regs *regs, unsigned mode);
void xs_reg_math(struct xs_regs *regs, const uint32_t *instructions, unsigned count);

/* --- batch.c: carries out one batch ----------------------------------------------------------- */
struct xs_context { /* what a queue keeps from batch to batch */
    struct xs_vm *vm;
    struct xs_regs regs;
    unsigned engine_class;
    unsigned card;
    uint32_t losses; /* of its client */
    _Atomic bool stop;
    _Atomic bool banned;                     /* after a fault: nothing more is carried out */
    uint64_t general_base, instruction_base; /* of the last STATE_BASE_ADDRESS */
};
void xs_batch_run(struct xs_context *context, uint64_t address);
/* Whether nothing more is carried out: after a fault, or because the card was lost. */
static inline bool xs_context_is_banned(struct xs_context *context) {
    if (xs_unlikely(!context->banned && context->losses != xs_losses(context->card)))
        context->banned = true;
    return context->banned;
}

/* --- blit.c ----------------------------------------------------------------------------------- */
void xs_blit_copy(struct xs_context *context, const uint32_t *command); /* XY_BLOCK_COPY_BLT */
void xs_blit_memcopy(struct xs_context *context, const uint32_t *command);
void xs_blit_memset(struct xs_context *context, const uint32_t *command);
void xs_blit_color(struct xs_context *context, const uint32_t *command); /* XY_FAST_COLOR_BLT */
void xs_blit_forked(void);
void xs_take_time(struct xs_context *context, uint64_t bytes); /* copy_cost */
bool xs_move(struct xs_vm *vm, uint64_t to, uint64_t from, uint64_t bytes);
bool xs_fill(struct xs_vm *vm, uint64_t to, const uint8_t *pattern, unsigned width, uint64_t bytes);

/* --- zebin.c: the driver's own kernels -------------------------------------------------------- */
#define XS_KERNEL_ARGUMENTS 12
struct xs_argument {
    unsigned offset, size; /* in the payload */
};
struct xs_kernel {
    char name[48];
    unsigned skip, inline_size;
    struct xs_argument group; /* its size in three words; of size 0: not among the arguments */
    struct xs_argument arguments[XS_KERNEL_ARGUMENTS];
};
struct xs_kernel xs_kernel_at(struct xs_vm *vm, uint64_t address);

/* --- walker.c --------------------------------------------------------------------------------- */
void xs_walker(struct xs_context *context, const uint32_t *command); /* COMPUTE_WALKER */

#endif
