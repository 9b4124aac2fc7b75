/* zeroute doctor: what is wrong here, on one page, each with the one thing to do. */
#include "doctor/doctor.h"

#include "base/settings.h"
#include "common/common.h"
#include "outside/outside.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIM = ZR_LONG };

static const struct zr_option option_table[] = {
    {'j', "json", NULL, "print everything that was found as JSON"},
    {'f', "facts", NULL, "print what is known about versions, and from where"},
    {'v', "verbose", NULL, "print every finding, the stack, memory and all remedies"},
    {'s', "seconds", "N", "how long to run a command at most (default 10)"},
    {'w', "watch", "TIME", "watch a process for this long, and name what grows"},
    {SIM, "sim", "[SPEC]", "run the command on a simulated GPU"},
    {0},
};

static const struct zr_command command = {
    .name = "doctor",
    .usage = "zeroute doctor [--json | --verbose] [--watch TIME] [PID]\n"
             "zeroute doctor [--json | --verbose] [--seconds N] -- COMMAND [ARGUMENTS]\n"
             "zeroute doctor --facts",
    .about =
        "Looks at a process, preloaded or not, or at the machine, and says what is wrong with its device memory "
        "and the host memory behind it: which stack is loaded, which links of the host mirror are there, whether "
        "host memory is mirrored now, the smallest remedy for this stack and its price, and known trouble. "
        "A COMMAND is run under zeroute for a few seconds, looked at when it holds most, and ended. Otherwise nothing "
        "is changed, loaded or run.",
    .options = option_table,
    .notes = "Exit code: 0 nothing to do, 1 something to do, 2 an error or wrong usage, 3 cannot tell.\n",
    .program = true,
    .one_of = "facts|json;json|verbose",
    .examples = "zeroute doctor               # the machine, and what a program would get here\n"
                "zeroute doctor 4242          # a process\n"
                "sudo zeroute doctor 4242     # a process of another user\n"
                "zeroute doctor 4242 --watch 60s  # what grows within a minute\n"
                "zeroute doctor -- ./program  # a program, run for a few seconds\n"
                "zeroute doctor --json 4242 | jq .findings",
};

/* --- gathering ------------------------------------------------------------------------------- */

static void read_command(struct zr_case *c) {
    size_t length = 0;
    char *text = zr_outside_text(c->pid, ZR_FILE_CMDLINE, sizeof c->command, &length);

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
                 {"guard.loader", offsetof(struct zr_counted, guard_loader), sizeof to->guard_loader},
                 {"reuse.lost", offsetof(struct zr_counted, reuse_lost), sizeof to->reuse_lost},
                 {"backing.in_force", offsetof(struct zr_counted, backing), sizeof to->backing}};

    to->found = true;
    zr_pause_take(&to->pause, s);
    to->calls = zr_total(s, "calls.");
    to->allocated = zeroute_value(s, "allocated_bytes.all.current", 0);
    to->reserved = zeroute_value(s, "reserved_bytes.all.current", 0);
    to->host_usm = zeroute_value(s, "reserved_bytes.host.current", 0);
    to->host_rounded = zeroute_value(s, "allocated_bytes.host_power_of_two.current", 0);
    to->ipc_open = zeroute_value(s, "ipc.open", 0);
    to->imported = zeroute_value(s, "imported_bytes.all.current", 0);
    to->replaced = zeroute_value(s, "free_memory.replaced_calls", 0);
    to->peer_requested_calls = zeroute_value(s, "residency.peer.requested_calls", 0);
    to->peer_skipped_calls = zeroute_value(s, "residency.peer.skipped_calls", 0);
    to->ipc_exports = zeroute_value(s, "ipc.exports", 0);
    to->remapped = zeroute_value(s, "virtual.remapped_under_peer", 0);
    to->guard_loaders = zeroute_value(s, "guard.loaders", 0);
    to->too_large_calls = zeroute_value(s, "failures.code.0x78000009", 0);
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

