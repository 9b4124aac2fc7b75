#include "doctor/doctor.h"

#include <ctype.h>
#include <stdlib.h>

const struct zr_fact zr_facts[ZR_FACTS] = {
#define ZR_FACT(id, part, from, before, what, source) {#part, from, before, what, source},
#include "doctor/facts.def"
#undef ZR_FACT
};

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
