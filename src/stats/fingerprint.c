/*
 * What this process runs on: libraries of the stack with path and build id, versions, kernel,
 * cards, settings, and the environment variables that the stack reads. Two runs are compared by it
 * before their numbers are.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#define NOTES 48

extern char **environ;

static struct zr_lock fingerprint_lock;
static struct { char key[48], value[208]; } notes[NOTES];
static unsigned note_count;

/* The last refresh that began, and the last that was published. */
static unsigned tickets, published;

/* A fingerprint under construction. */
struct draft {
    bool debug_keys; /* NEO reads them */
    size_t used;
    /* Not on the stack: it may be a small one. */
    char text[ZR_FINGERPRINT_SIZE], real[4096], value[4096 + 80];
};

static const char *const libraries[] = {
    "libzeroute", "libsycl",     "libur_",   "libpi_", "libumf",          "libze_",      "libigc",
    "libigdfcl",  "libigdgmm",   "libtorch", "libc10", "libccl",          "libmkl_sycl", "libdnnl",
    "libOpenCL",  "libintelocl", "libhwloc", "libtcm", "libopencl-clang",
};
static const char *const variables[] = {
#define ZR_VARIABLE(prefix) prefix,
#include "stats/variables.def"
};

/* A line that does not fit is left out. */
static void draft_add(struct draft *d, const char *key, const char *value) {
    char *line = d->text + d->used;
    size_t room = sizeof d->text - d->used;
    int n = snprintf(line, room, "%s\t%s", key, value);

    if (n < 0 || (size_t)n + 2 > room) {
        *line = '\0';
        return;
    }
    for (char *c = line + strlen(key) + 1; *c; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    line[n] = '\n';
    line[n + 1] = '\0';
    d->used += (size_t)n + 1;
}

static bool begins_with_any(const char *s, const char *const *prefix, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strncmp(s, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

/* --- libraries -------------------------------------------------------------------------------- */

static bool draft_library(const struct zr_elf *elf, void *data) {
    struct draft *d = data;
    const char *path = elf->path, *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *whole, *version;
    char key[128], line[140], id[80] = "none";

    if (!begins_with_any(name, libraries, sizeof libraries / sizeof *libraries))
        return false;
    for (unsigned i = 0; i < elf->build_id_size; i++)
        snprintf(id + 2 * i, 3, "%02x", elf->build_id[i]);
    snprintf(key, sizeof key, "library.%.100s", name);
    snprintf(line, sizeof line, "\n%s\t", key);
    if (strstr(d->text, line)) /* a second one of that name: both are listed */
        snprintf(key, sizeof key, "library.%.100s#2", name);
    whole = realpath(path, d->real) ? d->real : path;
    snprintf(d->value, sizeof d->value, "%.4000s build-id:%s", whole, id);
    draft_add(d, key, d->value);

    /*
     * Asking the loader is not safe at all times and in all versions; its file name has the number.
     */
    version = strstr(whole, "libze_loader.so.");
    if (version && strcmp(key, "library.libze_loader.so.1") == 0)
        draft_add(d, "loader.version", version + strlen("libze_loader.so."));
    return false;
}

/* --- environment ------------------------------------------------------------------------------ */

/* NEO reads keys of its own style, EnableDeferBacking, when NEOReadDebugKeys is set. */
static bool is_debug_key(const char *s) {
    size_t n = strcspn(s, "=");

    if (n < 6 || s[0] < 'A' || s[0] > 'Z' || s[1] < 'a' || s[1] > 'z')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9')))
            return false;
    return true;
}

static void add_variable(struct draft *d, const char *e) {
    size_t length = strcspn(e, "=");
    char key[96];

    if (length + 5 > sizeof key || e[length] != '=')
        return;
    snprintf(key, sizeof key, "env.%.*s", (int)length, e);
    draft_add(d, key, e + length + 1);
}

/* Copies up to `size` bytes, as far as they are mapped, and returns how many. */
static size_t draft_copy(void *to, const void *from, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

    return n > 0 ? (size_t)n : 0;
}

/*
 * Adds NEO's keys, or the other known variables. The kernel makes the copies: a setenv in another
 * thread may free the list while we walk it, and what is gone is left out. Where the system call is
 * not allowed, the fingerprint has no variables.
 */
static void draft_environment(struct draft *d, bool keys) {
    static const char switch_on[] = "NEOReadDebugKeys=";
    char *const *list = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
    char *e;

    for (unsigned n = 0; list && n < 4096 && draft_copy(&e, &list[n], sizeof e) && e; n++) {
        d->value[draft_copy(d->value, e, sizeof d->value - 1)] = '\0';
        if (strncmp(d->value, switch_on, strlen(switch_on)) == 0)
            d->debug_keys = strcmp(d->value + strlen(switch_on), "0") != 0;
        if (keys ? is_debug_key(d->value)
                 : begins_with_any(d->value, variables, sizeof variables / sizeof *variables))
            add_variable(d, d->value);
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Returns false if the libraries cannot be listed now. */
static bool put_together(struct draft *d) {
    struct utsname system;
    char settings[1024];
    bool whole;

    draft_add(d, "zeroute.version", ZEROUTE_VERSION);
    if (uname(&system) == 0)
        draft_add(d, "kernel.release", system.release);
    zr_settings_print(&zr_config, settings, sizeof settings);
    draft_add(d, "settings", settings);
    zr_lock(&fingerprint_lock);
    for (unsigned i = 0; i < note_count; i++)
        draft_add(d, notes[i].key, notes[i].value);
    zr_unlock(&fingerprint_lock);
    whole = zr_elf_each(draft_library, d) != ZR_LIST_BUSY;
    draft_environment(d, false);
    if (d->debug_keys)
        draft_environment(d, true);
    return whole;
}

static uint32_t incomplete; /* atomic: a refresh came while the libraries could not be listed */

/*
 * No lock is held while the dynamic linker walks its list; of two concurrent refreshes the later
 * one wins.
 */
void zr_fingerprint_refresh(void) {
    int saved = errno;
    unsigned ticket = __atomic_add_fetch(&tickets, 1, __ATOMIC_ACQ_REL);
    struct draft *d = zr_stats_is_open() ? zr_pages(sizeof *d) : NULL;
    bool complete;

    if (!d)
        return;
    complete = put_together(d);
    __atomic_store_n(&incomplete, !complete, __ATOMIC_RELAXED);
    zr_lock(&fingerprint_lock);
    if (complete && (int)(ticket - published) > 0 &&
        zr_segment_reserve(zr_segment.fingerprint, sizeof *zr_segment.fingerprint + d->used + 1)) {
        zr_segment_write_text(zr_segment.fingerprint, ZR_FINGERPRINT_SIZE, d->text, d->used);
        published = ticket;
    }
    zr_unlock(&fingerprint_lock);
    zr_pages_back(d, sizeof *d);
    errno = saved;
}

void zr_fingerprint_complete(void) {
    if (unlikely(__atomic_load_n(&incomplete, __ATOMIC_RELAXED)))
        zr_fingerprint_refresh();
}

void zr_fingerprint_note(const char *key, const char *value) {
    unsigned n = 0;
    bool changed;

    zr_lock(&fingerprint_lock);
    while (n < note_count && strcmp(notes[n].key, key) != 0)
        n++;
    changed = n < NOTES && (n == note_count || strcmp(notes[n].value, value) != 0);
    if (changed) {
        snprintf(notes[n].key, sizeof notes[n].key, "%s", key);
        snprintf(notes[n].value, sizeof notes[n].value, "%s", value);
        if (n == note_count)
            note_count++;
    }
    zr_unlock(&fingerprint_lock);
    if (changed)
        zr_fingerprint_refresh();
}
