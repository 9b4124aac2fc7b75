/* Children of a process that keeps blocks. */
#include "keep.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void forked(void) {
    void *p = on_card(&gpu, 0, MIB), *q = on_card(&gpu, 0, 2 * MIB);
    int status;
    pid_t pid;

    release(p);
    pid = fork();
    if (pid == 0)
        _exit(on_card(&gpu, 0, MIB) == p);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(on_card(&gpu, 0, MIB) == p);
    release(p);
    release(q);
}

/* Raw clone calls no atfork handler. */
static void cloned(void) {
    void *p = settled(), *mine = NULL;
    int status;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        _exit(request(gpu.context, &device_desc, gpu.card[0], &mine) != ZE_RESULT_SUCCESS || mine == p);
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(settled() == p);
}

/* A child that uses the card as its parent does, and ends in good order. */
static void ends_in_order(pid_t pid) {
    int status;

    if (pid == 0) {
        release(on_card(&gpu, 0, 2 * MIB));
        exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
}

static void child_exits(void) {
    void *p = on_card(&gpu, 0, MIB);

    ends_in_order(fork());
    release(p);
}

/*
 * Named counters have other numbers in a child, whose own segment begins empty: those of the parent must not be used
 * there. The child ends without a word, so that the suite finds its segment by its pid.
 */
static __attribute__((noinline)) void ask_peer(void *p, int times) {
    while (times-- > 0) /* one place: the numbers are kept per caller */
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
}

static void skipped_in_child(void) {
    void *p = on_card(&gpu, 0, BLOCK);
    int status;
    pid_t pid;

    ask_peer(p, 1);
    pid = fork();
    if (pid == 0) {
        ask_peer(p, 5);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    printf("child %d\n", (int)pid);
    release(p);
}

static const struct part all[] = {PART(forked), PART(cloned), PART(child_exits), PART(skipped_in_child), {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
