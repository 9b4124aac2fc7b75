/* zeroute gc: removes what finished processes have left. A live segment is never touched. */
#include "stat/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OLD_SECONDS 600

bool zr_gc_remove(const struct zeroute_process *p)
{
    return zeroute_state_now(p) == ZEROUTE_FINISHED && unlink(p->path) == 0;
}

/*
 * A file that never became a segment and that nobody holds: its maker died in the first
 * millisecond.
 */
static bool abandoned(const struct zeroute_process *p, const struct stat *st, time_t now)
{
    return !p->readable && p->state == ZEROUTE_UNKNOWN && st->st_uid == geteuid() &&
           now - st->st_mtime > OLD_SECONDS && strncmp(p->why, "not ready", 9) == 0;
}

/*
 * How long a process has been finished is in no file. The time stamp of its segment stands in for
 * it: the first command that finds it finished sets it.
 */
void zr_gc_old(void)
{
    struct zeroute_list *list = zeroute_list_new();
    time_t now = time(NULL);
    for (size_t i = 0; list && i < list->count; i++) {
        const struct zeroute_process *p = &list->process[i];
        struct stat st;
        if (stat(p->path, &st))
            continue;
        if (abandoned(p, &st, now)) {
            unlink(p->path);
        } else if (p->state == ZEROUTE_FINISHED) {
            long long untouched = (long long)st.st_mtime - (long long)(p->created_ns / 1000000000u);
            if (untouched >= 0 && untouched <= 1)
                utimensat(AT_FDCWD, p->path, NULL, 0);
            else if (now - st.st_mtime > OLD_SECONDS)
                zr_gc_remove(p);
        }
    }
    zeroute_list_free(list);
}

static void help(void)
{
    fputs("usage: zeroute gc [--dry-run] [--json]\n"
          "\n"
          "Removes the segments of all finished processes at once. Any zeroute command removes them ten\n"
          "minutes after it first saw that they are finished.\n"
          "\n"
          "  --dry-run   say what would be removed\n"
          "  --json      the same as JSON on stdout\n"
          "\n"
          "examples:\n"
          "  zeroute gc\n"
          "  zeroute gc --dry-run\n",
          stdout);
}

int zr_cmd_gc(int argc, char **argv)
{
    bool dry = false, json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            help();
            return 0;
        } else if (strcmp(argv[i], "--dry-run") == 0) {
            dry = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else {
            zr_complain("gc", "unknown option '%s': expected --dry-run, --json or --help", argv[i]);
            return 2;
        }
    }
    struct zeroute_list *list = zeroute_list_new();
    size_t removed = 0;
    int code = 0;
    time_t now = time(NULL);
    json_t *document = json ? zr_json_document(1) : NULL, *list_of_removed = zr_json_array(document, "removed");
    for (size_t i = 0; list && i < list->count; i++) {
        const struct zeroute_process *p = &list->process[i];
        struct stat st;
        bool dead = p->state == ZEROUTE_FINISHED ||
                    (stat(p->path, &st) == 0 && abandoned(p, &st, now));
        if (!dead)
            continue;
        if (!dry && !(p->readable ? zr_gc_remove(p) : unlink(p->path) == 0)) {
            if (errno != ENOENT) {
                zr_complain("gc", "cannot remove %s: %s", p->path, strerror(errno));
                code = 1;
            }
            continue;
        }
        removed++;
        if (json) {
            json_t *one = zr_json_object(list_of_removed, NULL);
            zr_json_count(one, "pid", (uint64_t)p->pid_inside);
            zr_json_text(one, "path", p->path);
            zr_json_text(one, "command", p->command);
        } else if (dry) {
            printf("%s  %d  %s\n", p->path, p->pid_inside, p->command);
        }
    }
    if (json) {
        zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
    } else {
        printf("%zu segment%s of finished processes %s\n", removed, removed == 1 ? "" : "s",
               dry ? "would be removed" : "removed");
    }
    zeroute_list_free(list);
    return code;
}
