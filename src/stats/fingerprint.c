/*
 * What this process runs on: libraries of the stack with path and build id, versions, kernel,
 * cards, settings, and the environment variables that the stack listens to. Two runs are compared by
 * it before their numbers are.
 */
#include "zeroute.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define NOTES 24

extern char **environ;

static struct zr_lock lock;
static struct {
    char key[48], value[208];
} notes[NOTES];
static unsigned note_count;

/* Written under the lock; takes no memory until it is used. */
static char text[ZR_FINGERPRINT_SIZE];
static size_t used;

static const char *const libraries[] = {
    "libzeroute",  "libsycl",      "libur_",       "libpi_",     "libumf",      "libze_",
    "libigc",      "libigdfcl",    "libigdgmm",    "libtorch",   "libc10",      "libccl",
    "libmkl_sycl", "libdnnl",      "libOpenCL",    "libintelocl", "libhwloc",    "libtcm",
    "libopencl-clang",
};
static const char *const variables[] = {
#define ZR_VARIABLE(prefix) prefix,
#include "stats/variables.def"
#undef ZR_VARIABLE
};

static void add(const char *key, const char *value)
{
    size_t room = sizeof text - used;
    int n = snprintf(text + used, room, "%s\t%s", key, value);
    if (n < 0 || (size_t)n + 2 > room)
        return;
    for (size_t i = used + strlen(key) + 1; i < used + (size_t)n; i++)
        if (text[i] == '\n' || text[i] == '\t')
            text[i] = ' ';
    used += (size_t)n;
    text[used++] = '\n';
    text[used] = '\0';
}

static bool begins_with_any(const char *s, const char *const *prefix, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(s, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

/* --- libraries -------------------------------------------------------------------------------- */

static void build_id(const struct dl_phdr_info *info, char *out, size_t size)
{
    out[0] = '\0';
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE)
            continue;
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        size_t align = p->p_align == 8 ? 8 : 4;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) n;
            memcpy(&n, at, sizeof n);
            const char *name = at + sizeof n;
            const char *desc = name + (n.n_namesz + align - 1) / align * align;
            if (desc + n.n_descsz > end)
                break;
            if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                for (size_t b = 0; b < n.n_descsz && 2 * b + 3 < size; b++)
                    snprintf(out + 2 * b, 3, "%02x", (unsigned char)desc[b]);
                return;
            }
            at = desc + (n.n_descsz + align - 1) / align * align;
        }
    }
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    const char *path = info->dlpi_name;
    const char *name = path ? strrchr(path, '/') : NULL;
    name = name ? name + 1 : path;
    if (!name || !begins_with_any(name, libraries, sizeof libraries / sizeof *libraries))
        return 0;
    char key[128], value[4096 + 80], id[64], real[4096];
    build_id(info, id, sizeof id);
    snprintf(key, sizeof key, "library.%s", name);
    if (strstr(text, key)) { /* a second one of that name: both are told */
        char line[140];
        snprintf(line, sizeof line, "\n%s\t", key);
        if (strstr(text, line))
            snprintf(key, sizeof key, "library.%.100s#2", name);
    }
    const char *whole = realpath(path, real) ? real : path;
    snprintf(value, sizeof value, "%s build-id:%s", whole, *id ? id : "none");
    add(key, value);
    /* Asking the loader is not safe at any time and in any version; its file carries the number. */
    const char *version = strstr(whole, "libze_loader.so.");
    if (version && strcmp(key, "library.libze_loader.so.1") == 0)
        add("loader.version", version + strlen("libze_loader.so."));
    return 0;
}

/* --- cards ------------------------------------------------------------------------------------ */

static bool read_word(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n < 0 ? 0 : n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

static void cards(void)
{
    const char *root = secure_getenv("ZEROUTE_ROOT");
    for (int n = 128; n < 192; n++) {
        static const char *const part[] = {"vendor", "device", "subsystem_vendor",
                                           "subsystem_device", "revision"};
        char path[512], word[5][24], key[24], value[160];
        for (size_t i = 0; i < 5; i++) {
            snprintf(path, sizeof path, "%s/sys/class/drm/renderD%d/device/%s", root ? root : "", n,
                     part[i]);
            if (!read_word(path, word[i], sizeof word[i]) && i == 0)
                break;
        }
        if (!word[0][0])
            continue;
        snprintf(key, sizeof key, "card.renderD%d", n);
        snprintf(value, sizeof value, "%s:%s subsystem %s:%s revision %s", word[0], word[1], word[2],
                 word[3], word[4]);
        add(key, value);
    }
}

/* --- environment ------------------------------------------------------------------------------ */

/* NEO reads keys of its own style, EnableDeferBacking, when NEOReadDebugKeys is set. */
static bool is_debug_key(const char *s)
{
    size_t n = strcspn(s, "=");
    if (n < 6 || s[0] < 'A' || s[0] > 'Z' || s[1] < 'a' || s[1] > 'z')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9')))
            return false;
    return true;
}

static void environment(void)
{
    const char *read_keys = secure_getenv("NEOReadDebugKeys");
    bool keys = read_keys && strcmp(read_keys, "0") != 0;
    for (char **e = environ; e && *e; e++) {
        size_t length = strcspn(*e, "=");
        char key[96];
        if (!begins_with_any(*e, variables, sizeof variables / sizeof *variables) &&
            strncmp(*e, "NEOReadDebugKeys=", 17) != 0 && !(keys && is_debug_key(*e)))
            continue;
        if (length + 5 > sizeof key || (*e)[length] != '=')
            continue;
        snprintf(key, sizeof key, "env.%.*s", (int)length, *e);
        add(key, *e + length + 1);
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

void zr_fingerprint_refresh(void)
{
    if (!zr_stats_is_open())
        return;
    int saved = errno;
    struct utsname system;
    char settings[1024];
    zr_lock(&lock);
    used = 0;
    text[0] = '\0';
    add("zeroute.version", ZEROUTE_VERSION);
    if (uname(&system) == 0)
        add("kernel.release", system.release);
    zr_settings_print(&zr_config, settings, sizeof settings);
    add("settings", settings);
    for (unsigned i = 0; i < note_count; i++)
        add(notes[i].key, notes[i].value);
    cards();
    dl_iterate_phdr(visit, NULL);
    environment();
    if (zr_segment_reserve(zr_segment.fingerprint, sizeof *zr_segment.fingerprint + used + 1))
        zr_segment_write_text(zr_segment.fingerprint, ZR_FINGERPRINT_SIZE, text, used);
    zr_unlock(&lock);
    errno = saved;
}

void zr_fingerprint_note(const char *key, const char *value)
{
    unsigned n = 0;
    zr_lock(&lock);
    while (n < note_count && strcmp(notes[n].key, key) != 0)
        n++;
    bool changed = n < NOTES && (n == note_count || strcmp(notes[n].value, value) != 0);
    if (changed) {
        snprintf(notes[n].key, sizeof notes[n].key, "%s", key);
        snprintf(notes[n].value, sizeof notes[n].value, "%s", value);
        if (n == note_count)
            note_count++;
    }
    zr_unlock(&lock);
    if (changed)
        zr_fingerprint_refresh();
}

void zr_fork_child_fingerprint(void)
{
    lock = (struct zr_lock){0};
}
