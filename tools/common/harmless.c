/*
 * Text from outside made harmless: command lines, names of files, fields and variables, whatever a segment or a driver
 * says. No sequence steers a terminal, no line is added to a page or a metric, and all of it is UTF-8.
 */
#include "common/common.h"

#include <stdlib.h>
#include <string.h>

/* Length of the valid UTF-8 sequence at s, 0 if there is none. */
static size_t utf8(const unsigned char *s) {
    size_t n = s[0] < 0x80                    ? 1
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* Control characters of ASCII and Unicode, line and paragraph separators, and what turns the direction of writing. */
static bool steers(const unsigned char *s, size_t n) {
    if (n == 1)
        return s[0] < ' ' || s[0] == 0x7f;
    if (n == 2)
        return (s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c);
    if (n != 3 || s[0] != 0xe2)
        return false;
    return (s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae))) ||
           (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9);
}

/* The replacement of a character; NULL: it may stay. */
static const char *instead(const unsigned char *s, size_t n, enum zr_for where) {
    if (n == 0)
        return "\xef\xbf\xbd"; /* U+FFFD */
    if (where == ZR_FOR_JSON && n == 1)
        return NULL; /* jansson escapes them */
    if (where == ZR_FOR_METRIC && (*s == '\n' || *s == '"' || *s == '\\'))
        return *s == '\n' ? "\\n" : *s == '"' ? "\\\"" : "\\\\";
    if (where == ZR_FOR_HTML && n == 1)
        switch (*s) {
        case '<':
            return "&lt;";
        case '>':
            return "&gt;";
        case '&':
            return "&amp;";
        case '"':
            return "&quot;";
        case '\'':
            return "&#39;";
        case '\n':
        case '\t':
            return NULL;
        default:
            break;
        }
    return steers(s, n) ? "?" : NULL;
}

char *zr_harmless(const char *text, enum zr_for where) {
    const unsigned char *s = (const unsigned char *)text;
    char *out = malloc(6 * strlen(text) + 1), *to = out;
    if (!out)
        abort();
    while (*s) {
        size_t n = utf8(s);
        const char *other = instead(s, n, where);
        to = other ? stpcpy(to, other) : mempcpy(to, s, n);
        s += n ? n : 1;
    }
    *to = '\0';
    return out;
}

const char *zr_shown(const char *text) {
    static char *kept[32];
    static unsigned turn;
    char **at = &kept[turn++ % (sizeof kept / sizeof *kept)];
    free(*at);
    *at = zr_harmless(text ? text : "", ZR_FOR_TERMINAL);
    return *at;
}
