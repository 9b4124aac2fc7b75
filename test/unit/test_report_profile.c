/* What a record amounts to, against a plain list of blocks; and stacks as they are shown. */
#include "record_file.h"
#include "report/report.h"
#include "suite.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 200, EVENTS = 20000 };

static char path[64], why[512];
static struct record_file f;
static struct zr_record *r;
static struct zr_symbols *symbols;
static struct zr_paths *paths;
static struct zr_profile *profile;

static void setup(void) {
    snprintf(path, sizeof path, "/tmp/zeroute-record.XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    record_begin(&f, path, 65536);
}

static void teardown(void) {
    zr_profile_free(profile);
    zr_paths_free(paths);
    zr_symbols_free(symbols);
    zr_record_free(r);
    unlink(path);
}

static void load(uint32_t detail) {
    record_end(&f);
    r = zr_record_load(path, why, sizeof why);
    ck_assert_msg(r != NULL, "%s", why);
    symbols = zr_symbols_new(r, "", false, NULL);
    paths = zr_paths_new(r, symbols);
    profile = zr_profile_new(r, paths, detail);
    ck_assert_ptr_nonnull(profile);
}

static uint64_t state = 42;
static unsigned draw(unsigned n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % n);
}

/* --- a plain list ------------------------------------------------------------------------------------------------- */

START_TEST(peaks_and_levels_are_those_of_a_plain_list) {
    static struct {
        uint64_t size;
        unsigned card, stack, kind;
    } live[SLOTS];
    uint64_t total = 0, card[3] = {0}, peak = 0, peak_at = 0, host = 0, host_peak = 0, held[4] = {0}, most[4] = {0},
             at_peak[4] = {0}, after[EVENTS];
    static const unsigned kinds[] = {ZEROUTE_MEMORY_DEVICE, ZEROUTE_MEMORY_SHARED, ZEROUTE_MEMORY_HOST};
    uint64_t card_peak[3] = {0};

    for (uint32_t i = 1; i < 4; i++)
        record_stack(&f, i, (const uint64_t[]){i * 0x1000}, 1, NULL, 0);
    for (unsigned i = 0; i < EVENTS; i++) {
        unsigned slot = draw(SLOTS);
        if (live[slot].size) {
            record_event(&f, 1 + slot % 3, ZEROUTE_EVENT_FREE, i * 10, 0x10000 + slot * 0x100000, 0, 0);
            if (live[slot].kind == ZEROUTE_MEMORY_HOST) {
                host -= live[slot].size;
            } else {
                total -= live[slot].size;
                card[live[slot].card] -= live[slot].size;
                held[live[slot].stack] -= live[slot].size;
            }
            live[slot].size = 0;
        } else {
            live[slot].size = 1 + draw(1 << 20);
            live[slot].card = draw(3);
            live[slot].stack = 1 + draw(3);
            live[slot].kind = kinds[draw(3)];
            struct zeroute_record_event *e = record_event(&f, 1 + slot % 3, ZEROUTE_EVENT_ALLOC, i * 10,
                                                          0x10000 + slot * 0x100000, live[slot].size, live[slot].stack);
            e->card = (uint8_t)live[slot].card;
            e->kind = (uint8_t)live[slot].kind;
            if (live[slot].kind == ZEROUTE_MEMORY_HOST) {
                host += live[slot].size;
                host_peak = host > host_peak ? host : host_peak;
            } else {
                unsigned c = live[slot].card, s = live[slot].stack;
                total += live[slot].size;
                card[c] += live[slot].size;
                card_peak[c] = card[c] > card_peak[c] ? card[c] : card_peak[c];
                held[s] += live[slot].size;
                most[s] = held[s] > most[s] ? held[s] : most[s];
                if (total > peak) {
                    peak = total;
                    peak_at = i * 10;
                    memcpy(at_peak, held, sizeof held);
                }
            }
        }
        after[i] = total;
    }
    load(400);
    ck_assert_uint_eq(profile->all.most, peak);
    ck_assert_uint_eq(profile->all.at, peak_at);
    ck_assert_uint_eq(profile->all.bytes, total);
    ck_assert_uint_eq(profile->kind[ZEROUTE_MEMORY_HOST].most, host_peak);
    ck_assert_uint_eq(profile->left, total + host);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(profile->card[i].most, card_peak[i]);
    for (uint32_t i = 1; i < 4; i++) {
        uint32_t s = 1;
        while (r->stack[s].id != i)
            s++;
        const struct zr_path_use *use = &profile->path[paths->of_stack[s]];
        ck_assert_uint_eq(use->level.most, most[i]);
        ck_assert_uint_eq(use->peak, at_peak[i]);
    }
    /* Every sample is the state after its event; the peak is one of them, and there are not too many. */
    bool seen = false;
    ck_assert_uint_le(profile->samples, 2 * 400 + 64);
    ck_assert_uint_ge(profile->samples, 100);
    for (uint32_t i = 0; i < profile->samples; i++) {
        uint64_t rows = 0;
        ck_assert_uint_eq(profile->total[i], after[profile->sample[i].event]);
        for (size_t c = 0; c < profile->n_cards; c++)
            rows += profile->by_card[c * profile->samples + i];
        ck_assert_uint_eq(rows, profile->total[i]);
        rows = 0;
        for (size_t c = 0; c <= profile->top_paths; c++)
            rows += profile->by_path[c * profile->samples + i];
        ck_assert_uint_eq(rows, profile->total[i]);
        seen = seen || profile->total[i] == peak;
    }
    ck_assert(seen);
}
END_TEST

