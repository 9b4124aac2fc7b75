/* What the texts of a record say: names, the command line, and which rank of a job the process was. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

/* The parts of a text, which are separated by NULs. False without memory. */
static bool split(struct zr_record *r, unsigned text, const char ***part, unsigned *parts) {
    const char *at = r->text[text], *end = at ? at + r->text_size[text] : NULL;
    unsigned n = 0;

    for (const char *c = at; c && c < end; c += strlen(c) + 1)
        n++;
    *part = zr_arena_get(r->arena, n * sizeof **part);
    for (const char *c = at; *part && c && c < end; c += strlen(c) + 1)
        (*part)[(*parts)++] = c;
    return *part != NULL;
}

bool zr_record_names(struct zr_record *r) {
    return split(r, ZEROUTE_TEXT_ENTRIES, &r->entry, &r->entries) && split(r, ZEROUTE_TEXT_VIAS, &r->via, &r->vias);
}

const char *zr_record_entry(const struct zr_record *r, unsigned entry) {
    return entry < r->entries ? r->entry[entry] : "";
}

const char *zr_record_via(const struct zr_record *r, unsigned via) {
    return via < r->vias ? r->via[via] : "";
}

const char *zr_record_variable(const struct zr_record *r, const char *name) {
    const char *at = r->text[ZEROUTE_TEXT_VARIABLES], *end = at ? at + r->text_size[ZEROUTE_TEXT_VARIABLES] : NULL;

    for (; at && at < end; at += strlen(at) + 1)
        if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '=')
            return at + strlen(name) + 1;
    return NULL;
}

void zr_record_command(const struct zr_record *r, char *out, size_t size) {
    const char *at = r->text[ZEROUTE_TEXT_COMMAND], *end = at ? at + r->text_size[ZEROUTE_TEXT_COMMAND] : NULL;
    size_t n = 0;

    *out = '\0';
    for (; at && at < end && n < size; at += strlen(at) + 1)
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", at);
    if (n >= size && size > 3)
        memcpy(out + size - 4, "...", 4);
}

int zr_record_rank(const struct zr_record *r) {
    static const char *const names[] = {"RANK",         "PMI_RANK",           "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID", "MV2_COMM_WORLD_RANK"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = zr_record_variable(r, names[i]);
        char *end;
        long rank = value ? strtol(value, &end, 10) : -1;

        if (value && end != value && !*end && rank >= 0 && rank < 1000000)
            return (int)rank;
    }
    return -1;
}
