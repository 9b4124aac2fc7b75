/*
 * A record is read twice: once for what events refer to (stacks, modules, texts) and to count the events, once to merge
 * the events of all threads by time. Nothing in the file is trusted: sizes are checked where they are used, and what
 * cannot be read is counted and skipped.
 */
#include "common/common.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_MOST = 1 << 20,
    STACK_IDS = 1 << 24, /* ids are looked up in an array */
    THREADS_MOST = 65535,
    CURSORS_MOST = 1 << 30 /* bytes of chunks in memory while threads are merged */
};

#define TIME_MOST ((uint64_t)1 << 62) /* a century and more: sums of times stay in range */

struct chunk {
    uint32_t thread;
    uint64_t sequence, offset, used;
};

/* A definition on its way into the record: what is known only when all chunks have been seen is counted first. */
struct load {
    struct zr_record *r;
    int fd;
    uint64_t file_size;
    struct chunk *chunk;
    size_t chunks, chunk_room;
    size_t stack_room, code_room, module_room, thread_room, mark_room, host_room;
    uint32_t *stack_of; /* id to index */
    uint32_t stack_ids;
    uint64_t events;
    bool no_memory;
};

/* Room for one more element. */
static bool room(struct load *l, void *array, size_t *have, size_t used, size_t each) {
    bool got = zr_room(array, have, used, each);
    l->no_memory = l->no_memory || !got;
    return got;
}

