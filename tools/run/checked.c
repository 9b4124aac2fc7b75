/*
 * What check found, at the end of a run: equal errors once, with the function, file and line of every frame and the
 * source line of the innermost one that is there. The program has printed each error as it came, by library and offset.
 */
#include "run/checked.h"
#include "common/common.h"
#include "report/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REPORTS = 10, MODULES = 64, SOURCE_MOST = 1 << 20, EACH_MODULE = 40 /* bits of address */ };

/* A published report: lines, the last of which names the libraries. */
struct error {
    const char *text;
    char *key;      /* kind and frames: equal for equal errors */
    unsigned times; /* 0: equal to an earlier one */
};

/* Libraries by name, each at an address of its own, so that a symbol is found as that of a recorded frame is. */
struct libraries {
    struct zr_module module[MODULES];
    char name[MODULES][64];
    size_t n;
};

static bool is_frame(const char *line) {
    return strncmp(line, "    #", 5) == 0;
}

static bool is_libraries(const char *line) {
    return strncmp(line, "  libraries ", 12) == 0;
}

static size_t line_length(const char *line) {
    return strcspn(line, "\n");
}

static const char *next_line(const char *line) {
    line += line_length(line);
    return line + (*line == '\n');
}

/* --- libraries -------------------------------------------------------------------------------------------------- */

static void add_library(struct libraries *l, const char *name, size_t name_size, const char *path, size_t path_size) {
    if (l->n == MODULES || name_size >= sizeof l->name[0])
        return;
    for (size_t i = 0; i < l->n; i++)
        if (strlen(l->name[i]) == name_size && strncmp(l->name[i], name, name_size) == 0)
            return;
    struct zr_module *m = &l->module[l->n];
    memcpy(l->name[l->n], name, name_size);
    m->start = m->bias = (uint64_t)(l->n + 1) << EACH_MODULE;
    m->end = m->start + (1ull << EACH_MODULE);
    m->path = strndup(path, path_size);
    if (m->path)
        l->n++;
}

/* "  libraries  name=/path name=/path" */
static void add_libraries(struct libraries *l, const char *line) {
    const char *end = line + line_length(line);

    line += strlen("  libraries ");
    while (line < end) {
        line += strspn(line, " ");
        size_t size = strcspn(line, " \n");
        const char *equals = memchr(line, '=', size);
        if (equals)
            add_library(l, line, (size_t)(equals - line), equals + 1, size - (size_t)(equals + 1 - line));
        line += size ? size : 1;
    }
}

/* --- lines of the source --------------------------------------------------------------------------------- */

/*
 * Opens a regular file alone: the name comes from a program's debug information, and may be anything. A name that is
 * relative there is so here.
 */
static FILE *open_source(const struct zr_symbol *symbol) {
    char path[4096];
    struct stat st;

    snprintf(path, sizeof path, "%s%s%s", symbol->folder ? symbol->folder : "", symbol->folder ? "/" : "",
             symbol->file);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0)
        close(fd);
    return f;
}

/* The line that a symbol names, without its indentation; NULL if it is not there. To be freed. */
static char *source_line(const struct zr_symbol *symbol) {
    uint32_t number = symbol->line;
    FILE *f = open_source(symbol);
    char *line = NULL;
    size_t room = 0, read = 0;
    ssize_t n = -1;

    for (uint32_t i = 0; f && i < number && read < SOURCE_MOST; i++) {
        n = getline(&line, &room, f);
        if (n < 0)
            break;
        read += (size_t)n;
    }
    if (f)
        fclose(f);
    if (n <= 0 || read >= SOURCE_MOST) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    char *text = strdup(line + strspn(line, " \t"));
    free(line);
    return text;
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

/* "    #1 name+0x3c2a" */
static bool find_symbol(struct zr_symbols *s, const struct libraries *l, const char *line, struct zr_symbol *out) {
    const char *name = line + 5 + strcspn(line + 5, " ");
    size_t length = line_length(line) - (size_t)(name - line);

    name += length > 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t size = strlen(l->name[i]);
        if (length > size + 1 && strncmp(name, l->name[i], size) == 0 && name[size] == '+') {
            uint64_t offset = strtoull(name + size + 1, NULL, 16);
            zr_symbol_of(s, l->module[i].bias + (offset & ((1ull << EACH_MODULE) - 1)), 0, out);
            return out->name || out->line;
        }
    }
    return false;
}

/* What the C library does before main is the same everywhere. */
static bool starts_a_process(struct zr_symbols *s, const struct libraries *l, const char *line) {
    struct zr_symbol symbol;

    return find_symbol(s, l, line, &symbol) && symbol.name &&
           (strncmp(symbol.name, "__libc_start", 12) == 0 || strcmp(symbol.name, "_start") == 0 ||
            strcmp(symbol.name, "start_thread") == 0 || strncmp(symbol.name, "clone", 5) == 0);
}

