/*
 * A fixed script of steps. Lines:
 *
 *     setting CONF                    ZEROUTE_CONF
 *     known REASON                    it fails today
 *     fdinfo                          the kernel tells what is used (a root for limit:auto is made)
 *     limit BYTES                     the driver must never have given out more than that of a card
 *     T WORD ... [until PLACE]        thread T (t1 to t4) does something until it parks at PLACE, or has done it
 *     T goes [until PLACE]            it goes on
 *     expect T NUMBER                 the last result of T: 0 for success
 *     expect NAME is NUMBER           a field of the segment, or driver.blocks, driver.used, claim
 *     rest                            the books, the segment and the driver are compared
 *
 * Words: alloc NAME SIZE [context C] [card N]; past NAME SIZE, past the preload; free NAME [context C];
 * ext NAME POLICY; ask NAME; range NAME; resident NAME CARD; export NAME; ctl TEXT; create; destroy C; memory, which
 * asks how much is free and so empties the cache; list N [ordered], an immediate list (of context 0 and card 0, by a
 * number below 4); submit N NAME, a command that uses it; wait N. Without a thread: refuse N, the driver refuses the
 * next N frees. No command is done before somebody waits for it.
 *
 * NAME is a word for an address; it stays when the block is freed.
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 32, ACTORS = 4, WORDS = 12 };

static struct {
    char name[16];
    int owner;
} names[NAMES];
static unsigned name_count;

static struct actor_state {
    int thread;
    char command[256];
    unsigned number;
    long result;
} actors[ACTORS];

static const char *file;
static unsigned line_number;

static void wrong(const char *what, const char *text) {
    ts_violation("%s:%u: %s: %s", file, line_number, what, text);
}

static int *name_of(const char *word) {
    for (unsigned i = 0; i < name_count; i++)
        if (strcmp(names[i].name, word) == 0)
            return &names[i].owner;
    if (name_count == NAMES)
        wrong("too many names", word);
    snprintf(names[name_count].name, sizeof names->name, "%s", word);
    names[name_count].owner = NO_OWNER;
    return &names[name_count++].owner;
}

static struct owner *owner_of(const char *word) {
    int i = *name_of(word);

    if (i == NO_OWNER)
        wrong("nothing has this name", word);
    return &owners[i];
}

/* The number behind this word; `otherwise` if it is not there. */
static long option(char **word, int count, const char *name, long otherwise) {
    for (int i = 0; i + 1 < count; i++)
        if (strcmp(word[i], name) == 0)
            return strtol(word[i + 1], NULL, 0);
    return otherwise;
}

/* What the device is given to do. Returns false if it is something else. */
static bool carry_out_work(char **word, int count, long *result) {
    static ze_command_list_handle_t lists[4];
    ze_command_list_handle_t *list = count >= 2 ? &lists[atoi(word[1]) & 3] : NULL;
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .flags = count == 3 ? 1 << 1 : 0,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    const struct owner *o;

    if (strcmp(word[0], "list") == 0 && list) {
        *result = (long)zeCommandListCreateImmediate(program_context(0), ts_device(0), &desc, list);
    } else if (strcmp(word[0], "submit") == 0 && count == 3) {
        o = owner_of(word[2]);
        *result = (long)zeCommandListAppendMemoryFill(*list, (void *)o->p, "", 1, o->size, NULL, 0, NULL);
    } else if (strcmp(word[0], "wait") == 0 && list) {
        *result = (long)zeCommandListHostSynchronize(*list, UINT64_MAX);
    } else {
        return false;
    }
    return true;
}

