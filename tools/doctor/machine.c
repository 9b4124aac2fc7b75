/* Why a program finds no GPU here: cards, their kernel driver, permission, the driver's library, the mask. */
#include "doctor/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_display(const char *device) {
    char path[512];
    char *class = zr_read_whole(zr_root_path(path, sizeof path, "/sys/bus/pci/devices/%s/class", device), NULL);
    char *vendor = zr_read_whole(zr_root_path(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", device), NULL);
    bool display = class && vendor && strtoul(vendor, NULL, 0) == 0x8086 && strtoul(class, NULL, 0) >> 16 == 3;

    free(class);
    free(vendor);
    return display;
}

unsigned zr_driverless_cards(char *first, size_t size) {
    char path[512];
    struct dirent *entry;
    unsigned count = 0;
    DIR *listing = opendir(zr_root_path(path, sizeof path, "/sys/bus/pci/devices"));

    *first = '\0';
    while (listing && (entry = readdir(listing))) {
        if (strlen(entry->d_name) > 31 || !strchr(entry->d_name, ':') || !is_display(entry->d_name) ||
            !access(zr_root_path(path, sizeof path, "/sys/bus/pci/devices/%s/driver", entry->d_name), F_OK))
            continue;
        if (!count++)
            snprintf(first, size, "%s", entry->d_name);
    }
    if (listing)
        closedir(listing);
    return count;
}

int zr_render_node_error(char *node, size_t size) {
    char path[512];
    struct dirent *entry;
    int error = ENOENT;
    DIR *listing = opendir(zr_root_path(path, sizeof path, "/dev/dri"));

    snprintf(node, size, "/dev/dri/renderD*");
    while (listing && error && (entry = readdir(listing))) {
        if (strncmp(entry->d_name, "renderD", 7))
            continue;
        zr_root_path(path, sizeof path, "/dev/dri/%s", entry->d_name);
        error = access(path, R_OK | W_OK) ? errno : 0;
        snprintf(node, size, "/dev/dri/%s", entry->d_name);
    }
    if (listing)
        closedir(listing);
    return error;
}

/* "0", "0,2", "1.0": whether it names none of this many cards. */
static bool hides_all(const char *mask, unsigned cards) {
    while (mask && *mask) {
        char *end;
        if (isdigit((unsigned char)*mask) && strtoul(mask, &end, 10) < cards)
            return false;
        mask += strcspn(mask, ",");
        mask += *mask == ',';
    }
    return true;
}

static void check_cards(const struct zr_case *c, struct zr_findings *to) {
    struct zr_finding *f;

    if (c->driverless) {
        f = zr_finding_add(to, c->card_count ? ZR_WARNING : ZR_ERROR, "no-kernel-driver",
                           "card %s has no kernel driver", c->driverless_card);
        zr_finding_says(&f->seen, "%u Intel display device%s on the PCI bus without a driver", c->driverless,
                        c->driverless == 1 ? "" : "s");
        zr_finding_says(&f->todo,
                        "modprobe xe (or i915), and see 'dmesg | grep -e xe -e i915' if it refuses the card: an "
                        "older kernel may need an update, or xe.force_probe=ID");
    } else if (!zr_case_cards(c)) {
        f = zr_finding_add(to, ZR_ERROR, "no-card", "no Intel GPU was found");
        zr_finding_says(&f->seen, "neither a render node in /sys/class/drm nor a display device on the PCI bus");
        zr_finding_says(&f->todo,
                        "check that the card is seated and powered ('lspci -d 8086:'), in a virtual machine that "
                        "it is passed through; 'zeroute run --sim' tries programs without one");
    }
    if (c->card_count && c->node_error) {
        bool denied = c->node_error == EACCES || c->node_error == EPERM;
        f = zr_finding_add(to, ZR_ERROR, "no-permission", denied ? "%s may not be opened" : "%s is missing", c->node);
        zr_finding_says(&f->seen, "%s", strerror(c->node_error));
        if (denied)
            zr_finding_says(&f->todo, "sudo usermod -aG render $USER, then log in again");
        else
            zr_finding_says(&f->todo, "in a container: start it with --device /dev/dri; else see 'dmesg | grep drm'");
    }
}

static void check_libraries(const struct zr_case *c, struct zr_findings *to) {
    const struct zr_library *parts = c->stack.parts;
    struct zr_finding *f;

    if (!parts[ZR_PART_LOADER].there) {
        f = zr_finding_add(to, ZR_ERROR, "no-loader", "the Level Zero loader is not installed");
        zr_finding_says(&f->seen, "no libze_loader.so.1 where programs look for libraries");
        zr_finding_says(&f->todo, "install it: libze1 (Debian, Ubuntu), level-zero (Fedora, Arch)");
    }
    if (!parts[ZR_PART_DRIVER].there && !parts[ZR_PART_DRIVER_LEGACY].there && !parts[ZR_PART_SIMGPU].there) {
        f = zr_finding_add(to, ZR_ERROR, "no-driver", "Intel's GPU driver for Level Zero is not installed");
        zr_finding_says(&f->seen, "no libze_intel_gpu.so.1 where programs look for libraries");
        zr_finding_says(&f->todo, "install it: libze-intel-gpu1 (Debian, Ubuntu), intel-compute-runtime (Arch), "
                                  "intel-level-zero (Fedora)");
    }
}

void zr_machine_find(const struct zr_case *c, struct zr_findings *to) {
    const char *mask = zr_environ_get(&c->stack.environ, "ZE_AFFINITY_MASK");
    struct zr_finding *f;

    if (!c->pid)
        check_cards(c, to);
    if (!c->pid && (c->card_count || c->driverless))
        check_libraries(c, to);
    if (mask && *mask && c->card_count && hides_all(mask, c->card_count)) {
        f = zr_finding_add(to, ZR_ERROR, "mask-hides-all", "ZE_AFFINITY_MASK hides every card");
        zr_finding_says(&f->seen, "ZE_AFFINITY_MASK=%s, and there %s: %u", mask,
                        c->card_count == 1 ? "is one card" : "are cards", c->card_count);
        zr_finding_says(&f->todo, "unset it, or name cards from 0 to %u", c->card_count - 1);
    }
}
