#include "doctor/doctor.h"

#include "base/settings.h"
#include "common/common.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 60, WIDEST = 110 };

static unsigned page_width(FILE *to) {
    struct winsize w;

    if (!isatty(fileno(to)) || ioctl(fileno(to), TIOCGWINSZ, &w) || !w.ws_col)
        return 80;
    return w.ws_col < NARROWEST ? NARROWEST : w.ws_col > WIDEST ? WIDEST : w.ws_col;
}

static void title(FILE *to, bool colour, const char *text) {
    fprintf(to, "\n%s%s%s\n", zr_bold(colour), text, zr_plain(colour));
}

/* A path in the room that is left; its end is what tells. */
static void cut_front(FILE *to, size_t room, const char *path) {
    size_t length;

    path = zr_shown(path);
    length = strlen(path);
    if (length > room) {
        path += length - room + 3;
        while ((*path & 0xc0) == 0x80) /* the rest of a character */
            path++;
        fprintf(to, "...%s\n", path);
    } else {
        fprintf(to, "%s\n", path);
    }
}

static const char *binding_text(const struct zr_stack *s) {
    return s->binding == ZR_LOADER_STATIC   ? ", carries a static loader"
           : s->binding == ZR_LOADER_SHARED ? ", imports the shared loader"
                                            : "";
}

static void show_stack(FILE *to, const struct zr_case *c, bool colour, unsigned width) {
    bool any = false;

    title(to, colour, c->pid ? "Stack" : "Stack that a program started from here would find");
    for (int i = 0; i < ZR_PARTS; i++) {
        const struct zr_library *l = &c->stack.parts[i];

        if (!l->there || l->inside)
            continue;
        any = true;
        fprintf(to, "  %-18s %-12s %s%-13.12s%s", zr_part_names[i], *l->version ? zr_shown(l->version) : "-",
                zr_dim(colour), *l->build_id ? l->build_id : "no build id", zr_plain(colour));
        cut_front(to, width > 47 ? width - 47 : 20, l->path);
    }
    if (!any)
        fprintf(to, "  %s\n", c->stack.error ? "not known: the maps cannot be read" : "nothing of Level Zero or SYCL");
    if (c->stack.adapter) {
        const struct zr_library *adapter = &c->stack.parts[c->stack.adapter == 2 ? ZR_PART_UR_V2 : ZR_PART_UR_V1];
        const char *slash = strrchr(adapter->path, '/');
        char line[512];
        snprintf(line, sizeof line, "adapter v%d is in use (%s)%s%s%s", c->stack.adapter, c->stack.adapter_why,
                 binding_text(&c->stack), adapter->inside ? ", and is inside " : "",
                 adapter->inside ? zr_shown(slash ? slash + 1 : adapter->path) : "");
        fputs("  ", to);
        zr_text_wrap(to, 2, (int)width, line);
    }
}

/* Only the settings that differ from their defaults. */
static void show_settings(FILE *to, const char *list) {
    bool any = false;

    for (size_t i = 0; i < zr_setting_count; i++) {
        const struct zr_setting *setting = &zr_settings[i];
        size_t name = strlen(setting->name), value;
        const char *at = list;

        while (at && (strncmp(at, setting->name, name) || at[name] != ':'))
            at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
        if (!at)
            continue;
        value = strcspn(at + name + 1, ",");
        if (strlen(setting->fallback) == value && !strncmp(at + name + 1, setting->fallback, value))
            continue;
        fprintf(to, " %s:%s", setting->name, zr_shown(strndupa(at + name + 1, value)));
        any = true;
    }
    if (!any)
        fputs(" all settings at their defaults", to);
}

