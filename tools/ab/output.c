/* Numbers and hashes from what the command printed or wrote. */
#include "ab/ab.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* --- SHA-256 (FIPS 180-4), plain: an output is hashed once per run ---------------------------- */

struct sha {
    uint32_t h[8];
    uint8_t block[64];
    uint64_t length;
};

static uint32_t rotate_right(uint32_t x, unsigned n) {
    return x >> n | x << (32 - n);
}

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha_block(struct sha *s) {
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, s->h, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + round_constant[i] + w[i];
        uint32_t t2 = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(*v));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void sha_start(struct sha *s) {
    *s = (struct sha){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void sha_add(struct sha *s, const void *data, size_t size) {
    for (const uint8_t *p = data; size--; p++) {
        s->block[s->length++ % 64] = *p;
        if (s->length % 64 == 0)
            sha_block(s);
    }
}

static void sha_end(struct sha *s, char out[65]) {
    uint64_t bits = s->length * 8;
    uint8_t tail[8];

    sha_add(s, "\x80", 1);
    while (s->length % 64 != 56)
        sha_add(s, "", 1);
    for (int i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(s, tail, 8);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", s->h[i]);
}

void zr_ab_hash_text(const void *data, size_t size, char out[65]) {
    struct sha s;

    sha_start(&s);
    sha_add(&s, data, size);
    sha_end(&s, out);
}

bool zr_ab_hash_file(const char *path, char out[65]) {
    FILE *f = fopen(path, "re");
    char buffer[65536];
    struct sha s;
    size_t n;

    if (!f)
        return false;
    sha_start(&s);
    while ((n = fread(buffer, 1, sizeof(buffer), f)))
        sha_add(&s, buffer, n);
    bool fine = !ferror(f);
    fclose(f);
    sha_end(&s, out);
    return fine;
}

/* --- `name: number` --------------------------------------------------------------------------- */

static bool number_at(const char *s, double *value) {
    char *end;

    s += strspn(s, " \t");
    if (!isdigit((unsigned char)*s) && *s != '-' && *s != '+' && *s != '.')
        return false; /* strtod would take "nan" and "infinity" */
    *value = strtod(s, &end);
    return end != s && isfinite(*value);
}

static void note(struct zr_ab *ab, struct zr_ab_run *run, const char *name, size_t length, double value) {
    while (length && isspace((unsigned char)name[length - 1]))
        length--;
    while (length && isspace((unsigned char)*name))
        name++, length--;
    char *copy = zr_ab_text("%.*s", (int)length, length ? name : "output");
    size_t m = zr_ab_metric_add(ab, *copy ? copy : "metric", ZR_AB_PLAIN, ZR_AB_NEITHER, "from the command's output");
    run->value[m] = value; /* the last one of a name counts */
    free(copy);
}

/* A regex with a group tells the number itself; without one it picks names of `name: number`. */
static void match_line(struct zr_ab *ab, struct zr_ab_run *run, const char *line, const regex_t *re) {
    regmatch_t m[2];
    double value;

    if (re->re_nsub > 0) {
        if (!regexec(re, line, 2, m, 0) && m[1].rm_so >= 0 && number_at(line + m[1].rm_so, &value)) {
            size_t length = (size_t)(m[1].rm_so - m[0].rm_so);
            while (length && strchr(" \t:=", line[(size_t)m[0].rm_so + length - 1]))
                length--;
            note(ab, run, line + m[0].rm_so, length, value);
        }
        return;
    }
    for (const char *sign = line; (sign = strpbrk(sign, ":=")); sign++) {
        const char *from = sign;
        if (!number_at(sign + 1, &value))
            continue;
        while (from > line && !strchr(",;|\t", from[-1]))
            from--;
        from += strspn(from, " ");
        const char *to = sign;
        while (to > from && to[-1] == ' ')
            to--;
        char *name = zr_ab_text("%.*s", (int)(to - from), from);
        if (to > from && !regexec(re, name, 0, NULL, 0))
            note(ab, run, name, strlen(name), value);
        free(name);
    }
}

char *zr_ab_output_metrics(struct zr_ab *ab, struct zr_ab_run *run, const char *text, const char *const *regex,
                           size_t n) {
    for (size_t i = 0; i < n; i++) {
        regex_t re;
        char *copy, *rest, *line;
        int code = regcomp(&re, regex[i], REG_EXTENDED);
        if (code) {
            char why[128];
            regerror(code, &re, why, sizeof(why));
            return zr_ab_text("bad expression '%s': %s", regex[i], why);
        }
        copy = rest = zr_ab_text("%s", text);
        while ((line = strsep(&rest, "\n")))
            match_line(ab, run, line, &re);
        free(copy);
        regfree(&re);
    }
    return NULL;
}
