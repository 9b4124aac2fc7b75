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
    return !p->readable && p->state == ZEROUTE_UNKNOWN && st->st_uid == geteuid() && now - st->st_mtime > OLD_SECONDS &&
           strncmp(p->why, "not ready", 9) == 0;
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

struct options {
    bool dry_run, json;
};

static const struct zr_option option_table[] = {
    {'n', "dry-run", NULL, "say what would be removed, and remove nothing"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "gc",
    .usage = "zeroute gc [--dry-run] [--json]",
    .about = "Removes the segments of all finished processes at once. Any zeroute command removes them ten minutes "
             "after it first saw that they are finished.",
    .options = option_table,
    .notes = "Exit code: 0 done, 2 something could not be removed, or wrong usage.\n",
    .examples = "zeroute gc\n"
                "zeroute gc --dry-run",
};

static bool take(void *to, const struct zr_option *option, const char *value)
{
    struct options *o = to;
    (void)value;
    *(option->id == 'n' ? &o->dry_run : &o->json) = true;
    return true;
}

static bool is_dead(const struct zeroute_process *p, time_t now)
{
    struct stat st;
    return p->state == ZEROUTE_FINISHED || (stat(p->path, &st) == 0 && abandoned(p, &st, now));
}

/* Removes everything that is dead, or only looks for it; returns how many there were. */
static size_t remove_all(const struct options *o, json_t *removed, int *code)
{
    struct zeroute_list *list = zeroute_list_new();
    time_t now = time(NULL);
    size_t count = 0;
    for (size_t i = 0; list && i < list->count; i++) {
        const struct zeroute_process *p = &list->process[i];
        if (!is_dead(p, now))
            continue;
        if (!o->dry_run && !(p->readable ? zr_gc_remove(p) : unlink(p->path) == 0)) {
            if (errno != ENOENT) {
                zr_complain("gc", "cannot remove %s: %s", p->path, strerror(errno));
                *code = ZR_EXIT_ERROR;
            }
            continue;
        }
        count++;
        if (o->dry_run && !removed)
            printf("%s  %d  %s\n", p->path, p->pid_inside, p->command);
        json_t *one = zr_json_object(removed, NULL);
        zr_json_count(one, "pid", (uint64_t)p->pid_inside);
        zr_json_text(one, "path", p->path);
        zr_json_text(one, "command", p->command);
    }
    zeroute_list_free(list);
    return count;
}

int zr_cmd_gc(int argc, char **argv)
{
    struct options o = {0};
    int at, code = ZR_EXIT_DONE;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    json_t *document = o.json ? zr_json_document(1) : NULL;
    size_t count = remove_all(&o, zr_json_array(document, "removed"), &code);
    if (o.json)
        zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
    else
        printf("%zu segment%s of finished processes %s\n", count, count == 1 ? "" : "s",
               o.dry_run ? "would be removed" : "removed");
    return code;
}
