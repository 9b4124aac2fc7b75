/* zeroute run: a program under the preload, and what it did. */
#include "base/settings.h"
#include "common/common.h"
#include "run/run.h"
#include "stat/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
    const char *json, *sim; /* sim: "" for the default card */
    int summary;            /* -1: where stderr is a terminal */
    bool discard, help;
    struct zr_config config;
    char **program;
};

static void help(void)
{
    fputs("usage: zeroute run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
          "\n"
          "Starts PROGRAM with libzeroute.so preloaded, passes signals and its exit code through, and shows at\n"
          "the end what it and the processes it started did with device memory.\n"
          "\n"
          "  --preset NAME     a whole setting:\n",
          stdout);
    for (size_t i = 0; i < zr_preset_count; i++)
        printf("                      %-9s %s\n", zr_presets[i].name, zr_presets[i].help);
    fputs("  --SETTING VALUE      one setting; stronger than a preset, which is stronger than ZEROUTE_CONF,\n"
          "                    which is stronger than the file named by ZEROUTE_CONF_FILE:\n",
          stdout);
    for (size_t i = 0; i < zr_setting_count; i++) {
        printf("                      --%-13s %s\n", zr_settings[i].name, zr_settings[i].values);
        printf("                        %s (default %s)\n", zr_settings[i].help, zr_settings[i].fallback);
    }
    fputs("  --sim[=SPEC]      on a simulated GPU, for example --sim=devices:2,vram:16GiB\n"
          "  --summary         a table on stderr at the end (default on a terminal)\n"
          "  --no-summary      none\n"
          "  --json FILE       the last statistics of every process that used a device\n"
          "  --discard         leave nothing behind for 'zeroute stat'\n"
          "\n"
          "exit code: the program's own (its signal is raised again), 125 our own failure, 126 the program\n"
          "cannot be executed, 127 it was not found\n"
          "\n"
          "examples:\n"
          "  zeroute run --preset observe -- python train.py\n"
          "  zeroute run --preset mitigate --json out.json -- ./llama-server -m model.gguf\n"
          "  zeroute run --sim=devices:2 --limit 80% -- ./program\n",
          stdout);
}

static void bad_setting(const char *why, void *where)
{
    zr_complain("run", "%s: %s", (const char *)where, why);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = f ? calloc(1, 65536) : NULL;
    size_t n = text ? fread(text, 1, 65535, f) : 0;
    bool bad = !f || !text || (n == 0 && ferror(f));
    if (f)
        fclose(f);
    if (!bad)
        return text;
    free(text);
    return NULL;
}

/* What the environment sets; the weakest first. */
static bool environment(struct options *o)
{
    static char from_variable[] = "ZEROUTE_CONF";
    char *file = getenv("ZEROUTE_CONF_FILE");
    const char *text = getenv("ZEROUTE_CONF");
    bool good = true;
    zr_settings_default(&o->config);
    if (file && *file) {
        char *lines = read_file(file);
        if (!lines) {
            zr_complain("run", "ZEROUTE_CONF_FILE: cannot read %s: %s", file, strerror(errno));
            return false;
        }
        good = zr_settings_parse_lines(&o->config, lines, bad_setting, file);
        free(lines);
    }
    return (!text || zr_settings_parse(&o->config, text, bad_setting, from_variable)) && good;
}

/* cache-limit is as good as cache_limit. */
static const struct zr_setting *setting_of(const char *option, size_t length)
{
    char name[64];
    if (length >= sizeof name)
        return NULL;
    for (size_t i = 0; i < length; i++)
        name[i] = option[i] == '-' ? '_' : option[i];
    return zr_setting_find(name, length);
}

/* The value of an option, behind = or as the next argument; NULL, said, when there is none. */
static const char *value_of(int argc, char **argv, int *i, size_t name_length)
{
    const char *option = argv[*i];
    if (option[2 + name_length] == '=')
        return option + 2 + name_length + 1;
    if (*i + 1 < argc)
        return argv[++*i];
    zr_complain("run", "option %s needs a value", option);
    return NULL;
}

