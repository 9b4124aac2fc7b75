/*
 * Starting a program and being as little in its way as can be: signals, stops and ends go through.
 */
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The child stays in our process group, so the terminal's own signals reach it without us; only
 * what was sent to us alone is passed on.
 */
static void forward(const siginfo_t *info, pid_t child) {
    bool sent_by_somebody = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
    if (info->si_signo == SIGCONT || sent_by_somebody)
        kill(child, info->si_signo);
}

/* Where the child stops we stop too, so that the shell sees it; where we go on it goes on. */
static void stop_with(pid_t child) {
    kill(getpid(), SIGSTOP);
    kill(child, SIGCONT);
}

static void child_starts(char *const *argv, const sigset_t *mask, const struct sigaction *chld, pid_t parent,
                         int report) {
    sigaction(SIGCHLD, chld, NULL);
    /* As if we were one process: SIGKILL to us kills the program. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(ZR_EXIT_OWN);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    int e = errno;
    ssize_t n = write(report, &e, sizeof e);
    _exit(n == sizeof e ? ZR_EXIT_NOT_FOUND : ZR_EXIT_OWN);
}

int zr_launch(char *const *argv, int *exec_error) {
    int pipe_fd[2], status = 0;
    sigset_t all, before;
    struct sigaction act = {.sa_handler = SIG_DFL}, chld;
    *exec_error = 0;
    if (pipe2(pipe_fd, O_CLOEXEC)) {
        *exec_error = errno;
        return -1;
    }
    sigaction(SIGCHLD, &act, &chld);
    sigfillset(&all);
    static const int never[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        sigdelset(&all, never[i]);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t self = getpid(), child = fork();
    if (child == 0)
        child_starts(argv, &before, &chld, self, pipe_fd[1]);
    close(pipe_fd[1]);
    if (child < 0) {
        *exec_error = errno;
        close(pipe_fd[0]);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return -1;
    }
    if (read(pipe_fd[0], exec_error, sizeof *exec_error) != sizeof *exec_error)
        *exec_error = 0;
    close(pipe_fd[0]);
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG | WUNTRACED);
        if (got == child && WIFSTOPPED(status)) {
            stop_with(child);
            continue;
        }
        if (got == child || (got < 0 && errno != EINTR))
            break;
        siginfo_t info;
        if (sigwaitinfo(&all, &info) > 0 && info.si_signo != SIGCHLD)
            forward(&info, child);
    }
    sigaction(SIGCHLD, &chld, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

int zr_end_like(int status) {
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int signal_number = WTERMSIG(status);
    /* The program has left its core, if any; ours would only be in the way. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(signal_number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    kill(getpid(), signal_number);
    return 128 + signal_number;
}
