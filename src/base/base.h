/* The map of base/: what every other folder may use. Grouped by the file that defines it. */
#ifndef ZEROUTE_BASE_H
#define ZEROUTE_BASE_H

#include "base/lock.h"
#include "base/op.h"
#include "base/settings.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define ZR_COLD __attribute__((noinline, cold))

/* A function of any type, and the two ways between it and dlsym's kind of pointer. */
typedef void (*zr_function)(void);
#define ZR_FUNCTION(pointer) ((zr_function)(uintptr_t)(pointer))
#define ZR_POINTER(function) ((void *)(uintptr_t)(function))

/* Kinds of memory, as they are booked. */
enum zr_kind {
    ZR_KIND_DEVICE,
    ZR_KIND_SHARED,
    ZR_KIND_PHYSICAL,
    ZR_KINDS_ON_DEVICE, /* these are allocated_bytes.all; the rest have accounts of their own */
    ZR_KIND_HOST = ZR_KINDS_ON_DEVICE,
    ZR_KIND_VIRTUAL, /* reserved address ranges */
    ZR_KIND_MAPPED,  /* physical memory mapped into them */
    ZR_KIND_IMPORTED,
    ZR_KIND_ROUNDED, /* host memory in exact powers of two above 1 MiB: part of ZR_KIND_HOST */
    ZR_KIND_POINTER, /* memory of the program that was imported into the driver */
    ZR_KIND_IMAGE,   /* from here on: objects that take memory without an allocation call */
    ZR_KIND_MODULE,
    ZR_KIND_EVENT_POOL,
    ZR_KIND_LIST,
    ZR_KIND_QUEUE,
    ZR_KINDS
};

/* Which kind of hook saw a call. */
enum zr_via {
    ZR_VIA_PLT,
    ZR_VIA_DLSYM,
    ZR_VIA_TABLE,
    ZR_VIA_HANDLE,
    ZR_VIA_SYCL,
    ZR_VIA_POOL,
    ZR_VIAS
};

/*
 * Every entry point: ZR_E_zeMemAllocDevice, ..., ZR_E_aligned_alloc_device, ..., ZR_E_pool_malloc,
 * ...
 */
enum zr_entry {
#define ZR_ENTRY(name, ...) ZR_E_##name,
#include "base/entries.def"
    ZR_ENTRIES_ZE,
    ZR_E_before_above = ZR_ENTRIES_ZE - 1,
#define ZR_ABOVE(name, via) ZR_E_##name,
#include "base/entries_above.def"
    ZR_ENTRIES
};

/* Entry points that give devices work or wait for it: ZR_W_zeCommandListAppendBarrier, ... */
enum zr_work_entry {
#define ZR_WORK(name, ...) ZR_W_##name,
#include "base/work.def"
    ZR_WORK_ENTRIES
};

/* --- entries.c -------------------------------------------------------------------------------- */
extern const char *const zr_entry_name[ZR_ENTRIES];
extern const char *const zr_via_name[ZR_VIAS];
extern const char *const zr_work_name[ZR_WORK_ENTRIES];

/* --- config.c: the settings in force ---------------------------------------------------------- */
/*
 * zr_config.NAME: all zero before zr_config_load(). A change publishes a new structure and leaves
 * the old one as it is. Copy a compound setting (a limit) once and look at the copy, or its parts
 * may come from two structures.
 */
extern struct zr_settings *zr_config_in_force; /* atomic */
#define zr_config (*__atomic_load_n(&zr_config_in_force, __ATOMIC_ACQUIRE))
/* What the process was started with. */
extern struct zr_settings zr_config_at_start;
/*
 * Reads the environment and the file, at the first touch of Level Zero and never earlier.
 * Idempotent; any thread.
 */
void zr_config_read(void);
extern bool zr_config_loaded; /* atomic */
static inline void zr_config_load(void) {
    if (unlikely(!__atomic_load_n(&zr_config_loaded, __ATOMIC_ACQUIRE)))
        zr_config_read();
}
/*
 * Changes one setting of the running process. On a bad value returns false, says why in `why` and
 * changes nothing. One caller at a time. Other threads may be reading the old structure: it is used
 * again after a second at the earliest, when there are 512 newer ones.
 */
bool zr_config_change(const char *name, const char *value, char *why, size_t size);

