/* zeroute serve: metrics, a page and JSON for others, or a file for node_exporter's collector. */
#include "watch/serve.h"
#include "stat/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LISTEN = ZR_LONG, TOKEN, ANYBODY, TEXTFILE, INTERVAL, PER_PROCESS, ONCE };
enum { HISTORY_NS = 1000000000, HISTORY_OF_SECONDS = 10, GC_EVERY_SECONDS = 60 };

struct options {
    const char *listen, *token_file, *textfile;
    bool anybody, per_process, once;
    double interval;
};

static const struct zr_option option_table[] = {
    {LISTEN, "listen", "ADDRESS:PORT", "where to listen (default 127.0.0.1:9877; port 0: any that is free)"},
    {TOKEN, "token-file", "FILE", "ask for the token in FILE, as a bearer token or a password"},
    {ANYBODY, "allow-unauthenticated", NULL, "listen on other addresses without a token"},
    {TEXTFILE, "textfile", "DIR",
     "write DIR/zeroute.prom for node_exporter's textfile collector; listens only if --listen is given, too"},
    {INTERVAL, "interval", "SECONDS", "time between two looks at the processes (default 5)"},
    {PER_PROCESS, "per-process", NULL, "series for each process (labels pid, uid, command)"},
    {ONCE, "once", NULL, "with --textfile: write it once and exit"},
    {0},
};

static const struct zr_command command = {
    .name = "serve",
    .usage = "zeroute serve [--listen ADDRESS:PORT] [--token-file FILE] [OPTIONS]\n"
             "zeroute serve --textfile DIR [--once] [OPTIONS]",
    .about =
        "Serves the figures of cards, jobs and processes under zeroute on this machine: / is a live page, "
        "/metrics is for Prometheus, /api/v1/machine and /api/v1/processes/PID are JSON. Read-only. Other addresses "
        "than those of the machine itself need a token, or --allow-unauthenticated.",
    .options = option_table,
    .notes = "Exit code: 0 ended by a signal or done, 2 an error or wrong usage.\n",
    .operands = "none",
    .examples = "zeroute serve\n"
                "zeroute serve --listen 0.0.0.0:9877 --token-file /etc/zeroute/token\n"
                "zeroute serve --textfile /var/lib/prometheus/node-exporter",
};

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

uint64_t zr_serve_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool zr_serve_sample(struct zr_serve *s, uint64_t at_least_ns) {
    uint64_t now = zr_serve_clock();
    if (s->sampled_ns && now - s->sampled_ns < at_least_ns)
        return true;
    zr_http_drop_pages(s);
    bool good = zr_view_sample(s->model);
    s->sampled_ns = zr_serve_clock();
    return good;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    switch (option->id) {
    case LISTEN:
        o->listen = value;
        return true;
    case TOKEN:
        o->token_file = value;
        return true;
    case ANYBODY:
        return o->anybody = true;
    case TEXTFILE:
        o->textfile = value;
        return true;
    case INTERVAL:
        return zr_option_real(&command, option, value, 0.2, &o->interval);
    case PER_PROCESS:
        return o->per_process = true;
    default:
        return o->once = true;
    }
}

/* A whole file at once: readers see the old one or the new one. */
static bool write_textfile(const struct zr_serve *s, const char *folder) {
    char path[4096];
    struct zr_publish to;
    FILE *f;

    snprintf(path, sizeof path, "%.4000s/zeroute.prom", folder);
    f = zr_publish_open(&to, "serve", path);
    if (!f)
        return false;
    zr_exposition(f, s->model);
    fchmod(fileno(f), 0644); /* node_exporter is another user */
    return zr_publish_close(&to, true);
}

static int loop(struct zr_serve *s, const struct options *o) {
    uint64_t gc = zr_serve_clock(), written = 0;
    bool good = true;
    zr_gc_old();
    do {
        good = zr_serve_sample(s, s->interval_ns) && good;
        if (o->textfile && written != s->sampled_ns) {
            if (!write_textfile(s, o->textfile) && (o->once || !written))
                return ZR_EXIT_ERROR; /* a folder that cannot be written from the beginning is a mistake */
            written = s->sampled_ns;
        }
        if (zr_serve_clock() - gc > GC_EVERY_SECONDS * UINT64_C(1000000000)) {
            zr_gc_old();
            gc = zr_serve_clock();
        }
        uint64_t since = zr_serve_clock() - s->sampled_ns;
        int wait_ms = since < s->interval_ns ? (int)((s->interval_ns - since) / 1000000) + 1 : 0;
        if (s->daemon)
            zr_http_run(s, wait_ms);
        else if (!o->once)
            nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L}, NULL);
    } while (!stopped && !o->once && good);
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
}

/* Who may ask from where; false, said, where the two do not go together. */
static bool prepare(struct zr_serve *s, const struct options *o) {
    if (!zr_listen_parse(o->listen ? o->listen : "127.0.0.1:9877", s)) {
        zr_wrong(&command, "bad value of --listen: expected ADDRESS:PORT, such as 127.0.0.1:9877 or [::1]:9877");
        return false;
    }
    if (o->token_file && !(s->token = zr_token_read(o->token_file)))
        return false;
    s->anybody = o->anybody;
    if (!s->loopback && !s->token && !s->anybody) {
        zr_wrong(&command, "--listen names an address that others can reach: expected --token-file FILE, or "
                           "--allow-unauthenticated");
        return false;
    }
    return true;
}

static void announce(const struct zr_serve *s, const struct options *o) {
    const char *at = o->listen ? o->listen : "127.0.0.1:9877", *colon = strrchr(at, ':');
    printf("zeroute serve: http://%.*s:%u/ (metrics: /metrics)\n", colon == at ? 7 : (int)(colon - at),
           colon == at ? "0.0.0.0" : at, zr_http_port(s));
    fflush(stdout);
}

int zr_cmd_serve(int argc, char **argv) {
    struct options o = {.interval = 5};
    struct zr_serve s = {0};
    struct sigaction end = {.sa_handler = stop}, ignore = {.sa_handler = SIG_IGN};
    int at, code = ZR_EXIT_ERROR;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (o.once && !o.textfile)
        return zr_wrong(&command, "--once without --textfile: expected both");
    if (!prepare(&s, &o))
        return ZR_EXIT_ERROR;
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    s.interval_ns = (uint64_t)(o.interval < 3600 ? o.interval * 1e9 : 3600e9);
    s.model = zr_view_new(&(struct zr_scope){.history_ns = HISTORY_NS * (uint64_t)HISTORY_OF_SECONDS,
                                             .metrics = true,
                                             .per_process = o.per_process,
                                             .all_at_once = o.once});
    bool listens = !o.textfile || o.listen;
    if (s.model && (!listens || zr_http_start(&s))) {
        if (listens)
            announce(&s, &o);
        code = loop(&s, &o);
    }
    zr_http_stop(&s);
    zr_view_free(s.model);
    free(s.token);
    return code;
}