START_TEST(few_events_are_all_samples) {
    for (unsigned i = 0; i < 50; i++)
        record_event(&f, 1, ZEROUTE_EVENT_ALLOC, i * i, 0x1000 * (i + 1), 1 + i, 0);
    load(400);
    ck_assert_uint_eq(profile->samples, 50);
    ck_assert_uint_eq(profile->tops, 50);
    for (unsigned i = 0; i < 50; i++) {
        ck_assert_uint_eq(profile->sample[i].event, i);
        ck_assert_uint_eq(r->event[profile->top[i]].size, 50 - i);
    }
}
END_TEST

/* Times at the end of the world: whatever they say, there are not more samples than room for them. */
START_TEST(impossible_times_make_no_more_samples) {
    f.header.start_time = 0;
    for (unsigned i = 0; i < 5000; i++) {
        struct zeroute_record_event *e = record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 0, 0x1000 * (i + 1), 1 + i, 0);
        e->time = UINT64_MAX - (i < 4990 ? 1 : 0);
    }
    load(100);
    ck_assert_uint_le(profile->samples, 2 * 100 + 64);
}
END_TEST

START_TEST(the_largest_blocks_are_kept) {
    for (unsigned i = 0; i < 5000; i++)
        record_event(&f, 1, ZEROUTE_EVENT_ALLOC, i, 0x1000 * (i + 1), 1 + (i * 7919) % 5000, 0);
    load(100);
    ck_assert_uint_eq(profile->tops, ZR_TOP_BLOCKS);
    for (unsigned i = 0; i < ZR_TOP_BLOCKS; i++)
        ck_assert_uint_eq(r->event[profile->top[i]].size, 5000 - i);
}
END_TEST

START_TEST(gaps_in_reserved_memory_are_found) {
    f.header.flags = 0;
    record_event(&f, 1, ZEROUTE_EVENT_RESERVE, 1, 0x100000, 0x10000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 2, 0x100000, 0x1000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 3, 0x108000, 0x2000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_RESERVE, 4, 0x900000, 0x4000, 0);
    load(100);
    const struct zr_gap *last = &profile->gap[profile->gaps - 1];
    ck_assert_uint_eq(profile->gaps, 4);
    ck_assert_uint_eq(last->reserved, 0x14000);
    ck_assert_uint_eq(last->free, 0x11000);
    ck_assert_uint_eq(last->largest, 0x7000); /* between the two blocks */
    ck_assert_uint_eq(profile->reserved.most, 0x14000);
}
END_TEST

START_TEST(latencies_are_within_a_quarter_of_a_power_of_two) {
    for (uint64_t ns = 1; ns < UINT32_MAX; ns = ns * 5 / 4 + 1) {
        unsigned bucket = zr_latency_bucket((uint32_t)ns);
        ck_assert_uint_lt(bucket, ZR_LATENCIES);
        uint64_t value = zr_latency_value(bucket);
        ck_assert_msg(value * 4 <= ns * 5 && value * 5 >= ns * 4, "%lu is %lu", ns, value);
    }
    for (unsigned i = 0; i < 1000; i++) {
        struct zeroute_record_event *e = record_event(&f, 1, ZEROUTE_EVENT_ALLOC, i, 0x1000 * (i + 1), 4096, 0);
        e->duration = i < 990 ? 1000 : 1000000;
    }
    load(100);
    const struct zr_class_use *c = &profile->size[zr_size_class(4096)];
    ck_assert_uint_eq(c->timed[0], 1000);
    ck_assert_uint_eq(c->longest[0], 1000000);
    ck_assert_uint_le(zr_latency_quantile(c, 0, 0.5), 1250);
    ck_assert_uint_ge(zr_latency_quantile(c, 0, 0.995), 800000);
}
END_TEST

