/*
 * Looking at processes from outside: who lives, who is finished, who may not be read, and what is
 * removed when.
 */
#define WORK "run_work"
#include "shell.h"
#include "suite.h"
#include "worker.h"
#include "zeroute/reader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static enum zeroute_state state_of(pid_t pid, char *path) {
    struct zeroute_list *list = zeroute_list_new();
    enum zeroute_state state = (enum zeroute_state)99;
    for (size_t i = 0; i < list->count; i++)
        if (list->process[i].pid_inside == pid) {
            state = list->process[i].state;
            if (path)
                snprintf(path, 320, "%s", list->process[i].path);
        }
    zeroute_list_free(list);
    return state;
}

static const char *const keep_and_wait[] = {"run_work", "keep", "3", "wait", NULL};

static void setup(void) {
    shell_setup();
    chmod(folder, 0777);
    setenv("ZE_SIMGPU", "devices:1,vram:1GiB", 1);
    signal(SIGPIPE, SIG_IGN);
}

START_TEST(a_live_process_is_shown_while_it_runs) {
    struct worker w = begin(keep_and_wait);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_LIVE);
    ck_assert_int_eq(sh("$Z stat %d", w.pid), 0);
    ck_assert_ptr_nonnull(strstr(out, "(running)"));
    ck_assert_ptr_nonnull(strstr(out, "3.00 MiB"));
    ck_assert_int_eq(sh("$Z stat %d --json | python3 -c 'import json, sys; p = json.load(sys.stdin)"
                        "[\"processes\"]; assert len(p) == 1; assert p[0][\"state\"] == \"live\"; "
                        "print(p[0][\"fields\"][\"allocated_bytes.all.current\"])'",
                        w.pid),
                     0);
    ck_assert_str_eq(out, "3145728\n");
    go_on(&w);
    ck_assert_int_eq(finish(&w), 0);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_FINISHED);
    ck_assert_int_eq(sh("$Z stat %d", w.pid), 0);
    ck_assert_ptr_nonnull(strstr(out, "(finished)"));
}
END_TEST

START_TEST(figures_that_belong_together_agree_while_they_change) {
    static const char *const argv[] = {"run_work", "keep", "1", "busy", "wait", "calm", NULL};
    char path[320], why[256];
    uint64_t calls = 0, first = 0;
    struct worker w = begin(argv);
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_LIVE);
    for (int i = 0, torn = 0; i < 300 || calls == first; i++) {
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        ck_assert_msg(s != NULL, "%s", why);
        if (s->torn) { /* a thread was stopped while it booked: the snapshot says that its figures may disagree */
            ck_assert_int_lt(++torn, 300);
            zeroute_snapshot_free(s);
            i--;
            continue;
        }
        uint64_t bytes = zeroute_value(s, "allocated_bytes.all.current", 0);
        uint64_t blocks = zeroute_value(s, "allocation.all.current", 0);
        uint64_t now = zeroute_value(s, "calls.zeMemAllocDevice.plt", 0);
        /* One block is kept; each of two threads has one or none. */
        ck_assert_uint_ge(bytes, 1 << 20);
        ck_assert_uint_le(bytes, 3 << 20);
        ck_assert_uint_eq(bytes, blocks << 20);
        ck_assert_uint_ge(zeroute_value(s, "allocated_bytes.all.peak", 0), bytes);
        ck_assert_uint_ge(now, calls);
        first = i == 0 ? now : first;
        calls = now;
        zeroute_snapshot_free(s);
    }
    go_on(&w);
    ck_assert_int_eq(finish(&w), 0);
}
END_TEST

