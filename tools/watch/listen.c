/* Where to listen, and the token that others must show. */
#include "watch/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_LEAST = 16, TOKEN_MOST = 512 };

bool zr_listen_parse(const char *text, struct zr_serve *s) {
    const char *colon = strrchr(text, ':');
    char host[64], *end;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 65536;
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!colon || !colon[1] || *end || port > 65535 || length >= sizeof host || colon[1] < '0' || colon[1] > '9')
        return false;
    snprintf(host, sizeof host, "%.*s", (int)length, text);
    memset(&s->address, 0, sizeof s->address);
    if (host[0] == '[' && length > 2 && host[length - 1] == ']') {
        host[length - 1] = '\0';
        s->address.v6.sin6_family = AF_INET6;
        s->address.v6.sin6_port = htons((uint16_t)port);
        s->address_size = sizeof s->address.v6;
        if (inet_pton(AF_INET6, host + 1, &s->address.v6.sin6_addr) != 1)
            return false;
        s->loopback = IN6_IS_ADDR_LOOPBACK(&s->address.v6.sin6_addr);
        return true;
    }
    s->address.v4.sin_family = AF_INET;
    s->address.v4.sin_port = htons((uint16_t)port);
    s->address_size = sizeof s->address.v4;
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    if (inet_pton(AF_INET, *host ? host : "0.0.0.0", &s->address.v4.sin_addr) != 1)
        return false;
    s->loopback = ntohl(s->address.v4.sin_addr.s_addr) >> 24 == 127;
    return true;
}

char *zr_token_read(const char *path) {
    char text[TOKEN_MOST + 2] = "";
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    bool open_to_all = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 007;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0) {
        zr_complain("serve", "cannot read the token file %s: %s", path, strerror(saved));
        return NULL;
    }
    text[strcspn(text, "\r\n")] = '\0';
    if (open_to_all)
        zr_complain("serve", "the token file %s can be read by every user: chmod 600 %s", path, path);
    else if (strlen(text) < TOKEN_LEAST || strlen(text) > TOKEN_MOST)
        zr_complain("serve", "the token in %s has %zu characters: expected %d to %d in the first line", path,
                    strlen(text), TOKEN_LEAST, TOKEN_MOST);
    else
        return strdup(text);
    return NULL;
}