/* --- stacks ------------------------------------------------------------------------------------------------------- */

/* Functions to be found by name in this very program; one of them has the name of the interpreter's. */
void _PyEval_EvalFrameDefault(void);
void _PyEval_EvalFrameDefault(void) {
    printf("%p\n", __builtin_return_address(0));
}
void allocate_something(void);
void allocate_something(void) {
    printf("%p\n", __builtin_return_address(0));
}

static void own_module(bool right_id) {
    char exe[512], line[1024];
    uint64_t low = UINT64_MAX, high = 0, bias = 0;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    ck_assert_int_gt(n, 0);
    exe[n] = '\0';
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, offset;
        if (strstr(line, exe) && sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3) {
            if (from < low)
                bias = low = from;
            high = to;
        }
    }
    fclose(maps);
    struct zeroute_record_module *m = record_module(&f, low, high, bias, exe);
    if (!right_id) {
        m->build_id_size = 20;
        memset(m->build_id, 0xab, 20);
    }
}

static const char *frame_name(uint32_t path_index, uint32_t i) {
    return paths->frame[paths->path[path_index].frame[i]].name;
}

/* Two evaluation loops: the inner one runs two frames of Python, the outer one. */
static void nested(void) {
    static const uint8_t table[] = {0xd9, 0, 0, 0xd9, 0, 0}; /* a line for each two code units */
    uint64_t evaluate = (uint64_t)(uintptr_t)_PyEval_EvalFrameDefault + 4;
    uint64_t own = (uint64_t)(uintptr_t)allocate_something + 4;
    const uint64_t native[] = {own, evaluate, own, evaluate};
    const struct zeroute_record_python python[] = {
        {1, 0}, {2, 4 | ZEROUTE_PYTHON_ENTRY}, {3, 0 | ZEROUTE_PYTHON_ENTRY}};

    record_code(&f, 1, "/x/layers.py", "Linear.forward", 40, table, sizeof table);
    record_code(&f, 2, "/x/train.py", "step", 40, table, sizeof table);
    record_code(&f, 3, "/x/train.py", "<module>", 7, table, sizeof table);
    record_stack(&f, 5, native, 4, python, 3);
    record_stack(&f, 6, native, 4, python, 3); /* the same again: one path */
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 1, 0x1000, 64, 5);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 2, 0x2000, 64, 6);
}

START_TEST(frames_of_python_stand_where_the_interpreter_does) {
    own_module(true);
    nested();
    load(100);
    uint32_t path_index = paths->of_stack[r->event[0].stack];
    char text[256];

    ck_assert_uint_eq(paths->of_stack[r->event[1].stack], path_index);
    ck_assert_uint_eq(paths->path[path_index].frames, 5);
    ck_assert_str_eq(frame_name(path_index, 0), "<module>");
    ck_assert_str_eq(frame_name(path_index, 1), "allocate_something");
    ck_assert_str_eq(frame_name(path_index, 2), "step");
    ck_assert_str_eq(frame_name(path_index, 3), "Linear.forward");
    ck_assert_str_eq(frame_name(path_index, 4), "allocate_something");
    ck_assert_str_eq(zr_frame_text(&paths->frame[paths->path[path_index].frame[2]], text, sizeof text),
                     "train.py:42 in step");
    ck_assert_str_eq(paths->caller[paths->path[path_index].caller], "layers.py:41 in Linear.forward");
    ck_assert_uint_eq(profile->path[path_index].peak, 128);
}
END_TEST

START_TEST(a_library_that_was_replaced_gives_no_names) {
    size_t i = 0;

    own_module(false);
    nested();
    load(100);
    ck_assert_ptr_nonnull(zr_symbols_replaced(symbols, &i));
    ck_assert_ptr_null(zr_symbols_replaced(symbols, &i));
    uint32_t path_index = paths->of_stack[r->event[0].stack];
    ck_assert_ptr_nonnull(strstr(frame_name(path_index, paths->path[path_index].frames - 1), "+0x"));
}
END_TEST