static void read_counted(struct zr_case *c, const struct zr_view *m) {
    const struct zr_process_view *v = NULL;

    c->counted.why_not = "it has published nothing: stats:off, or no device operation yet";
    for (size_t i = 0; i < m->process_count; i++)
        v = m->process[i]->process.pid == c->pid ? m->process[i] : v;
    for (size_t i = 0; i < m->unread_count; i++)
        if (m->unread[i].pid == c->pid)
            c->counted.why_not = "its segment cannot be read by this user";
    if (v && v->snapshot) {
        take_counted(&c->counted, v->snapshot);
        c->safe = zr_safe_signs_of(v->snapshot);
        c->safe.spilled = v->spilled;
    }
}

/* Of the cards that the process uses, or of all. */
static void read_fullest(struct zr_case *c, const struct zr_view *m) {
    for (unsigned i = 0; i < m->card_count; i++) {
        bool used = !c->pid;

        for (unsigned n = 0; n < c->memory.card_count; n++)
            used |= strcmp(c->memory.cards[n].pdev, m->card[i].pdev) == 0;
        if (used && zr_card_percent(&m->card[i]) > c->safe.percent)
            c->safe.percent = zr_card_percent(&m->card[i]);
    }
}

/* The mirrors of this process and of the others. The view has no process without zeroute. */
static void read_mirrors(struct zr_case *c, const struct zr_view *m) {
    c->mirror = zr_mirror_of(&c->memory, &c->lost);
    c->mirror_of_others = 0;
    for (size_t i = 0; i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];

        if (v->process.pid == c->pid)
            c->mirror = v->mirror;
        else if (v->mirror != ZR_ABSENT)
            c->mirror_of_others += v->mirror;
    }
}

/* Host memory, and what of it is lost, as every command has it. */
static void look_at_machine(struct zr_case *c, bool counted) {
    struct zr_view *m = zr_view_new(&(struct zr_scope){.fields = counted, .all_at_once = true});

    if (m && zr_view_sample(m)) {
        c->meminfo = m->host;
        c->meminfo_there = m->host.total != ZR_ABSENT;
        c->lost = m->lost;
        read_mirrors(c, m);
        if (counted)
            read_counted(c, m);
        read_fullest(c, m);
    }
    zr_view_free(m);
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
    struct zr_look look;

    zr_outside_look(&look, ZR_LOOK_NOW);
    c->memory.rss = c->memory.cgroup_current = c->memory.cgroup_limit = ZR_ABSENT;
    for (size_t n = 0; n < look.holders; n++) {
        const struct zr_process_memory *one = &look.holder[n].memory;

        for (unsigned i = 0; i < one->card_count; i++)
            add_use(&c->memory, &one->cards[i]);
        c->holders += one->card_count > 0;
    }
    zr_look_free(&look);
}

/* A process on the simulated GPU tells of its cards and its memory below a folder of its own. */
static void follow_simulation(pid_t pid) {
    char root[512];

    if (zr_outside_simulation(pid, root, sizeof root))
        setenv("ZEROUTE_ROOT", root, 1);
}

bool zr_doctor_gather(struct zr_case *c, pid_t pid) {
    memset(c, 0, sizeof *c);
    if (pid)
        follow_simulation(pid);
    c->pid = pid;
    c->kernel = zr_kernel_version();
    c->lost.bytes = c->mirror = ZR_ABSENT;
    c->card_count = zr_cards_list(c->cards, ZR_CARDS_MAX);
    if (!pid) {
        zr_stack_of_machine(&c->stack);
        look_at_machine(c, false);
        read_machine(c);
        c->driverless = zr_driverless_cards(c->driverless_card, sizeof c->driverless_card);
        c->node_error = zr_render_node_error(c->node, sizeof c->node);
        return true;
    }
    c->alive = zr_outside_memory(pid, &c->memory);
    if (!c->alive)
        return false;
    read_command(c);
    zr_stack_of_process(&c->stack, pid);
    look_at_machine(c, c->stack.parts[ZR_PART_PRELOAD].there || c->stack.error);
    return true;
}

