/*
 * C++ names as a reader knows them. A name of 200 bytes can stand for a terabyte of text, and the demangler cannot be
 * stopped: it runs in a process of its own, with little processor time for each name, and whoever needs more keeps
 * the name as it is.
 */
#include "common/common.h"
#include "report/report.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAME_MOST = 16384, FAILURES_MOST = 8, NAME_TIME_US = 200000 };

typedef char *demangle_function(const char *, char *, size_t *, int *);

static struct {
    pid_t pid; /* 0: not started */
    int socket;
    unsigned failures;
    bool off;
} helper;

static demangle_function *demangle_find(void) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL), *found = NULL;
    demangle_function *function;

    if (library)
        found = dlsym(library, "__cxa_demangle");
    memcpy(&function, &found, sizeof function);
    return function;
}

/* Ends the process where one name takes too long. */
static void demangle_limit(long microseconds) {
    struct itimerval time = {.it_value = {0, microseconds}};

    setitimer(ITIMER_PROF, &time, NULL);
}

static void demangle_serve(int socket, demangle_function *function) {
    char name[NAME_MOST + 1];
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPROF, SIG_DFL);
    while ((n = recv(socket, name, NAME_MOST, 0)) > 0) {
        int status = -1;

        name[n] = '\0';
        demangle_limit(NAME_TIME_US);
        char *text = function(name, NULL, NULL, &status);
        demangle_limit(0);
        const char *answer = status == 0 && text ? text : name;
        if (send(socket, answer, strnlen(answer, NAME_MOST), MSG_NOSIGNAL) <= 0)
            break;
        free(text);
    }
    _exit(0);
}

static bool demangle_start(void) {
    demangle_function *function = demangle_find();
    int ends[2];

    if (!function || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    fflush(NULL);
    helper.pid = fork();
    if (helper.pid == 0) {
        close(ends[0]);
        demangle_serve(ends[1], function);
    }
    close(ends[1]);
    helper.socket = ends[0];
    if (helper.pid > 0)
        return true;
    close(ends[0]);
    helper.pid = 0;
    return false;
}

static void demangle_stop(void) {
    close(helper.socket);
    kill(helper.pid, SIGKILL);
    waitpid(helper.pid, NULL, 0);
    helper.pid = 0;
    helper.failures++;
}

void zr_demangle(const char *name, char *out, size_t size) {
    size_t length = strnlen(name, NAME_MOST + 1);
    ssize_t n;

    snprintf(out, size, "%s", name);
    if (strncmp(name, "_Z", 2) != 0 || length > NAME_MOST || helper.off || helper.failures >= FAILURES_MOST)
        return;
    if (!helper.pid && !demangle_start()) {
        helper.off = true;
        return;
    }
    n = send(helper.socket, name, length, MSG_NOSIGNAL);
    if (n > 0)
        n = recv(helper.socket, out, size - 1, 0);
    if (n > 0) {
        out[n] = '\0';
        return;
    }
    demangle_stop();
    snprintf(out, size, "%s", name);
}