START_TEST(a_library_is_opened_once_for_all_processes) {
    own_module(true);
    nested();
    load(100);
    struct zr_symbols *second = zr_symbols_new(r, "/nowhere", false, symbols);
    struct zr_symbol s;

    zr_symbol_of(second, (uint64_t)(uintptr_t)allocate_something + 4, 0, &s);
    ck_assert_str_eq(s.name, "allocate_something");
    zr_symbols_free(second);
    zr_symbol_of(symbols, (uint64_t)(uintptr_t)allocate_something + 4, 0, &s);
    ck_assert_str_eq(s.name, "allocate_something");
}
END_TEST

START_TEST(an_address_belongs_to_the_library_that_was_there_then) {
    record_module(&f, 0x10000, 0x20000, 0, "/first.so")->time = 100;
    record_module(&f, 0x10000, 0x20000, 0, "/second.so")->time = 200;
    load(100);
    struct zr_symbol s;
    zr_symbol_of(symbols, 0x10010, 150, &s);
    ck_assert_str_eq(s.library, "/first.so");
    zr_symbol_of(symbols, 0x10010, 250, &s);
    ck_assert_str_eq(s.library, "/second.so");
    zr_symbol_of(symbols, 0x20000, 250, &s);
    ck_assert_ptr_null(s.library);
}
END_TEST

/* Paths of frames f0 to f9; the caller is the one called c. */
static void name_paths(struct zr_paths *p, const char *const *written, size_t n) {
    static struct zr_frame frame[11];
    static uint32_t numbers[16][8];
    static char names[11][4], *callers[] = {names[10]};

    *p = (struct zr_paths){.frame = frame, .frames = 11, .caller = callers, .callers = 1, .arena = zr_arena_new()};
    p->path = calloc(n, sizeof *p->path);
    p->paths = (uint32_t)n;
    for (unsigned i = 0; i < 11; i++) {
        snprintf(names[i], sizeof names[i], i < 10 ? "f%u" : "c", i);
        frame[i] = (struct zr_frame){.name = names[i], .file = ""};
    }
    for (size_t i = 0; i < n; i++) {
        p->path[i].frame = numbers[i];
        for (const char *c = written[i]; *c; c++) {
            if (*c == 'c')
                p->path[i].caller_at = p->path[i].frames;
            numbers[i][p->path[i].frames++] = *c == 'c' ? 10 : (uint32_t)(*c - '0');
        }
    }
    ck_assert(zr_paths_name(p));
}

START_TEST(paths_of_one_caller_are_named_by_the_frames_that_tell_them_apart) {
    /* Outermost first: a wrapper that everybody calls, from two functions, one of them in two places. */
    static const char *const written[] = {"013c", "023c", "04c", "04c5", "04c6", "c", "013c78"};
    static const char *const names[] = {"f1 > f3 > c", "f2 > f3 > c", "f4 > c",          "f4 > c > f5",
                                        "f4 > c > f6", "c",           "f1 > f3 > c > f7"};
    struct zr_paths p;

    name_paths(&p, written, 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_str_eq(p.path[i].name, names[i]);
    zr_arena_free(p.arena);
    free(p.path);
}
END_TEST

START_TEST(a_path_that_is_alone_with_its_caller_has_its_name) {
    static const char *const written[] = {"012c3"};
    struct zr_paths p;

    name_paths(&p, written, 1);
    ck_assert_str_eq(p.path[0].name, "c");
    zr_arena_free(p.arena);
    free(p.path);
}
END_TEST

/* Two processes, the second 50 ns later: what both hold at once is less than the sum of their peaks. */
START_TEST(a_joint_peak_is_that_of_all_processes_at_the_same_moment) {
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 100, 0x1000, 1000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 120, 0x1000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 160, 0x2000, 300, 0);
    load(100);
    struct zr_report shown[2] = {{.record = r, .profile = profile}, {.record = r, .profile = profile, .offset = 50}};
    struct zr_joint j;

    ck_assert(zr_joint_of(shown, 2, &j));
    ck_assert_uint_eq(j.peaks, 2000);
    ck_assert_uint_eq(j.level.most, 1300); /* 1000 of the second one, and by then 300 of the first */
    ck_assert_uint_eq(j.level.most_blocks, 2);
    ck_assert_uint_eq(j.then[0], 300);
    ck_assert_uint_eq(j.then[1], 1000);
    ck_assert_uint_eq(j.left, 600);
    free(j.then);
}
END_TEST

static void host_sample(uint64_t time, uint64_t available, uint64_t gpu_active) {
    struct zeroute_record_host *h = record_add(&f, 2, ZEROUTE_RECORD_HOST, 0, sizeof *h);

    h->time = FILE_START + time;
    h->available = available;
    h->gpu_active = gpu_active;
}