/* Carries out one line. Returns its result. */
static long carry_out(char *text, char **word, int count) {
    const char *what = word[0];
    long result;
    int context = (int)option(word, count, "context", -1);

    if (strcmp(what, "alloc") == 0 && count >= 3) {
        int i = do_alloc(TS_DEVICE, context < 0 ? 0 : context, (int)option(word, count, "card", 0),
                         strtoul(word[2], NULL, 0), 0);

        if (i != NO_OWNER)
            *name_of(word[1]) = i;
        return i == NO_OWNER;
    }
    if (strcmp(what, "past") == 0 && count >= 3) {
        *name_of(word[1]) = do_alloc_past(context < 0 ? 0 : context, strtoul(word[2], NULL, 0), false);
        return *name_of(word[1]) == NO_OWNER;
    }
    if (strcmp(what, "free") == 0 && count >= 2)
        return do_free((const void *)owner_of(word[1])->p, context < 0 ? owner_of(word[1])->context : context, -1);
    if (strcmp(what, "ext") == 0 && count >= 3)
        return do_free((const void *)owner_of(word[1])->p, owner_of(word[1])->context, atoi(word[2]));
    if ((strcmp(what, "ask") == 0 || strcmp(what, "range") == 0) && count >= 2) {
        do_query((const void *)owner_of(word[1])->p, owner_of(word[1])->context, *what == 'r');
        return 0;
    }
    if (strcmp(what, "memory") == 0) {
        ask_free_memory(0);
        return 0;
    }
    if (strcmp(what, "ctl") == 0 && count >= 2) {
        make_request(text + 4);
        return 0;
    }
    if (strcmp(what, "destroy") == 0 && count >= 2)
        return do_context_destroy(atoi(word[1]));
    if (strcmp(what, "create") == 0)
        return do_context_create() < 0;
    if (strcmp(what, "resident") == 0 && count >= 3)
        return do_residency(owner_of(word[1]), atoi(word[2]), true);
    if (strcmp(what, "export") == 0 && count >= 2)
        return do_export(owner_of(word[1]));
    if (carry_out_work(word, count, &result))
        return result;
    wrong("not understood", what);
    return 1;
}

static int split(char *line, char **word) {
    int count = 0;

    for (char *at = strtok(line, " \t"); at && count < WORDS; at = strtok(NULL, " \t"))
        word[count++] = at;
    return count;
}

static void run_actor(void *arg) {
    struct actor_state *a = arg;

    for (;;) {
        char text[sizeof a->command], *word[WORDS] = {NULL};
        int count;

        memcpy(text, a->command, sizeof text);
        count = split(text, word);
        if (!count || strcmp(word[0], "ends") == 0)
            return;
        ts_operation(a->number, "%s", a->command);
        a->result = carry_out(a->command, word, count);
        ts_idle();
    }
}

static long figure(const char *name) {
    int64_t value = 0, unseen;

    if (strcmp(name, "driver.blocks") == 0)
        return (long)ts_driver.blocks;
    if (strcmp(name, "driver.used") == 0)
        return (long)(ts_driver.used[0] + ts_driver.used[1]);
    if (strcmp(name, "claim") == 0 ? !segment_claim(0, &value, &unseen) : !segment_value(name, &value))
        wrong("no such figure", name);
    return (long)value;
}

static void expect(char **word, int count) {
    char text[128];
    long value;

    if (count == 4 && strcmp(word[2], "is") == 0) {
        value = figure(word[1]);
    } else if (count == 3 && word[1][0] == 't' && word[1][1] > '0' && word[1][1] <= '0' + ACTORS) {
        value = actors[word[1][1] - '1'].result;
    } else {
        wrong("not understood", word[1]);
        return;
    }
    if (value == strtol(word[count - 1], NULL, 0))
        return;
    snprintf(text, sizeof text, "%s is %ld (0x%lx), expected %s", word[1], value, (unsigned long)value,
             word[count - 1]);
    wrong("not as expected", text);
}

/* "t1 alloc A 4096 until after zeMemAllocDevice" */
static void let_act(struct actor_state *a, char *rest) {
    char *until = strstr(rest, " until ");
    const char *place = NULL;

    if (until) {
        *until = '\0';
        place = strdup(until + 7);
    }
    if (strcmp(rest, "goes") != 0) {
        snprintf(a->command, sizeof a->command, "%s", rest);
        a->number++;
    }
    if (!a->thread)
        a->thread = ts_start(run_actor, a, (unsigned)(a - actors) + 1);
    if (!ts_run_until(a->thread, place))
        wrong("it did not come by", place);
}