static void show_memory(FILE *to, const struct zr_case *c, bool colour) {
    char a[32], b[32], x[32], y[32];

    title(to, colour, "Memory");
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        const struct zr_card_use *use = &c->memory.cards[i];

        fprintf(to, "  card %s (%s): VRAM %s, resident %s, GTT %s\n", use->pdev, use->driver,
                zr_text_bytes(a, use->vram.total), zr_text_bytes(b, use->vram.resident),
                zr_text_bytes(x, use->gtt.total));
    }
    if (c->memory.fdinfo_error)
        fprintf(to, "  cards: not known, the descriptors cannot be read\n");
    else if (!c->memory.card_count)
        fprintf(to, "  no card is open%s\n", c->pid ? " in this process" : " in any process that can be read");
    char line[256] = "";
    if (c->meminfo_there)
        snprintf(line, sizeof line, "GPUActive %s, MemAvailable %s of %s",
                 c->meminfo.gpu_active == ZR_ABSENT ? "not available" : zr_text_bytes(a, c->meminfo.gpu_active),
                 zr_text_bytes(b, c->meminfo.available), zr_text_bytes(x, c->meminfo.total));
    size_t used = strlen(line);
    if (c->pid) {
        used += (size_t)snprintf(line + used, sizeof line - used, ", VmRSS %s", zr_text_bytes(a, c->memory.rss));
        if (c->memory.cgroup_current != ZR_ABSENT)
            snprintf(line + used, sizeof line - used, ", cgroup %s", zr_text_bytes(y, c->memory.cgroup_current));
    } else if (c->holders) {
        snprintf(line + used, sizeof line - used, "; %u process%s cards", c->holders,
                 c->holders == 1 ? " holds" : "es hold");
    }
    fputs("  host: ", to);
    zr_text_wrap(to, 8, (int)page_width(to), line);
    if (c->counted.found) {
        char *text = NULL;
        size_t length;
        FILE *in = open_memstream(&text, &length);
        if (!in)
            return;
        fprintf(in, "%s allocated, %llu calls seen,", zr_text_bytes(a, c->counted.allocated),
                (unsigned long long)c->counted.calls);
        show_settings(in, c->counted.settings);
        fclose(in);
        fputs("  zeroute: ", to);
        zr_text_wrap(to, 11, (int)page_width(to), text);
        free(text);
    }
}

static const char *mirror_answer(const struct zr_mirror *m) {
    static const char *const answers[] = {"no", "YES", "LOST, UNEXPLAINED", "cannot tell", "too little to tell"};

    return answers[m->state];
}

static void show_links(FILE *to, const struct zr_diagnosis *d, unsigned width) {
    for (unsigned i = 0; i < ZR_LINKS; i++) {
        fprintf(to, "  link %u: %-22s %-8s", i + 1, zr_link_names[i], zr_answer_names[d->links[i].answer]);
        zr_text_wrap(to, 41, (int)width, d->links[i].why);
    }
}

static bool is_mirror_ahead(const struct zr_diagnosis *d) {
    for (size_t i = 0; i < d->findings.count; i++)
        if (strncmp(d->findings.list[i].id, "mirror", 6) == 0)
            return true;
    return false;
}

/* The links are told where they matter: there is a mirror, or there will be one. */
static void show_mirror(FILE *to, const struct zr_diagnosis *d, bool whole, bool colour, unsigned width) {
    bool none = d->mirror.state == ZR_MIRROR_NONE;
    int indent = 11 + (int)strlen(mirror_answer(&d->mirror));

    fprintf(to, "\n%sMirrored%s %s%s%s: ", zr_bold(colour), zr_plain(colour), none ? "" : zr_red(colour),
            mirror_answer(&d->mirror), zr_plain(colour));
    zr_text_wrap(to, indent, (int)width, d->mirror.why);
    if (whole || !none || is_mirror_ahead(d))
        show_links(to, d, width);
}

/* What is a finding is told there. */
static void show_safe(FILE *to, const struct zr_case *c, bool colour, unsigned width) {
    char why[200];

    switch (zr_safe_for(&c->safe, why, sizeof why)) {
    case ZR_SAFE_HELPS:
        return;
    case ZR_SAFE_IS_ON:
        fprintf(to, "\n%sPreset safe%s in force: ", zr_bold(colour), zr_plain(colour));
        zr_text_wrap(to, 22, (int)width, why);
        return;
    case ZR_SAFE_NOT_NEEDED:
        fprintf(to, "\n%sPreset safe%s not needed: ", zr_bold(colour), zr_plain(colour));
        zr_text_wrap(to, 24, (int)width, why);
        return;
    }
}

static bool needs_remedies(const struct zr_case *c, const struct zr_diagnosis *d) {
    bool wanted = zr_case_cards(c) > 0 || d->mirror.state != ZR_MIRROR_NONE;

    for (unsigned i = 0; i < ZR_REMEDIES; i++)
        wanted |= d->remedies[i].in_force;
    return wanted;
}

static void show_remedies(FILE *to, const struct zr_diagnosis *d, bool colour, unsigned width) {
    title(to, colour, "Remedies for a mirror on this stack");
    for (unsigned i = 0; i < ZR_REMEDIES; i++) {
        const struct zr_remedy *r = &d->remedies[i];

        if (!r->offered && !r->in_force)
            continue;
        fprintf(to, "  %-9s ", r->in_force ? "IN FORCE" : r->smallest ? "smallest" : "possible");
        zr_text_wrap(to, 12, (int)width, r->setting);
        if (!r->in_force && !r->smallest)
            continue;
        fprintf(to, "            price: ");
        zr_text_wrap(to, 19, (int)width, r->price);
    }
}

