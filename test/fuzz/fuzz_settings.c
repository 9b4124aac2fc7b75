/* Bytes as settings, in one line and as a file: what was understood reads the same once it was written. */
#include "fuzz.h"

#include "base/settings.h"

#include <string.h>

static void count(const char *why, void *data) {
    must(why && *why);
    ++*(unsigned *)data;
}

/* A text from a file: in one line it would be several settings. */
static bool has_a_comma(const struct zr_settings *c) {
    for (size_t i = 0; i < zr_setting_count; i++) {
        const char *text;

        if (zr_settings[i].type != ZR_TYPE_TEXT)
            continue;
        memcpy(&text, (const char *)c + zr_settings[i].offset, sizeof text);
        if (text && strchr(text, ','))
            return true;
    }
    return false;
}

static void check(const char *text, bool lines) {
    static struct zr_settings c, again;
    char first[8192], second[8192];
    unsigned bad = 0;
    bool fine;

    zr_settings_default(&c);
    fine = zr_settings_parse(&c, text, lines ? '\n' : ',', count, &bad);
    must(fine == !bad);
    must(zr_settings_print(&c, first, sizeof first) < sizeof first);
    if (has_a_comma(&c))
        return;
    zr_settings_default(&again);
    bad = 0;
    zr_settings_parse(&again, first, ',', count, &bad);
    zr_settings_print(&again, second, sizeof second);
    must(!bad && strcmp(first, second) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);

    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check(text, false);
    check(text, true);
    free(text);
    return 0;
}