/* What the process holds is reserved from the driver: at no instant does it hold more. */
START_TEST(reserved_is_never_below_allocated_while_both_change) {
    static const char *const argv[] = {"run_work", "keep", "1", "busy", "wait", "calm", NULL};
    static const char *const conf[] = {"preset:observe", "preset:reroute", "preset:reroute,cache_limit:0"};
    static const char *const front[] = {"", "device.0."};
    char path[320], why[256], name[2][64];
    unsigned most = 0;
    setenv("ZEROUTE_CONF", conf[_i], 1);
    struct worker w = begin(argv);
    unsetenv("ZEROUTE_CONF");
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_LIVE);
    /* Until a read falls where a busy thread holds memory: on a loaded machine that takes more of them. */
    for (int i = 0; i < (getenv("LONG") ? 3000 : 150) || most == 0; i++) {
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        ck_assert_msg(s != NULL, "%s", why);
        for (int part = 0; part < 4; part++) {
            const char *what = part / 2 ? "peak" : "current";
            snprintf(name[0], sizeof name[0], "%sreserved_bytes.all.%s", front[part % 2], what);
            snprintf(name[1], sizeof name[1], "%sallocated_bytes.all.%s", front[part % 2], what);
            uint64_t reserved = zeroute_value(s, name[0], 0), allocated = zeroute_value(s, name[1], 1);
            ck_assert_msg(reserved >= allocated, "read %d: %s %llu, %s %llu", i, name[0], (unsigned long long)reserved,
                          name[1], (unsigned long long)allocated);
            most += part == 0 && allocated > 1 << 20;
        }
        zeroute_snapshot_free(s);
    }
    go_on(&w);
    ck_assert_int_eq(finish(&w), 0);
    /* The reader raises what is reserved to what is allocated: at rest the books themselves must say so. */
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
    ck_assert_msg(s != NULL, "%s", why);
    uint64_t booked =
        zeroute_value(s, "reserved_bytes.all.allocated", 0) - zeroute_value(s, "reserved_bytes.all.freed", 1);
    ck_assert_uint_ge(zeroute_value(s, "allocated_bytes.all.current", 0), 1 << 20);
    ck_assert_uint_ge(booked, zeroute_value(s, "allocated_bytes.all.current", 0));
    ck_assert_uint_eq(booked, zeroute_value(s, "reserved_bytes.all.current", 0));
    zeroute_snapshot_free(s);
}
END_TEST

/* A copy of a live segment, by the same user: as good in all else, but the process neither holds nor maps it. */
START_TEST(a_copy_of_a_live_segment_is_not_taken_for_the_process) {
    char path[320], copy[330];
    struct worker w = begin(keep_and_wait);
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_LIVE);
    snprintf(copy, sizeof copy, "%s", path);
    char *last = &copy[strlen(copy) - 1];
    *last = *last == '0' ? '1' : '0';
    ck_assert_int_eq(sh("cp %s %s", path, copy), 0);
    struct zeroute_list *list = zeroute_list_new();
    unsigned own = 0, copies = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct zeroute_process *p = &list->process[i];
        own += strcmp(p->path, path) == 0 && p->readable && p->state == ZEROUTE_LIVE && p->held;
        copies += strcmp(p->path, copy) == 0 && p->state == ZEROUTE_FINISHED && !p->held;
    }
    zeroute_list_free(list);
    int stat_code = sh("$Z stat %d --json | python3 -c 'import json, sys; print(sum(p[\"state\"] == \"live\" for p in "
                       "json.load(sys.stdin)[\"processes\"]))'",
                       w.pid);
    int live = atoi(out);
    int doctor_code = sh("$Z doctor %d", w.pid);
    bool doctor_counts_once = !strstr(out, "6.00 MiB");
    unlink(copy);
    go_on(&w);
    ck_assert_int_eq(finish(&w), 0);
    ck_assert_uint_eq(own, 1);
    ck_assert_uint_eq(copies, 1);
    ck_assert_int_eq(stat_code, 0);
    ck_assert_int_eq(live, 1);
    ck_assert_int_le(doctor_code, 1);
    ck_assert(doctor_counts_once);
}
END_TEST

START_TEST(a_killed_process_is_finished_even_before_it_is_collected) {
    struct worker w = begin(keep_and_wait);
    siginfo_t info;
    kill(w.pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)w.pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_FINISHED);
    finish(&w);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_FINISHED);
}
END_TEST

START_TEST(a_process_that_closed_all_its_descriptors_is_still_alive) {
    static const char *const argv[] = {"run_work", "keep", "1", "closefrom", "keep", "1", "wait", NULL};
    struct worker w = begin(argv);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_LIVE);
    ck_assert_int_eq(sh("$Z gc >/dev/null; $Z stat %d", w.pid), 0);
    ck_assert_ptr_nonnull(strstr(out, "2.00 MiB"));
    go_on(&w);
    finish(&w);
}
END_TEST

START_TEST(a_program_that_was_replaced_by_exec_is_finished) {
    static const char *const argv[] = {"run_work", "keep", "1", "wait", "exec", "wait", NULL};
    char line[64];
    struct worker w = begin(argv);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_LIVE);
    go_on(&w);
    ck_assert_int_gt(read(w.out, line, sizeof line), 5); /* the new image is ready: same pid, same start time */
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_FINISHED);
    go_on(&w);
    ck_assert_int_eq(finish(&w), 0);
}
END_TEST

