/* What ends a host mirror on this stack, what it costs, and which is the smallest. */
#include "doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

enum { ONE_CARD, RESTRICT, EAGER, V1_RESIDENT, NO_PEERS, OWNER };

static const struct zr_remedy table[ZR_REMEDIES] = {
    [ONE_CARD] = {"one-card", "ZE_AFFINITY_MASK=N, one process per card", "export",
                  "the process sees one card; oneCCL then needs CCL_TOPO_P2P_ACCESS=1, and some "
                  "collectives break (reported)",
                  false, false, false, false},
    [RESTRICT] = {"restrict-p2p", "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1", "export",
                  "ends as soon as the program enables peer access, as PyTorch does at its first "
                  "copy between cards",
                  false, false, false, false},
    [EAGER] = {"eager", "NEOReadDebugKeys=1 EnableDeferBacking=0 (zeroute run --preset eager sets them)", "backing",
               "debug keys of the driver, not meant for production; set before the driver loads", false, false, false,
               false},
    [V1_RESIDENT] = {"v1-resident", "SYCL_UR_USE_LEVEL_ZERO_V2=0 UR_L0_USM_RESIDENT=0x1", "export",
                     "the older adapter; buffers copied between cards are still mirrored", false, false, false, false},
    [NO_PEERS] = {"no-peers", "NEOReadDebugKeys=1 ForceZeDeviceCanAccessPerReturnValue=0", "export",
                  "no peer access at all; debug keys of the driver", false, false, false, false},
    [OWNER] = {"owner", "zeroute run --preset mitigate (residency:owner)", "export",
               "a buffer copied between cards is still mirrored; a pointer stored in memory may not "
               "work on another card",
               true, false, false, false},
};

static bool key_is(const struct zr_case *c, const char *key, long long wanted) {
    char name[64];
    const char *value = zr_environ_key(&c->stack.environ, key, name, sizeof name);

    return value && strtoll(value, NULL, 10) == wanted && zr_case_env_on(c, "NEOReadDebugKeys");
}

static bool setting_is(const struct zr_case *c, const char *setting) {
    return c->counted.found && strstr(c->counted.settings, setting);
}

/* Cards on which the process really holds memory. */
static unsigned cards_in_use(const struct zr_case *c) {
    unsigned used = 0;

    for (unsigned i = 0; i < c->memory.card_count; i++) {
        uint64_t vram = c->memory.cards[i].vram.total;

        used += vram != ZR_ABSENT && vram >= (UINT64_C(64) << 20);
    }
    return used;
}

static void find_offered(const struct zr_case *c, struct zr_remedy *r) {
    const struct zr_stack *stack = &c->stack;
    bool sycl = stack->parts[ZR_PART_SYCL].there;
    bool v2 = stack->parts[ZR_PART_UR_V2].there, v1 = stack->parts[ZR_PART_UR_V1].there;

    r[ONE_CARD].offered = zr_case_cards(c) > 1;
    r[RESTRICT].offered =
        v2 && stack->adapter != 1 &&
        (zr_fact_holds(ZR_FACT_RESTRICTS_P2P, stack->runtime) ||
         zr_library_mentions(&stack->parts[ZR_PART_UR_V2], "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P"));
    r[EAGER].offered = stack->parts[ZR_PART_SIMGPU].there || !stack->driver.count ||
                       zr_fact_holds(ZR_FACT_KNOWS_DEFER_KEY, stack->driver);
    r[V1_RESIDENT].offered = sycl && v1;
    if (stack->adapter == 1) {
        r[V1_RESIDENT].setting = "UR_L0_USM_RESIDENT=0x1";
        r[V1_RESIDENT].price = "buffers copied between cards are still mirrored";
    }
    r[NO_PEERS].offered = stack->parts[ZR_PART_DRIVER].there;
    r[OWNER].offered = true;
}

static void find_in_force(const struct zr_case *c, struct zr_remedy *r) {
    const char *mask = zr_environ_get(&c->stack.environ, "ZE_AFFINITY_MASK");
    const char *resident = zr_environ_get(&c->stack.environ, "UR_L0_USM_RESIDENT");

    r[ONE_CARD].in_force = mask && *mask && !strchr(mask, ',');
    r[RESTRICT].in_force = r[RESTRICT].offered && zr_case_env_on(c, "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P");
    r[EAGER].in_force =
        key_is(c, "EnableDeferBacking", 0) || (c->counted.found && !strncmp(c->counted.backing, "eager", 5));
    r[V1_RESIDENT].in_force = c->stack.adapter == 1 && resident && strtol(resident, NULL, 0) == 1;
    r[NO_PEERS].in_force = key_is(c, "ForceZeDeviceCanAccessPerReturnValue", 0);
    r[OWNER].in_force = setting_is(c, "residency:owner");
}

/* The least change that holds. Exports by IPC are not ended by anything that ends peer residency. */
void zr_remedies_find(const struct zr_case *c, const struct zr_link links[ZR_LINKS],
                      struct zr_remedy remedies[ZR_REMEDIES]) {
    bool ipc =
        c->counted.found ? c->counted.ipc_exports > 0 : c->memory.dmabuf_fds > 0 || c->stack.parts[ZR_PART_CCL].there;

    memcpy(remedies, table, sizeof table);
    find_offered(c, remedies);
    find_in_force(c, remedies);
    if (links[ZR_LINK_EXPORT].answer == ZR_NO && !ipc)
        return;
    if (ipc && remedies[EAGER].offered)
        remedies[EAGER].smallest = true;
    else if (c->pid && zr_case_cards(c) > 1 && cards_in_use(c) == 1)
        remedies[ONE_CARD].smallest = true;
    else if (remedies[RESTRICT].offered)
        remedies[RESTRICT].smallest = true;
    else if (c->stack.adapter == 1 && zr_library_mentions(&c->stack.parts[ZR_PART_UR_V1], "UR_L0_USM_RESIDENT"))
        remedies[V1_RESIDENT].smallest = true;
    else
        remedies[OWNER].smallest = true;
}
