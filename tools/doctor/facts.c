#include "doctor/doctor.h"

#include <ctype.h>
#include <stdlib.h>

const struct zr_fact zr_facts[ZR_FACTS] = {
#define ZR_FACT(id, part, from, before, what, source) {#part, from, before, what, source},
#include "doctor/facts.def"
#undef ZR_FACT
};

static const struct {
    const char *before, *runtime;
    enum zr_fact_id fact;
} fails[] = {
#define ZR_LOADER_FAILS(before, runtime, fact) {before, runtime, ZR_FACT_##fact},
#include "doctor/loaders.def"
};

static const struct {
    const char *runtime, *works, *install;
} needs[] = {
#define ZR_LOADER_NEED(runtime, works, install) {runtime, works, install},
#include "doctor/loaders.def"
};

enum zr_fact_id zr_loader_fails(struct zr_version runtime, struct zr_version loader) {
    for (size_t i = 0; runtime.count && loader.count && i < sizeof fails / sizeof *fails; i++)
        if (zr_version_compare(runtime, zr_version_of(fails[i].runtime)) >= 0 &&
            !zr_version_from(loader, fails[i].before))
            return fails[i].fact;
    return ZR_FACTS;
}

const char *zr_loader_for(struct zr_version runtime) {
    const char *install = needs[0].install;

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (zr_version_from(runtime, needs[i].runtime))
            install = needs[i].install;
    return install;
}

struct zr_version zr_version_of(const char *text) {
    struct zr_version version = {0, {0}};
    char *end;

    while (version.count < 4 && isdigit((unsigned char)*text)) {
        version.n[version.count++] = (unsigned)strtoul(text, &end, 10);
        text = end;
        if (*text != '.')
            break;
        text++;
    }
    return version;
}

int zr_version_compare(struct zr_version a, struct zr_version b) {
    for (unsigned i = 0; i < 4; i++) {
        if (a.n[i] != b.n[i])
            return a.n[i] < b.n[i] ? -1 : 1;
    }
    return 0;
}

bool zr_version_from(struct zr_version version, const char *least) {
    return version.count && zr_version_compare(version, zr_version_of(least)) >= 0;
}

bool zr_fact_holds(enum zr_fact_id id, struct zr_version version) {
    const struct zr_fact *fact = &zr_facts[id];

    if (!version.count)
        return false;
    return zr_version_compare(version, zr_version_of(fact->from)) >= 0 &&
           (!*fact->before || zr_version_compare(version, zr_version_of(fact->before)) < 0);
}