static bool read_at(const struct load *l, void *to, size_t size, uint64_t offset) {
    char *at = to;

    while (size) {
        ssize_t n = pread(l->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

/* --- the header and the chunks --------------------------------------------------------------------------- */

static bool read_header(struct load *l, char *why, size_t size) {
    struct zeroute_record_header *h = &l->r->header;

    if (l->file_size < sizeof *h || !read_at(l, h, sizeof *h, 0) || h->magic != ZEROUTE_RECORD_MAGIC) {
        snprintf(why, size, "is not a record: expected a file that 'zeroute record' wrote");
        return false;
    }
    if (h->major > ZEROUTE_RECORD_MAJOR) {
        snprintf(
            why, size,
            "has format %u.%u, written by zeroute %.16s; this zeroute (%s) reads formats up to %u: use a newer one",
            h->major, h->minor, zr_shown(h->version), ZEROUTE_VERSION, ZEROUTE_RECORD_MAJOR);
        return false;
    }
    if (h->major == 0 || h->header_size < sizeof *h || h->header_size > HEADER_MOST || h->header_size % 8 != 0 ||
        h->chunk_size < ZEROUTE_RECORD_CHUNK_LEAST || h->chunk_size > ZEROUTE_RECORD_CHUNK_MOST ||
        h->chunk_size % 8 != 0) {
        snprintf(why, size, "is damaged: the sizes in its header are impossible");
        return false;
    }
    h->version[sizeof h->version - 1] = '\0';
    h->run_id[sizeof h->run_id - 1] = '\0';
    return true;
}

static int in_order_of_threads(const void *a, const void *b) {
    const struct chunk *x = a, *y = b;

    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Holes of a sparse file are skipped: they cost nothing. */
static bool find_chunks(struct load *l) {
    uint64_t size = l->r->header.chunk_size;

    for (uint64_t at = l->r->header.header_size; at + sizeof(struct zeroute_record_chunk) <= l->file_size; at += size) {
        struct zeroute_record_chunk c;
        off_t data = lseek(l->fd, (off_t)at, SEEK_DATA);

        if (data < 0 && errno == ENXIO)
            break;
        if (data > 0 && (uint64_t)data >= at + size)
            at += ((uint64_t)data - at) / size * size;
        if (!read_at(l, &c, sizeof c, at))
            break;
        if (c.magic == 0)
            continue;
        if (c.magic != ZEROUTE_CHUNK_MAGIC || c.used < sizeof c || c.used > size) {
            l->r->damaged++;
            continue;
        }
        if (!room(l, &l->chunk, &l->chunk_room, l->chunks, sizeof *l->chunk))
            return false;
        l->chunk[l->chunks++] =
            (struct chunk){c.thread, c.sequence, at, at + c.used > l->file_size ? l->file_size - at : c.used};
    }
    if (l->chunks)
        qsort(l->chunk, l->chunks, sizeof *l->chunk, in_order_of_threads);
    return true;
}

/* --- what events refer to --------------------------------------------------------------------------------- */

static void take_stack(struct load *l, const char *at, size_t size) {
    struct zeroute_record_stack s;
    struct zr_record *r = l->r;

    memcpy(&s, at, sizeof s);
    size_t native = s.native * sizeof(uint64_t), python = s.python * sizeof(struct zeroute_record_python);
    if (s.native > ZEROUTE_RECORD_NATIVE_MOST || s.python > ZEROUTE_RECORD_PYTHON_MOST ||
        size < sizeof s + native + python || s.head.id == 0 || s.head.id >= STACK_IDS) {
        r->damaged++;
        return;
    }
    if (!room(l, &r->stack, &l->stack_room, r->stacks, sizeof *r->stack))
        return;
    char *frames = zr_arena_get(r->arena, native + python + 8);
    if (!frames) {
        l->no_memory = true;
        return;
    }
    memcpy(frames, at + sizeof s, native + python);
    r->stack[r->stacks++] = (struct zr_call_stack){.time = s.time,
                                                   .id = s.head.id,
                                                   .native = s.native,
                                                   .python = s.python,
                                                   .cut = s.native_cut || s.python_cut,
                                                   .address = (const void *)frames,
                                                   .frame = (const void *)(frames + native)};
    if (s.head.id >= l->stack_ids)
        l->stack_ids = s.head.id + 1;
}

static void take_code(struct load *l, const char *at, size_t size) {
    struct zeroute_record_code c;
    struct zr_record *r = l->r;

    memcpy(&c, at, sizeof c);
    if (c.table_size > ZEROUTE_RECORD_TEXT_MOST || c.file_size > ZEROUTE_RECORD_TEXT_MOST ||
        c.name_size > ZEROUTE_RECORD_TEXT_MOST || size < sizeof c + c.file_size + c.name_size + c.table_size ||
        c.head.id == 0) {
        r->damaged++;
        return;
    }
    at += sizeof c;
    char *file = zr_arena_text(r->arena, at, c.file_size);
    char *name = zr_arena_text(r->arena, at + c.file_size, c.name_size);
    char *table = zr_arena_text(r->arena, at + c.file_size + c.name_size, c.table_size);
    if (!file || !name || !table || !room(l, &r->code, &l->code_room, r->codes, sizeof *r->code)) {
        l->no_memory = true;
        return;
    }
    r->code[r->codes++] = (struct zr_code){c.head.id, c.first_line, file, name, (const uint8_t *)table, c.table_size};
}

static void take_module(struct load *l, const char *at, size_t size) {
    struct zeroute_record_module m;
    struct zr_record *r = l->r;

    memcpy(&m, at, sizeof m);
    size_t left = size - sizeof m, length = strnlen(at + sizeof m, left);
    if (m.start >= m.end || m.build_id_size > sizeof m.build_id || length == left ||
        length > ZEROUTE_RECORD_TEXT_MOST) {
        r->damaged++;
        return;
    }
    char *path = zr_arena_text(r->arena, at + sizeof m, length);
    if (!path || !room(l, &r->module, &l->module_room, r->modules, sizeof *r->module)) {
        l->no_memory = true;
        return;
    }
    struct zr_module *to = &r->module[r->modules++];
    *to = (struct zr_module){m.time, m.start, m.end, m.bias, m.build_id_size, {0}, path};
    memcpy(to->build_id, m.build_id, m.build_id_size);
}

static void take_thread(struct load *l, const char *at) {
    struct zeroute_record_thread t;
    struct zr_record *r = l->r;

    memcpy(&t, at, sizeof t);
    if (!room(l, &r->thread, &l->thread_room, r->threads, sizeof *r->thread))
        return;
    struct zr_thread *to = &r->thread[r->threads++];
    to->number = t.head.id;
    to->tid = t.tid;
    memcpy(to->name, t.name, sizeof t.name);
    to->name[sizeof t.name] = '\0';
}

static void take_text(struct load *l, const char *at, size_t size) {
    struct zeroute_record_text t;
    struct zr_record *r = l->r;

    memcpy(&t, at, sizeof t);
    if (t.size > ZEROUTE_RECORD_TEXT_MOST || size < sizeof t + t.size) {
        r->damaged++;
        return;
    }
    if (t.head.id == 0 || t.head.id > ZEROUTE_TEXT_PYTHON || r->text[t.head.id])
        return; /* of a newer minor version, or said already */
    r->text[t.head.id] = zr_arena_text(r->arena, at + sizeof t, t.size);
    r->text_size[t.head.id] = t.size;
    l->no_memory = l->no_memory || !r->text[t.head.id];
}

static void take_host(struct load *l, const char *at) {
    struct zeroute_record_host h;
    struct zr_record *r = l->r;
    uint64_t start = r->header.start_time;

    memcpy(&h, at, sizeof h);
    if (room(l, &r->host, &l->host_room, r->hosts, sizeof *r->host))
        r->host[r->hosts++] = (struct zr_host_sample){h.time > start ? h.time - start : 0, h.available, h.gpu_active};
}

/* A definition must be as large as its structure at least; others are of a newer minor version. */
static void take(struct load *l, const struct zeroute_record_head *head, const char *at, size_t size) {
    static const struct {
        uint16_t type;
        uint16_t least;
    } known[] = {{ZEROUTE_RECORD_STACK, sizeof(struct zeroute_record_stack)},
                 {ZEROUTE_RECORD_CODE, sizeof(struct zeroute_record_code)},
                 {ZEROUTE_RECORD_MODULE, sizeof(struct zeroute_record_module)},
                 {ZEROUTE_RECORD_THREAD, sizeof(struct zeroute_record_thread)},
                 {ZEROUTE_RECORD_CARD, sizeof(struct zeroute_record_card)},
                 {ZEROUTE_RECORD_TEXT, sizeof(struct zeroute_record_text)},
                 {ZEROUTE_RECORD_HOST, sizeof(struct zeroute_record_host)}};
    struct zeroute_record_card card;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == head->type && size < known[i].least) {
            l->r->damaged++;
            return;
        }
    switch (head->type) {
    case ZEROUTE_RECORD_STACK:
        take_stack(l, at, size);
        break;
    case ZEROUTE_RECORD_CODE:
        take_code(l, at, size);
        break;
    case ZEROUTE_RECORD_MODULE:
        take_module(l, at, size);
        break;
    case ZEROUTE_RECORD_THREAD:
        take_thread(l, at);
        break;
    case ZEROUTE_RECORD_CARD:
        memcpy(&card, at, sizeof card);
        if (card.head.id < ZEROUTE_RECORD_NO_CARD) {
            l->r->card_seen[card.head.id] = true;
            l->r->card_memory[card.head.id] = card.memory;
        }
        break;
    case ZEROUTE_RECORD_TEXT:
        take_text(l, at, size);
        break;
    case ZEROUTE_RECORD_HOST:
        take_host(l, at);
        break;
    default:
        break;
    }
}

static bool is_event(unsigned type) {
    return type >= ZEROUTE_EVENT_ALLOC && type < ZEROUTE_EVENTS;
}

/* The record at *at of a chunk's `used` bytes; false at its end, or where it is damaged. */
static bool next_record(struct zr_record *r, const char *data, uint64_t used, uint64_t *at,
                        struct zeroute_record_head *head, size_t *size) {
    if (*at + sizeof *head > used)
        return false;
    memcpy(head, data + *at, sizeof *head);
    *size = (size_t)head->words * 8;
    if (*size < sizeof *head || *size > used - *at ||
        (is_event(head->type) && *size < sizeof(struct zeroute_record_event))) {
        r->damaged++;
        return false;
    }
    return true;
}

static bool read_definitions(struct load *l) {
    char *data = calloc(1, l->r->header.chunk_size);

    if (!data)
        return false;
    for (size_t i = 0; i < l->chunks && !l->no_memory; i++) {
        struct zeroute_record_head head;
        uint64_t at = sizeof(struct zeroute_record_chunk);
        size_t size;

        if (!read_at(l, data, l->chunk[i].used, l->chunk[i].offset)) {
            l->r->damaged++;
            l->chunk[i].used = 0;
            continue;
        }
        for (; next_record(l->r, data, l->chunk[i].used, &at, &head, &size); at += size) {
            if (is_event(head.type))
                l->events++;
            else
                take(l, &head, data + at, size);
        }
        l->chunk[i].used = at; /* nothing behind it can be read */
    }
    free(data);
    return !l->no_memory;
}

static int by_id_of_code(const void *a, const void *b) {
    const struct zr_code *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_time_of_module(const void *a, const void *b) {
    const struct zr_module *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

static bool index_definitions(struct load *l) {
    struct zr_record *r = l->r;

    if (r->codes)
        qsort(r->code, r->codes, sizeof *r->code, by_id_of_code);
    if (r->modules)
        qsort(r->module, r->modules, sizeof *r->module, by_time_of_module);
    l->stack_of = calloc(l->stack_ids + 1, sizeof *l->stack_of);
    if (!l->stack_of)
        return false;
    for (uint32_t i = r->stacks; i-- > 1;) /* the first of an id counts */
        l->stack_of[r->stack[i].id] = i;
    return true;
}

/* --- the merge ---------------------------------------------------------------------------------------------- */

/* One thread's next event. */
struct cursor {
    size_t chunk, end; /* chunks of this thread */
    char *data;
    uint64_t at, used;
    uint64_t time; /* of the event at `at`: never before the one in front of it */
    bool ends;     /* the event ends something: first among equals */
    uint16_t thread;
};

static void load_chunk(struct load *l, struct cursor *c) {
    const struct chunk *from = &l->chunk[c->chunk];

    c->at = sizeof(struct zeroute_record_chunk);
    c->used = from->used;
    if (c->used <= c->at || !read_at(l, c->data, c->used, from->offset))
        c->used = 0;
}

/* Moves to the next event; false: there is none. */
static bool advance(struct load *l, struct cursor *c, bool first) {
    struct zeroute_record_head head;
    struct zeroute_record_event e;
    size_t size;

    if (first)
        load_chunk(l, c);
    else if (next_record(l->r, c->data, c->used, &c->at, &head, &size))
        c->at += size;
    for (;;) {
        if (!next_record(l->r, c->data, c->used, &c->at, &head, &size)) {
            if (++c->chunk >= c->end)
                return false;
            load_chunk(l, c);
        } else if (!is_event(head.type)) {
            c->at += size;
        } else {
            memcpy(&e, c->data + c->at, sizeof e);
            if (e.time > c->time)
                c->time = e.time < TIME_MOST ? e.time : TIME_MOST;
            c->ends = head.type == ZEROUTE_EVENT_FREE || head.type == ZEROUTE_EVENT_RELEASE ||
                      head.type == ZEROUTE_EVENT_UNMAP;
            return true;
        }
    }
}

static bool earlier(const struct cursor *a, const struct cursor *b) {
    if (a->time != b->time)
        return a->time < b->time;
    if (a->ends != b->ends)
        return a->ends;
    return a->thread < b->thread;
}

static void sift_down(struct cursor **heap, size_t n, size_t i) {
    for (;;) {
        size_t least = i, left = 2 * i + 1;
        if (left < n && earlier(heap[left], heap[least]))
            least = left;
        if (left + 1 < n && earlier(heap[left + 1], heap[least]))
            least = left + 1;
        if (least == i)
            return;
        struct cursor *swap = heap[i];
        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

static void take_event(struct load *l, const struct cursor *c) {
    struct zr_record *r = l->r;
    struct zeroute_record_event e;
    struct zr_event *to = &r->event[r->events];

    memcpy(&e, c->data + c->at, sizeof e);
    *to = (struct zr_event){
        .time = c->time > r->header.start_time ? c->time - r->header.start_time : 0,
        .address = e.address,
        .size = e.size,
        .aux = e.aux,
        .stack = e.head.id < l->stack_ids ? l->stack_of[e.head.id] : 0,
        .partner = ZR_NO_EVENT,
        .code = e.code,
        .duration = e.duration,
        .entry = e.entry,
        .thread = c->thread,
        .type = (uint8_t)e.head.type,
        .kind = e.kind < ZEROUTE_MEMORY_KINDS ? e.kind : ZEROUTE_MEMORY_DEVICE,
        .card = e.card,
        .refuser = e.refuser,
        .flags = e.flags,
        .via = e.via,
    };
    to->of = to->stack;
    if (to->type == ZEROUTE_EVENT_MARK) {
        const char *text = c->data + c->at + sizeof e;
        char *mark = zr_arena_text(r->arena, text, strnlen(text, (size_t)e.head.words * 8 - sizeof e));

        if (!mark || !room(l, &r->mark, &l->mark_room, r->marks, sizeof *r->mark)) {
            l->no_memory = true;
            return;
        }
        to->aux = r->marks;
        r->mark[r->marks++] = mark;
    }
    if (e.card != ZEROUTE_RECORD_NO_CARD)
        r->card_seen[e.card] = true;
    r->duration = to->time; /* in order: the last one stays */
    r->events++;
}

static void name_thread(struct load *l, struct zr_thread *named, size_t names, uint32_t number, uint32_t index) {
    struct zr_thread *to = &l->r->thread[index];

    *to = (struct zr_thread){.number = number};
    for (size_t i = 0; i < names; i++)
        if (named[i].number == number) {
            *to = named[i];
            return;
        }
}

/* One cursor per thread; of very many, those behind the last share its number. */
static bool merge(struct load *l, char *why, size_t size) {
    struct zr_record *r = l->r;
    size_t threads = 0, bytes = 0, n = 0;

    for (size_t i = 0; i < l->chunks; i++)
        if (i == 0 || l->chunk[i].thread != l->chunk[i - 1].thread) {
            threads++;
            bytes += l->chunk[i].used;
        }
    if (bytes > CURSORS_MOST || l->events >= ZR_NO_EVENT) {
        snprintf(why, size, "has more %s than can be shown", bytes > CURSORS_MOST ? "threads" : "events");
        return false;
    }
    struct zr_thread *named = r->thread;
    size_t names = r->threads < 2 * THREADS_MOST ? r->threads : 2 * THREADS_MOST;
    struct cursor *cursor = calloc(threads + 1, sizeof *cursor);
    struct cursor **heap = calloc(threads + 1, sizeof(struct cursor *));
    r->event = malloc((l->events + 1) * sizeof *r->event);
    r->thread = calloc(threads + 1, sizeof *r->thread);
    r->threads = 0;
    l->no_memory = !cursor || !heap || !r->event || !r->thread;
    for (size_t i = 0, from = 0; i < l->chunks && !l->no_memory; from = i) {
        struct cursor *c = &cursor[r->threads];
        size_t largest = 0;

        for (; i < l->chunks && l->chunk[i].thread == l->chunk[from].thread; i++)
            if (l->chunk[i].used > largest)
                largest = l->chunk[i].used;
        *c = (struct cursor){.chunk = from, .end = i, .data = malloc(largest + 8)};
        c->thread = (uint16_t)(r->threads < THREADS_MOST ? r->threads : THREADS_MOST);
        /* Names are looked up one by one: only as many as a process has. */
        name_thread(l, named, threads < 4096 ? names : 0, l->chunk[from].thread, r->threads++);
        l->no_memory = !c->data;
        if (c->data && advance(l, c, true))
            heap[n++] = c;
    }
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    while (n && !l->no_memory && r->events < l->events) {
        take_event(l, heap[0]);
        if (!advance(l, heap[0], false))
            heap[0] = heap[--n];
        sift_down(heap, n, 0);
    }
    for (size_t i = 0; cursor && i < r->threads; i++)
        free(cursor[i].data);
    free(cursor);
    free(heap);
    free(named);
    return !l->no_memory;
}

/* --- the record ------------------------------------------------------------------------------------------------- */

static bool load(struct load *l, char *why, size_t size) {
    struct zr_record *r = l->r;
    struct stat st;

    snprintf(why, size, "cannot be loaded: out of memory");
    if (fstat(l->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        snprintf(why, size, "is not a file");
        return false;
    }
    l->file_size = (uint64_t)st.st_size;
    if (!read_header(l, why, size))
        return false;
    if (!room(l, &r->stack, &l->stack_room, 0, sizeof *r->stack))
        return false;
    r->stack[0] = (struct zr_call_stack){0};
    r->stacks = 1;
    if (!find_chunks(l) || !read_definitions(l) || !index_definitions(l))
        return false;
    uint64_t damaged = r->damaged; /* the second reading meets the same damage */
    if (!merge(l, why, size))
        return false;
    r->damaged = damaged;
    r->ended = r->header.end_time >= r->header.start_time && r->header.end_time != 0 && r->header.end_time <= TIME_MOST;
    if (r->ended && r->header.end_time - r->header.start_time > r->duration)
        r->duration = r->header.end_time - r->header.start_time;
    return zr_record_names(r) && zr_record_pair(r);
}

struct zr_record *zr_record_load(const char *path, char *why, size_t size) {
    struct zr_record *r = calloc(1, sizeof *r);
    struct load l = {.r = r, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    bool ok = false;

    if (l.fd < 0) {
        snprintf(why, size, "cannot be opened: %s", strerror(errno));
    } else if (!r || !(r->arena = zr_arena_new()) || !(r->path = strdup(path))) {
        snprintf(why, size, "cannot be loaded: out of memory");
    } else {
        ok = load(&l, why, size);
    }
    if (l.fd >= 0)
        close(l.fd);
    free(l.chunk);
    free(l.stack_of);
    if (ok)
        return r;
    zr_record_free(r);
    return NULL;
}

void zr_record_free(struct zr_record *r) {
    if (!r)
        return;
    zr_arena_free(r->arena);
    free(r->path);
    free(r->event);
    free(r->stack);
    free(r->code);
    free(r->module);
    free(r->thread);
    free(r->mark);
    free(r->host);
    free(r->implied);
    free(r);
}
