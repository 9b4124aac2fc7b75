/* Starting the command of an arm: its words, its environment, its descriptors. */
#include "ab/ab.h"
#include "common/common.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

struct arm_environment {
    const struct zr_ab_arm *arm;
    const char *library;
};

static void prepare_arm(const void *data) {
    const struct arm_environment *e = data;

    zr_ab_environment(e->arm);
    preload_environment(e->arm, e->library);
}

int zr_ab_spawn(const struct zr_ab *ab, const struct zr_ab_running *how, size_t arm, struct zr_program *program) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct arm_environment environment = {&ab->arm[arm], how->library};

    program->own_group = true;
    program->in = null;
    program->prepare = prepare_arm;
    program->data = &environment;
    int error = zr_spawn(program);
    program->data = NULL;
    close(null);
    return error;
}
