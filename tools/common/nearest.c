/* "Did you mean": the name that a mistyped word is most like. */
#include "base/settings.h"
#include "common/common.h"

#include <string.h>

enum { LONGEST = 96, LONGEST_WORD = 32 };

static bool same(char a, char b) {
    return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_'));
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Damerau-Levenshtein: letters to insert, delete, replace, or swap with their neighbour. */
unsigned zr_distance(const char *a, size_t m, const char *b, size_t n) {
    unsigned rows[3][LONGEST + 1], *before = rows[0], *last = rows[1], *row = rows[2];

    if (m > LONGEST || n > LONGEST)
        return LONGEST + 1;
    for (size_t j = 0; j <= n; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[n];
}

void zr_nearest_try(struct zr_nearest *n, const char *name, size_t length) {
    if (!length || n->length > LONGEST_WORD || length > LONGEST_WORD)
        return;
    bool begins = n->length > 2 && n->length < length && !strncmp(n->word, name, n->length);
    unsigned d = begins ? 1 : zr_distance(n->word, n->length, name, length);

    if (d >= n->length || d > (n->length < 6 ? 1 : n->length / 3) || (n->best && d >= n->distance))
        return;
    n->best = name;
    n->best_length = length;
    n->distance = d;
}

void zr_nearest_try_list(struct zr_nearest *n, const char *names) {
    for (size_t length; *names; names += length + (names[length] == '|')) {
        length = strcspn(names, "|");
        if (*names < 'A' || *names > 'Z') /* SIZE stands for a value */
            zr_nearest_try(n, names, length);
    }
}

void zr_did_you_mean(const char *setting, const char *value, char *text, size_t size) {
    struct zr_nearest n = {.word = value, .length = strlen(value)};
    const struct zr_setting *known = zr_setting_find(setting, strlen(setting));
    size_t used = strlen(text);

    if (strcmp(setting, "preset") == 0) {
        for (size_t i = 0; i < zr_preset_count; i++)
            zr_nearest_try(&n, zr_presets[i].name, strlen(zr_presets[i].name));
    } else if (known) {
        zr_nearest_try_list(&n, known->values);
    } else {
        n = (struct zr_nearest){.word = setting, .length = strlen(setting)};
        for (size_t i = 0; i < zr_setting_count; i++)
            zr_nearest_try(&n, zr_settings[i].name, strlen(zr_settings[i].name));
    }
    if (n.best && used < size)
        snprintf(text + used, size - used, " (did you mean '%.*s'?)", (int)n.best_length, n.best);
}

void zr_mean_one_of(const char *names, const char *word, char *text, size_t size) {
    struct zr_nearest n = {.word = word, .length = strlen(word)};
    size_t used = strlen(text);

    zr_nearest_try_list(&n, names);
    if (n.best && used < size)
        snprintf(text + used, size - used, " (did you mean '%.*s'?)", (int)n.best_length, n.best);
}
