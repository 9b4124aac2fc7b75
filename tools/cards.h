/* The cards of the machine as sysfs shows them. */
#ifndef ZEROUTE_TOOLS_CARDS_H
#define ZEROUTE_TOOLS_CARDS_H

#include <stdbool.h>
#include <stdint.h>

enum zr_family { ZR_FAMILY_OTHER, ZR_FAMILY_ALCHEMIST, ZR_FAMILY_BATTLEMAGE };

struct zr_card {
    char pdev[32];   /* 0000:03:00.0 */
    char driver[16]; /* xe, i915 */
    unsigned vendor, device;
    enum zr_family family;
    uint64_t bar;  /* bytes of its memory that the CPU can see; ZR_ABSENT: not told */
    uint64_t vram; /* ZR_ABSENT: not told */
};

/* Intel cards with a render node, in the order of their nodes; at most count. */
unsigned zr_cards_list(struct zr_card *cards, unsigned count);

/* Discrete, and less of its memory is visible than it has: no Resizable BAR. */
bool zr_card_has_small_bar(const struct zr_card *card);

#endif
