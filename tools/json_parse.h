/* Reading JSON (RFC 8259) into a tree. Made for our own files and for hostile ones: depth is bounded. */
#ifndef ZEROUTE_JSON_PARSE_H
#define ZEROUTE_JSON_PARSE_H

#include <stdbool.h>
#include <stddef.h>

enum zr_json_type { ZR_JSON_NULL, ZR_JSON_FALSE, ZR_JSON_TRUE, ZR_JSON_NUMBER, ZR_JSON_TEXT,
                    ZR_JSON_ARRAY, ZR_JSON_OBJECT };

struct zr_json {
    enum zr_json_type type;
    char *key;  /* inside an object */
    char *text; /* of a text, and of a number as it was written */
    double number;
    struct zr_json *child; /* of an array or object, in order */
    size_t n;
};

/* NULL on bad input, with a message to be freed in *wrong that tells the line. Free with zr_json_free. */
struct zr_json *zr_json_parse(const char *text, size_t length, char **wrong);
struct zr_json *zr_json_parse_file(const char *path, char **wrong);
void zr_json_free(struct zr_json *root);

/* The last member of that name, or NULL; every one of these takes NULL for an object. */
const struct zr_json *zr_json_get(const struct zr_json *object, const char *key);
const char *zr_json_text(const struct zr_json *object, const char *key); /* NULL: not a text */
double zr_json_number(const struct zr_json *object, const char *key);    /* NaN: not a number */
bool zr_json_true(const struct zr_json *object, const char *key);

#endif
