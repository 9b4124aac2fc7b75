/* JSON documents, built and read with jansson. */
#include "common/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool zr_json_begun;

/* Adds under a key, or at the end of an array where key is NULL. jansson passes a failure on to what uses the result.
 */
static json_t *add(json_t *parent, const char *key, json_t *value) {
    char *name = key ? zr_harmless(key, ZR_FOR_JSON) : NULL;
    if (key ? json_object_set_new(parent, name, value) : json_array_append_new(parent, value))
        value = NULL;
    free(name);
    return value;
}

json_t *zr_json_object(json_t *parent, const char *key) {
    return add(parent, key, json_object());
}

json_t *zr_json_array(json_t *parent, const char *key) {
    return add(parent, key, json_array());
}

void zr_json_text(json_t *parent, const char *key, const char *text) {
    char *valid = text ? zr_harmless(text, ZR_FOR_JSON) : NULL;
    if (valid)
        add(parent, key, json_string_nocheck(valid));
    free(valid);
}

void zr_json_count(json_t *parent, const char *key, uint64_t n) {
    add(parent, key, n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n));
}

void zr_json_amount(json_t *parent, const char *key, uint64_t n) {
    if (n != ZR_ABSENT)
        zr_json_count(parent, key, n);
}

void zr_json_real(json_t *parent, const char *key, double d) {
    add(parent, key, isfinite(d) ? json_real(d) : json_null());
}

void zr_json_flag(json_t *parent, const char *key, bool b) {
    add(parent, key, json_boolean(b));
}

json_t *zr_json_document(int format) {
    json_t *document = json_object();
    zr_json_count(document, "format", (uint64_t)format);
    return document;
}

bool zr_json_write(FILE *out, json_t *document, unsigned digits, bool one_line) {
    size_t layout = one_line ? JSON_COMPACT : JSON_INDENT(2);
    zr_json_begun |= out == stdout;
    bool good = json_dumpf(document, out, layout | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits)) == 0;
    fputc('\n', out);
    json_decref(document);
    return good && !ferror(out);
}

json_t *zr_json_read(const char *path, char **why) {
    json_error_t error;
    errno = 0;
    json_t *root = json_load_file(path, 0, &error);
    *why = NULL;
    if (!root && (error.line > 0 ? asprintf(why, "line %d: %s", error.line, error.text)
                                 : asprintf(why, "cannot be read: %s", errno ? strerror(errno) : error.text)) < 0)
        *why = NULL;
    return root;
}

const char *zr_json_get_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

double zr_json_get_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

bool zr_json_get_flag(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key));
}
