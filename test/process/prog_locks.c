/*
 * A child begins while other threads of its parent hold locks of ours, each of them: it must find them free. The locks
 * are found in the symbol table of the preload; that all are held at once is the same to the child as any one of them.
 * Those of pools, which only a SYCL runtime has, are in test_cache_fork.c.
 */
#include "sim.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MOST = 64, FEWEST = 16, STRIPES = 16 };
static struct {
    int *word;
    const char *file, *name;
} locks[MOST];
static unsigned count;
static int *number; /* of the process: a lock that holds it is held */

static int find_library(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    if (!strstr(info->dlpi_name, "libzeroute"))
        return 0;
    *(struct dl_phdr_info *)out = *info;
    return 1;
}

/* How many there are in this object. Structures begin with theirs. */
static unsigned locks_in(const char *file, const char *name, uint64_t size) {
    const char *end = strrchr(name, '_');

    if (strcmp(file, "block.c") == 0 && strcmp(name, "all") == 0)
        return 1;
    if (strcmp(file, "cache.c") == 0 && strcmp(name, "stripes") == 0)
        return STRIPES;
    return size == sizeof(int) && strncmp(end ? end + 1 : name, "lock", 4) == 0;
}

static void find_locks(void) {
    struct dl_phdr_info library = {0};
    struct stat is;
    const char *file = "";
    bool striped = false;
    int fd;

    EXPECT(dl_iterate_phdr(find_library, &library) == 1);
    fd = open(library.dlpi_name, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && fstat(fd, &is) == 0);
    const char *image = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(image != MAP_FAILED);
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *section = (const void *)(image + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbol = (const void *)(image + section[i].sh_offset);
        const char *names = image + section[section[i].sh_link].sh_offset;
        for (size_t n = section[i].sh_size / sizeof *symbol; n > 0; n--, symbol++) {
            const char *name = names + symbol->st_name;

            if (ELF64_ST_TYPE(symbol->st_info) == STT_FILE)
                file = name;
            if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
                continue;
            if (strcmp(name, "zr_process_number") == 0)
                number = (int *)(library.dlpi_addr + symbol->st_value);
            unsigned here = locks_in(file, name, symbol->st_size);
            striped |= here == STRIPES;
            for (unsigned k = 0; k < here; k++) {
                EXPECT(count < MOST);
                locks[count].word = (int *)(library.dlpi_addr + symbol->st_value + k * (symbol->st_size / here));
                locks[count].file = file;
                locks[count++].name = name;
            }
        }
    }
    printf("%u locks\n", count);
    fflush(stdout);
    EXPECT(number && striped && count >= FEWEST + STRIPES);
}

static void set_all(int value) {
    for (unsigned i = 0; i < count; i++)
        __atomic_store_n(locks[i].word, value, __ATOMIC_SEQ_CST);
}

static void all_are_free(void) {
    bool free = true;

    for (unsigned i = 0; i < count; i++)
        if (__atomic_load_n(locks[i].word, __ATOMIC_SEQ_CST) == *number) {
            printf("held in the child: %s of %s\n", locks[i].name, locks[i].file);
            free = false;
        }
    fflush(stdout);
    EXPECT(free);
}

static struct gpu gpu;

static void work(void) {
    void *p = NULL;

    /* The second one of each size comes from the cache, where there is one. */
    for (size_t i = 0; i < 8; i++)
        if (zeMemAllocDevice(gpu.context, &device_desc, (1 + i / 2) * MIB, 0, gpu.card[0], &p) == ZE_RESULT_SUCCESS)
            OK(zeMemFree(gpu.context, p));
}

static pid_t begin_child(bool raw) {
    pid_t pid;

    set_all(*number);
    pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (pid != 0)
        set_all(0);
    else
        alarm(20); /* instead of waiting for ever */
    return pid;
}

static void child_goes_well(pid_t pid) {
    int status;

    EXPECT(waitpid(pid, &status, 0) == pid);
    if (status)
        printf("status %#x\n", (unsigned)status);
    EXPECT(status == 0);
    work();
}

static void forked(void) {
    pid_t pid = begin_child(false);

    if (pid == 0) {
        all_are_free();
        work();
        exit(0);
    }
    child_goes_well(pid);
}

/* Nobody tells us of raw clone: the first call finds out. */
static void cloned(void) {
    pid_t pid = begin_child(true);

    if (pid == 0) {
        work();
        all_are_free();
        exit(0);
    }
    child_goes_well(pid);
}

/* Or none comes, and the child just ends. */
static void cloned_and_gone(void) {
    pid_t pid = begin_child(true);

    if (pid == 0)
        exit(0);
    child_goes_well(pid);
}

static void *start(void *unused) {
    gpu = first_gpu();
    work();
    return unused;
}

/* And the thread that ends it has never called us. */
static void cloned_by_a_stranger(void) {
    cloned_and_gone();
}

static const struct part all[] = {
    PART(forked), PART(cloned), PART(cloned_and_gone), PART(cloned_by_a_stranger), {NULL, NULL}};

int main(int argc, char **argv) {
    pthread_t thread;

    if (argc == 2 && strcmp(argv[1], "cloned_by_a_stranger") != 0)
        start(NULL);
    else
        EXPECT(pthread_create(&thread, NULL, start, NULL) == 0 && pthread_join(thread, NULL) == 0);
    find_locks();
    return run_part(all, argc, argv);
}
