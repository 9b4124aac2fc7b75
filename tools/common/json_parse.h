/* Reading JSON (RFC 8259) into a tree. Made for our own files and for hostile ones: depth is bounded. */
#ifndef ZEROUTE_JSON_PARSE_H
#define ZEROUTE_JSON_PARSE_H

#include <stdbool.h>
#include <stddef.h>

enum zr_node_type {
    ZR_NODE_NULL,
    ZR_NODE_FALSE,
    ZR_NODE_TRUE,
    ZR_NODE_NUMBER,
    ZR_NODE_TEXT,
    ZR_NODE_ARRAY,
    ZR_NODE_OBJECT
};

struct zr_node {
    enum zr_node_type type;
    char *key;  /* inside an object */
    char *text; /* of a text, and of a number as it was written */
    double number;
    struct zr_node *child; /* of an array or object, in order */
    size_t n;
};

/* NULL on bad input, with a message to be freed in *wrong that tells the line. Free with zr_node_free. */
struct zr_node *zr_node_parse(const char *text, size_t length, char **wrong);
struct zr_node *zr_node_parse_file(const char *path, char **wrong);
void zr_node_free(struct zr_node *root);

/* The last member of that name, or NULL; every one of these takes NULL for an object. */
const struct zr_node *zr_node_get(const struct zr_node *object, const char *key);
const char *zr_node_text(const struct zr_node *object, const char *key); /* NULL: not a text */
double zr_node_number(const struct zr_node *object, const char *key);    /* NaN: not a number */
bool zr_node_true(const struct zr_node *object, const char *key);

#endif