void zr_doctor_findings(FILE *to, pid_t pid) {
    static struct zr_case c;
    struct zr_diagnosis d;

    if (!zr_doctor_gather(&c, pid))
        return;
    zr_diagnose(&c, &d);
    for (size_t i = 0; i < d.findings.count; i++) {
        const struct zr_finding *f = &d.findings.list[i];

        fprintf(to, "%s: %s\n", zr_severity_names[f->severity], zr_shown(f->what));
        if (f->todo)
            fprintf(to, "    %s\n", zr_shown(f->todo));
    }
    zr_findings_free(&d.findings);
    zr_stack_free(&c.stack);
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
    bool json, facts, verbose;
    double seconds, watch;
    const char *sim;
    int signal; /* that ended the command early */
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    if (option->id == SIM)
        o->sim = value ? value : "";
    if (option->id == SIM)
        return true;
    if (option->id == 'w') {
        uint64_t ns = 0;
        if (!zr_parse_time(value, &ns) || ns < 100000000u)
            return zr_option_bad(&command, option, value, "a time such as 60s, at least 100ms");
        o->watch = (double)ns / 1e9;
        return true;
    }
    if (option->id == 's')
        return zr_option_real(&command, option, value, 0.1, &o->seconds);
    o->json |= option->id == 'j';
    o->verbose |= option->id == 'v';
    o->facts |= option->id == 'f';
    return true;
}

/* Behind -- it is a command; a single number before it is a process. Reports wrong usage and returns false. */
static bool look(struct zr_case *c, struct zr_diagnosis *d, struct options *o, int argc, char **argv, int at) {
    bool command_given = at > 1 && !strcmp(argv[at - 1], "--");
    pid_t pid = 0;

    if (at < argc && command_given)
        return zr_doctor_trial(c, d, argv + at, o->seconds, &o->signal);
    if (at < argc && !zr_operand_pid(&command, argv[at], &pid))
        return false;
    if (at + 1 < argc) {
        zr_wrong(&command, "more than one process id: expected one, or '-- COMMAND'");
        return false;
    }
    if (o->watch > 0 && !pid) {
        zr_wrong(&command, "--watch needs a process id");
        return false;
    }
    if (zr_doctor_gather(c, pid)) {
        struct zr_findings grown = {0};

        if (o->watch > 0 && !zr_growth_watch(c, o->watch, &grown))
            return false;
        zr_diagnose(c, d);
        zr_findings_join(&d->findings, &grown);
        return true;
    }
    if (errno == ENOENT || errno == ESRCH)
        zr_complain("doctor", "no process %d", (int)pid);
    else
        zr_complain("doctor", "process %d: %s", (int)pid, strerror(errno));
    return false;
}

static bool takes_a_word(const char *option) {
    static const char *const known[] = {"-s", "--seconds", "-w", "--watch"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(option, known[i]) == 0)
            return true;
    return false;
}

/* `zeroute doctor 4242 --json`: options may stand behind the process, whose number goes to the end. */
static void options_first(int argc, char **argv) {
    int at = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            return;
        if (!at && *argv[i] != '-')
            at = i;
        i += takes_a_word(argv[i]);
    }
    if (at) {
        char *pid = argv[at];
        memmove(argv + at, argv + at + 1, (size_t)(argc - 1 - at) * sizeof *argv);
        argv[argc - 1] = pid;
    }
}

int zr_cmd_doctor(int argc, char **argv) {
    static struct zr_case c;
    struct zr_diagnosis d = {0};
    struct options o = {.seconds = 10};
    char root[512] = "";
    int at;

    options_first(argc, argv);
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (o.facts)
        return show_facts();
    if (o.sim && !zr_simulate("doctor", o.sim, root, sizeof root))
        return ZR_EXIT_ERROR;
    bool seen = look(&c, &d, &o, argc, argv, at);
    zr_simulate_end(root);
    if (o.signal)
        return zr_end_like(o.signal); /* a wait status of that signal */
    if (!seen)
        return ZR_EXIT_ERROR;
    if (o.json)
        zr_doctor_json(stdout, &c, &d);
    else
        zr_doctor_page(stdout, &c, &d, o.verbose);
    int code = zr_diagnosis_code(&d);
    zr_findings_free(&d.findings);
    zr_stack_free(&c.stack);
    return code;
}
