/*
 * check:ipc: reports what processes do wrong with IPC handles. Which of them are open, where, and
 * who has freed the block behind one, machine/sharing.c knows; here is by which stack each was
 * opened.
 */
#include "check/check.h"
#include "machine/machine.h"

#include <unistd.h>

/* By which stack each import was opened. Written before the import is watched. */
static struct zr_origin opened_by[ZR_IMPORTS];

void zr_check_exported(const void *base, const struct zr_handle_id *id) {
    struct zr_checked *c = zr_checked_at((uintptr_t)base);

    if (c && zr_checks(ZR_CHECK_IPC))
        c->handle = *id;
}

void zr_check_imported(int import) {
    if (!zr_checks(ZR_CHECK_IPC))
        return;
    if (import >= 0) {
        zr_origin_here(&opened_by[import]);
        zr_share_watch(import);
        zr_worker_start(); /* it does so */
    } else {
        zr_check_count(ZR_FOUND_PASSED_SHARED, 1);
    }
}

static void tell_process(struct zr_report *r, const char *what, int pid) {
    char words[256];

    zr_process_words(pid, words, sizeof words);
    zr_tell(r, "  %-10s %s\n", what, pid < 0 ? "no process that runs with check:ipc" : words);
}

void zr_imports_look(void) {
    for (;;) {
        struct zr_report r = {.what = ZR_FOUND_IPC_STALE};
        struct zr_import stale;
        unsigned index;
        int pid;

        if (!zr_checks(ZR_CHECK_IPC))
            return;
        pid = zr_share_stale(&stale, &index);
        if (pid < 0)
            return;
        zr_tell(&r,
                "memory opened at %p was freed by process %d, and is still open in process %d\n",
                stale.at, pid, getpid());
        tell_process(&r, "freed by", pid);
        tell_process(&r, "open in", getpid());
        zr_tell_origin(&r, "opened", &opened_by[index]);
        zr_found(&r);
    }
}

void zr_exports_freed(const struct zr_checked *c) {
    struct zr_report r = {.what = ZR_FOUND_IPC_FREED_OPEN};
    int pid;

    if (!c->handle.bytes)
        return;
    pid = zr_share_freed(&c->handle);
    if (pid < 0)
        return;
    zr_tell(&r, "a block of %zu bytes was freed by process %d while process %d has it open%s\n",
            c->size, getpid(), pid,
            zr_share_half_closed(&c->handle, pid) ? ", opened more often than closed" : "");
    tell_process(&r, "freed by", getpid());
    tell_process(&r, "open in", pid);
    zr_tell_block(&r, c);
    zr_found(&r);
}

/*
 * A handle that is never closed is as common as memory that is never freed; one closed too few
 * times is an error. Other threads may still be opening and closing: the report is written without
 * the lock.
 */
void zr_imports_end(void) {
    struct zr_unclosed u;

    zr_imports_look();
    while (zr_checks(ZR_CHECK_IPC) && zr_share_unclosed(&u)) {
        struct zr_report r = {.what = ZR_FOUND_IPC_UNCLOSED};

        zr_tell(&r, "a handle was opened %u times and closed %u times by process %d\n", u.opens,
                u.closes, getpid());
        tell_process(&r, "opened by", getpid());
        tell_process(&r, "exporter", u.exporter);
        zr_tell_origin(&r, "opened", &opened_by[u.index]);
        zr_found(&r);
    }
}
