/* What zeroute top draws: graphs, the line of a card, colours, callers; as lines of text, without a terminal. */
#include "suite.h"
#include "watch/top.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static void note(struct zr_history *h, uint64_t value) {
    zr_history_note(h, true, value);
}

/* Counts dots of Braille, or what a character of ASCII stands for. */
static unsigned dots_in(const char *line) {
    unsigned n = 0;

    for (const unsigned char *c = (const unsigned char *)line; *c; c++)
        if (*c == 0xe2) {
            n += (unsigned)__builtin_popcount((c[1] & 3u) << 6 | (c[2] & 0x3fu));
            c += 2;
        }
    return n;
}

START_TEST(a_graph_is_as_high_as_its_values) {
    struct zr_history *h = calloc(1, sizeof *h);
    char line[ZR_GRAPH_TEXT];
    unsigned dots = 0;

    note(h, 0);
    note(h, 1 * GIB);
    note(h, 2 * GIB);
    note(h, 4 * GIB);
    for (size_t y = 0; y < 4; y++) {
        zr_graph_line(line, h, 10, 4, y, 4 * GIB, true);
        ck_assert_uint_eq(zr_text_width(line), 10);
        dots += dots_in(line);
    }
    ck_assert_uint_eq(dots, 0 + 4 + 8 + 16); /* of 16 dots in a column */
    zr_graph_line(line, h, 10, 4, 0, 4 * GIB, true);
    ck_assert_str_eq(line, "         \u28b8"); /* the newest is at the right, and alone at the top */
    zr_graph_line(line, h, 10, 1, 0, 4 * GIB, false);
    ck_assert_str_eq(line, "       .:|");
    free(h);
}
END_TEST

START_TEST(a_little_memory_is_not_drawn_as_none) {
    struct zr_history *h = calloc(1, sizeof *h);
    char line[ZR_GRAPH_TEXT];

    note(h, 1);
    zr_graph_line(line, h, 4, 4, 3, 16 * GIB, true);
    ck_assert_uint_eq(dots_in(line), 1);
    zr_graph_line(line, h, 4, 4, 2, 16 * GIB, true);
    ck_assert_uint_eq(dots_in(line), 0);
    free(h);
}
END_TEST

START_TEST(a_graph_wider_than_the_history_shows_all_of_it) {
    struct zr_history *h = calloc(1, sizeof *h);
    char line[ZR_GRAPH_TEXT];

    for (unsigned i = 0; i < ZR_HISTORY + 5; i++)
        note(h, GIB);
    ck_assert_uint_eq(zr_graph_values(h, 10, true), 20);
    ck_assert_uint_eq(zr_graph_values(h, 10, false), 10);
    ck_assert_uint_eq(zr_graph_values(h, 4000, true), ZR_HISTORY);
    zr_graph_line(line, h, 4000, 1, 0, GIB, true);
    ck_assert_uint_eq(dots_in(line), 4 * ZR_HISTORY);
    free(h);
}
END_TEST

START_TEST(cards_are_named_by_their_numbers) {
    char text[ZR_TEXT_SIZE];

    ck_assert_str_eq(zr_cards_text(text, sizeof text, 0), "-");
    ck_assert_str_eq(zr_cards_text(text, sizeof text, 1), "0");
    ck_assert_str_eq(zr_cards_text(text, sizeof text, 3), "0,1");
    ck_assert_str_eq(zr_cards_text(text, sizeof text, 0xf), "0-3");
    ck_assert_str_eq(zr_cards_text(text, sizeof text, 0x8000000d), "0,2,3,31");
}
END_TEST

START_TEST(a_command_keeps_its_script) {
    static const struct {
        const char *command;
        size_t columns;
        const char *text;
    } known[] = {
        {"/usr/bin/python3 train.py", 80, "/usr/bin/python3 train.py"},
        {"/usr/bin/python3 train.py", 20, "python3 train.py"},
        {"/usr/bin/python3 -u /home/me/a/long/way/to/train.py --epochs 100", 40, "python3 -u train.py --epochs 100"},
        {"/usr/bin/python3 -u /home/me/a/long/way/to/train.py --epochs 100", 24, "python3 -u train.py -..."},
        {"torchrun --nproc_per_node 8 --rdzv_backend c10d train/main.py --lr 1", 28, "torchrun ... main.py --lr 1"},
        {"/opt/llama/bin/llama-server -m /models/some-model-with-a-long-name.gguf --port 80", 30,
         "llama-server -m some-model-..."},
        {"a", 1, "a"},
        {"/", 1, "/"},
        {"", 5, ""},
        {"abcdef", 3, "abc"},
    };
    char text[256];

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        zr_text_command(text, known[i].command, known[i].columns);
        ck_assert_str_eq(text, known[i].text);
        ck_assert_uint_le(zr_text_width(text), known[i].columns);
    }
}
END_TEST

