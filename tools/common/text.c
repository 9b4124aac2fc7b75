/* Numbers as people read them. */
#include "common/common.h"

#include "base/settings.h"

#include <stdlib.h>
#include <string.h>

/* Scales to at most three integer digits; `last` is the largest unit. */
static const char *scaled(char *out, uint64_t n, double factor, double most, const char *const *unit, unsigned last) {
    double in_unit = (double)n;
    unsigned u = 0;
    while (in_unit >= most && u < last) {
        in_unit /= factor;
        u++;
    }
    if (u == 0)
        snprintf(out, ZR_TEXT_SIZE, "%llu %s", (unsigned long long)n, unit[0]);
    else
        snprintf(out, ZR_TEXT_SIZE,
                 in_unit < 9.995   ? "%.2f %s"
                 : in_unit < 99.95 ? "%.1f %s"
                                   : "%.0f %s",
                 in_unit, unit[u]);
    return out;
}

const char *zr_text_bytes(char *out, uint64_t bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes == ZR_ABSENT || bytes == 0)
        return memcpy(out, bytes ? "-" : "0", 2);
    return scaled(out, bytes, 1024, 1023.995, unit, 6);
}

const char *zr_text_time(char *out, uint64_t ns) {
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    return scaled(out, ns, 1000, 999.5, unit, 3);
}

const char *zr_text_count(char *out, uint64_t n) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = out;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *zr_text_age(char *out, uint64_t ns) {
    uint64_t s = ns / 1000000000u;
    if (s < 60)
        snprintf(out, ZR_TEXT_SIZE, "%us", (unsigned)s);
    else if (s < 3600)
        snprintf(out, ZR_TEXT_SIZE, "%um %us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(out, ZR_TEXT_SIZE, "%uh %um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
    else
        snprintf(out, ZR_TEXT_SIZE, "%ud %uh", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24));
    return out;
}

bool zr_text_parse_bytes(const char *text, uint64_t *out) {
    struct zr_amount amount;

    if (!zr_parse_amount(text, &amount) || !amount.set || amount.percent_x100)
        return false;
    *out = amount.bytes;
    return true;
}

/* Columns on the screen, not bytes: continuation bytes of UTF-8 take none. */
size_t zr_text_width(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* How many bytes its first columns take; no character is cut. */
static size_t bytes_of(const char *s, size_t columns) {
    size_t n = 0, seen = 0;
    for (; s[n]; n++)
        if ((s[n] & 0xc0) != 0x80 && seen++ == columns)
            break;
    return n;
}

const char *zr_text_middle(char *out, const char *text, size_t columns) {
    size_t width = zr_text_width(text), left = columns > 3 ? (columns - 3) / 3 : 0;
    if (width <= columns || columns < 4) {
        out[0] = '\0';
        strncat(out, text, bytes_of(text, columns));
        return out;
    }
    size_t right = columns - 3 - left, head = bytes_of(text, left), tail = bytes_of(text, width - right);
    char *end = mempcpy(out, text, head);
    end = mempcpy(end, "...", 3);
    memcpy(end, text + tail, strlen(text + tail) + 1);
    return out;
}

/* Removes the folders of the word at `word`, which may end with a slash. */
static void without_folders(char *word) {
    char *name = word, *end = word + strcspn(word, " ");

    for (char *c = word; c + 1 < end; c++)
        if (*c == '/')
            name = c + 1;
    memmove(word, name, strlen(name) + 1);
}

static char *next_word(char *word) {
    word += strcspn(word, " ");
    return *word ? word + 1 : NULL;
}

static bool is_script(const char *word) {
    size_t n = strcspn(word, " ");

    return (n > 3 && (!strncmp(word + n - 3, ".py", 3) || !strncmp(word + n - 3, ".sh", 3)));
}

/* What the program is told to run: a word that ends in .py or .sh, else the first one that is no option. */
static char *script_of(char *command) {
    char *first = NULL;

    for (char *w = next_word(command); w; w = next_word(w)) {
        if (is_script(w))
            return w;
        if (!first && *w != '-')
            first = w;
    }
    return first;
}

const char *zr_text_command(char *out, const char *command, size_t columns) {
    static const char dots[] = "... ";
    size_t width;

    strcpy(out, command);
    if (zr_text_width(out) > columns)
        without_folders(out);
    char *script = script_of(out), *second = next_word(out);
    if (zr_text_width(out) > columns && script) {
        without_folders(script);
        size_t end = (size_t)(script - out) + strcspn(script, " ");
        if (end > columns && script - second > (long)strlen(dots)) {
            memcpy(second, dots, strlen(dots));
            memmove(second + strlen(dots), script, strlen(script) + 1);
        }
    }
    width = zr_text_width(out);
    if (width > columns && columns >= 4) {
        strcpy(out + bytes_of(out, columns - 3), "...");
    } else if (width > columns) {
        out[bytes_of(out, columns)] = '\0';
    }
    return out;
}

void zr_text_wrap(FILE *to, int indent, int width, const char *text) {
    int at = indent;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (at > indent && at + 1 + word > width) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        }
        char *copy = strndup(text, (size_t)word);
        char *harmless = zr_harmless(copy, ZR_FOR_TERMINAL); /* not zr_shown(): `text` may be of its last few */
        at += fprintf(to, "%s%s", at > indent ? " " : "", harmless);
        free(harmless);
        free(copy);
        text += word;
        text += *text != '\0';
    }
    fputc('\n', to);
}