START_TEST(gc_removes_the_finished_and_never_the_living) {
    char dead_path[320], live_path[320];
    struct worker dead = begin(keep_and_wait), live = begin(keep_and_wait);
    kill(dead.pid, SIGKILL);
    finish(&dead);
    ck_assert_int_eq(state_of(dead.pid, dead_path), ZEROUTE_FINISHED);
    ck_assert_int_eq(state_of(live.pid, live_path), ZEROUTE_LIVE);
    /* Old or not, a living one stays. */
    ck_assert_int_eq(sh("touch -d '1 day ago' %s; $Z gc", live_path), 0);
    ck_assert_int_ne(access(dead_path, F_OK), 0);
    ck_assert_int_eq(access(live_path, F_OK), 0);
    ck_assert_int_eq(sh("$Z stat >/dev/null; $Z stat %d", live.pid), 0);
    go_on(&live);
    finish(&live);
}
END_TEST

START_TEST(any_command_removes_what_has_been_finished_for_ten_minutes) {
    char path[320];
    struct worker w = begin(keep_and_wait);
    kill(w.pid, SIGKILL);
    finish(&w);
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_FINISHED);
    ck_assert_int_eq(sh("touch -d '9 minutes ago' %s; $Z stat >/dev/null", path), 0);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert_int_eq(sh("touch -d '11 minutes ago' %s; $Z stat", path), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_pid_that_is_used_again_does_not_bring_the_dead_back) {
    char path[320];
    struct worker w = begin(keep_and_wait);
    kill(w.pid, SIGKILL);
    finish(&w);
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_FINISHED);
    /* The same segment as if our own number had been its process's: another start time tells. */
    uint32_t pid = (uint32_t)getpid();
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, &pid, sizeof pid, offsetof(struct zeroute_segment_header, pid)), 4);
    close(fd);
    ck_assert_int_eq(state_of(getpid(), NULL), ZEROUTE_FINISHED);
    unlink(path);
}
END_TEST

START_TEST(what_is_no_segment_is_named_and_left_alone) {
    ck_assert_int_eq(sh("mkdir -pm 700 /dev/shm/zeroute-$(id -u); f=/dev/shm/zeroute-$(id -u)/999999.$$; echo garbage "
                        ">$f; $Z stat; $Z gc; rm $f"),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "999999"));
    ck_assert_ptr_nonnull(strstr(out, "truncated"));
}
END_TEST

START_TEST(another_users_process_is_named_as_not_readable) {
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    struct worker w = begin(keep_and_wait);
    ck_assert_int_eq(sh("setpriv --reuid 65534 --regid 65534 --clear-groups $Z stat %d", w.pid), 2);
    ck_assert_ptr_nonnull(strstr(err, "not readable: Permission denied"));
    ck_assert_int_eq(sh("setpriv --reuid 65534 --regid 65534 --clear-groups $Z stat --json"), 0);
    ck_assert_ptr_nonnull(strstr(out, "not readable: Permission denied"));
    ck_assert_int_eq(sh("setpriv --reuid 65534 --regid 65534 --clear-groups $Z gc"), 0);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_LIVE);
    go_on(&w);
    finish(&w);
}
END_TEST

START_TEST(a_process_in_a_container_is_found_and_known_to_live) {
    if (sh("unshare -mpf true") != 0)
        SKIP("no namespaces here");
    /* A PID and a mount namespace of its own, with its own /dev/shm, as containers have. */
    ck_assert_int_eq(sh("mkfifo go; (unshare -mpf --mount-proc sh -c 'mount -t tmpfs none /dev/shm; "
                        "LD_PRELOAD=$0/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$0/libze_simgpu.so "
                        "exec $0/test/process/run_work keep 5 wait <go >ready' $B &) ; exec 9>go; "
                        "until grep -q ready ready 2>/dev/null; do sleep 0.02; done; $Z stat --json >j; "
                        "python3 - <<'E'\n"
                        "import json, os\n"
                        "def here(p): # not one of another container\n"
                        "    try: return p['pid_inside'] == 1 and os.path.samefile('/proc/%%d/cwd' %% p['pid'], '.')\n"
                        "    except OSError: return False\n"
                        "p = [p for p in json.load(open('j'))['processes'] if here(p)]\n"
                        "assert len(p) == 1, p\n"
                        "assert p[0]['state'] == 'live', p[0]['state']\n"
                        "assert p[0]['pid'] > 1, p[0]['pid']\n"
                        "assert p[0]['fields']['allocated_bytes.all.current'] == 5 << 20\n"
                        "print(p[0]['pid'])\n"
                        "E\n"
                        "code=$?; echo >&9; exit $code"),
                     0);
    ck_assert_int_gt(atoi(out), 1);
}
END_TEST