/* --- colours and words ------------------------------------------------------------------------ */

static struct zr_view *machine(uint64_t others, uint64_t mirror) {
    struct zr_view *m = calloc(1, sizeof *m);

    ck_assert_ptr_nonnull(m);
    m->card_count = 1;
    m->mirror = mirror;
    m->card[0] = (struct zr_card_view){
        .pdev = "0000:03:00.0", .model = "Intel(R) Arc(TM) B580 Graphics", .vram = 16 * GIB, .ours = GIB};
    m->card[0].others = others;
    return m;
}

static const struct zr_screen_line *line_with(const struct zr_lines *l, const char *text) {
    for (size_t i = 0; i < l->count; i++)
        if (strstr(l->at[i].text, text))
            return &l->at[i];
    return NULL;
}

/* What is shown in this style, of the first mark that has it. */
static void marked(char out[64], const struct zr_screen_line *line, enum zr_style style) {
    *out = '\0';
    for (unsigned i = 0; i < line->marks; i++)
        if (line->mark[i].style == style && !*out)
            snprintf(out, 64, "%.*s", (int)(line->mark[i].to - line->mark[i].from), line->text + line->mark[i].from);
}

START_TEST(a_card_shows_its_model_and_what_others_hold_of_it) {
    const struct zr_top_view v = {.width = 80};
    struct zr_view *m = machine(GIB, 0);
    struct zr_lines l = {0};
    char text[64];

    zr_draw_machine(&l, m, &v);
    const struct zr_screen_line *card = line_with(&l, "Arc B580");
    ck_assert_ptr_nonnull(card);
    ck_assert_ptr_nonnull(strstr(card->text, "2.00G/16.0G"));
    ck_assert_ptr_nonnull(strstr(card->text, "others 1.00G"));
    ck_assert_uint_le(zr_text_width(card->text), 80);
    marked(text, card, ZR_STYLE_OURS);
    ck_assert_str_eq(text, "|");
    marked(text, card, ZR_STYLE_OTHERS);
    ck_assert_int_eq(text[0], ':');
    zr_lines_free(&l);
    free(m);
}
END_TEST

START_TEST(a_full_card_and_a_mirror_have_a_colour) {
    const struct zr_top_view v = {.width = 80};
    struct zr_view *m = machine(15 * GIB, 3 * GIB);
    struct zr_lines l = {0};
    char text[64];

    zr_draw_machine(&l, m, &v);
    const struct zr_screen_line *card = line_with(&l, "FULL");
    ck_assert_ptr_nonnull(card);
    ck_assert_int_eq(card->style, ZR_STYLE_ALERT);
    marked(text, line_with(&l, "host "), ZR_STYLE_WARNING);
    ck_assert_ptr_nonnull(strstr(text, "mirror 3.00G"));
    zr_lines_free(&l);

    struct zr_process_view p = {.mirror = 3 * GIB};
    const struct zr_row row = {.process = &p};
    zr_draw_row(&l, &v, &row);
    marked(text, &l.at[0], ZR_STYLE_WARNING);
    ck_assert_ptr_nonnull(strstr(text, "3.00G"));
    p.mirror = 1 << 20; /* nothing to worry about */
    zr_draw_row(&l, &v, &row);
    ck_assert_uint_eq(l.at[1].marks, 0);
    zr_lines_free(&l);
    free(m);
}
END_TEST

/* Of the name of a pod or container as much goes as the command needs. */
START_TEST(a_command_is_visible_behind_a_long_container) {
    const struct zr_top_view v = {.width = 80}, wide = {.width = 200};
    struct zr_process_view p = {.id = {.space = "production", .pod = "inference-7f9c4d5b6-x2x9q", .container = "vllm"},
                                .process = {.command = "/usr/bin/python3 serve.py"}};
    const struct zr_row row = {.process = &p};
    struct zr_lines l = {0};

    zr_draw_row(&l, &v, &row);
    zr_draw_row(&l, &wide, &row);
    ck_assert_ptr_nonnull(strstr(l.at[0].text, "[production/"));
    ck_assert_ptr_nonnull(strstr(l.at[0].text, "...] python3 serve.py"));
    ck_assert_uint_le(zr_text_width(l.at[0].text), 80);
    ck_assert_ptr_nonnull(
        strstr(l.at[1].text, "[production/inference-7f9c4d5b6-x2x9q/vllm] /usr/bin/python3 serve.py"));
    zr_lines_free(&l);
}
END_TEST

