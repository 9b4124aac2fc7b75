/* Numbers as people read them. */
#include "common/common.h"

/* In the unit in which it has up to three digits before the point; `last` is the largest that there is. */
static const char *scaled(char *out, uint64_t n, double factor, double most, const char *const *unit, unsigned last)
{
    double in_unit = (double)n;
    unsigned u = 0;
    while (in_unit >= most && u < last) {
        in_unit /= factor;
        u++;
    }
    if (u == 0)
        snprintf(out, ZR_TEXT_SIZE, "%llu %s", (unsigned long long)n, unit[0]);
    else
        snprintf(out, ZR_TEXT_SIZE,
                 in_unit < 9.995   ? "%.2f %s"
                 : in_unit < 99.95 ? "%.1f %s"
                                   : "%.0f %s",
                 in_unit, unit[u]);
    return out;
}

const char *zr_text_bytes(char *out, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled(out, bytes, 1024, 1023.995, unit, 6);
}

const char *zr_text_time(char *out, uint64_t ns)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    return scaled(out, ns, 1000, 999.5, unit, 3);
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
