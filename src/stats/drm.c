/*
 * What the kernel says about the cards, per process: VRAM and GTT from fdinfo. Without malloc or stdio streams, because
 * the caller may be inside the program's allocator.
 */
#include "stats/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096 };

static uint64_t address[ZR_DEVICES]; /* atomic: as the driver reports it of each device, plus one; 0: not told */

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

/* "0000:03:00.0": domain, bus, device, function. */
static uint64_t pci_of(const char *s) {
    static const unsigned char shift[] = {16, 8, 3, 0};
    uint64_t pci = 0;
    char *end;
    for (size_t i = 0; i < sizeof shift; i++, s = end + (*end != '\0'))
        pci |= strtoull(s, &end, 16) << shift[i];
    return pci;
}

/* "123", "123 KiB" */
static uint64_t bytes_of(const char *s) {
    uint64_t n = zr_number(s);
    s += strspn(s, " \t0123456789");
    return n == UINT64_MAX ? 0 : *s == 'K' ? n << 10 : *s == 'M' ? n << 20 : *s == 'G' ? n << 30 : n;
}

static bool is_new(struct zr_drm *d, uint64_t client) {
    for (unsigned i = 0; i < d->clients; i++)
        if (d->client[i] == client)
            return false;
    if (d->clients == sizeof d->client / sizeof *d->client)
        return false;
    d->client[d->clients++] = client;
    return true;
}

/* The index of a card, or one past the last. */
static unsigned place_of(const struct zr_drm *d, uint64_t pci) {
    unsigned i = 0;
    while (i < d->cards && d->card[i].pci != pci)
        i++;
    return i;
}

static void add_client(struct zr_drm *d, uint64_t pci, uint64_t vram, uint64_t gtt) {
    unsigned i = place_of(d, pci);
    if (i == ZR_DEVICES)
        return;
    d->cards += i == d->cards;
    d->card[i].pci = pci;
    d->card[i].vram += vram;
    d->card[i].gtt += gtt;
}

/* xe calls its regions vram0, vram1 and gtt; i915 local0. */
static bool add_descriptor(const char *name, void *to) {
    struct zr_drm *d = to;
    uint64_t pci = UINT64_MAX, id = 0, vram = 0, gtt = 0;
    char text[4096];
    snprintf(text, sizeof text, "%s/%s", d->folder, name);
    zr_read_system(text, text, sizeof text);
    for (const char *line = strstr(text, "drm-"); line; line = strstr(line + 1, "\ndrm-")) {
        const char *key = line + (*line == '\n' ? 5 : 4), *value = strchr(key, ':');
        if (!value++)
            break;
        if (!strncmp(key, "pdev:", 5))
            pci = pci_of(value);
        else if (!strncmp(key, "client-id:", 10))
            id = zr_number(value);
        else if (!strncmp(key, "total-vram", 10) || !strncmp(key, "total-local", 11))
            vram += bytes_of(value);
        else if (!strncmp(key, "total-gtt", 9))
            gtt += bytes_of(value);
    }
    if (pci != UINT64_MAX && is_new(d, pci << 40 ^ id))
        add_client(d, pci, vram, gtt);
    return true;
}

void zr_drm_add(struct zr_drm *d, const char *pid) {
    /* Below another root there is no /proc/self, only folders by number. */
    if (!pid && secure_getenv("ZEROUTE_ROOT"))
        snprintf(d->folder, sizeof d->folder, "/proc/%d/fdinfo", getpid());
    else
        snprintf(d->folder, sizeof d->folder, "/proc/%s/fdinfo", pid ? pid : "self");
    zr_each_entry(d->folder, DESCRIPTORS, add_descriptor, d);
}

int zr_drm_find(const struct zr_drm *d, unsigned device) {
    unsigned i = place_of(d, zr_drm_address(device));
    return i < d->cards ? (int)i : -1;
}
