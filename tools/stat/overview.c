/* Many processes in one table: those of a job together, with a line of sums below them. */
#include "stat/stat.h"

#include <string.h>
#include <time.h>

static uint64_t value(const struct zeroute_snapshot *s, const char *name) {
    return zeroute_value(s, name, 0);
}

static struct zr_table *new_table(bool finished, bool ranks) {
    const char *held = finished ? ">not freed" : ">in use";
    return ranks ? zr_table_new(">pid", ">age", held, ">peak", ">reserved", ">failed", "rank", "~command", (char *)NULL)
                 : zr_table_new(">pid", ">age", held, ">peak", ">reserved", ">failed", "~command", (char *)NULL);
}

static void row(struct zr_table *t, bool ranks, const char *pid, const char *age, const struct zeroute_snapshot *s,
                bool finished, const char *rank, const char *command) {
    char held[ZR_TEXT_SIZE], peak[ZR_TEXT_SIZE], reserved[ZR_TEXT_SIZE], failed[ZR_TEXT_SIZE];
    /* A finished process holds nothing any more. */
    zr_text_bytes(held, finished ? zeroute_value(s, "left.bytes", ZR_ABSENT) : value(s, "allocated_bytes.all.current"));
    zr_text_bytes(peak, value(s, "allocated_bytes.all.peak"));
    zr_text_bytes(reserved, value(s, finished ? "reserved_bytes.all.peak" : "reserved_bytes.all.current"));
    zr_text_count(failed, zr_total(s, "failures."));
    if (ranks)
        zr_table_row(t, pid, age, held, peak, reserved, failed, rank, command);
    else
        zr_table_row(t, pid, age, held, peak, reserved, failed, command);
}

void zr_overview(FILE *out, struct zeroute_snapshot *const *s, size_t count, const struct zr_overview_sum *sums,
                 size_t sum_count, bool colour) {
    struct timespec now;
    bool ranks = false, finished = count > 0;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    for (size_t i = 0; i < count; i++) {
        ranks |= *s[i]->process.rank != '\0';
        finished &= s[i]->process.state == ZEROUTE_FINISHED;
    }
    struct zr_table *t = new_table(finished, ranks);
    for (size_t i = 0; i < count; i++) {
        const struct zeroute_process *p = &s[i]->process;
        char pid[16], age[ZR_TEXT_SIZE];
        snprintf(pid, sizeof pid, "%d", p->pid ? p->pid : p->pid_inside);
        zr_text_age(age, now_ns > p->created_ns ? now_ns - p->created_ns : 0);
        row(t, ranks, pid, age, s[i], p->state == ZEROUTE_FINISHED, *p->rank ? p->rank : "-", p->command);
        for (size_t k = 0; k < sum_count; k++) {
            char name[200];
            if (sums[k].behind != i)
                continue;
            snprintf(name, sizeof name, "%zu processes of job %s", sums[k].sum->processes, sums[k].name);
            row(t, ranks, "sum", "", sums[k].sum, finished, "", name);
        }
    }
    zr_table_print(t, out, colour);
}
