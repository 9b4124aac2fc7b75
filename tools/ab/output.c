/* Numbers and hashes from what the command printed or wrote. */
#include "ab/ab.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>

/* --- SHA-256 ---------------------------------------------------------------------------------- */

void zr_ab_hash_text(const void *data, size_t size, char out[65]) {
    SHA256Data(data, size, out);
}

bool zr_ab_hash_file(const char *path, char out[65]) {
    return SHA256File(path, out) != NULL;
}

/* --- `name: number` --------------------------------------------------------------------------- */

static bool number_at(const char *s, double *value) {
    char *end;

    s += strspn(s, " \t");
    if (!isdigit((unsigned char)*s) && *s != '-' && *s != '+' && *s != '.')
        return false; /* strtod would take "nan" and "infinity" */
    *value = strtod(s, &end);
    return end != s && isfinite(*value);
}

static void note(struct zr_ab *ab, struct zr_ab_run *run, const char *name, size_t length, double value) {
    while (length && isspace((unsigned char)name[length - 1]))
        length--;
    while (length && isspace((unsigned char)*name))
        name++, length--;
    char *copy = zr_ab_text("%.*s", (int)length, length ? name : "output");
    size_t m = zr_ab_metric_add(ab, *copy ? copy : "metric", ZR_AB_PLAIN, ZR_AB_NEITHER, "from the command's output");
    run->value[m] = value; /* the last one of a name counts */
    free(copy);
}

/* A regex with a group tells the number itself; without one it picks names of `name: number`. */
static void match_line(struct zr_ab *ab, struct zr_ab_run *run, const char *line, const regex_t *re) {
    regmatch_t m[2];
    double value;

    if (re->re_nsub > 0) {
        if (!regexec(re, line, 2, m, 0) && m[1].rm_so >= 0 && number_at(line + m[1].rm_so, &value)) {
            size_t length = (size_t)(m[1].rm_so - m[0].rm_so);
            while (length && strchr(" \t:=", line[(size_t)m[0].rm_so + length - 1]))
                length--;
            note(ab, run, line + m[0].rm_so, length, value);
        }
        return;
    }
    for (const char *sign = line; (sign = strpbrk(sign, ":=")); sign++) {
        const char *from = sign;
        if (!number_at(sign + 1, &value))
            continue;
        while (from > line && !strchr(",;|\t", from[-1]))
            from--;
        from += strspn(from, " ");
        const char *to = sign;
        while (to > from && to[-1] == ' ')
            to--;
        char *name = zr_ab_text("%.*s", (int)(to - from), from);
        if (to > from && !regexec(re, name, 0, NULL, 0))
            note(ab, run, name, strlen(name), value);
        free(name);
    }
}

char *zr_ab_output_metrics(struct zr_ab *ab, struct zr_ab_run *run, const char *text, const char *const *regex,
                           size_t n) {
    for (size_t i = 0; i < n; i++) {
        regex_t re;
        char *copy, *rest, *line;
        int code = regcomp(&re, regex[i], REG_EXTENDED);
        if (code) {
            char why[128];
            regerror(code, &re, why, sizeof(why));
            return zr_ab_text("bad expression '%s': %s", regex[i], why);
        }
        copy = rest = zr_ab_text("%s", text);
        while ((line = strsep(&rest, "\n")))
            match_line(ab, run, line, &re);
        free(copy);
        regfree(&re);
    }
    return NULL;
}
