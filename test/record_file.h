/* Writes records, as the preload does, for tests of what reads them: chunk by chunk, several threads if wanted. */
#ifndef ZEROUTE_TEST_RECORD_FILE_H
#define ZEROUTE_TEST_RECORD_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zeroute/record.h>

enum { FILE_THREADS = 8, FILE_START = 1000000000 };

struct record_file {
    FILE *out;
    struct zeroute_record_header header;
    struct {
        char *data;
        uint64_t used, sequence;
    } thread[FILE_THREADS + 1]; /* from 1 on */
};

static inline void record_begin(struct record_file *f, const char *path, uint32_t chunk_size) {
    memset(f, 0, sizeof *f);
    f->out = fopen(path, "w");
    f->header = (struct zeroute_record_header){.magic = ZEROUTE_RECORD_MAGIC,
                                               .major = ZEROUTE_RECORD_MAJOR,
                                               .minor = ZEROUTE_RECORD_MINOR,
                                               .header_size = 4096,
                                               .chunk_size = chunk_size,
                                               .pid = 4711,
                                               .start_time = FILE_START,
                                               .start_real = 1700000000000000000u,
                                               .end_time = FILE_START,
                                               .flags = ZEROUTE_RECORD_RESERVED_SAME,
                                               .version = "test"};
    fseek(f->out, f->header.header_size, SEEK_SET);
}

static inline void record_flush(struct record_file *f, unsigned thread) {
    struct zeroute_record_chunk head = {ZEROUTE_CHUNK_MAGIC, thread, f->thread[thread].used,
                                        f->thread[thread].sequence++};

    memcpy(f->thread[thread].data, &head, sizeof head);
    fwrite(f->thread[thread].data, 1, f->header.chunk_size, f->out);
    f->thread[thread].used = 0;
}

/* Room for a record of this many bytes, zeroed, with its head. */
static inline void *record_add(struct record_file *f, unsigned thread, unsigned type, uint32_t id, size_t size) {
    size = (size + 7) & ~(size_t)7;
    if (f->thread[thread].used && f->thread[thread].used + size > f->header.chunk_size)
        record_flush(f, thread);
    if (!f->thread[thread].data)
        f->thread[thread].data = malloc(f->header.chunk_size);
    if (!f->thread[thread].used) {
        memset(f->thread[thread].data, 0, f->header.chunk_size);
        f->thread[thread].used = sizeof(struct zeroute_record_chunk);
    }
    struct zeroute_record_head *head = (void *)(f->thread[thread].data + f->thread[thread].used);
    *head = (struct zeroute_record_head){(uint16_t)type, (uint16_t)(size / 8), id};
    f->thread[thread].used += size;
    return head;
}

/* An event at `time` ns from the start of the record; the caller fills in what else it says. */
static inline struct zeroute_record_event *record_event(struct record_file *f, unsigned thread, unsigned type,
                                                        uint64_t time, uint64_t address, uint64_t size,
                                                        uint32_t stack) {
    struct zeroute_record_event *e = record_add(f, thread, type, stack, sizeof *e);

    e->time = FILE_START + time;
    e->address = address;
    e->size = size;
    if (e->time > f->header.end_time)
        f->header.end_time = e->time;
    return e;
}

static inline void record_mark(struct record_file *f, unsigned thread, uint64_t time, const char *text) {
    struct zeroute_record_event *e = record_add(f, thread, ZEROUTE_EVENT_MARK, 0, sizeof *e + strlen(text) + 1);

    e->time = FILE_START + time;
    e->card = ZEROUTE_RECORD_NO_CARD;
    strcpy((char *)(e + 1), text);
}

static inline void record_text(struct record_file *f, unsigned id, const char *text, size_t size) {
    struct zeroute_record_text *t = record_add(f, 1, ZEROUTE_RECORD_TEXT, id, sizeof *t + size);

    t->size = (uint32_t)size;
    memcpy(t + 1, text, size);
}

static inline void record_card(struct record_file *f, unsigned card, uint64_t memory) {
    struct zeroute_record_card *c = record_add(f, 1, ZEROUTE_RECORD_CARD, card, sizeof *c);
    c->memory = memory;
}

static inline void record_thread(struct record_file *f, unsigned thread, uint32_t tid, const char *name) {
    struct zeroute_record_thread *t = record_add(f, thread, ZEROUTE_RECORD_THREAD, thread, sizeof *t);

    t->tid = tid;
    snprintf(t->name, sizeof t->name, "%s", name);
}

static inline struct zeroute_record_module *record_module(struct record_file *f, uint64_t start, uint64_t end,
                                                          uint64_t bias, const char *path) {
    struct zeroute_record_module *m = record_add(f, 1, ZEROUTE_RECORD_MODULE, 0, sizeof *m + strlen(path) + 1);

    m->start = start;
    m->end = end;
    m->bias = bias;
    strcpy((char *)(m + 1), path);
    return m;
}

static inline void record_code(struct record_file *f, uint32_t id, const char *file, const char *name, uint32_t line,
                               const uint8_t *table, size_t table_size) {
    struct zeroute_record_code *c =
        record_add(f, 1, ZEROUTE_RECORD_CODE, id, sizeof *c + strlen(file) + strlen(name) + table_size);
    char *at = (char *)(c + 1);

    c->first_line = line;
    c->file_size = (uint16_t)strlen(file);
    c->name_size = (uint16_t)strlen(name);
    c->table_size = (uint32_t)table_size;
    memcpy(at, file, strlen(file));
    memcpy(at + strlen(file), name, strlen(name));
    memcpy(at + strlen(file) + strlen(name), table, table_size);
}

/* Innermost frame first. */
static inline void record_stack(struct record_file *f, uint32_t id, const uint64_t *native, unsigned natives,
                                const struct zeroute_record_python *python, unsigned pythons) {
    struct zeroute_record_stack *s =
        record_add(f, 1, ZEROUTE_RECORD_STACK, id, sizeof *s + natives * 8u + pythons * sizeof *python);

    s->native = (uint16_t)natives;
    s->python = (uint16_t)pythons;
    if (natives)
        memcpy(s + 1, native, natives * 8u);
    if (pythons)
        memcpy((char *)(s + 1) + natives * 8u, python, pythons * sizeof *python);
}

static inline void record_end(struct record_file *f) {
    for (unsigned i = 1; i <= FILE_THREADS; i++) {
        if (f->thread[i].used)
            record_flush(f, i);
        free(f->thread[i].data);
    }
    fseek(f->out, 0, SEEK_SET);
    fwrite(&f->header, sizeof f->header, 1, f->out);
    fclose(f->out);
}

#endif
