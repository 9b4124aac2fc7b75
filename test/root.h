/* A machine in a folder: what a suite lays there is found where ZEROUTE_ROOT moves /proc and /sys. */
#ifndef TEST_ROOT_H
#define TEST_ROOT_H

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/zeroute-root-XXXXXX";

/* For checked fixtures: a new folder for each test. */
static inline void make_root(void) {
    strcpy(root + strlen(root) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static inline void clear_root(void) {
    ck_assert_int_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static inline void lay_bytes(const char *path, const void *bytes, size_t size) {
    char full[600];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void lay(const char *path, const char *text) {
    lay_bytes(path, text, strlen(text));
}

#endif