static bool set_preset(struct options *o, const char *name)
{
    static char from_option[] = "--preset";
    char item[128];
    snprintf(item, sizeof item, "preset:%.100s", name);
    if (!strpbrk(name, ",:="))
        return zr_settings_parse(&o->config, item, bad_setting, from_option);
    zr_complain("run", "--preset: unknown preset '%s'", name);
    return false;
}

/*
 * Options in one pass; presets in a first one of their own, for flags are stronger wherever they
 * stand.
 */
static bool options(struct options *o, int argc, char **argv, bool presets)
{
    int i = 1;
    for (; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--") == 0) {
            i++;
            break;
        }
        if (a[0] != '-' || a[1] == '\0')
            break;
        size_t length = a[1] == '-' ? strcspn(a + 2, "=") : 0;
        const struct zr_setting *k = length ? setting_of(a + 2, length) : NULL;
        const char *value;
        if (strncmp(a, "--preset", 8) == 0 && length == 6) {
            if (!(value = value_of(argc, argv, &i, length)) || (presets && !set_preset(o, value)))
                return false;
        } else if (strncmp(a, "--json", 6) == 0 && length == 4) {
            if (!(o->json = value_of(argc, argv, &i, length)))
                return false;
        } else if (strcmp(a, "--sim") == 0) {
            o->sim = "";
        } else if (strncmp(a, "--sim=", 6) == 0) {
            o->sim = a + 6;
        } else if (strcmp(a, "--summary") == 0) {
            o->summary = 1;
        } else if (strcmp(a, "--no-summary") == 0) {
            o->summary = 0;
        } else if (strcmp(a, "--discard") == 0) {
            o->discard = true;
        } else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            o->help = true;
            return true;
        } else if (k) {
            char why[640];
            if (!(value = value_of(argc, argv, &i, length)))
                return false;
            if (strchr(value, ',')) {
                zr_complain("run", "bad value '%s' of --%s: expected no comma in it", value, k->name);
                return false;
            }
            if (!presets && !zr_setting_set(&o->config, k->name, strlen(k->name), value,
                                         strlen(value), why, sizeof why)) {
                zr_complain("run", "%s", why);
                return false;
            }
        } else {
            zr_complain("run", "unknown option '%s': expected a setting or one of those that "
                               "'zeroute run --help' lists",
                        a);
            return false;
        }
    }
    o->program = argv + i;
    return true;
}

/* --- what the program is given ---------------------------------------------------------------- */

/*
 * backing:eager has to be there before the driver is loaded; what the user set himself is kept, and
 * named.
 */
static void eager_backing(void)
{
    char kept[256];
    if (!zr_eager_environment(kept, sizeof kept))
        zr_complain("run", "backing:eager: your own %s is kept, so memory is not backed eagerly", kept);
}

/* --- what is shown at the end ----------------------------------------------------------------- */

static bool write_json(const char *path, struct zeroute_snapshot *const *s, size_t count)
{
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *f = to_stdout ? stdout : fopen(path, "we");
    bool good = f != NULL;
    if (f) {
        json_t *document = zr_json_document(1), *processes = zr_json_array(document, "processes");
        for (size_t i = 0; i < count; i++)
            zr_json_process(processes, s[i]);
        good = zr_json_write(f, document, ZR_JSON_DIGITS, false);
        good &= (to_stdout ? fflush(f) : fclose(f)) == 0;
    }
    if (!good)
        zr_complain("run", "cannot write %s: %s", path, strerror(errno));
    return good;
}