/* The launcher's samples: GPUActive's growth is mirror but for the host USM that is live then. */
START_TEST(the_mirror_over_time_is_without_what_the_program_asked_for) {
    struct zr_host_line line;

    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 100, 0x1000, 1000, 0)->kind = ZEROUTE_MEMORY_HOST;
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 200, 0x2000, 5000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 300, 0x1000, 0, 0);
    host_sample(0, 100000, 7);
    host_sample(150, 99000, 1007);
    host_sample(250, 94000, 6007);
    host_sample(350, 95500, 4507);
    load(100);
    ck_assert(zr_host_line_of(r, &line));
    ck_assert(line.mirror_known && line.n == 4);
    ck_assert_uint_eq(line.mirror[1], 0);
    ck_assert_uint_eq(line.mirror[2], 5000);
    ck_assert_uint_eq(line.mirror[3], 4500);
    ck_assert_uint_eq(line.mirror_most, 5000);
    ck_assert_uint_eq(line.lost_most, 6000);
    zr_host_line_free(&line);
}
END_TEST

/* A sample within the call that allocates or frees: the kernel may count the memory, the record does not. */
START_TEST(host_memory_in_a_call_that_goes_on_is_no_mirror) {
    struct zr_host_line line;
    struct zeroute_record_event *e = record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 200, 0x1000, 1000, 0);

    e->kind = ZEROUTE_MEMORY_HOST;
    e->duration = 100;
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 300, 0x1000, 0, 0)->duration = 100;
    host_sample(0, 100000, 7);
    host_sample(150, 99000, 1007);
    host_sample(350, 99000, 1007);
    host_sample(450, 98000, 2007);
    load(100);
    ck_assert(zr_host_line_of(r, &line));
    ck_assert_uint_eq(line.mirror[1], 0);
    ck_assert_uint_eq(line.mirror[2], 0);
    ck_assert_uint_eq(line.mirror[3], 2000);
    zr_host_line_free(&line);
}
END_TEST

START_TEST(without_gpu_active_no_mirror_is_claimed) {
    struct zr_host_line line;

    host_sample(0, 100000, UINT64_MAX);
    host_sample(100, 90000, UINT64_MAX);
    load(100);
    ck_assert(zr_host_line_of(r, &line));
    ck_assert(!line.mirror_known);
    ck_assert_uint_eq(line.lost_most, 10000);
    zr_host_line_free(&line);
}
END_TEST

START_TEST(what_was_live_when_memory_was_refused_is_known_by_stack) {
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 100, 0x1000, 1000, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 110, 0x2000, 500, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 120, 0x1000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FAIL, 130, 0, 4096, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 140, 0x2000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FAIL, 150, 0x7777, 0, 0); /* a free that was refused */
    load(100);
    ck_assert_uint_eq(profile->failure_event, 3);
    ck_assert_uint_eq(profile->refused, 500);
    ck_assert_uint_eq(profile->refused_blocks, 1);
    ck_assert_uint_eq(profile->path[0].refused, 500);
    ck_assert_uint_eq(profile->path[0].peak, 1500);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("report_profile");
    TCase *tests = tcase_create("report_profile");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, peaks_and_levels_are_those_of_a_plain_list);
    tcase_add_test(tests, few_events_are_all_samples);
    tcase_add_test(tests, impossible_times_make_no_more_samples);
    tcase_add_test(tests, the_largest_blocks_are_kept);
    tcase_add_test(tests, gaps_in_reserved_memory_are_found);
    tcase_add_test(tests, latencies_are_within_a_quarter_of_a_power_of_two);
    tcase_add_test(tests, frames_of_python_stand_where_the_interpreter_does);
    tcase_add_test(tests, a_library_that_was_replaced_gives_no_names);
    tcase_add_test(tests, a_library_is_opened_once_for_all_processes);
    tcase_add_test(tests, an_address_belongs_to_the_library_that_was_there_then);
    tcase_add_test(tests, paths_of_one_caller_are_named_by_the_frames_that_tell_them_apart);
    tcase_add_test(tests, a_path_that_is_alone_with_its_caller_has_its_name);
    tcase_add_test(tests, a_joint_peak_is_that_of_all_processes_at_the_same_moment);
    tcase_add_test(tests, the_mirror_over_time_is_without_what_the_program_asked_for);
    tcase_add_test(tests, host_memory_in_a_call_that_goes_on_is_no_mirror);
    tcase_add_test(tests, without_gpu_active_no_mirror_is_claimed);
    tcase_add_test(tests, what_was_live_when_memory_was_refused_is_known_by_stack);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
