/* zeroute doctor: what is wrong here, on one page, each with the one thing to do. */
#include "doctor/doctor.h"

#include "common/common.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct zr_option option_table[] = {
    {'j', "json", NULL, "print everything that was found as JSON"},
    {'f', "facts", NULL, "print what is known about versions, and from where"},
    {0},
};

static const struct zr_command command = {
    .name = "doctor",
    .usage = "zeroute doctor [--json] [PID]\n"
             "zeroute doctor --facts",
    .about = "Looks at a process, preloaded or not, or at the machine, and says what is wrong with its device memory "
             "and the host memory behind it: which stack is loaded, which links of the host mirror are there, whether "
             "host memory is mirrored now, the smallest remedy for this stack and its price, and known trouble. "
             "Nothing is changed, loaded or run.",
    .options = option_table,
    .notes = "Exit code: 0 nothing to do, 1 something to do, 2 an error or wrong usage, 3 cannot tell.\n",
    .operands = "one process id at most",
    .most = 1,
    .examples = "zeroute doctor                 the machine, and what a program started here would get\n"
                "zeroute doctor 4242            a process\n"
                "sudo zeroute doctor 4242       a process of another user\n"
                "zeroute doctor --json 4242 | jq .findings",
};

/* --- gathering ------------------------------------------------------------------------------- */

static void read_command(struct zr_case *c) {
    char path[256];
    size_t length = 0;
    char *text = zr_read_whole(zr_root_path(path, sizeof path, "/proc/%d/cmdline", (int)c->pid), &length);

    for (size_t i = 0; text && i + 1 < length; i++) {
        if (!isprint((unsigned char)text[i]))
            text[i] = ' ';
    }
    snprintf(c->command, sizeof c->command, "%s", text ? text : "");
    free(text);
}

/* The counters and texts that the answer needs, from the process's segment. */
static void take_counted(struct zr_counted *to, const struct zeroute_snapshot *s) {
    static const struct {
        const char *field;
        size_t offset, size;
    } texts[] = {{"settings", offsetof(struct zr_counted, settings), sizeof to->settings},
                 {"hooks", offsetof(struct zr_counted, hooks), sizeof to->hooks},
                 {"backing.in_force", offsetof(struct zr_counted, backing), sizeof to->backing}};

    to->found = true;
    to->calls = zr_total(s, "calls.");
    to->allocated = zeroute_value(s, "allocated_bytes.all.current", 0);
    to->peer_requested_calls = zeroute_value(s, "residency.peer.requested_calls", 0);
    to->peer_skipped_calls = zeroute_value(s, "residency.peer.skipped_calls", 0);
    to->ipc_exports = zeroute_value(s, "ipc.exports", 0);
    to->too_large_calls = zeroute_value(s, "failures.code.0x78000009", 0);
    to->gpu_active_start = zeroute_value(s, "host.gpu_active_start_bytes", ZR_ABSENT);
    to->mem_available_start = zeroute_value(s, "host.mem_available_start_bytes", ZR_ABSENT);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct zeroute_field *f = zeroute_find(s, texts[i].field);

        if (f && f->text)
            snprintf((char *)to + texts[i].offset, texts[i].size, "%s", f->text);
    }
    for (size_t i = 0; i < s->field_count; i++)
        if (strncmp(s->field[i].name, "guard.calls.", 12) == 0 && s->field[i].value) {
            size_t used = strlen(to->guard);

            snprintf(to->guard + used, sizeof to->guard - used, "%s%s", used ? " " : "", s->field[i].name + 12);
        }
}

static void read_counted(struct zr_case *c) {
    struct zeroute_list *list = zeroute_list_new();

    c->counted.gpu_active_start = c->counted.mem_available_start = ZR_ABSENT;
    c->counted.why_not = "it has published nothing: stats:off, or no device operation yet";
    for (size_t i = 0; list && i < list->count; i++) {
        struct zeroute_snapshot *s;
        char why[256];

        if (list->process[i].pid != c->pid || list->process[i].state == ZEROUTE_FINISHED)
            continue;
        s = list->process[i].readable ? zeroute_snapshot_new(&list->process[i], why, sizeof why) : NULL;
        if (s)
            take_counted(&c->counted, s);
        else
            c->counted.why_not = "its segment cannot be read by this user";
        zeroute_snapshot_free(s);
    }
    zeroute_list_free(list);
}

