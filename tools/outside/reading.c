/* Files of others are read up to a bound, whatever their size is said to be. */
#include "outside/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

char *zr_reading_text(const char *path, size_t most, size_t *length) {
    size_t have = 0, room = 4096;
    char *text = NULL;
    ssize_t got = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return NULL;
    while (got && have < most) {
        if (room - have < 2 || !text) {
            size_t wanted = text ? room * 2 : room;
            char *more = realloc(text, wanted);
            if (!more)
                break;
            text = more;
            room = wanted;
        }
        size_t want = room - have - 1 < most - have ? room - have - 1 : most - have;
        got = read(fd, text + have, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        have += (size_t)got;
    }
    int saved = errno;
    close(fd);
    if (got < 0 || !text) {
        free(text);
        errno = saved;
        return NULL;
    }
    text[have] = '\0';
    if (length)
        *length = have;
    return text;
}

/* The owner of /proc/PID is the effective user, who is root in a program with root's rights, whoever has started it. */
bool zr_reading_user(int pid, unsigned *uid) {
    char path[64], *text, *rest, *line;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    text = rest = zr_reading_text(path, ZR_OUTSIDE_BYTES, NULL);
    while (!found && (line = zr_next_line(&rest))) {
        const char *value = zr_value_of(line, "Uid");

        if (!value)
            continue;
        *uid = (unsigned)strtoul(value, NULL, 10);
        found = true;
    }
    free(text);
    return found;
}
