/*
 * Starting a program, and being as little in its way as can be: signals, stops and ends go through. The one place in
 * which the command starts a program.
 */
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_MS = 2000 };

/* Sends a signal to the program, and to what it has started where it has a group of its own. */
static void spawn_signal(const struct zr_program *p, int number) {
    kill(p->own_group ? -p->pid : p->pid, number);
}

/* --- the child ------------------------------------------------------------------------------------- */

static void spawn_redirect(int from, int to) {
    if (from > 0 && from != to)
        dup2(from, to);
}

/* A background group that reads its terminal is stopped for ever: the program reads nothing instead. */
static void spawn_input(const struct zr_program *p) {
    int null;

    spawn_redirect(p->in, STDIN_FILENO);
    if (p->in > 0 || !p->own_group || !isatty(STDIN_FILENO))
        return;
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    spawn_redirect(null, STDIN_FILENO);
}

static void spawn_child(const struct zr_program *p, pid_t parent, int report) {
    if (p->own_group)
        setpgid(0, 0);
    sigaction(SIGCHLD, &p->saved_chld, NULL);
    /* As if we were one process: SIGKILL to us kills the program. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(ZR_EXIT_OWN);
    sigprocmask(SIG_SETMASK, &p->saved_mask, NULL);
    spawn_input(p);
    spawn_redirect(p->out, STDOUT_FILENO);
    spawn_redirect(p->err, STDERR_FILENO);
    if (p->prepare)
        p->prepare(p->data);
    execvp(p->argv[0], p->argv);
    int error = errno;
    ssize_t n = write(report, &error, sizeof error);
    _exit(n == sizeof error ? ZR_EXIT_NOT_FOUND : ZR_EXIT_OWN);
}

/* --- we ---------------------------------------------------------------------------------------------- */

/* All signals but those of our own faults wait until we read them. */
static void spawn_block(struct zr_program *p, sigset_t *all) {
    static const int never[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    struct sigaction act = {.sa_handler = SIG_DFL};

    sigaction(SIGCHLD, &act, &p->saved_chld);
    sigfillset(all);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        sigdelset(all, never[i]);
    sigprocmask(SIG_BLOCK, all, &p->saved_mask);
}

static void spawn_restore(struct zr_program *p) {
    if (p->signals >= 0)
        close(p->signals);
    p->signals = -1;
    sigaction(SIGCHLD, &p->saved_chld, NULL);
    sigprocmask(SIG_SETMASK, &p->saved_mask, NULL);
}

int zr_spawn(struct zr_program *p) {
    int report[2] = {-1, -1}, error = 0;
    pid_t self = getpid();
    sigset_t all;

    fflush(NULL); /* the child must not print it again */
    p->ended = false;
    p->asked_to_end = 0;
    spawn_block(p, &all);
    p->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    p->pid = p->signals < 0 || pipe2(report, O_CLOEXEC) ? -1 : fork();
    if (p->pid == 0)
        spawn_child(p, self, report[1]);
    if (p->pid < 0)
        error = errno;
    else if (p->own_group)
        setpgid(p->pid, p->pid); /* both do it: neither may go on before it is done */
    if (report[1] >= 0)
        close(report[1]);
    if (p->pid > 0 && read(report[0], &error, sizeof error) == sizeof error)
        waitpid(p->pid, NULL, 0);
    if (report[0] >= 0)
        close(report[0]);
    if (error)
        spawn_restore(p);
    return error;
}

/* Where the program stops we stop too, so that the shell sees it; where we go on it goes on. */
static void spawn_stop_with(const struct zr_program *p) {
    kill(getpid(), SIGSTOP);
    spawn_signal(p, SIGCONT);
}

/* Whether the program has ended. What it has started ends with it if it was asked to end. */
static bool spawn_reap(struct zr_program *p) {
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0)
        return errno != EINTR;
    if (!info.si_pid)
        return false;
    if (info.si_code == CLD_STOPPED) {
        waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WNOHANG);
        spawn_stop_with(p);
        return false;
    }
    if (p->own_group && p->asked_to_end) /* its number is ours until we have waited for it */
        kill(-p->pid, SIGKILL);
    wait4(p->pid, &p->status, 0, &p->used);
    return true;
}

/* As under nohup: neither we nor the program care. */
static bool spawn_ignored(int number) {
    struct sigaction act;

    return sigaction(number, NULL, &act) == 0 && act.sa_handler == SIG_IGN;
}

/*
 * In our own group the terminal's signals reach the program without us; only what was sent to us alone is passed on.
 * A group of its own gets everything from us. Returns true if the program was asked to end.
 */
static bool spawn_forward(struct zr_program *p, const struct signalfd_siginfo *info) {
    int number = (int)info->ssi_signo;
    bool sent_by_somebody = info->ssi_code == SI_USER || info->ssi_code == SI_QUEUE || info->ssi_code == SI_TKILL;
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;

    if (number == SIGCHLD || spawn_ignored(number) || (p->own_group && number == SIGPIPE))
        return false;
    if (p->own_group && ends && p->asked_to_end) {
        spawn_signal(p, SIGKILL); /* the second time it is meant */
        return true;
    }
    if (ends)
        p->asked_to_end = number;
    if (p->own_group || number == SIGCONT || sent_by_somebody)
        spawn_signal(p, number);
    return ends;
}

static bool spawn_read_signals(struct zr_program *p) {
    struct signalfd_siginfo info;
    bool asked_to_end = false;

    while (read(p->signals, &info, sizeof info) == sizeof info)
        asked_to_end |= spawn_forward(p, &info);
    return asked_to_end;
}

bool zr_spawn_wait(struct zr_program *p, int timeout_ms, int readable) {
    while (!p->ended) {
        struct pollfd wanted[] = {{p->signals, POLLIN, 0}, {readable, POLLIN, 0}};
        int n = poll(wanted, 2, timeout_ms);
        bool asked_to_end = spawn_read_signals(p);

        p->ended = spawn_reap(p);
        if (p->ended)
            spawn_restore(p);
        else if (n == 0 || asked_to_end || wanted[1].revents)
            return false;
    }
    return true;
}

void zr_spawn_end(struct zr_program *p) {
    if (p->ended)
        return;
    p->asked_to_end = p->asked_to_end ? p->asked_to_end : SIGTERM;
    spawn_signal(p, SIGTERM);
    spawn_signal(p, SIGCONT);
    if (zr_spawn_wait(p, GRACE_MS, -1))
        return;
    spawn_signal(p, SIGKILL);
    while (!zr_spawn_wait(p, -1, -1))
        ;
}

bool zr_spawn_end_within(struct zr_program *p, int ms) {
    if (p->ended)
        return true;
    p->asked_to_end = p->asked_to_end ? p->asked_to_end : SIGKILL;
    spawn_signal(p, SIGKILL);
    if (zr_spawn_wait(p, ms, -1))
        return true;
    p->ended = true;
    p->status = SIGKILL;
    spawn_restore(p);
    return false;
}

int zr_spawn_and_wait(struct zr_program *p) {
    int error = zr_spawn(p);

    if (error)
        return error;
    while (!zr_spawn_wait(p, -1, -1))
        ;
    return 0;
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
