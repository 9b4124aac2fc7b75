/* Numbers as people read them. */
#include "tools.h"

const char *zr_text_bytes(char *out, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double n = (double)bytes;
    unsigned u = 0;
    while (n >= 1023.995 && u < 6) {
        n /= 1024;
        u++;
    }
    if (u == 0)
        snprintf(out, ZR_TEXT_SIZE, "%llu B", (unsigned long long)bytes);
    else
        snprintf(out, ZR_TEXT_SIZE, n < 9.995 ? "%.2f %s" : n < 99.95 ? "%.1f %s" : "%.0f %s", n,
                 unit[u]);
    return out;
}

const char *zr_text_time(char *out, uint64_t ns)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    double n = (double)ns;
    unsigned u = 0;
    while (n >= 999.5 && u < 3) {
        n /= 1000;
        u++;
    }
    if (u == 0)
        snprintf(out, ZR_TEXT_SIZE, "%llu ns", (unsigned long long)ns);
    else
        snprintf(out, ZR_TEXT_SIZE, n < 9.995 ? "%.2f %s" : n < 99.95 ? "%.1f %s" : "%.0f %s", n,
                 unit[u]);
    return out;
}

const char *zr_text_count(char *out, uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = out;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *zr_text_age(char *out, uint64_t ns)
{
    uint64_t s = ns / 1000000000u;
    if (s < 60)
        snprintf(out, ZR_TEXT_SIZE, "%us", (unsigned)s);
    else if (s < 3600)
        snprintf(out, ZR_TEXT_SIZE, "%um %us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(out, ZR_TEXT_SIZE, "%uh %um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
    else
        snprintf(out, ZR_TEXT_SIZE, "%ud %uh", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24));
    return out;
}