START_TEST(the_ranks_of_a_job_are_added_up) {
    ck_assert_int_eq(sh("for r in 0 1 2; do TORCHELASTIC_RUN_ID=j$$ MASTER_PORT=1 RANK=$r "
                        "LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "
                        "$W keep $((r + 1)) & done; wait; $Z stat --json >j; echo $$"),
                     0);
    int shell = atoi(out);
    ck_assert_int_eq(sh("python3 - <<'E'\n"
                        "import json\n"
                        "j = json.load(open('j'))['jobs']\n"
                        "j = [x for x in j if x['job'] == 'torchrun:j%d.1']\n"
                        "assert len(j) == 1 and len(j[0]['pids']) == 3, j\n"
                        "assert j[0]['fields']['allocated_bytes.all.current'] == 6 << 20\n"
                        "E\n"
                        "$Z stat --finished | grep -q '^ *sum .* x3 .* 6.00 MiB .* job torchrun:j%d.1$'",
                        shell, shell),
                     0);
}
END_TEST

/* As top does: the one that holds most first, or as told. */
START_TEST(lines_are_sorted_as_in_top) {
    static const char *const keep_more[] = {"run_work", "keep", "5", "wait", NULL};
    struct worker less = begin(keep_and_wait), more = begin(keep_more);
    const char *lines = "awk '$1 == %d || $1 == %d { print $1 }' | tr '\\n' ' '";
    char only[128], expected[64];

    snprintf(only, sizeof only, lines, less.pid, more.pid);
    snprintf(expected, sizeof expected, "%d %d ", more.pid, less.pid);
    ck_assert_int_eq(sh("$Z stat | %s", only), 0);
    ck_assert_str_eq(out, expected);
    ck_assert_int_eq(sh("$Z stat --sort PEAK | %s", only), 0);
    ck_assert_str_eq(out, expected);
    snprintf(expected, sizeof expected, "%d %d ", less.pid, more.pid);
    ck_assert_int_eq(sh("$Z stat --sort pid | %s", only), 0);
    if (less.pid < more.pid)
        ck_assert_str_eq(out, expected);
    ck_assert_int_eq(sh("$Z stat --sort peka 2>&1"), 2);
    ck_assert_ptr_nonnull(strstr(out, "did you mean 'peak'?"));
    go_on(&less);
    go_on(&more);
    ck_assert_int_eq(finish(&less) + finish(&more), 0);
}
END_TEST

START_TEST(ranks_without_a_job_name_are_known_by_their_session) {
    ck_assert_int_eq(sh("setsid -w sh -c 'for r in 0 1; do PMI_RANK=$r LD_PRELOAD='$B'/libzeroute.so "
                        "ZE_ENABLE_ALT_DRIVERS='$B'/libze_simgpu.so '$W' keep 2 & done; wait; echo $$'"),
                     0);
    int session = atoi(out);
    ck_assert_int_eq(sh("$Z stat --finished | grep -q ' x2 .* job mpi:session %d$'", session), 0);
}
END_TEST

