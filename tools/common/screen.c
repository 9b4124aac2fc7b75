/* A page that is shown again and again: as much of it as the screen holds, without flicker. */
#include "common/common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool zr_screen_size(FILE *out, size_t *width, size_t *height) {
    struct winsize w;
    const char *term = getenv("TERM");
    if (!term || strcmp(term, "dumb") == 0 || !isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &w) ||
        w.ws_col < 2 || w.ws_row < 2)
        return false;
    *width = w.ws_col;
    *height = w.ws_row;
    return true;
}

/* A line up to the edge; sequences that colour it take no room, and none is left unfinished. */
static void put_line(FILE *out, const char *line, size_t length, size_t width) {
    size_t column = 0;
    bool cut = false;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\033') {
            size_t from = i;
            while (i + 1 < length && line[i] != 'm')
                i++;
            fwrite(line + from, 1, i - from + 1, out);
            continue;
        }
        bool starts = (line[i] & 0xc0) != 0x80; /* not the rest of a character of UTF-8 */
        cut |= starts && column == width;
        column += starts && !cut;
        if (!cut)
            fputc(line[i], out);
    }
    fputs("\033[K", out);
}

void zr_screen_show(FILE *out, const char *text, size_t width, size_t height) {
    size_t lines = 0, left = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    if (lines > height - 1)
        left = lines - (height - 2);
    fputs("\033[H", out);
    for (size_t n = lines - left; n > 0; n--) {
        size_t length = strcspn(text, "\n");
        put_line(out, text, length, width);
        fputc('\n', out);
        text += length + 1;
    }
    if (left) {
        char more[64];
        int length = snprintf(more, sizeof more, "... %zu more lines", left);
        put_line(out, more, (size_t)length, width);
    }
    fputs("\033[J", out);
}
