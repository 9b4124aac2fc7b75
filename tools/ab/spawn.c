/* Starting the command of an arm: its words, its environment, its descriptors. */
#include "ab/ab.h"
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void prepend_path(const char *name, const char *path) {
    const char *old = getenv(name);
    char *both = old && *old ? zr_ab_text("%s:%s", path, old) : zr_ab_text("%s", path);

    setenv(name, both, 1);
    free(both);
}

void zr_ab_environment(const struct zr_ab_arm *arm) {
    setenv("ZEROUTE_ARM", arm->name, 1);
    for (size_t i = 0; i < arm->n_items; i++) {
        if (arm->items[i].kind == ZR_AB_ENV)
            setenv(arm->items[i].key, arm->items[i].value, 1);
        else if (arm->items[i].kind == ZR_AB_LIB)
            prepend_path("LD_LIBRARY_PATH", arm->items[i].value);
    }
}

/* Settings come from the arm alone: what the user's environment sets would be an undeclared difference. */
static void preload_environment(const struct zr_ab_arm *arm, const char *library) {
    unsetenv("ZEROUTE_CONF_FILE");
    if (arm->none) {
        unsetenv("ZEROUTE_CONF");
        return;
    }
    char *settings = zr_ab_settings(arm), *backing = zr_ab_setting_value(arm, "backing"), kept[256];
    setenv("ZEROUTE_CONF", settings, 1);
    if (backing && !strcmp(backing, "eager"))
        zr_eager_environment(kept, sizeof(kept));
    zr_preload_set(library);
    free(settings);
    free(backing);
}

/* Splits as a shell would, without expanding anything; ended by NULL. */
static char **split_words(const char *s) {
    char **words = zr_ab_more(NULL, strlen(s) / 2 + 2, sizeof(*words));
    size_t n = 0;

    for (s += strspn(s, " \t\n"); *s; s += strspn(s, " \t\n")) {
        char *word = zr_ab_more(NULL, strlen(s) + 1, 1), *to = word, quote = 0;
        for (; *s && (quote || !strchr(" \t\n", *s)); s++) {
            if (quote ? *s == quote : *s == '"' || *s == '\'')
                quote = quote ? 0 : *s;
            else if (*s == '\\' && quote != '\'' && s[1])
                *to++ = *++s;
            else
                *to++ = *s;
        }
        *to = 0;
        words[n++] = word;
    }
    words[n] = NULL;
    return words;
}

char *const *zr_ab_command(const struct zr_ab *ab, size_t arm, char ***owned) {
    *owned = NULL;
    for (size_t i = 0; i < ab->arm[arm].n_items; i++)
        if (ab->arm[arm].items[i].kind == ZR_AB_CMD)
            return *owned = split_words(ab->arm[arm].items[i].value);
    return ab->command;
}

static void child(const struct zr_ab *ab, const struct zr_ab_running *how, size_t arm, char *const *argv, int out,
                  int err, int report) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    zr_ab_environment(&ab->arm[arm]);
    preload_environment(&ab->arm[arm], how->library);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execvp(argv[0], argv);
    int error = errno;
    ssize_t n = write(report, &error, sizeof(error));
    _exit(n == sizeof(error) ? 127 : 125);
}

pid_t zr_ab_spawn(const struct zr_ab *ab, const struct zr_ab_running *how, size_t arm, char *const *argv, int out,
                  int err, int *error) {
    int report[2];

    *error = 0;
    fflush(NULL);
    if (pipe2(report, O_CLOEXEC)) {
        *error = errno;
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        child(ab, how, arm, argv, out, err, report[1]);
    *error = pid < 0 ? errno : 0;
    close(report[1]);
    if (pid > 0 && read(report[0], error, sizeof(*error)) != sizeof(*error))
        *error = 0;
    close(report[0]);
    return pid;
}