static void run_line(char *line) {
    char copy[256], *word[WORDS] = {NULL};
    int count;

    snprintf(copy, sizeof copy, "%s", line);
    count = split(copy, word);
    if (!count)
        return;
    ts_operation(line_number, "%s", line);
    if (strcmp(word[0], "expect") == 0) {
        expect(word, count);
    } else if (strcmp(word[0], "rest") == 0) {
        rest_compare("at rest", false);
        truth_check_answers();
    } else if (strcmp(word[0], "refuse") == 0) {
        ts_driver.refusal = ZE_RESULT_ERROR_DEVICE_LOST;
        ts_driver.refuse_free = (unsigned)atoi(word[1]);
    } else if (strcmp(word[0], "limit") == 0) {
        ts_driver.most = strtoul(word[1], NULL, 0);
    } else if (word[0][0] == 't' && word[0][1] > '0' && word[0][1] <= '0' + ACTORS && !word[0][2] && count > 1) {
        let_act(&actors[word[0][1] - '1'], line + 3);
    } else {
        wrong("not understood", line);
    }
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static bool is_of_head(const char *line) {
    return strncmp(line, "setting ", 8) == 0 || strncmp(line, "known ", 6) == 0 || strcmp(line, "fdinfo") == 0;
}

/* Strips comments and blanks around a line. */
static char *trimmed(char *line) {
    size_t length;

    line[strcspn(line, "#\n")] = '\0';
    line += strspn(line, " \t");
    length = strlen(line);
    while (length && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        line[--length] = '\0';
    return line;
}

bool script_read(struct script *s, const char *path) {
    char line[256];
    FILE *in = fopen(path, "re");
    const char *name = strrchr(path, '/');

    memset(s, 0, sizeof *s);
    s->path = path;
    snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(name ? name + 1 : path, "."), name ? name + 1 : path);
    snprintf(s->conf, sizeof s->conf, "cache:on");
    if (!in)
        return false;
    while (fgets(line, sizeof line, in)) {
        char *at = trimmed(line);

        if (strncmp(at, "setting ", 8) == 0)
            snprintf(s->conf, sizeof s->conf, "%s", at + 8);
        else if (strncmp(at, "known ", 6) == 0)
            snprintf(s->known, sizeof s->known, "%s", at + 6);
        else if (strcmp(at, "fdinfo") == 0)
            s->fdinfo = true;
    }
    fclose(in);
    return true;
}

static unsigned flags_of(const struct script *s) {
    unsigned flags = 0;

    if (!strstr(s->conf, "cache:off"))
        flags |= REFUSES | HAS_CACHE;
    if (strstr(s->conf, "check:"))
        flags |= REFUSES | CHECKED;
    if (strstr(s->conf, "limit:auto"))
        flags |= AUTO;
    if (s->fdinfo)
        flags |= FDINFO;
    return flags;
}

void run_script(const struct script *s) {
    static struct setting setting;
    char line[256];
    FILE *in = fopen(s->path, "re");

    setting = (struct setting){s->name, s->conf, flags_of(s), 0};
    file = s->path;
    prepare(&setting, 1);
    ts_device_waits();
    ts_begin(1, TS_SCRIPT, 100000);
    set_root(&setting);
    program_opens();
    while (in && fgets(line, sizeof line, in)) {
        char *at = trimmed(line);

        line_number++;
        if (*at && !is_of_head(at))
            run_line(at);
    }
    truth_check_answers();
    ts_operation(MOST_OPERATIONS, "the end of the process");
    ts_script_done();
    ts_shared->ended = 1;
    segment_unlink(); /* it would stay, for those who ask what finished processes had */
    exit(0);
}
