/* Whether two runs of one program agree, and whether one run agrees with itself. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

static const struct known {
    const char *setting, *operation, *alone, *under;
    bool ends;
    const char *reason;
} known[] = {
#define ZR_KNOWN(setting, operation, alone, under, ends, reason) {setting, operation, alone, under, ends, reason},
#include "selftest/known.def"
#undef ZR_KNOWN
};

static bool matches(const char *pattern, const char *word, size_t length) {
    return strcmp(pattern, "*") == 0 || (strlen(pattern) == length && strncmp(pattern, word, length) == 0);
}

/* "12 copy: ..." is of the operation copy; "report: leak: ..." of report. */
static void operation_of(const char *line, char *out, size_t size) {
    const char *name = line + strspn(line, "0123456789 ");

    snprintf(out, size, "%.*s", (int)strcspn(name, ":"), name);
}

static const struct known *known_word(const char *setting, const char *operation, const char *alone,
                                      size_t alone_length, const char *under, size_t under_length) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct known *k = &known[i];

        if (matches(k->setting, setting, strlen(setting)) && matches(k->operation, operation, strlen(operation)) &&
            matches(k->alone, alone, alone_length) && matches(k->under, under, under_length))
            return k;
    }
    return NULL;
}

/* Why two lines may differ: every word that differs is a known one. NULL: they may not. */
static const struct known *known_line(const char *setting, const char *alone, const char *under) {
    const struct known *result = NULL;
    char operation[64];

    operation_of(alone, operation, sizeof operation);
    while (*alone || *under) {
        size_t a = strcspn(alone, " "), u = strcspn(under, " ");

        if (a != u || strncmp(alone, under, a) != 0) {
            result = known_word(setting, operation, alone, a, under, u);
            if (!result || result->ends)
                return result;
        }
        alone += a + (alone[a] == ' ');
        under += u + (under[u] == ' ');
    }
    return result;
}

static bool is_report(const char *line) {
    return strncmp(line, "report: ", 8) == 0;
}

/* A report of check is a line that the driver alone does not have. */
static const struct known *known_report(const char *setting, const char *line) {
    const char *name = line + 8;

    return known_word(setting, "report", "-", 1, name, strcspn(name, ":"));
}

/* A number that is not 0 before " wrong". */
static bool has_wrong(const char *line) {
    const char *word = line;

    while ((word = strstr(word, " wrong"))) {
        const char *digit = word;

        while (digit > line && digit[-1] >= '0' && digit[-1] <= '9')
            digit--;
        /* not the operation of that name */
        if (digit < word && (word[6] == ' ' || !word[6]) && strtoul(digit, NULL, 10))
            return true;
        word++;
    }
    return false;
}

/* What a line says by itself of a driver or card that went wrong; NULL: nothing. */
static const char *marked(const char *line) {
    static const struct {
        const char *mark, *what;
    } marks[] = {
        {"0x70000001", "the device was lost (reset or banned)"},
        {"CONTRADICTS", "the properties of a block are not those that it was allocated with"},
        {"MISALIGNED", "a block is not aligned as requested"},
        {"WRONG", "an address range does not begin where its block does"},
    };

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (strstr(line, marks[i].mark))
            return marks[i].what;
    }
    return has_wrong(line) ? "wrong data: bytes that were copied or filled did not arrive" : NULL;
}

enum zr_difference zr_compare(const char *setting, const struct zr_child *alone, const struct zr_child *under,
                              size_t *at, const char **reason) {
    enum zr_difference result = ZR_SAME;
    size_t a = 0, u = 0;

    while (a < alone->count || u < under->count) {
        static const struct known corrected = {.reason = "a lie of the driver corrected"};
        const struct known *why = NULL;

        *at = u;
        if (a < alone->count && is_report(alone->line[a])) {
            a++;
            continue;
        }
        if (u < under->count && is_report(under->line[u])) {
            why = known_report(setting, under->line[u++]);
        } else if (a == alone->count || u == under->count) {
            return ZR_DIFFERS;
        } else {
            bool same = strcmp(alone->line[a], under->line[u]) == 0;

            if (!same && marked(alone->line[a]) && !marked(under->line[u]))
                why = &corrected;
            else if (!same)
                why = known_line(setting, alone->line[a], under->line[u]);
            a++;
            u++;
            if (same)
                continue;
        }
        if (!why)
            return ZR_DIFFERS;
        *reason = why->reason;
        result = ZR_SAME_BUT_KNOWN;
        if (why->ends)
            return result;
    }
    return result;
}

const char *zr_contradiction(const struct zr_child *c, size_t *at) {
    const char *what = NULL;

    for (*at = 0; *at < c->count; ++*at) {
        if (!is_report(c->line[*at]))
            what = marked(c->line[*at]);
        if (what)
            return what;
    }
    return NULL;
}
