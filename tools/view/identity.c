/*
 * Whose process it is: job and rank as its launcher says, container and pod as its cgroup and the downward API's
 * variables say. All of it is text of others.
 */
#include "outside/outside.h"
#include "view/view.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define COPY(to, text) snprintf(to, sizeof(to), "%s", text)

/* --- the environment -------------------------------------------------------------------------- */

static const char *variable(const char *text, size_t length, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text, *end = text + length; at < end; at += strnlen(at, (size_t)(end - at)) + 1)
        if ((size_t)(end - at) > n && strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

/* The first one that is set, of names that end with NULL. */
static void first_of(char *out, size_t size, const char *text, size_t length, const char *const *names) {
    for (; !*out && *names; names++) {
        const char *value = variable(text, length, *names);
        if (value && *value)
            snprintf(out, size, "%s", value);
    }
}

void zr_identify_environment(const char *text, size_t length, const struct zeroute_process *p,
                             struct zr_identity *out) {
    static const char *const rank[] = {"RANK", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    static const char *const local[] = {"LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                        NULL};
    static const char *const name[] = {"SLURM_JOB_NAME", NULL};
    static const char *const pod[] = {"POD_NAME", "MY_POD_NAME", "K8S_POD_NAME", NULL};
    static const char *const space[] = {"POD_NAMESPACE", "MY_POD_NAMESPACE", "K8S_POD_NAMESPACE", NULL};
    static const char *const container[] = {"CONTAINER_NAME", "MY_CONTAINER_NAME", NULL};
    const char *ray = variable(text, length, "RAY_JOB_ID"), *slurm = variable(text, length, "SLURM_JOB_ID");
    const char *step = variable(text, length, "SLURM_STEP_ID");

    COPY(out->job, p->job_id);
    if (!*out->job && ray && *ray)
        snprintf(out->job, sizeof out->job, "ray:%s", ray);
    else if (!*out->job && slurm && *slurm)
        snprintf(out->job, sizeof out->job, "slurm:%s%s%s", slurm, step ? "." : "", step ? step : "");
    if (!*out->job)
        COPY(out->job, p->run_id);
    COPY(out->rank, p->rank);
    first_of(out->rank, sizeof out->rank, text, length, rank);
    first_of(out->local_rank, sizeof out->local_rank, text, length, local);
    first_of(out->job_name, sizeof out->job_name, text, length, name);
    first_of(out->pod, sizeof out->pod, text, length, pod);
    first_of(out->space, sizeof out->space, text, length, space);
    first_of(out->container, sizeof out->container, text, length, container);
}

/* --- the cgroup ------------------------------------------------------------------------------- */

static size_t hex_digits(const char *s) {
    size_t n = 0;
    while (isxdigit((unsigned char)s[n]))
        n++;
    return n;
}

/* "cri-containerd-ID.scope", "docker-ID.scope", "libpod-ID.scope" or ID alone: an id has 64 digits. */
static void container_of(const char *part, size_t length, struct zr_identity *out) {
    for (size_t i = 0; i + 64 <= length; i++)
        if ((i == 0 || part[i - 1] == '-') && hex_digits(part + i) == 64) {
            if (!*out->container)
                snprintf(out->container, sizeof out->container, "%.12s", part + i);
            return;
        }
}

/* "podUID" or "kubepods-burstable-podUID.slice", where systemd writes the dashes of the id as underscores. */
static void pod_of(const char *part, size_t length, struct zr_identity *out) {
    const char *at = NULL;
    for (size_t i = 0; i + 3 + 32 <= length; i++)
        if ((i == 0 || part[i - 1] == '-') && strncmp(part + i, "pod", 3) == 0 && isxdigit((unsigned char)part[i + 3]))
            at = part + i + 3;
    if (!at || *out->pod)
        return;
    snprintf(out->pod, sizeof out->pod, "%.*s", (int)strspn(at, "0123456789abcdefABCDEF_-"), at);
    for (char *c = out->pod; *c; c++)
        if (*c == '_')
            *c = '-';
}

void zr_identify_cgroup(const char *text, struct zr_identity *out) {
    char job[32] = "", step[32] = "";
    while (*text) {
        size_t n = strcspn(text, "/\n");
        const char *part = text;
        container_of(part, n, out);
        pod_of(part, n, out);
        if (n > 4 && n < 24 && strncmp(part, "job_", 4) == 0)
            snprintf(job, sizeof job, "%.*s", (int)n - 4, part + 4);
        if (n > 5 && n < 24 && strncmp(part, "step_", 5) == 0 && *job)
            snprintf(step, sizeof step, "%.*s", (int)n - 5, part + 5);
        text += n + (text[n] != '\0');
    }
    if (*job && *step && !*out->job)
        snprintf(out->job, sizeof out->job, "slurm:%s.%s", job, step);
}

void zr_identify(const struct zeroute_process *p, struct zr_identity *out) {
    size_t length = 0;
    char *text;

    *out = (struct zr_identity){0};
    text = p->pid ? zr_outside_text(p->pid, ZR_FILE_ENVIRON | ZR_FILE_REAL, ZR_OUTSIDE_BYTES, &length) : NULL;
    zr_identify_environment(text ? text : "", text ? length : 0, p, out);
    free(text);
    text = p->pid ? zr_outside_text(p->pid, ZR_FILE_CGROUP | ZR_FILE_REAL, ZR_OUTSIDE_BYTES, NULL) : NULL;
    if (text)
        zr_identify_cgroup(text, out);
    free(text);
}
