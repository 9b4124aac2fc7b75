/* A JSON writer: valid for any input, one value to a line. */
#include "common/common.h"

#include <math.h>
#include <string.h>

bool zr_json_begun;

void zr_json_start(struct zr_json *j, FILE *out)
{
    zr_json_begun |= out == stdout;
    *j = (struct zr_json){.out = out, .first = true};
}

static void before_value(struct zr_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (!j->first)
        fputc(',', j->out);
    if (j->depth)
        fprintf(j->out, "\n%*s", j->depth * 2, "");
    j->first = false;
}

void zr_json_open(struct zr_json *j, char bracket)
{
    before_value(j);
    fputc(bracket, j->out);
    j->depth++;
    j->first = true;
}

void zr_json_close(struct zr_json *j, char bracket)
{
    j->depth--;
    if (!j->first)
        fprintf(j->out, "\n%*s", j->depth * 2, "");
    fputc(bracket, j->out);
    j->first = false;
    if (j->depth == 0)
        fputc('\n', j->out);
}

/* Length of the valid UTF-8 sequence at s, 0 if there is none. */
static size_t utf8(const unsigned char *s)
{
    size_t n = s[0] < 0x80                        ? 1
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static void quoted(struct zr_json *j, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', j->out);
    while (*s) {
        size_t n = utf8(s);
        if (n == 0) {
            fputs("\\ufffd", j->out);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            fprintf(j->out, "\\%c", *s);
        } else if (*s < 0x20) {
            fprintf(j->out, "\\u%04x", *s);
        } else {
            fwrite(s, 1, n, j->out);
        }
        s += n;
    }
    fputc('"', j->out);
}

void zr_json_key(struct zr_json *j, const char *key)
{
    before_value(j);
    quoted(j, key);
    fputs(": ", j->out);
    j->after_key = true;
}

void zr_json_string(struct zr_json *j, const char *text)
{
    before_value(j);
    quoted(j, text);
}

void zr_json_number(struct zr_json *j, uint64_t n)
{
    before_value(j);
    fprintf(j->out, "%llu", (unsigned long long)n);
}

void zr_json_double(struct zr_json *j, double d)
{
    before_value(j);
    if (isfinite(d))
        fprintf(j->out, "%.17g", d);
    else
        fputs("null", j->out);
}

void zr_json_bool(struct zr_json *j, bool b)
{
    before_value(j);
    fputs(b ? "true" : "false", j->out);
}

void zr_json_null(struct zr_json *j)
{
    before_value(j);
    fputs("null", j->out);
}

void zr_json_text(struct zr_json *j, const char *key, const char *text)
{
    if (!text)
        return;
    zr_json_key(j, key);
    zr_json_string(j, text);
}

void zr_json_count(struct zr_json *j, const char *key, uint64_t n)
{
    zr_json_key(j, key);
    zr_json_number(j, n);
}

void zr_json_amount(struct zr_json *j, const char *key, uint64_t n)
{
    if (n != UINT64_MAX)
        zr_json_count(j, key, n);
}

void zr_json_real(struct zr_json *j, const char *key, double d)
{
    zr_json_key(j, key);
    zr_json_double(j, d);
}

void zr_json_flag(struct zr_json *j, const char *key, bool b)
{
    zr_json_key(j, key);
    zr_json_bool(j, b);
}

void zr_json_begin(struct zr_json *j, const char *key, char bracket)
{
    zr_json_key(j, key);
    zr_json_open(j, bracket);
}