/* --- backing.c: backing:eager ----------------------------------------------------------------- */
/*
 * Sets the driver's variables before the driver reads them. What the user has set stays as it is.
 */
void zr_backing_apply(void);
/* What came of it, in words; empty if backing:eager is not set. */
const char *zr_backing_in_force(void);

/* --- log.c ------------------------------------------------------------------------------------ */
/*
 * Prints one line on stderr with write(2), prefixed "zeroute: ", each message once per process.
 * Preserves errno.
 */
void zr_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- lifecycle.c: fork, the end of a thread, the end of the process --------------------------- */
struct zr_module {
    void (*fork_child)(
        void); /* in the child, on its only thread, with no lock held: forget everything */
    void (*thread_end)(void);  /* in the thread that ends */
    void (*process_end)(void); /* once, while libraries are being torn down */
};
/*
 * Registers the modules, in the order in which they are called. Once, before any of them is used.
 */
void zr_lifecycle_modules(const struct zr_module *modules, size_t count);
/*
 * Arms the detection of fork. Call it before creating anything that a child must not inherit.
 * Idempotent.
 */
void zr_fork_arm(void);
void zr_fork_child(void);
/*
 * Bracket dl_iterate_phdr, which holds a lock of the dynamic linker that glibc does not reset in a
 * child: dlopen would hang there. fork waits for threads that are inside. zr_walk_begin() returns
 * false while a fork is under way, and for ever in a child whose parent had a thread inside: the
 * list cannot be read then (ZR_LIST_BUSY).
 */
bool zr_walk_begin(void);
void zr_walk_end(void);
extern const volatile uint32_t *zr_fork_word;
/*
 * Called at every hook, before any lock or table is touched. Detects fork and raw clone. One load.
 */
static inline void zr_fork_check(void) {
    if (unlikely(*__atomic_load_n(&zr_fork_word, __ATOMIC_ACQUIRE) == 0))
        zr_fork_child();
}
/*
 * Registers the exit handler of this thread. Returns false if it is ending already or libc has no
 * memory for it.
 */
bool zr_thread_register(void);
static inline bool zr_thread_attend(void) {
    return likely(zr_thread.attended && !zr_thread.ended) || zr_thread_register();
}
/*
 * The process is being torn down, or is setuid or the like (AT_SECURE): calls go straight down,
 * uncounted.
 */
extern bool zr_exiting_now;
static inline bool zr_exiting(void) {
    return unlikely(__atomic_load_n(&zr_exiting_now, __ATOMIC_RELAXED));
}
void zr_process_end(void);

/* --- threads.c: threads of our own, in the modes that need one -------------------------------- */
/* Starts one, detached. Returns false if that cannot be. */
bool zr_thread_start(void *(*work)(void *), void *arg);
/* Waits until the word is not `seen` any more and somebody has woken it, `ns` at most. */
void zr_futex_wait(uint32_t *word, uint32_t seen, uint64_t ns);
void zr_futex_wake(uint32_t *word);

/* --- op.c: the thread's operations ------------------------------------------------------------ */
/*
 * The innermost operation of this thread, or NULL. Operations that longjmp has left are forgotten.
 * One load where there is none; else it is told from what lies there now.
 */
struct zr_op *zr_op_checked(void);
static inline struct zr_op *zr_op_innermost(void) {
    return likely(!zr_thread.op) ? NULL : zr_op_checked();
}
static inline uintptr_t zr_op_mark(const struct zr_op *op) {
    return (uintptr_t)op ^ UINT64_C(0x6f7065726174696f);
}
/*
 * Makes an operation the thread's innermost. zr_op_end() is its cleanup handler, since what is
 * below may throw.
 */
static inline void zr_op_begin(struct zr_op *op) {
    op->above = zr_op_innermost();
    op->mark = zr_op_mark(op);
    op->entered = true;
    atomic_signal_fence(memory_order_seq_cst); /* a signal handler finds it whole */
    zr_thread.op = op;
}
static inline void zr_op_end(struct zr_op *op) {
    if (likely(op->entered))
        zr_thread.op = op->above;
}
/*
 * The same for an operation of our own: what arrives below it is not the program's and passes down.
 * Its events in the record have the entry point of the operation above. Calls to the driver go
 * below `hook`.
 */