static void add_region(struct zr_region *sum, const struct zr_region *more) {
    if (more->total != ZR_ABSENT)
        sum->total = (sum->total == ZR_ABSENT ? 0 : sum->total) + more->total;
    if (more->resident != ZR_ABSENT)
        sum->resident = (sum->resident == ZR_ABSENT ? 0 : sum->resident) + more->resident;
}

static void add_use(struct zr_process_memory *sum, const struct zr_card_use *use) {
    struct zr_card_use *card = NULL;

    for (unsigned i = 0; i < sum->card_count; i++) {
        if (!strcmp(sum->cards[i].pdev, use->pdev))
            card = &sum->cards[i];
    }
    if (!card) {
        if (sum->card_count == ZR_CARDS_MAX)
            return;
        sum->cards[sum->card_count++] = *use;
        return;
    }
    card->clients += use->clients;
    add_region(&card->vram, &use->vram);
    add_region(&card->gtt, &use->gtt);
    add_region(&card->system, &use->system);
}

/* All processes that may be read, added up: a DRM client that two processes share is counted twice. */
static void read_machine(struct zr_case *c) {
    char path[256];
    struct dirent *entry;
    DIR *listing = opendir(zr_root_path(path, sizeof path, "/proc"));

    c->memory.rss = c->memory.cgroup_current = c->memory.cgroup_limit = ZR_ABSENT;
    while (listing && (entry = readdir(listing))) {
        struct zr_process_memory one;

        if (!isdigit((unsigned char)entry->d_name[0]) || !zr_process_memory_read(atoi(entry->d_name), &one))
            continue;
        for (unsigned i = 0; i < one.card_count; i++)
            add_use(&c->memory, &one.cards[i]);
        c->holders += one.card_count > 0;
    }
    if (listing)
        closedir(listing);
}

static bool gather(struct zr_case *c, pid_t pid) {
    memset(c, 0, sizeof *c);
    c->pid = pid;
    c->kernel = zr_kernel_version();
    c->meminfo_there = zr_meminfo_read(&c->meminfo);
    c->card_count = zr_cards_list(c->cards, ZR_CARDS_MAX);
    if (!pid) {
        zr_stack_of_machine(&c->stack);
        read_machine(c);
        c->counted.gpu_active_start = c->counted.mem_available_start = ZR_ABSENT;
        return true;
    }
    c->alive = zr_process_memory_read(pid, &c->memory);
    if (!c->alive)
        return false;
    read_command(c);
    zr_stack_of_process(&c->stack, pid);
    if (c->stack.parts[ZR_PART_PRELOAD].there || c->stack.error)
        read_counted(c);
    return true;
}

/* --- the command ----------------------------------------------------------------------------- */

static int show_facts(void) {
    for (unsigned i = 0; i < ZR_FACTS; i++) {
        const struct zr_fact *f = &zr_facts[i];

        printf("%-8s %s%s%s%s%s\n         %s\n         source: %s\n", f->part,
               *f->from || *f->before ? "" : "any version", *f->from ? "from " : "", f->from,
               *f->before ? (*f->from ? ", before " : "before ") : "", f->before, f->what, f->source);
    }
    return 0;
}

struct options {
    bool json, facts;
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    (void)value;
    *(option->id == 'j' ? &o->json : &o->facts) = true;
    return true;
}

int zr_cmd_doctor(int argc, char **argv) {
    static struct zr_case c;
    struct zr_diagnosis d;
    struct options o = {0};
    pid_t pid = 0;
    int at;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (at < argc && !zr_operand_pid(&command, argv[at], &pid))
        return ZR_EXIT_ERROR;
    if (o.facts)
        return show_facts();
    if (!gather(&c, pid)) {
        zr_complain("doctor", "process %d: %s", (int)pid,
                    errno == ENOENT || errno == ESRCH ? "there is none" : strerror(errno));
        return ZR_EXIT_ERROR;
    }
    zr_diagnose(&c, &d);
    (o.json ? zr_doctor_json : zr_doctor_page)(stdout, &c, &d);
    int code = zr_diagnosis_code(&d);
    zr_findings_free(&d.findings);
    zr_stack_free(&c.stack);
    return code;
}
