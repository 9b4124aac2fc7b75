#include "doctor/doctor.h"

#include <string.h>

static const struct zr_remedy *remedy_of(const struct zr_diagnosis *d, bool in_force) {
    for (unsigned i = 0; i < ZR_REMEDIES; i++) {
        if (in_force ? d->remedies[i].in_force : d->remedies[i].smallest)
            return &d->remedies[i];
    }
    return NULL;
}

static void add_mirror(struct zr_diagnosis *d) {
    const struct zr_remedy *remedy = remedy_of(d, false);
    const struct zr_remedy *force = remedy_of(d, true);
    struct zr_finding *f;
    char bytes[32];

    zr_text_bytes(bytes, d->mirror.bytes);
    if (d->mirror.state == ZR_MIRROR_THERE && remedy) {
        f = zr_finding_add(&d->findings, ZR_ERROR, "mirror", "%s of RAM are lost to mirrors of device memory", bytes);
        zr_finding_says(&f->seen, "%s", d->mirror.why);
        zr_finding_says(&f->todo, "%s%s", remedy->setting,
                        remedy->needs_zeroute ? "" : " (zeroute is not needed for this)");
        zr_finding_says(&f->price, "%s", remedy->price);
    } else if (d->mirror.state == ZR_MIRROR_THERE || d->mirror.state == ZR_MIRROR_UNEXPLAINED) {
        f = zr_finding_add(&d->findings, ZR_WARNING, "mirror-unexplained",
                           "%s of host memory are missing, and no known cause fits", bytes);
        zr_finding_says(&f->seen, "%s%s%s", d->mirror.why, force ? "; in force: " : "", force ? force->setting : "");
        zr_finding_says(&f->todo, "zeroute mirror-test --all shows which setting ends it on this machine");
    } else if ((d->mirror.state == ZR_MIRROR_NONE || d->mirror.state == ZR_MIRROR_TOO_LITTLE) && !force) {
        bool all = true;

        for (unsigned i = 0; i < ZR_LINKS; i++)
            all &= d->links[i].answer == ZR_YES;
        if (all && remedy) {
            f = zr_finding_add(&d->findings, ZR_WARNING, "mirror-ahead",
                               "all three links are there: large allocations will be mirrored in host memory");
            zr_finding_says(&f->seen, "%s", d->mirror.why);
            zr_finding_says(&f->todo, "%s%s", remedy->setting,
                            remedy->needs_zeroute ? "" : " (zeroute is not needed for this)");
            zr_finding_says(&f->price, "%s", remedy->price);
        }
    }
}

static void add_unreadable(const struct zr_case *c, struct zr_diagnosis *d) {
    static const char todo[] = "run zeroute doctor as the same user, or as root";
    const struct {
        const char *what;
        int error;
    } sources[] = {{"the libraries of the process (maps)", c->stack.error},
                   {"its environment", c->stack.environ.error},
                   {"its descriptors (fdinfo)", c->memory.fdinfo_error}};

    for (size_t i = 0; c->pid && i < sizeof sources / sizeof *sources; i++) {
        struct zr_finding *f;

        if (!sources[i].error)
            continue;
        d->cannot_tell = true;
        f = zr_finding_add(&d->findings, ZR_NOTE, "unreadable", "%s could not be read", sources[i].what);
        zr_finding_says(&f->seen, "%s", strerror(sources[i].error));
        zr_finding_says(&f->todo, "%s", todo);
    }
    if (!c->meminfo_there)
        d->cannot_tell = true;
}

void zr_diagnose(const struct zr_case *c, struct zr_diagnosis *out) {
    memset(out, 0, sizeof *out);
    zr_links_find(c, out->links);
    zr_mirror_find(c, out->links, &out->mirror);
    zr_remedies_find(c, out->links, out->remedies);
    add_mirror(out);
    zr_troubles_find(c, &out->findings);
    add_unreadable(c, out);
    zr_findings_sort(&out->findings);
}

int zr_diagnosis_code(const struct zr_diagnosis *d) {
    if (d->findings.count && d->findings.list[0].severity >= ZR_WARNING)
        return ZR_EXIT_FINDING;
    return d->cannot_tell || d->mirror.state == ZR_MIRROR_UNKNOWN || d->mirror.state == ZR_MIRROR_TOO_LITTLE
               ? ZR_EXIT_NO_VERDICT
               : ZR_EXIT_DONE;
}