static void show_line(FILE *to, const char *head, const char *text, unsigned width) {
    if (!text)
        return;
    fprintf(to, "           %-8s", head);
    zr_text_wrap(to, 19, (int)width, text);
}

static void show_severity(FILE *to, const struct zr_finding *f, bool colour) {
    const char *shade = "";

    if (f->severity == ZR_ERROR)
        shade = zr_red(colour);
    else if (f->severity == ZR_WARNING)
        shade = zr_bold(colour);
    fprintf(to, "  %s%-8s%s ", shade, zr_severity_names[f->severity], zr_plain(colour));
}

/* All of them from `first` on; with what was seen, the price and the source, or only with what to do. */
static void show_findings(FILE *to, const struct zr_diagnosis *d, size_t first, bool whole, bool colour,
                          unsigned width) {
    if (first >= d->findings.count)
        return;
    title(to, colour, first ? "Also" : "Findings");
    for (size_t i = first; i < d->findings.count; i++) {
        const struct zr_finding *f = &d->findings.list[i];

        show_severity(to, f, colour);
        zr_text_wrap(to, 11, (int)width, f->what);
        if (whole)
            show_line(to, "seen:", f->seen, width);
        show_line(to, "do:", f->todo, width);
        if (whole) {
            show_line(to, "price:", f->price, width);
            show_line(to, "source:", f->source, width);
        }
    }
}

/* --- the answer: one sentence, one thing to do -------------------------------------------------------------- */

static bool is_to_act_on(const struct zr_diagnosis *d) {
    return d->findings.count && d->findings.list[0].severity >= ZR_WARNING;
}

static void show_verdict(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d, bool colour, unsigned width) {
    const struct zr_finding *f = is_to_act_on(d) ? &d->findings.list[0] : NULL;
    char text[640];

    if (f)
        snprintf(text, sizeof text, "%s", f->what);
    else if (d->mirror.state == ZR_MIRROR_TOO_LITTLE)
        snprintf(text, sizeof text, "too little to tell whether device memory is mirrored: %s", d->mirror.why);
    else if (d->mirror.state == ZR_MIRROR_UNKNOWN || d->cannot_tell)
        snprintf(text, sizeof text, "cannot tell whether device memory is mirrored: %s", d->mirror.why);
    else
        snprintf(text, sizeof text, "nothing to do: device memory is not mirrored%s",
                 c->pid ? " here" : ", and no trouble is known");
    fputs(f && f->severity == ZR_ERROR ? zr_red(colour) : zr_bold(colour), to);
    zr_text_wrap(to, 0, (int)width, text);
    fputs(zr_plain(colour), to);
    if (!f)
        return;
    if (f->todo) {
        fputs("  do:    ", to);
        zr_text_wrap(to, 9, (int)width, f->todo);
    }
    if (f->price) {
        fputs("  price: ", to);
        zr_text_wrap(to, 9, (int)width, f->price);
    }
    if (f->seen && f->seen != d->mirror.why && strcmp(f->seen, d->mirror.why) != 0) {
        fputs("  seen:  ", to);
        zr_text_wrap(to, 9, (int)width, f->seen);
    }
}

static void show_head(FILE *to, const struct zr_case *c, bool colour, unsigned width) {
    char command[4 * sizeof c->command], kernel[32] = "unknown";

    if (c->pid) {
        zr_text_command(command, zr_shown(c->command), width > 20 ? width - 20 : 0);
        fprintf(to, "%sprocess %d%s  %s\n", zr_bold(colour), (int)c->pid, zr_plain(colour), command);
        return;
    }
    if (c->kernel.count)
        snprintf(kernel, sizeof kernel, "%u.%u", c->kernel.n[0], c->kernel.n[1]);
    fprintf(to, "%sthis machine%s  kernel %s, %u Intel card%s\n", zr_bold(colour), zr_plain(colour), kernel,
            zr_case_cards(c), zr_case_cards(c) == 1 ? "" : "s");
}

void zr_doctor_page(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d, bool verbose) {
    bool colour = zr_colour(to);
    unsigned width = page_width(to);

    show_head(to, c, colour, width);
    show_verdict(to, c, d, colour, width);
    show_mirror(to, d, verbose, colour, width);
    show_findings(to, d, verbose || !is_to_act_on(d) ? 0 : 1, verbose, colour, width);
    if (!verbose) {
        fprintf(to, "\n%sEvery finding, the stack, memory and all remedies: --verbose%s\n", zr_dim(colour),
                zr_plain(colour));
        return;
    }
    show_safe(to, c, colour, width);
    if (needs_remedies(c, d))
        show_remedies(to, d, colour, width);
    show_stack(to, c, colour, width);
    show_memory(to, c, colour);
}