static void summarise(struct zeroute_snapshot **s, size_t count)
{
    bool colour = zr_colour(stderr);
    fflush(stdout);
    if (count == 0) {
        fputs("\nzeroute: no process used a Level Zero device, or could publish what it did\n", stderr);
        return;
    }
    fputc('\n', stderr);
    if (count > 1) {
        zr_overview(stderr, s, count, colour);
        fputc('\n', stderr);
        for (size_t i = 1; i < count; i++)
            zeroute_snapshot_add(s[0], s[i]);
    }
    zr_summary(stderr, s[0], colour);
}

static bool report(const struct options *o, const char *run, bool nested)
{
    struct zeroute_list *list = zeroute_list_new();
    size_t count = 0;
    char why[256];
    bool good = true;
    struct zeroute_snapshot **s =
        list ? calloc(list->count + 1, sizeof *s) : NULL;
    for (size_t i = 0; s && i < list->count; i++) {
        if (!zr_run_owns(&list->process[i], run))
            continue;
        struct zeroute_snapshot *one = zeroute_snapshot_new(&list->process[i], why, sizeof why);
        if (one)
            s[count++] = one;
        else
            zr_complain("run", "process %d: %s", list->process[i].pid_inside, why);
    }
    if (s && o->json)
        good = write_json(o->json, s, count);
    if (s && (o->summary > 0 || (o->summary < 0 && isatty(STDERR_FILENO))))
        summarise(s, count);
    for (size_t i = 0; s && i < list->count; i++)
        if (o->discard && !nested && zr_run_owns(&list->process[i], run))
            zr_gc_remove(&list->process[i]);
    for (size_t i = 0; i < count; i++)
        zeroute_snapshot_free(s[i]);
    free(s);
    zeroute_list_free(list);
    return good;
}

int zr_cmd_run(int argc, char **argv)
{
    struct options *o = calloc(1, sizeof *o);
    char settings[8192], run[ZR_RUN_NAME], root[512] = "", library[1024];
    bool nested = getenv("ZEROUTE_RUN") != NULL;
    if (!o)
        return ZR_EXIT_OWN;
    o->summary = -1;
    int code = ZR_EXIT_OWN;
    if (!environment(o) || !options(o, argc, argv, true) || !options(o, argc, argv, false))
        goto out;
    if (o->help) {
        help();
        code = 0;
        goto out;
    }
    if (!*o->program) {
        zr_complain("run", "no program given: expected zeroute run [OPTIONS] -- PROGRAM [ARGUMENTS]");
        goto out;
    }
    if (o->json && strcmp(o->json, "-") != 0) {
        int fd = open(o->json, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) {
            zr_complain("run", "cannot write %s: %s", o->json, strerror(errno));
            goto out;
        }
        close(fd);
    }
    if (!zr_preload_find("run", library, sizeof library) || !zr_preload_set(library) ||
        (o->sim && !zr_simulate("run", o->sim, root, sizeof root)))
        goto out;
    if (o->config.backing == ZR_BACKING_EAGER)
        eager_backing();
    zr_settings_print(&o->config, settings, sizeof settings);
    setenv("ZEROUTE_CONF", settings, 1);
    zr_run_name(run, sizeof run);

    const char *obstacle = zr_preload_obstacle(o->program[0]);
    if (obstacle)
        zr_complain("run", "%s %s: nothing can be preloaded into it, and nothing will be seen of it",
                    o->program[0], obstacle);
    int exec_error, status = zr_launch(o->program, &exec_error);
    if (exec_error) {
        code = exec_error == ENOENT || exec_error == ENOTDIR ? ZR_EXIT_NOT_FOUND : ZR_EXIT_CANNOT;
        zr_complain("run", "cannot execute %s: %s", o->program[0],
                    exec_error == ENOENT ? "not found" : strerror(exec_error));
        if (o->json)
            write_json(o->json, NULL, 0); /* a reader finds an empty list, not an empty file */
    } else if (report(o, run, nested) || status != 0) {
        code = -1;
    }
    zr_simulate_end(root);
    zr_gc_old();
    if (code < 0) {
        free(o);
        return zr_end_like(status);
    }
out:
    free(o);
    return code;
}
