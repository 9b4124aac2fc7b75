/* What the kernel says about the cards, per process: VRAM, from fdinfo. */
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096, OWN = 64 };

/* --- addresses of devices --------------------------------------------------------------------- */

/* Atomic: as the driver reports it of each device, plus one; 0: not told. */
static uint64_t address[ZR_DEVICES];

void zr_drm_name(unsigned device, uint64_t pci) {
    if (device < ZR_DEVICES)
        __atomic_store_n(&address[device], pci + 1, __ATOMIC_RELAXED);
}

uint64_t zr_drm_address(unsigned device) {
    uint64_t told = device < ZR_DEVICES ? __atomic_load_n(&address[device], __ATOMIC_RELAXED) : 0;

    for (unsigned i = 0; i < ZR_DEVICES && told; i++)
        if (i != device && __atomic_load_n(&address[i], __ATOMIC_RELAXED) == told)
            return ZR_NO_ADDRESS;
    return told - 1; /* ZR_NO_ADDRESS if it was not told */
}

/* --- fdinfo ----------------------------------------------------------------------------------- */

/* Domain, bus, device, function. */
uint64_t zr_drm_parse(const char *text) {
    static const unsigned char shift[] = {16, 8, 3, 0};
    uint64_t pci = 0;

    for (size_t i = 0; i < sizeof shift; i++) {
        char *end;

        pci |= strtoull(text, &end, 16) << shift[i];
        text = end;
        if (*text)
            text++;
    }
    return pci;
}

/* "123", "123 KiB" */
static uint64_t region_bytes(const char *text) {
    uint64_t n = zr_number(text);

    if (n == UINT64_MAX)
        return 0;
    switch (text[strspn(text, " \t0123456789")]) {
    case 'K':
        return n << 10;
    case 'M':
        return n << 20;
    case 'G':
        return n << 30;
    default:
        return n;
    }
}

/* Whether the client was not counted yet. False as well where there are too many. */
static bool client_is_new(struct zr_drm *d, uint64_t client) {
    for (unsigned i = 0; i < d->clients; i++)
        if (d->client[i] == client)
            return false;
    if (d->clients == sizeof d->client / sizeof *d->client)
        return false;
    d->client[d->clients++] = client;
    return true;
}

/* The index of a card, or one past the last. */
static unsigned card_place(const struct zr_drm *d, uint64_t pci) {
    unsigned i = 0;

    while (i < d->cards && d->card[i].pci != pci)
        i++;
    return i;
}

static void client_add(struct zr_drm *d, uint64_t pci, uint64_t vram) {
    unsigned i = card_place(d, pci);

    if (i == ZR_DEVICES)
        return;
    if (i == d->cards)
        d->cards++;
    d->card[i].pci = pci;
    d->card[i].vram += vram;
}

struct client {
    uint64_t pci, id, vram;
};

/* One line of fdinfo, from behind "drm-". xe calls its regions vram0 and vram1; i915 local0. */
static void read_line(struct client *c, const char *key) {
    const char *value = strchr(key, ':');

    if (!value)
        return;
    value++;
    if (strncmp(key, "pdev:", 5) == 0)
        c->pci = zr_drm_parse(value);
    else if (strncmp(key, "client-id:", 10) == 0)
        c->id = zr_number(value);
    else if (strncmp(key, "total-vram", 10) == 0 || strncmp(key, "total-local", 11) == 0)
        c->vram += region_bytes(value);
}

/* Returns whether the descriptor leads to a card. */
static bool read_descriptor(struct zr_drm *d, const char *name) {
    static char text[4096]; /* under the lock of claim.c */
    struct client c = {.pci = UINT64_MAX};
    const char *line;

    snprintf(text, sizeof text, "%s/%s", d->folder, name);
    zr_read_system(text, text, sizeof text);
    line = strncmp(text, "drm-", 4) == 0 ? text : strstr(text, "\ndrm-");
    while (line) {
        read_line(&c, strstr(line, "drm-") + strlen("drm-"));
        line = strstr(line + 1, "\ndrm-");
    }
    if (c.pci != UINT64_MAX && client_is_new(d, c.pci << 40 ^ c.id))
        client_add(d, c.pci, c.vram);
    return c.pci != UINT64_MAX;
}

static bool add_descriptor(const char *name, void *to) {
    read_descriptor(to, name);
    return true;
}

void zr_drm_add(struct zr_drm *d, const char *pid) {
    snprintf(d->folder, sizeof d->folder, "/proc/%s/fdinfo", pid);
    zr_each_entry(d->folder, DESCRIPTORS, add_descriptor, d);
}

/* --- our own ---------------------------------------------------------------------------------- */

/* The descriptors that led to a card when all were looked at. Under the lock of claim.c. */
static struct {
    uint64_t looked; /* when; 0: not yet */
    unsigned count;
    char name[OWN][12];
} own;

static bool add_own(const char *name, void *to) {
    if (!read_descriptor(to, name))
        return true;
    if (own.count < OWN)
        snprintf(own.name[own.count], sizeof own.name[0], "%s", name);
    own.count++;
    return true;
}

bool zr_drm_add_own(struct zr_drm *d, uint64_t now, uint64_t most_ns) {
    /* Below another root there is no /proc/self, only folders by number. */
    if (secure_getenv("ZEROUTE_ROOT"))
        snprintf(d->folder, sizeof d->folder, "/proc/%d/fdinfo", getpid());
    else
        snprintf(d->folder, sizeof d->folder, "/proc/self/fdinfo");
    if (own.looked && now - own.looked <= most_ns && own.count <= OWN) {
        for (unsigned i = 0; i < own.count; i++)
            read_descriptor(d, own.name[i]);
        return false;
    }
    own.count = 0;
    own.looked = now;
    zr_each_entry(d->folder, DESCRIPTORS, add_own, d);
    return true;
}

void zr_drm_fork_child(void) {
    own.looked = 0;
}

int zr_drm_find(const struct zr_drm *d, unsigned device) {
    unsigned i = card_place(d, zr_drm_address(device));

    return i < d->cards ? (int)i : -1;
}