/* Prints a frame; true if its source line was shown. */
static bool print_frame(FILE *out, struct zr_symbols *s, const struct libraries *l, const char *line,
                        bool with_source) {
    struct zr_symbol symbol;
    char text[600];

    if (!find_symbol(s, l, line, &symbol)) {
        fprintf(out, "    %.*s\n", (int)line_length(line), line);
        return false;
    }
    struct zr_frame f = {.name = symbol.name ? symbol.name : "?",
                         .file = symbol.line ? symbol.file : symbol.library,
                         .line = symbol.line};
    fprintf(out, "        %.*s %s\n", (int)strcspn(line + 4, " "), line + 4,
            zr_shown(zr_frame_text(&f, text, sizeof text)));
    char *source = with_source && symbol.line ? source_line(&symbol) : NULL;
    if (source)
        fprintf(out, "             %u | %.60s\n", symbol.line, zr_shown(source));
    bool shown = source != NULL;
    free(source);
    return shown;
}

/* "  block      0x7f.., 4096 bytes of ..": the text behind the label is wrapped. */
static void print_line(FILE *out, const char *line) {
    enum { LABEL = 13, INDENT = 4 };
    size_t length = line_length(line);
    char *text = length > LABEL ? strndup(line + LABEL, length - LABEL) : NULL;

    fprintf(out, "%*s%.*s", INDENT, "", (int)(text ? LABEL : length), line);
    if (text)
        zr_text_wrap(out, INDENT + LABEL, 80, text);
    else
        fputc('\n', out);
    free(text);
}

static void print_error(FILE *out, struct zr_symbols *s, const struct libraries *l, const struct error *e,
                        unsigned number) {
    bool with_source = true;
    char times[32] = "", heading[512];

    if (e->times > 1)
        snprintf(times, sizeof times, " (%u times)", e->times);
    snprintf(heading, sizeof heading, "%.*s%s", (int)line_length(e->text), e->text, times);
    fprintf(out, "%3u. ", number);
    zr_text_wrap(out, 5, 80, heading);
    for (const char *line = next_line(e->text); *line; line = next_line(line)) {
        if (is_libraries(line))
            continue;
        if (is_frame(line)) {
            if (starts_a_process(s, l, line))
                continue;
            with_source = !print_frame(out, s, l, line, with_source) && with_source;
            continue;
        }
        with_source = true; /* another stack */
        print_line(out, line);
    }
}

/* --- equal errors ---------------------------------------------------------------------------------------- */

/* Kind and frames, without addresses, sizes and threads; frames by function and line if known. To be freed. */
static char *key_of(struct zr_symbols *s, const struct libraries *l, const char *text) {
    struct zr_symbol symbol;
    size_t size;
    char *key = NULL;
    FILE *f = open_memstream(&key, &size);

    if (!f)
        return NULL;
    fprintf(f, "%.*s", (int)strcspn(text, ":\n"), text);
    for (const char *line = text; *line; line = next_line(line)) {
        if (!is_frame(line))
            continue;
        if (find_symbol(s, l, line, &symbol) && symbol.name)
            fprintf(f, ";%s:%u", symbol.name, symbol.line);
        else
            fprintf(f, ";%.*s", (int)line_length(line), line);
    }
    fclose(f);
    return key;
}

static size_t collect(struct zeroute_snapshot *const *s, size_t count, struct error *e, size_t most) {
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        for (unsigned k = 1; k <= REPORTS && n < most; k++) {
            char name[32];

            snprintf(name, sizeof name, "check.error.%u", k);
            const struct zeroute_field *f = zeroute_find(s[i], name);
            if (f && f->text && *f->text)
                e[n++] = (struct error){f->text, NULL, 1};
        }
    return n;
}

static void count_equal(struct zr_symbols *s, const struct libraries *l, struct error *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        e[i].key = key_of(s, l, e[i].text);
        for (size_t j = 0; j < i && e[i].times && e[i].key; j++)
            if (e[j].times && e[j].key && strcmp(e[j].key, e[i].key) == 0) {
                e[j].times++;
                e[i].times = 0;
            }
    }
}

unsigned zr_checked_print(FILE *out, struct zeroute_snapshot *const *s, size_t count) {
    size_t most = count * REPORTS, n;
    unsigned shown = 0, places = 0;
    struct error *e = calloc(most + 1, sizeof *e);
    struct libraries *l = calloc(1, sizeof *l);
    struct zr_record r = {0};

    if (!e || !l) {
        free(e);
        free(l);
        return 0;
    }
    n = collect(s, count, e, most);
    for (size_t i = 0; i < n; i++)
        for (const char *line = e[i].text; *line; line = next_line(line))
            if (is_libraries(line))
                add_libraries(l, line);
    r.module = l->module;
    r.modules = l->n;
    struct zr_symbols *symbols = zr_symbols_new(&r, "", false, NULL);
    if (symbols)
        count_equal(symbols, l, e, n);
    if (n && symbols)
        fputs("\nzeroute: check found, with lines where there is debug information:\n", out);
    for (size_t i = 0; i < n; i++) {
        if (e[i].times && symbols)
            print_error(out, symbols, l, &e[i], ++shown);
        places += e[i].times && strncmp(e[i].text, "leak:", 5) != 0;
        free(e[i].key);
    }
    zr_symbols_free(symbols);
    for (size_t i = 0; i < l->n; i++)
        free((char *)(uintptr_t)l->module[i].path);
    free(l);
    free(e);
    return places;
}
