/*
 * The HTTP side of zeroute serve, by libmicrohttpd in one thread: read-only, a few paths, bounded connections. Pages
 * are made once per sample and shared by all connections, so that a slow client costs a descriptor and nothing else.
 */
#include "watch/serve.h"

#ifndef ZR_WITHOUT_HTTP
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CLIENTS = 64, IDLE_SECONDS = 10, REQUEST_BYTES = 16384, FRESH_NS = 900000000 };

extern const char zr_part_watch_html[], zr_part_watch_css[], zr_part_watch_js[];

/* --- answers --------------------------------------------------------------------------------------------- */

static struct MHD_Response *response_of(const char *text, size_t size, const char *type) {
    struct MHD_Response *r = MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return NULL;
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "X-Frame-Options", "DENY");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'");
    return r;
}

static enum MHD_Result send_and_drop(struct MHD_Connection *c, unsigned code, struct MHD_Response *r) {
    enum MHD_Result result;
    if (!r)
        return MHD_NO;
    result = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned code, const char *text) {
    struct MHD_Response *r = response_of(text, strlen(text), "text/plain; charset=utf-8");
    if (r && code == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, "WWW-Authenticate", "Basic realm=\"zeroute\", charset=\"UTF-8\"");
    if (r && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", "GET, HEAD");
    return send_and_drop(c, code, r);
}

static struct MHD_Response *json_response(json_t *document) {
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(ZR_JSON_DIGITS)) : NULL;
    struct MHD_Response *r = text ? response_of(text, strlen(text), "application/json") : NULL;
    free(text);
    json_decref(document);
    return r;
}

static struct MHD_Response *metrics_response(const struct zr_view *m) {
    char *text = NULL;
    size_t size = 0;
    struct MHD_Response *r = NULL;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    zr_exposition(f, m);
    if (fclose(f) == 0)
        r = response_of(text, size, "text/plain; version=0.0.4; charset=utf-8");
    free(text);
    return r;
}

/* The page, with its style and its script in their places. */
static struct MHD_Response *whole_page(void) {
    static const struct {
        const char *place, *part;
    } parts[] = {{"@STYLE@", zr_part_watch_css}, {"@SCRIPT@", zr_part_watch_js}};
    const char *rest = zr_part_watch_html;
    char *text = NULL;
    size_t size = 0;
    struct MHD_Response *r = NULL;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(rest, parts[i].place);
        fprintf(f, "%.*s%s", (int)(at - rest), rest, parts[i].part);
        rest = at + strlen(parts[i].place);
    }
    fputs(rest, f);
    if (fclose(f) == 0)
        r = response_of(text, size, "text/html; charset=utf-8");
    free(text);
    return r;
}

/* Made at the first request after a sample, and kept until the next. */
static enum MHD_Result send_page(struct zr_serve *s, struct MHD_Connection *c, enum zr_page which) {
    if (!zr_serve_sample(s, FRESH_NS))
        return say(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    if (!s->page[which])
        s->page[which] = which == ZR_PAGE_METRICS
                             ? metrics_response(s->model)
                             : json_response(zr_view_json(
                                   s->model, (struct zr_json_parts){.histories = true, .machine = true, .jobs = true}));
    return s->page[which] ? MHD_queue_response(c, MHD_HTTP_OK, s->page[which]) : MHD_NO;
}

void zr_http_drop_pages(struct zr_serve *s) {
    for (int i = 0; i < ZR_PAGES; i++)
        if (s->page[i]) {
            MHD_destroy_response(s->page[i]);
            s->page[i] = NULL;
        }
}

static enum MHD_Result send_process(struct zr_serve *s, struct MHD_Connection *c, const char *number) {
    char *end;
    unsigned long pid = strtoul(number, &end, 10);
    json_t *document =
        *number >= '1' && *number <= '9' && !*end && pid <= 4194304 ? zr_view_json_of(s->model, (int)pid) : NULL;
    if (!document)
        return say(c, MHD_HTTP_NOT_FOUND, "no running process of that number is under zeroute\n");
    return send_and_drop(c, MHD_HTTP_OK, json_response(document));
}

/* --- who may ask --------------------------------------------------------------------------------------------- */

/* Takes as long for a wrong token as for the right one. */
static bool is_token(const struct zr_serve *s, const char *given) {
    size_t n = strlen(s->token), length = strlen(given);
    unsigned char differ = n != length;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(s->token[i] ^ given[length ? i % length : 0]);
    return !differ;
}

static bool shows_token(const struct zr_serve *s, struct MHD_Connection *c) {
    const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    char *user, *password = NULL;
    bool good;
    if (header && strncasecmp(header, "Bearer ", 7) == 0)
        return is_token(s, header + 7);
    user = header ? MHD_basic_auth_get_username_password(c, &password) : NULL;
    good = user && password && is_token(s, password);
    MHD_free(user);
    MHD_free(password);
    return good;
}

static bool is_end(char c) {
    return !c || c == ':';
}

/* A page of another site must not read this one through a name that it makes point here. */
static bool names_this_machine(struct MHD_Connection *c) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && is_end(host[n]))
            return true;
    }
    return !host || (strncmp(host, "127.", 4) == 0 && is_end(host[strspn(host, "0123456789.")]));
}

