/* Reading JSON into a tree: one pass, no recursion deeper than MAX_DEPTH. */
#include "common/json_parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

struct reader {
    const char *at, *end, *start;
    const char *expected; /* set once, at the first error */
    unsigned depth;
};

static bool read_value(struct reader *r, struct zr_node *out);

static bool fail(struct reader *r, const char *expected)
{
    if (!r->expected)
        r->expected = expected;
    return false;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_hex(struct reader *r, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int digit = r->at < r->end ? hex_digit(*r->at) : -1;
        if (digit < 0)
            return fail(r, "four hexadecimal digits");
        *out = *out * 16 + (unsigned)digit;
        r->at++;
    }
    return true;
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

static bool read_escape(struct reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found;
    unsigned c, low;

    if (r->at == r->end)
        return fail(r, "an escape");
    char e = *r->at++;
    if (e != 'u') {
        found = e ? strchr(from, e) : NULL;
        if (!found)
            return fail(r, "a known escape");
        *(*to)++ = meant[found - from];
        return true;
    }
    if (!read_hex(r, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (!take(r, '\\') || !take(r, 'u') || !read_hex(r, &low) || low < 0xdc00 || low > 0xdfff)
            return fail(r, "the second half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return fail(r, "the first half of a surrogate pair");
    } else if (c == 0) {
        return fail(r, "no zero character");
    }
    *to = put_utf8(*to, c);
    return true;
}

static bool read_text(struct reader *r, char **out)
{
    if (!take(r, '"'))
        return fail(r, "a text");
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' && close + 1 < r->end ? 2 : 1;
    char *text = malloc((size_t)(close - r->at) + 1), *to = text;
    if (!text)
        return fail(r, "memory");
    *out = text;
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 0x20)
            return fail(r, "no control character in a text");
        if (*r->at != '\\') {
            *to++ = *r->at++;
            continue;
        }
        r->at++;
        if (!read_escape(r, &to))
            return false;
    }
    *to = 0;
    return take(r, '"') || fail(r, "the end of a text");
}

static size_t digits(const char *s, const char *end)
{
    const char *from = s;

    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return (size_t)(s - from);
}

static bool read_number(struct reader *r, struct zr_node *out)
{
    const char *s = r->at;
    size_t n;

    s += s < r->end && *s == '-';
    n = digits(s, r->end);
    if (n == 0 || (n > 1 && *s == '0'))
        return fail(r, "a value");
    s += n;
    if (s < r->end && *s == '.') {
        n = digits(++s, r->end);
        if (n == 0)
            return fail(r, "digits behind the point");
        s += n;
    }
    if (s < r->end && (*s == 'e' || *s == 'E')) {
        s++;
        s += s < r->end && (*s == '+' || *s == '-');
        n = digits(s, r->end);
        if (n == 0)
            return fail(r, "digits of the exponent");
        s += n;
    }
    out->text = strndup(r->at, (size_t)(s - r->at));
    if (!out->text)
        return fail(r, "memory");
    out->type = ZR_NODE_NUMBER;
    out->number = strtod(out->text, NULL);
    r->at = s;
    return true;
}

static bool read_word(struct reader *r, const char *word, enum zr_node_type type,
                      struct zr_node *out)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
        return fail(r, "a value");
    r->at += n;
    out->type = type;
    return true;
}

static bool read_members(struct reader *r, struct zr_node *out, char close)
{
    size_t room = 0;

    skip_space(r);
    if (take(r, close))
        return true;
    do {
        if (out->n == room) {
            struct zr_node *more;
            room = room ? 2 * room : 4;
            more = reallocarray(out->child, room, sizeof(*more));
            if (!more)
                return fail(r, "memory");
            out->child = more;
        }
        struct zr_node *member = &out->child[out->n++];
        *member = (struct zr_node){.type = ZR_NODE_NULL};
        skip_space(r);
        if (close == '}') {
            if (!read_text(r, &member->key))
                return false;
            skip_space(r);
            if (!take(r, ':'))
                return fail(r, "':'");
        }
        if (!read_value(r, member))
            return false;
        skip_space(r);
    } while (take(r, ','));
    return take(r, close) || fail(r, close == '}' ? "',' or '}'" : "',' or ']'");
}