START_TEST(graphs_take_half_of_the_screen_at_most) {
    struct zr_view *m = machine(0, 0);

    for (m->card_count = 1; m->card_count <= 8; m->card_count++) {
        m->card[m->card_count - 1] = m->card[0];
        for (size_t height = 4; height <= 60; height++) {
            const struct zr_top_view v = {.width = 80, .height = height, .utf8 = true, .each = 1};
            struct zr_lines l = {0};
            zr_draw_machine(&l, m, &v);
            bool graphs = line_with(&l, "top 16.0G") != NULL;
            ck_assert_msg(!graphs || l.count <= height / 2 + 1, "%u cards on %zu lines: %zu", m->card_count, height,
                          l.count);
            ck_assert_msg(graphs || m->card_count > 2 || height < 24, "%u cards on %zu lines: no graph", m->card_count,
                          height);
            for (size_t i = 0; i < l.count; i++)
                ck_assert_uint_le(zr_text_width(l.at[i].text), 80);
            zr_lines_free(&l);
        }
    }
    free(m);
}
END_TEST

/* --- callers ---------------------------------------------------------------------------------- */

START_TEST(the_page_of_keys_fits_80_columns) {
    struct zr_lines l = {0};

    zr_draw_help(&l);
    for (size_t i = 0; i < l.count; i++)
        ck_assert_msg(zr_text_width(l.at[i].text) <= 80, "%s", l.at[i].text);
    zr_lines_free(&l);
}
END_TEST

START_TEST(callers_have_rates_since_the_last_look) {
    struct zeroute_field field[] = {{.name = "callers.libsycl.so.8.calls", .value = 10},
                                    {.name = "callers.libsycl.so.8.bytes", .value = 1000},
                                    {.name = "callers.demo.calls", .value = 1},
                                    {.name = "callers.demo.bytes", .value = 5000},
                                    {.name = "callers.idle.calls", .value = 0}};
    struct zeroute_snapshot s = {.process = {.nonce = 1}, .field = field, .field_count = 5};
    struct zr_callers c = {0};

    zr_callers_take(&c, &s, 1000000000);
    ck_assert_uint_eq(c.count, 2);
    ck_assert_str_eq(c.at[0].name, "demo");
    ck_assert_uint_eq(c.at[1].bytes, 1000);
    ck_assert(c.at[1].bytes_rate == 0);
    field[0].value = 30;
    field[1].value = 9000;
    zr_callers_take(&c, &s, 3000000000);
    ck_assert_str_eq(c.at[0].name, "libsycl.so.8"); /* the one that asked for most first */
    ck_assert(c.at[0].calls_rate == 10 && c.at[0].bytes_rate == 4000);
    ck_assert(c.at[1].calls_rate == 0);
    s.process.nonce = 2; /* another process: no rate from the figures of two */
    zr_callers_take(&c, &s, 4000000000);
    ck_assert(c.at[0].calls_rate == 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("screen");
    TCase *t = tcase_create("screen");
    setlocale(LC_ALL, "C.UTF-8");
    tcase_add_test(t, a_graph_is_as_high_as_its_values);
    tcase_add_test(t, a_little_memory_is_not_drawn_as_none);
    tcase_add_test(t, a_graph_wider_than_the_history_shows_all_of_it);
    tcase_add_test(t, cards_are_named_by_their_numbers);
    tcase_add_test(t, a_command_keeps_its_script);
    tcase_add_test(t, a_card_shows_its_model_and_what_others_hold_of_it);
    tcase_add_test(t, a_full_card_and_a_mirror_have_a_colour);
    tcase_add_test(t, a_command_is_visible_behind_a_long_container);
    tcase_add_test(t, graphs_take_half_of_the_screen_at_most);
    tcase_add_test(t, the_page_of_keys_fits_80_columns);
    tcase_add_test(t, callers_have_rates_since_the_last_look);
    suite_add_tcase(s, t);
    return run_suite(s);
}