void zr_op_begin_own(struct zr_op *op, uint32_t hook);
#define ZR_OWN_OP(name, hook)                                                                      \
    struct zr_op name __attribute__((cleanup(zr_op_end)));                                         \
    zr_op_begin_own(&name, (hook))
/*
 * How many retry loops are in progress in this operation and above it: the outermost decides what
 * is final.
 */
unsigned zr_op_rooms(const struct zr_op *op);
/* Whether a pool of ours asks for what this operation allocates or frees. */
static inline bool zr_op_is_pooled(const struct zr_op *op) {
    return unlikely(op->above) && op->above->pooled;
}

/* --- pages.c: memory of our own, from mmap ---------------------------------------------------- */
/* Zeroed pages, or NULL. Preserves errno. */
void *zr_pages(size_t bytes);
void zr_pages_back(void *pages, size_t bytes);
/* Zeroed memory that is never freed, aligned to 64 bytes; NULL if mmap fails. Takes a lock. */
void *zr_piece(size_t bytes);
/*
 * The protection and the bounds of the mapping that holds all these bytes; -1 if there is none.
 * Takes some 50 us.
 */
int zr_mapping(uintptr_t start, uintptr_t end, uintptr_t *low, uintptr_t *high);
/*
 * With protection -1, makes foreign memory writable and returns its old protection, which a second
 * call restores. Returns -1 if the bytes do not lie in one mapping, are code, or cannot be made
 * writable.
 */
int zr_pages_protect(void *start, size_t bytes, int protection);

/* --- file.c: small files of the system -------------------------------------------------------- */
/*
 * Reads the beginning of a file as a string and returns its length; 0 and "" if it cannot be read.
 */
size_t zr_read_file(const char *path, char *out, size_t size);
/* The same below $ZEROUTE_ROOT, which moves /proc and /sys for tests. */
size_t zr_read_system(const char *path, char *out, size_t size);
/* Whether there is such a file or folder, below $ZEROUTE_ROOT. */
bool zr_is_in_system(const char *path);
/* FNV-1a. */
static inline uint64_t zr_hash_bytes(const void *bytes, size_t length) {
    uint64_t hash = 14695981039346656037u;

    for (const unsigned char *p = bytes; length--; p++)
        hash = (hash ^ *p) * 1099511628211u;
    return hash;
}
static inline uint64_t zr_hash(const char *text) {
    return zr_hash_bytes(text, __builtin_strlen(text));
}
/*
 * Calls see() for at most `most` entries of a folder, dot files left out, until it returns false.
 * No malloc.
 */
void zr_each_entry(const char *path, unsigned most, bool (*see)(const char *name, void *arg),
                   void *arg);
/* The same for a folder that is open, for reading or not. */
void zr_each_entry_of(int folder, unsigned most,
                      bool (*see)(int folder, const char *name, void *arg), void *arg);
/* Replaces what is not printable ASCII by '?', in place. Returns "?" for an empty text. */
const char *zr_printable(char *text);
/* Parses a decimal number after blanks; UINT64_MAX if there is none. */
uint64_t zr_number(const char *s);

/* --- descriptor.c: our descriptors, in a process that does not know of them ------------------- */
struct zr_descriptor {
    int fd; /* -1: none */
    uint64_t device, inode;
};
#define ZR_NO_DESCRIPTOR ((struct zr_descriptor){.fd = -1})
/*
 * Takes a descriptor that was just opened, or -1. One that is kept is moved above the numbers that
 * programs expect to get or dup over, and never has the number of a standard stream; one that is
 * borrowed is closed soon. None, with errno, if that cannot be.
 */
struct zr_descriptor zr_descriptor_keep(int fd);
struct zr_descriptor zr_descriptor_borrow(int fd);
/*
 * Whether it still leads to the file that it was opened for; else errno is EBADF, and what is there
 * is the program's own. Asked before every fallocate, write, lock and close. One system call.
 */
bool zr_descriptor_is_ours(const struct zr_descriptor *d);
/* Closes it, unless it is the program's own by now. Preserves errno. */
void zr_descriptor_close(struct zr_descriptor *d);

/* --- directory.c: the directory of this user in /dev/shm -------------------------------------- */
/*
 * Opens it, or makes it, and writes its path. The descriptor serves openat() and its kin, and the
 * caller closes it. A name that another user has taken is stepped over, with one warning. Returns
 * -1 with errno if there is none.
 */