static bool read_value(struct reader *r, struct zr_node *out)
{
    skip_space(r);
    if (r->at == r->end)
        return fail(r, "a value");
    switch (*r->at) {
    case '{':
    case '[': {
        bool object = *r->at++ == '{', fine;
        out->type = object ? ZR_NODE_OBJECT : ZR_NODE_ARRAY;
        if (++r->depth > MAX_DEPTH)
            return fail(r, "less depth");
        fine = read_members(r, out, object ? '}' : ']');
        r->depth--;
        return fine;
    }
    case '"':
        out->type = ZR_NODE_TEXT;
        return read_text(r, &out->text);
    case 't':
        return read_word(r, "true", ZR_NODE_TRUE, out);
    case 'f':
        return read_word(r, "false", ZR_NODE_FALSE, out);
    case 'n':
        return read_word(r, "null", ZR_NODE_NULL, out);
    default:
        return read_number(r, out);
    }
}

static void clear(struct zr_node *v)
{
    for (size_t i = 0; i < v->n; i++)
        clear(&v->child[i]);
    free(v->child);
    free(v->key);
    free(v->text);
}

void zr_node_free(struct zr_node *root)
{
    if (root)
        clear(root);
    free(root);
}

struct zr_node *zr_node_parse(const char *text, size_t length, char **wrong)
{
    struct reader r = {.at = text, .end = text + length, .start = text};
    struct zr_node *root = calloc(1, sizeof(*root));

    *wrong = NULL;
    if (root && read_value(&r, root)) {
        skip_space(&r);
        if (r.at == r.end)
            return root;
        fail(&r, "nothing behind the value");
    }
    unsigned line = 1;
    for (const char *s = text; s < r.at; s++)
        line += *s == '\n';
    if (asprintf(wrong, "line %u: expected %s", line, r.expected ? r.expected : "memory") < 0)
        *wrong = NULL;
    zr_node_free(root);
    return NULL;
}

struct zr_node *zr_node_parse_file(const char *path, char **wrong)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t n = 0, room = 0, got;
    struct zr_node *root = NULL;

    *wrong = NULL;
    if (!f) {
        if (asprintf(wrong, "cannot be read: %s", strerror(errno)) < 0)
            *wrong = NULL;
        return NULL;
    }
    do {
        if (n == room) {
            room = room ? 2 * room : 65536;
            char *more = realloc(text, room);
            if (!more)
                break;
            text = more;
        }
        got = fread(text + n, 1, room - n, f);
        n += got;
    } while (got);
    if (ferror(f) || !text) {
        if (asprintf(wrong, "cannot be read: %s", strerror(errno)) < 0)
            *wrong = NULL;
    } else {
        root = zr_node_parse(text, n, wrong);
    }
    fclose(f);
    free(text);
    return root;
}

const struct zr_node *zr_node_get(const struct zr_node *object, const char *key)
{
    for (size_t i = object && object->type == ZR_NODE_OBJECT ? object->n : 0; i-- > 0;)
        if (!strcmp(object->child[i].key, key))
            return &object->child[i];
    return NULL;
}

const char *zr_node_text(const struct zr_node *object, const char *key)
{
    const struct zr_node *v = zr_node_get(object, key);

    return v && v->type == ZR_NODE_TEXT ? v->text : NULL;
}

double zr_node_number(const struct zr_node *object, const char *key)
{
    const struct zr_node *v = zr_node_get(object, key);

    return v && v->type == ZR_NODE_NUMBER ? v->number : NAN;
}

bool zr_node_true(const struct zr_node *object, const char *key)
{
    const struct zr_node *v = zr_node_get(object, key);

    return v && v->type == ZR_NODE_TRUE;
}