START_TEST(a_library_in_the_place_of_another_is_soon_known) {
    /* Two libraries, one after the other, most likely at the same addresses. */
    ck_assert_int_eq(
        sh("cat >l.c <<'E'\n"
           "#include <level_zero/ze_api.h>\n"
           "void go(ze_context_handle_t c, ze_device_handle_t d)\n"
           "{\n"
           "    ze_device_mem_alloc_desc_t x = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};\n"
           "    void *p = 0;\n"
           "    zeMemAllocDevice(c, &x, 4096, 0, d, &p);\n"
           "    zeMemFree(c, p);\n"
           "}\n"
           "E\n"
           "cat >m.c <<'E'\n"
           "#include <dlfcn.h>\n"
           "#include <level_zero/ze_api.h>\n"
           "int main(void)\n"
           "{\n"
           "    const char *names[] = {\"./libone.so\", \"./libtwo.so\"};\n"
           "    ze_driver_handle_t r; ze_device_handle_t d; ze_context_handle_t c; uint32_t n = 1;\n"
           "    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};\n"
           "    zeInit(0); zeDriverGet(&n, &r); n = 1; zeDeviceGet(r, &n, &d);\n"
           "    zeContextCreate(r, &desc, &c);\n"
           "    for (int i = 0; i < 2; i++) {\n"
           "        void *h = dlopen(names[i], RTLD_NOW);\n"
           "        void (*go)(ze_context_handle_t, ze_device_handle_t) = dlsym(h, \"go\");\n"
           "        for (int k = 0; k < 4000; k++) go(c, d);\n"
           "        dlclose(h);\n"
           "    }\n"
           "    return 0;\n"
           "}\n"
           "E\n"
           "for l in one two; do cc -shared -fPIC l.c -o lib$l.so -Wl,-soname,lib$l.so -lze_loader || exit; "
           "done; cc m.c -o m -lze_loader -ldl && $Z run --sim --json j -- ./m && python3 - <<'E'\n"
           "import json\n"
           "f = json.load(open('j'))['processes'][0]['fields']\n"
           "one, two = f['callers.libone.so.calls'], f['callers.libtwo.so.calls']\n"
           "assert one + two == 16000 and 4000 < two <= 8000, (one, two)\n"
           "E"),
        0);
}
END_TEST

START_TEST(prometheus_gets_base_units_and_totals) {
    struct worker w = begin(keep_and_wait);
    ck_assert_int_eq(sh("$Z stat %d --prometheus", w.pid), 0);
    char line[256];
    ck_assert_ptr_nonnull(strstr(out, "# TYPE zeroute_device_memory_allocated_bytes gauge\n"));
    ck_assert_ptr_nonnull(strstr(out, "# TYPE zeroute_driver_calls_total counter\n"));
    ck_assert_ptr_nonnull(strstr(out, "# TYPE zeroute_call_duration_seconds histogram\n"));
    ck_assert_ptr_nonnull(strstr(out, "entry=\"zeMemAllocDevice\",le=\"+Inf\"} 3\n"));
    snprintf(line, sizeof line, "pid=\"%d\"", w.pid);
    ck_assert_ptr_nonnull(strstr(out, line));
    ck_assert_int_eq(
        sh("$Z stat %d --prometheus | grep ^zeroute_device_memory_allocated_bytes | grep -c '} 3145728$'", w.pid), 0);
    ck_assert_str_eq(out, "1\n");
    go_on(&w);
    finish(&w);
}
END_TEST

START_TEST(no_two_samples_have_the_same_labels) {
    ck_assert_int_eq(
        sh("$Z run --sim -- $W keep 1 exec keep 1 && $Z stat --prometheus >all && grep -q calls_total all && "
           "! sed 's/ [0-9.]*$//' all | grep -v '^#' | sort | uniq -d | grep ."),
        0);
}
END_TEST

START_TEST(a_rank_that_has_ended_holds_nothing_of_what_its_job_holds) {
    char run[32], line[128];
    snprintf(run, sizeof run, "test%d", (int)getpid()); /* others may run this suite, too */
    setenv("ZEROUTE_RUN", run, 1);
    struct worker first = begin(keep_and_wait), second = begin(keep_and_wait);
    unsetenv("ZEROUTE_RUN");
    kill(second.pid, SIGKILL);
    finish(&second);
    ck_assert_int_eq(sh("$Z stat | grep 'job %s' | tr -s ' '", run), 0);
    /* The mirror between the two is known where the kernel tells GPUActive. */
    snprintf(line, sizeof line, " job %s (1 finished)\n", run);
    ck_assert_msg(strstr(out, "sum x2 0 3.00 MiB 6.00 MiB 3.00 MiB ") && strstr(out, line), "%s", out);
    go_on(&first);
    finish(&first);
    ck_assert_int_eq(sh("$Z stat | grep 'job %s'", run), 1);
    ck_assert_int_eq(sh("$Z stat --finished | grep ' x2 .* 6.00 MiB .* job %s$'", run), 0);
    ck_assert_int_eq(sh("rm -f /dev/shm/zeroute-*/%d.* /dev/shm/zeroute-*/%d.*", first.pid, second.pid), 0);
}
END_TEST