int zr_directory(char *path, size_t size);
/* Calls see() for each directory of this user: usually there is one. */
void zr_directory_each(void (*see)(int directory, void *arg), void *arg);

/* --- elf.c: loaded libraries ------------------------------------------------------------------ */
struct zr_elf {
    uintptr_t start, end;  /* of its segments */
    uintptr_t bias;        /* address in memory less address in the file's own terms */
    const uint8_t *unwind; /* .eh_frame_hdr, or NULL */
    const void *dynamic;   /* its dynamic section, or NULL */
    const void *segments;  /* its program headers */
    unsigned segment_count;
    uint32_t build_id_size;
    uint8_t build_id[36];
    char soname[128]; /* DT_SONAME, else the file's name; the program's own name for the program */
    char path[4096];  /* empty for the program */
};
/*
 * What the list of libraries says. ZR_LIST_BUSY: a thread is forking, and the list cannot be read
 * before it is done. The caller asks again later, and keeps, refuses or concludes nothing until
 * then.
 */
enum zr_answer { ZR_LIST_ABSENT, ZR_LIST_FOUND, ZR_LIST_BUSY };
/* Finds the library that holds this address. Takes some microseconds. */
enum zr_answer zr_elf_find(const void *address, struct zr_elf *out);
/*
 * The same, never busy: where the list cannot be read it asks dladdr, which waits for a dlopen in
 * another thread and looks through all symbols of the library. For callers that call the dynamic
 * linker anyway.
 */
bool zr_elf_find_now(const void *address, struct zr_elf *out);
/* Calls see() for each library until it returns true. ZR_LIST_FOUND if it did. */
enum zr_answer zr_elf_each(bool (*see)(const struct zr_elf *elf, void *arg), void *arg);
/*
 * A number that changes whenever a library is loaded or unloaded. Returns false if busy. About 100
 * ns.
 */
bool zr_elf_generation(uint64_t *out);
/*
 * Whether a library with such a file name is loaded; and whether in a namespace of dlmopen, where
 * there is no preload (known from glibc 2.35 on).
 */
enum zr_answer zr_elf_named(bool (*named)(const char *file));
enum zr_answer zr_elf_elsewhere(bool (*named)(const char *file));

/* --- who.c: what kind of library calls -------------------------------------------------------- */
enum zr_who {
    ZR_WHO_NOT_KNOWN, /* it cannot be told now: treat it with the care that a runtime needs */
    ZR_WHO_PROGRAM,
    ZR_WHO_LOADER,
    ZR_WHO_RUNTIME /* a SYCL runtime, one of its adapters, or UMF */
};
/*
 * By name and exports. ZR_WHO_NOT_KNOWN if these do not tell: then zr_who_holds_adapter() decides.
 * Some 300 ns.
 */
enum zr_who zr_who_is(const struct zr_elf *elf);
/*
 * Whether a file of this name is a runtime; a runtime's adapter for Level Zero; Intel's driver for
 * OpenCL.
 */
bool zr_who_is_runtime_name(const char *file);
bool zr_who_is_adapter_name(const char *file);
bool zr_who_is_opencl_name(const char *file);
/*
 * Searches the read-only memory of a library for the code of an adapter: 1 ms for 20 MiB. Bounded.
 */
bool zr_who_holds_adapter(const struct zr_elf *elf);

/* --- dl.c: the dynamic linker, past ourselves ------------------------------------------------- */
/* Calls the real dlsym, from our place in the search order. */
void *zr_real_dlsym(void *handle, const char *name);
/*
 * Looks in a loaded library, or in the one that holds an address; NULL if it is not loaded or has
 * no such symbol.
 */
void *zr_dlsym_in(const char *path, const char *name);
void *zr_dlsym_from(const void *address, const char *name);
/* Calls the real dlopen, past our own hook. */
void *zr_real_dlopen(const char *path, int mode);
/* Whether a library of this soname or path is loaded. */
bool zr_dl_loaded(const char *path);
/* Resolve the addresses that the hooks of dlsym and dlopen jump to. */
void *zr_dlsym_resolve(void);
void *zr_dlopen_resolve(void);

#pragma GCC visibility pop

#endif