static enum MHD_Result answer(struct zr_serve *s, struct MHD_Connection *c, const char *url) {
    if (strcmp(url, "/") == 0)
        return send_and_drop(c, MHD_HTTP_OK, whole_page());
    if (strcmp(url, "/metrics") == 0)
        return send_page(s, c, ZR_PAGE_METRICS);
    if (strcmp(url, "/api/v1/machine") == 0)
        return send_page(s, c, ZR_PAGE_MACHINE);
    if (strncmp(url, "/api/v1/processes/", 18) == 0)
        return send_process(s, c, url + 18);
    return say(c, MHD_HTTP_NOT_FOUND, "not found: expected /, /metrics, /api/v1/machine or /api/v1/processes/PID\n");
}

static enum MHD_Result handle(void *closure, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state) {
    struct zr_serve *s = closure;
    static int begun;
    (void)version;
    (void)data;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) /* before a body is read */
        return *state ? MHD_NO : say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "read-only: expected GET\n");
    if (!*state) {
        *state = &begun;
        return MHD_YES;
    }
    *size = 0;
    if (strcmp(url, "/healthz") == 0)
        return say(c, MHD_HTTP_OK, "ok\n");
    if (s->token && !shows_token(s, c))
        return say(c, MHD_HTTP_UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN\n");
    if (!s->token && !s->anybody && !names_this_machine(c))
        return say(c, MHD_HTTP_FORBIDDEN, "this server answers to the names of this machine only\n");
    return answer(s, c, url);
}

/* --- clients ---------------------------------------------------------------------------------------------------- */

/*
 * The connected clients. Beyond CLIENTS, the one that has waited longest for an answer is cut off: one that asks
 * byte by byte, or not at all, keeps nobody else out.
 */
static struct client {
    int fd;         /* -1: cut off, and not yet closed */
    uint64_t since; /* CLOCK_MONOTONIC: connected, or got its last answer; 0: a free place */
} client[2 * CLIENTS];

static void cut_off_one(void) {
    struct client *oldest = NULL;
    unsigned count = 0;
    for (struct client *c = client; c < client + sizeof client / sizeof *client; c++) {
        if (!c->since || c->fd < 0)
            continue;
        count++;
        if (!oldest || c->since < oldest->since)
            oldest = c;
    }
    if (count <= CLIENTS)
        return;
    shutdown(oldest->fd, SHUT_RDWR); /* the daemon closes it */
    oldest->fd = -1;
}

static void comes_or_goes(void *closure, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct client *c = *context;
    (void)closure;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c)
            c->since = 0;
        return;
    }
    for (c = client; c < client + sizeof client / sizeof *client && c->since; c++)
        ;
    if (c == client + sizeof client / sizeof *client || !info)
        return; /* cannot be: the daemon has no more connections */
    *c = (struct client){info->connect_fd, zr_serve_clock()};
    *context = c;
    cut_off_one();
}

static void is_answered(void *closure, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode how) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *c = info ? info->socket_context : NULL;
    (void)closure;
    (void)state;
    if (c && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        c->since = zr_serve_clock();
}

/* --- the daemon ------------------------------------------------------------------------------------------------- */

bool zr_http_start(struct zr_serve *s) {
    unsigned flags = MHD_USE_EPOLL | (s->address.any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, &s->address.any, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(2 * CLIENTS), MHD_OPTION_NOTIFY_CONNECTION, comes_or_goes, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        is_answered, NULL, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
    if (!s->daemon)
        zr_complain("serve", "cannot listen there: %s", strerror(errno));
    return s->daemon != NULL;
}

unsigned zr_http_port(const struct zr_serve *s) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

void zr_http_run(struct zr_serve *s, int wait_ms) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd p = {.fd = info ? info->epoll_fd : -1, .events = POLLIN};
    MHD_UNSIGNED_LONG_LONG timeout;
    if (MHD_get_timeout(s->daemon, &timeout) == MHD_YES && timeout < (unsigned)wait_ms)
        wait_ms = (int)timeout;
    poll(&p, 1, wait_ms);
    MHD_run(s->daemon);
}

void zr_http_stop(struct zr_serve *s) {
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    zr_http_drop_pages(s);
}
#else /* a build for other machines: see PORTABLE in the Makefile */
bool zr_http_start(struct zr_serve *s) {
    (void)s;
    zr_complain("serve",
                "this build cannot listen: it has no libmicrohttpd; use --textfile DIR, or a package that has it");
    return false;
}

void zr_http_stop(struct zr_serve *s) {
    (void)s;
}

void zr_http_run(struct zr_serve *s, int wait_ms) {
    (void)s;
    (void)wait_ms;
}

unsigned zr_http_port(const struct zr_serve *s) {
    (void)s;
    return 0;
}

void zr_http_drop_pages(struct zr_serve *s) {
    (void)s;
}
#endif
