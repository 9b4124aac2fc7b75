#include "common/common.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INTEL = 0x8086, MEMORY_BAR = 2 };

static enum zr_family family_of(unsigned device) {
    if ((device & 0xff00) == 0xe200)
        return ZR_FAMILY_BATTLEMAGE;
    if ((device & 0xff00) == 0x5600 || (device & 0xfff0) == 0x4f80)
        return ZR_FAMILY_ALCHEMIST;
    return ZR_FAMILY_OTHER;
}

static char *text_of(const char *node, const char *file) {
    char path[1024];

    return zr_read_whole(zr_root_path(path, sizeof path, "/sys/class/drm/%s/device/%s", node, file), NULL);
}

static uint64_t number_of(const char *node, const char *file, uint64_t otherwise) {
    char *text = text_of(node, file);
    uint64_t n = text ? strtoull(text, NULL, 0) : otherwise;

    free(text);
    return n;
}

static void value_of(const char *text, const char *key, char *out, size_t size) {
    const char *at = text ? strstr(text, key) : NULL;

    *out = '\0';
    if (at) {
        at += strlen(key);
        snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
    }
}

/* Each line of "resource" is start, end and flags of one BAR. */
static uint64_t bar_of(const char *node) {
    char *text = text_of(node, "resource"), *line = text;
    uint64_t bytes = ZR_ABSENT;

    for (int i = 0; line && i < MEMORY_BAR; i++) {
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    if (line) {
        char *behind, *last;
        uint64_t start = strtoull(line, &behind, 16), end = strtoull(behind, &last, 16);
        if (behind > line && last > behind)
            bytes = end > start ? end - start + 1 : 0;
    }
    free(text);
    return bytes;
}

static bool read_card(const char *node, struct zr_card *card) {
    char *uevent = text_of(node, "uevent");

    value_of(uevent, "PCI_SLOT_NAME=", card->pdev, sizeof card->pdev);
    value_of(uevent, "DRIVER=", card->driver, sizeof card->driver);
    free(uevent);
    card->vendor = (unsigned)number_of(node, "vendor", 0);
    card->device = (unsigned)number_of(node, "device", 0);
    card->family = family_of(card->device);
    card->bar = bar_of(node);
    card->vram = number_of(node, "tile0/physical_vram_size_bytes", ZR_ABSENT);
    return card->vendor == INTEL;
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

unsigned zr_cards_list(struct zr_card *cards, unsigned count) {
    char path[512], nodes[ZR_CARDS_MAX * 4][32];
    unsigned found = 0, listed = 0;
    struct dirent *entry;
    DIR *listing = opendir(zr_root_path(path, sizeof path, "/sys/class/drm"));

    while (listing && found < ZR_CARDS_MAX * 4 && (entry = readdir(listing))) {
        if (!strncmp(entry->d_name, "renderD", 7) && strlen(entry->d_name) < sizeof *nodes)
            snprintf(nodes[found++], sizeof *nodes, "%.31s", entry->d_name);
    }
    if (listing)
        closedir(listing);
    qsort(nodes, found, sizeof *nodes, by_name);
    for (unsigned i = 0; i < found && listed < count; i++) {
        memset(&cards[listed], 0, sizeof *cards);
        if (read_card(nodes[i], &cards[listed]))
            listed++;
    }
    return listed;
}

bool zr_card_has_small_bar(const struct zr_card *card) {
    if (card->family == ZR_FAMILY_OTHER || card->bar == ZR_ABSENT)
        return false;
    if (card->vram != ZR_ABSENT)
        return card->bar < card->vram;
    return card->bar <= (UINT64_C(256) << 20);
}
