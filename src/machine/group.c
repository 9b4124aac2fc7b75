/* The group of processes that share a limit (group_limit). */
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t id; /* atomic; 0: not known yet */

/*
 * A job of Slurm is all its steps. Other launchers name their job to the segment. A container is a
 * PID namespace, and so is a machine outside of any.
 */
void zr_group_name(char *out, size_t size) {
    const char *slurm = secure_getenv("SLURM_JOB_ID");
    bool known = zr_stats_open();

    if (zr_config.group)
        snprintf(out, size, "%s", zr_config.group);
    else if (slurm && *slurm)
        snprintf(out, size, "job slurm:%s", slurm);
    else if (known && *zr_segment.header->job_id)
        snprintf(out, size, "job %s", zr_segment.header->job_id);
    else
        snprintf(out, size, "container %llu",
                 known ? (unsigned long long)zr_segment.header->pid_namespace : 0);
}

uint64_t zr_group_id(void) {
    uint64_t known = __atomic_load_n(&id, __ATOMIC_RELAXED);
    char name[256];

    if (likely(known) || !zr_stats_open())
        return known;
    zr_group_name(name, sizeof name);
    known = zr_hash(name) | 1;
    __atomic_store_n(&zr_segment.globals->group.id, known, __ATOMIC_RELAXED);
    __atomic_store_n(&id, known, __ATOMIC_RELAXED);
    return known;
}

void zr_group_fork_child(void) {
    id = 0;
}