START_TEST(one_that_could_not_read_its_own_start_time_still_dies) {
    char path[320];
    uint64_t none = 0;
    struct worker w = begin(keep_and_wait);
    ck_assert_int_eq(state_of(w.pid, path), ZEROUTE_LIVE);
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, &none, sizeof none, 40), sizeof none); /* start_time */
    close(fd);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_LIVE);
    go_on(&w);
    finish(&w);
    ck_assert_int_eq(state_of(w.pid, NULL), ZEROUTE_FINISHED);
}
END_TEST

static bool is_there_twice(const char *text, const char *word) {
    const char *first = strstr(text, word);
    return first && strstr(first + 1, word);
}

START_TEST(watching_goes_on_until_it_is_interrupted) {
    struct worker w = begin(keep_and_wait);
    char pid[32], zeroute[PATH_MAX + 16];
    int from[2], status;
    size_t used = 0;
    ssize_t n;
    snprintf(pid, sizeof pid, "\"pid\":%d,", (int)w.pid);
    snprintf(zeroute, sizeof zeroute, "%s/zeroute", build);
    ck_assert_int_eq(pipe(from), 0);
    pid_t watcher = fork();
    if (watcher == 0) {
        dup2(from[1], 1);
        close(from[0]);
        execl(zeroute, "zeroute", "stat", "--json", "--watch=0.1", NULL);
        _exit(99);
    }
    close(from[1]);
    out[0] = '\0';
    while (!is_there_twice(out, pid)) {
        n = read(from[0], out + used, sizeof out - 1 - used);
        ck_assert_msg(n > 0, "it ended by itself: %s", out);
        out[used += (size_t)n] = '\0';
    }
    kill(watcher, SIGINT);
    while (read(from[0], out, sizeof out - 1) > 0) /* it may be at it: who stops listening makes it fail */
        ;
    close(from[0]);
    ck_assert_int_eq(waitpid(watcher, &status, 0), watcher);
    ck_assert_int_eq(status, 0);
    go_on(&w);
    finish(&w);
}
END_TEST

START_TEST(an_unknown_process_is_said_to_be_so) {
    ck_assert_int_eq(sh("$Z stat 4194303"), 2);
    ck_assert_ptr_nonnull(strstr(err, "no statistics of process 4194303: expected"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("stat");
    TCase *t = tcase_create("stat");
    tcase_add_checked_fixture(t, setup, shell_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_live_process_is_shown_while_it_runs);
    tcase_add_test(t, figures_that_belong_together_agree_while_they_change);
    tcase_add_loop_test(t, reserved_is_never_below_allocated_while_both_change, 0, 3);
    tcase_add_test(t, a_copy_of_a_live_segment_is_not_taken_for_the_process);
    tcase_add_test(t, a_killed_process_is_finished_even_before_it_is_collected);
    tcase_add_test(t, a_process_that_closed_all_its_descriptors_is_still_alive);
    tcase_add_test(t, a_program_that_was_replaced_by_exec_is_finished);
    tcase_add_test(t, gc_removes_the_finished_and_never_the_living);
    tcase_add_test(t, any_command_removes_what_has_been_finished_for_ten_minutes);
    tcase_add_test(t, a_pid_that_is_used_again_does_not_bring_the_dead_back);
    tcase_add_test(t, what_is_no_segment_is_named_and_left_alone);
    tcase_add_test(t, another_users_process_is_named_as_not_readable);
    tcase_add_test(t, a_process_in_a_container_is_found_and_known_to_live);
    tcase_add_test(t, the_ranks_of_a_job_are_added_up);
    tcase_add_test(t, ranks_without_a_job_name_are_known_by_their_session);
    tcase_add_test(t, lines_are_sorted_as_in_top);
    tcase_add_test(t, a_library_in_the_place_of_another_is_soon_known);
    tcase_add_test(t, prometheus_gets_base_units_and_totals);
    tcase_add_test(t, no_two_samples_have_the_same_labels);
    tcase_add_test(t, a_rank_that_has_ended_holds_nothing_of_what_its_job_holds);
    tcase_add_test(t, one_that_could_not_read_its_own_start_time_still_dies);
    tcase_add_test(t, watching_goes_on_until_it_is_interrupted);
    tcase_add_test(t, an_unknown_process_is_said_to_be_so);
    suite_add_tcase(s, t);
    return run_suite(s);
}
