/* zeroute serve: what its files share. */
#ifndef ZEROUTE_TOOLS_WATCH_SERVE_H
#define ZEROUTE_TOOLS_WATCH_SERVE_H

#include "view/view.h"

#include <netinet/in.h>

struct MHD_Daemon;
struct MHD_Response;

/* Answers that are the same for everybody until the next sample. */
enum zr_page { ZR_PAGE_METRICS, ZR_PAGE_MACHINE, ZR_PAGES };

struct zr_serve {
    struct zr_view *model;
    uint64_t interval_ns, sampled_ns; /* CLOCK_MONOTONIC */
    char *token;                      /* NULL: none is asked for */
    bool anybody;                     /* --allow-unauthenticated */
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t address_size;
    bool loopback;
    struct MHD_Daemon *daemon;
    struct MHD_Response *page[ZR_PAGES];
};

/* Looks at the machine unless that was done within this time, and drops the pages of the last look. */
bool zr_serve_sample(struct zr_serve *s, uint64_t at_least_ns);
uint64_t zr_serve_clock(void);

/* --- http.c ------------------------------------------------------------------------------------------ */
/* Begins to listen. Reports it and returns false if that is not possible. */
bool zr_http_start(struct zr_serve *s);
void zr_http_stop(struct zr_serve *s);
/* Answers pending requests, or waits for this many milliseconds. */
void zr_http_run(struct zr_serve *s, int wait_ms);
unsigned zr_http_port(const struct zr_serve *s);
void zr_http_drop_pages(struct zr_serve *s);

/* --- listen.c ------------------------------------------------------------------------------------------ */
/* "127.0.0.1:9877", "[::1]:9877", ":9877" (all addresses). False if it is none of these. */
bool zr_listen_parse(const char *text, struct zr_serve *s);
/* The first line of a file that only its owner may read. NULL, said, if it is none. To be freed. */
char *zr_token_read(const char *path);

#endif
