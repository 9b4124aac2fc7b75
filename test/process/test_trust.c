/*
 * Attacks: what one user can do to another, and a file to a reader. Each of these worked once. Many need root, who
 * plays all the users.
 */
#define WORK "run_work"
#include "common/common.h"
#include "shell.h"
#include "stat/stat.h"
#include "suite.h"
#include "users.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY "setpriv --reuid 65534 --regid 65534 --clear-groups "

static void setup(void) {
    shell_setup();
    ck_assert_int_eq(sh("chmod 755 ."), 0);
    setenv("ZE_SIMGPU", "devices:1,vram:1GiB", 1);
}

/* A namespace of mounts with a /dev/shm of its own, in which root may do as it likes. */
static bool may_mount(void) {
    return geteuid() == 0 && sh("unshare -m sh -c 'mount -t tmpfs none /dev/shm'") == 0;
}

/* Makes the folder that the file is in. Says nothing of a file that is there already. */
static void write_file(int folder_fd, const char *path, const void *bytes, size_t size) {
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    if (slash) {
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        mkdirat(folder_fd, parent, 0700);
    }
    int fd = openat(folder_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

/* The bytes of a segment whose process has been finished since the last time the machine was started. */
static const struct zeroute_segment_header dead = {
    .magic = ZEROUTE_SEGMENT_MAGIC,
    .layout = ZEROUTE_SEGMENT_LAYOUT,
    .header_size = sizeof dead,
    .file_size = sizeof dead,
    .pid = 77,
    .nonce = 0x77,
    .boot_id = "another one",
    .shards_offset = sizeof dead,
    .shard_size = 4096,
    .field_size = sizeof(struct zeroute_segment_field),
    .buckets = ZEROUTE_BUCKETS,
};
#define DEAD "zeroute-0/77.0000000000000077"

/*
 * A user's namespace: /dev is theirs, and so is /dev/shm, with a dead segment in it. What stands in the folder of the
 * test, under the same name, is another's. With `restless` the user exchanges /dev/shm for a link to that folder and
 * back, all the time; else once for each byte from `in`, by the folder itself.
 */
static void be_a_user(bool restless, int in, int ready) {
    char other[PATH_MAX];
    int shm = -1;
    snprintf(other, sizeof other, "%s/victim", folder);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev", "tmpfs", 0, NULL) || mkdir("/dev/shm", 0755) || symlink(other, "/dev/link") ||
        (shm = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        _exit(90);
    write_file(shm, DEAD, &dead, sizeof dead);
    if (write(ready, "r", 1) != 1)
        _exit(91);
    for (char c; restless || read(in, &c, 1) == 1;) {
        if (restless) {
            syscall(SYS_renameat2, AT_FDCWD, "/dev/shm", AT_FDCWD, "/dev/link", RENAME_EXCHANGE);
            write_file(shm, DEAD, &dead, sizeof dead); /* what was removed is back */
            continue;
        }
        if (mount(other, "/dev/shm", NULL, MS_BIND, NULL) || write(ready, "r", 1) != 1)
            _exit(92);
    }
    _exit(0);
}

struct user {
    pid_t pid;
    int out, in;
};

static void wait_ready(const struct user *u) {
    char c;
    ck_assert_int_eq(read(u->in, &c, 1), 1);
}

static struct user begin_user(bool restless) {
    int to[2], from[2];
    struct user u;
    ck_assert_int_eq(sh("mkdir victim"), 0);
    ck_assert_int_eq(pipe(to), 0);
    ck_assert_int_eq(pipe(from), 0);
    u.pid = fork();
    if (u.pid == 0) {
        close(to[1]);
        be_a_user(restless, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    u.out = to[1];
    u.in = from[0];
    wait_ready(&u);
    return u;
}

static void end_user(struct user *u) {
    kill(u->pid, SIGKILL);
    waitpid(u->pid, NULL, 0);
    close(u->in);
    close(u->out);
}

/* That of the user's namespace, as a command finds it; false: not there just now. */
static bool find_dead(const struct user *u, struct zeroute_process *found) {
    char path[96];
    struct zeroute_list *list = zeroute_list_new();
    bool is = false;
    snprintf(path, sizeof path, "/proc/%d/root/dev/shm/" DEAD, (int)u->pid);
    for (size_t i = 0; i < list->count && !is; i++)
        if ((is = strcmp(list->process[i].path, path) == 0))
            *found = list->process[i];
    zeroute_list_free(list);
    return is;
}

START_TEST(what_takes_the_place_of_a_dead_segment_is_not_removed_for_it) {
    struct zeroute_process p;
    char path[128], byte = 'x';
    if (!may_mount())
        SKIP("no namespaces here");
    struct user u = begin_user(false);
    snprintf(path, sizeof path, "%s/victim/" DEAD, folder);
    write_file(AT_FDCWD, path, &dead, sizeof dead);
    ck_assert(find_dead(&u, &p));
    ck_assert_int_eq(p.state, ZEROUTE_FINISHED);
    ck_assert_int_eq(write(u.out, &byte, 1), 1);
    wait_ready(&u);
    ck_assert(!zr_gc_remove(&p, true)); /* another file under the very path */
    ck_assert_int_eq(access(path, F_OK), 0);
    end_user(&u);
}
END_TEST

START_TEST(no_exchange_of_a_folder_and_a_link_makes_gc_remove_what_is_elsewhere) {
    struct zeroute_process p;
    char path[128];
    unsigned tried = 0, removed = 0;
    if (!may_mount())
        SKIP("no namespaces here");
    struct user u = begin_user(true);
    snprintf(path, sizeof path, "%s/victim/" DEAD, folder);
    write_file(AT_FDCWD, path, &dead, sizeof dead);
    /* Until it has removed something, too: on a busy machine it seldom meets the folder. */
    for (int i = 0; i < 300 || (!removed && i < 30000); i++)
        if (find_dead(&u, &p))
            for (int n = 0; n < 100; n++) {
                removed += zr_gc_remove(&p, true);
                tried++;
                ck_assert_msg(access(path, F_OK) == 0, "removed after %u tries", tried);
            }
    printf("%u tries, %u removed in the user's own folder\n", tried, removed);
    ck_assert_uint_gt(removed, 0);
    end_user(&u);
}
END_TEST

/* The user's /dev/shm is, from the start, a folder in which root keeps copies of segments. */
START_TEST(what_a_user_mounts_as_dev_shm_is_not_removed_from_where_it_is) {
    char path[128], victim[PATH_MAX], c;
    int ready[2];
    if (!may_mount())
        SKIP("no namespaces here");
    ck_assert_int_eq(sh("mkdir victim"), 0);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(path, sizeof path, "%s/victim/" DEAD, folder);
    write_file(AT_FDCWD, path, &dead, sizeof dead);
    ck_assert_int_eq(sh("touch -d '1 day ago' victim/*/*"), 0);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t user = fork();
    if (user == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount(victim, "/dev/shm", NULL, MS_BIND, NULL) || setgid(65534) || setuid(65534) ||
            write(ready[1], "r", 1) != 1)
            _exit(90);
        pause();
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    int code = sh("$Z stat; $Z gc; $Z gc --all-users");
    kill(user, SIGKILL);
    waitpid(user, NULL, 0);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* /dev is a link in the root that the user has, and leads to a folder of somebody else's. */
START_TEST(no_link_on_the_way_to_a_users_dev_shm_is_followed) {
    struct user u = {0};
    struct zeroute_process p;
    char path[PATH_MAX + 64], c;
    int ready[2];
    if (!may_mount())
        SKIP("no namespaces here");
    ck_assert_int_eq(sh("mkdir -p root victim/shm && ln -s $PWD/victim root/dev"), 0);
    snprintf(path, sizeof path, "%s/victim/shm/" DEAD, folder);
    write_file(AT_FDCWD, path, &dead, sizeof dead);
    ck_assert_int_eq(pipe(ready), 0);
    u.pid = fork();
    if (u.pid == 0) {
        snprintf(path, sizeof path, "%s/root", folder);
        if (unshare(CLONE_NEWNS) || chroot(path) || write(ready[1], "r", 1) != 1)
            _exit(90);
        pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    bool found = find_dead(&u, &p);
    int code = sh("$Z gc --all-users");
    kill(u.pid, SIGKILL);
    waitpid(u.pid, NULL, 0);
    ck_assert_int_eq(code, 0);
    ck_assert(!found);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(root_removes_what_others_have_left_only_when_asked) {
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    ck_assert_int_eq(sh("chmod 777 . && LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so " NOBODY
                        "sh -c 'exec $0 keep 1' $W & wait $!; echo $!"),
                     0);
    int pid = atoi(out);
    ck_assert_int_eq(sh("ls /dev/shm/zeroute-65534/%d.*", pid), 0);
    ck_assert_int_eq(sh("$Z gc --json | grep '\"pid\": %d,'", pid), 1);
    ck_assert_int_eq(sh("touch -d '1 day ago' /dev/shm/zeroute-65534/%d.*; $Z stat", pid), 0);
    ck_assert_int_eq(sh("ls /dev/shm/zeroute-65534/%d.*", pid), 0);
    ck_assert_int_eq(sh("$Z gc --all-users; ! ls /dev/shm/zeroute-65534/%d.*", pid), 0);
}
END_TEST

/* For a reader who may not see what a process has mapped, its owner is all there is to tell a forgery by. */
START_TEST(a_segment_of_another_user_than_the_process_is_a_forgery) {
    struct zeroute_segment_header forged = dead;
    struct stat st;
    char path[96];
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    ck_assert_int_eq(stat("/proc/self/ns/pid", &st), 0);
    forged.pid = (uint32_t)getpid();
    forged.pid_namespace = st.st_ino;
    forged.boot_id[0] = '\0';
    snprintf(path, sizeof path, "%s/%d.0000000000000bad", directory_of(65534), (int)getpid());
    write_file(AT_FDCWD, path, &forged, sizeof forged);
    ck_assert_int_eq(chown(path, 65534, 65534), 0);
    int code = sh(NOBODY "$Z stat --json");
    unlink(path);
    ck_assert_int_eq(code, 0);
    ck_assert_msg(strstr(out, "forged: it belongs to user 65534, and process"), "%.2000s", out);
}
END_TEST

/* A user who locks a segment of their own, as a writer does, and waits: it says to be of this process here. */
START_TEST(a_segment_that_another_process_holds_is_a_forgery) {
    struct zeroute_segment_header forged = dead;
    struct stat st;
    char path[96], c;
    int ready[2];
    bool found = false;
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(stat("/proc/self/ns/pid", &st), 0);
    forged.pid = (uint32_t)getpid();
    forged.pid_namespace = st.st_ino;
    forged.start_time = 12345; /* not that of the process: it was not even looked at then */
    forged.boot_id[0] = '\0';
    snprintf(path, sizeof path, "%s/%d.0000000000000bad", directory_of(65534), (int)getpid());
    pid_t user = fork();
    if (user == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        if (setgid(65534) || setuid(65534))
            _exit(90);
        write_file(AT_FDCWD, path, &forged, sizeof forged);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fcntl(fd, F_SETLK, &lock) || write(ready[1], "r", 1) != 1)
            _exit(91);
        pause();
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    struct zeroute_list *list = zeroute_list_new();
    int told = sh("$Z stat %d", (int)getpid());
    unlink(path);
    kill(user, SIGKILL);
    waitpid(user, NULL, 0);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->process[i].path, path) == 0) {
            found = true;
            ck_assert(!list->process[i].readable);
            ck_assert_int_ne(list->process[i].pid, getpid());
            ck_assert_msg(strncmp(list->process[i].why, "forged: ", 8) == 0, "%s", list->process[i].why);
        }
    ck_assert(found);
    ck_assert_int_eq(told, 2);
    ck_assert_ptr_nonnull(strstr(err, "(user 65534): forged: "));
    zeroute_list_free(list);
}
END_TEST

START_TEST(no_user_adds_to_the_job_of_another) {
    struct zeroute_segment_header one = dead;
    char path[2][96], moved[96], job[32];
    if (geteuid() != 0)
        SKIP("one user cannot make another");
    snprintf(job, sizeof job, "trust:%d", (int)getpid());
    snprintf(one.job_id, sizeof one.job_id, "%s", job);
    one.fields_offset = one.globals_offset = 0;
    one.globals_size = 64;
    one.field_count = 1;
    one.shard_count = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.000000000000000%d", own_directory(), (int)getpid(), i);
        write_file(AT_FDCWD, path[i], &one, sizeof one);
    }
    int both = sh("$Z stat --json | grep '\"job\": \"%s\"' | wc -l", job);
    int before = atoi(out); /* once for each process, and once for the job */
    snprintf(moved, sizeof moved, "%s/%d.0000000000000001", directory_of(65534), (int)getpid());
    ck_assert_int_eq(rename(path[1], moved), 0);
    ck_assert_int_eq(chown(moved, 65534, 65534), 0);
    both |= sh("$Z stat --json | grep '\"job\": \"%s\"' | wc -l", job);
    int after = atoi(out);
    unlink(path[0]);
    unlink(moved);
    ck_assert_int_eq(both, 0);
    ck_assert_int_eq(before, 3);
    ck_assert_int_eq(after, 4); /* a job of one each */
}
END_TEST

/* Each name was looked for among all of them, in each process: 4096 took seconds. */
START_TEST(a_segment_of_thousands_of_histograms_does_not_hold_up_the_others) {
    static const unsigned counts[] = {512, 4096, 65536};
    struct zeroute_segment_header h = dead;
    struct zeroute_segment_field f = {.type = ZEROUTE_HISTOGRAM};
    char path[96];
    h.fields_offset = h.globals_size = sizeof h;
    h.field_count = counts[_i];
    h.shards_offset = h.file_size = sizeof h + counts[_i] * sizeof f;
    snprintf(path, sizeof path, "/dev/shm/zeroute-0/%d.0000000000b16b16", (int)getpid());
    write_file(AT_FDCWD, path, &h, sizeof h);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    for (unsigned i = 0; i < counts[_i]; i++) {
        snprintf(f.name, sizeof f.name, "latency.a.name.like.all.the.others.%u", i);
        if (write(fd, &f, sizeof f) != sizeof f)
            break;
    }
    close(fd);
    int code = sh("timeout 2 $Z stat --prometheus >/dev/null && timeout 2 $Z stat --json >/dev/null && "
                  "timeout 2 $Z stat --json | tr -d '\\n' | grep -c '%d.0000000000b16b16[^}]*damaged'; true",
                  (int)getpid());
    unlink(path);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(atoi(out), counts[_i] > 512);
}
END_TEST

/* One file under two thousand names; each of them was read, and held until the end. */
START_TEST(the_segments_of_one_user_together_do_not_cost_more_than_is_bearable) {
    char first[PATH_MAX] = "", name[PATH_MAX];
    if (!may_mount())
        SKIP("no namespaces here");
    ck_assert_int_eq(sh("$Z gc --all-users && " NOBODY "$Z run --no-summary -- $W alloc 1; "
                        "$Z run --no-summary -- $W alloc 1; find /dev/shm/zeroute-65534 -type f"),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "/dev/shm"));
    snprintf(first, sizeof first, "%.*s", (int)strcspn(strstr(out, "/dev/shm"), "\n"), strstr(out, "/dev/shm"));
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "/dev/shm/zeroute-65534/1.%016x", i);
        ck_assert_int_eq(link(first, name), 0);
    }
    int code = sh("timeout 10 $Z stat --finished");
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "/dev/shm/zeroute-65534/1.%016x", i);
        unlink(name);
    }
    unlink(first);
    ck_assert_int_eq(code, 0);
    ck_assert_msg(strstr(out, "finished:"), "%.2000s", out); /* one file is one process, whatever it is called */
    ck_assert_ptr_null(strstr(out, "and 1"));
}
END_TEST

static bool begins_a_line(const char *text, const char *word) {
    for (; text; text = strchr(text, '\n')) {
        text += strspn(text, " \n");
        if (strncmp(text, word, strlen(word)) == 0)
            return true;
    }
    return false;
}

/* Everything that a segment can say, with a sequence that clears the screen, and with a line of its own. */
START_TEST(nothing_that_a_segment_says_steers_a_terminal_or_adds_a_line) {
    static const char *const commands[] = {"stat --finished",   "stat --all",   "stat --fields",
                                           "stat --prometheus", "gc --dry-run", "stat --json"};
    static const char evil[] = "e\033[2J\x9b\xc2\x9bv\r\nINJECTED{} 1\n\xff\xe2";
    struct {
        struct zeroute_segment_header h;
        struct zeroute_segment_field f[3];
        struct zeroute_segment_text text;
        char said[sizeof evil + 32];
    } file = {.h = dead};
    char path[64], name[80];
    const char *bad = NULL;
    file.h.file_size = file.h.shards_offset = sizeof file;
    file.h.globals_size = sizeof file;
    file.h.fields_offset = offsetof(__typeof__(file), f);
    file.h.field_count = 3;
    snprintf(file.h.command, sizeof file.h.command, "%s", evil);
    snprintf(file.h.job_id, sizeof file.h.job_id, "%s", evil);
    memcpy(file.h.rank, evil, sizeof file.h.rank);
    for (int i = 0; i < 3; i++) {
        file.f[i].type = i ? ZEROUTE_TEXT : ZEROUTE_COUNTER;
        snprintf(file.f[i].name, sizeof file.f[i].name, "%s", i == 0 ? evil : i == 1 ? "route.in_force" : "oom.driver");
        memcpy(file.f[i].unit, evil, sizeof file.f[i].unit);
        snprintf(file.f[i].help, sizeof file.f[i].help, "%s", evil);
    }
    for (int i = 1; i < 3; i++) {
        file.f[i].place = ZEROUTE_GLOBAL;
        file.f[i].offset = offsetof(__typeof__(file), text);
        file.f[i].stride = sizeof file - file.f[i].offset;
    }
    file.text.length = sizeof evil - 1;
    memcpy(file.said, evil, sizeof evil);
    snprintf(path, sizeof path, "/dev/shm/zeroute-0/%d.00000000000e5ca1", (int)getpid());
    write_file(AT_FDCWD, path, &file, sizeof file);
    snprintf(name, sizeof name, "%s\033[2J\nNAMED", path);
    write_file(AT_FDCWD, name, "x", 1);
    for (size_t i = 0; i < sizeof commands / sizeof *commands && !bad; i++) {
        bool told = strcmp(commands[i], "stat --prometheus") != 0; /* what is 0 makes no metric */
        if (sh("$Z %s", commands[i]) != 0 || (told && !strstr(out, "INJECTED")) || strstr(out, "\nINJECTED") ||
            begins_a_line(out, "NAMED"))
            bad = commands[i];
        for (const unsigned char *c = (const unsigned char *)out; *c && !bad; c++)
            if ((*c < ' ' && *c != '\n') || *c == 0x9b || *c == 0xff)
                bad = commands[i];
    }
    unlink(path);
    unlink(name);
    ck_assert_msg(!bad, "zeroute %s: %.2000s", bad, out);
}
END_TEST

/* The program that was compared, as a file from elsewhere names it; and one that a bed does not find. */
START_TEST(nothing_in_a_command_line_steers_a_terminal_or_adds_a_line) {
    static const char *const commands[] = {"$Z ab --report ab.json", "$Z ab --report ab.json --markdown",
                                           "$OLDPWD/tools/bed/bed \"$(cat evil)\" 2>&1"};
    ck_assert_int_eq(sh("printf 'e\\033[2J\\302\\233v\\nINJECTED\\377' >evil; $Z ab --sim --quiet --runs 1 --warmup 0 "
                        "--settle 0 --json=ab.json --a observe --b mitigate -- sh -c \"$W alloc 1\" \"$(cat evil)\""),
                     3);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        sh("%s", commands[i]);
        ck_assert_msg(strstr(out, "INJECTED") && !begins_a_line(out, "INJECTED"), "%s: %.2000s", commands[i], out);
        for (const unsigned char *c = (const unsigned char *)out; *c; c++)
            ck_assert_msg((*c >= ' ' || *c == '\n') && *c != 0x9b && *c != 0xff, "%s: %.2000s", commands[i], out);
    }
}
END_TEST

START_TEST(nothing_in_a_setting_steers_a_terminal_or_adds_a_line) {
    int code = sh("ZEROUTE_CONF=$(printf 'limit:e\\033[2J\\233\\302\\233\\342\\200\\256\\377v\\nINJECTED') "
                  "LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so $W keep 1 2>&1");

    ck_assert_int_eq(code, 0);
    ck_assert_msg(strstr(out, "bad value 'e") && !begins_a_line(out, "INJECTED"), "%.2000s", out);
    for (const unsigned char *c = (const unsigned char *)out; *c; c++)
        ck_assert_msg((*c >= ' ' && *c < 127) || *c == '\n', "%.2000s", out);
}
END_TEST

/*
 * Another user knows under which name a command will write, and was there before: with a link to a file of the
 * victim's, a FIFO, or a file of their own.
 */
START_TEST(no_file_is_written_through_what_another_user_has_put_there) {
    static const char *const plants[] = {"ln -s victim", "ln -s not-there", "mkfifo",
                                         "install -o 65534 -m 666 /dev/null"};
    static const struct {
        const char *file, *command;
    } writers[] = {{"j", "$Z run --json j -- true"},
                   {"j", "$Z record --sim -o x.zr --json j -- $W keep 1"},
                   {"j", "$Z ab --report ab.json --json=j"},
                   {"j", "$Z ab --report ab.json --html j"},
                   {"j", "$Z ab --report ab.json --markdown=j"},
                   {"j", "$Z report --text -o j r.zr"},
                   {"r.zr.html", "$Z report r.zr"},
                   {"r.zr.pickle", "$Z report --torch-snapshot r.zr"},
                   {"r.zr.perfetto.json", "$Z report --perfetto r.zr"},
                   {"d/zeroute.prom", "$Z serve --textfile d --once"}};
    if (geteuid() != 0)
        SKIP("only root can play another user");
    ck_assert_int_eq(sh("mkdir d; $Z record --sim -o r.zr -- $W keep 1 && "
                        "$Z ab --sim --quiet --runs 1 --warmup 0 --settle 0 --json=ab.json --a observe --b mitigate -- "
                        "$W alloc 1; test -s ab.json && test -s r.zr"),
                     0);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const char *file = writers[i].file, *line = writers[i].command;
        for (size_t k = 0; k < sizeof plants / sizeof *plants; k++) {
            bool link = k < 2;
            ck_assert_int_eq(sh("rm -f x.zr %s; echo kept >victim; %s %s", file, plants[k], file), 0);
            int code = sh("export Z W; timeout 20 sh -c '%s'", line);
            ck_assert_msg(code > 0 && code != 124, "%s, %s: exit code %d", line, plants[k], code);
            ck_assert_msg(strstr(err, "cannot write"), "%s, %s: %s", line, plants[k], err);
            ck_assert_msg(sh("grep -qx kept victim && test ! -e not-there && test ! -%s %s && ls -A d | wc -l",
                             link ? "f" : "s", link ? "/" : file) == 0,
                          "%s, %s", line, plants[k]);
        }
        ck_assert_int_eq(sh("rm -f x.zr %s", file), 0);
        ck_assert_msg(sh("%s; test -s %s && ! ls -A . d | grep '^[.]zeroute'", line, file) == 0, "%s: %s%s", line, out,
                      err);
    }
    /* The name of the file while it is being made cannot be foreseen. */
    ck_assert_int_eq(sh("export Z; sh -c 'for n in .zeroute.prom zeroute.prom.tmp; do ln -s ../victim d/$n.$$; done; "
                        "exec $Z serve --textfile d --once' && grep -qx kept victim"),
                     0);
}
END_TEST

/* Whoever is looked at chooses what its libraries are, and may exchange their files at any time. */
START_TEST(no_file_that_a_process_maps_as_a_library_holds_up_doctor) {
    static const char *const files[] = {"fifo", "lib/libze_intel_gpu.so.1", "lib"};
    struct zr_elf_file elf;
    char path[PATH_MAX + 32], c;
    int ready[2];
    ck_assert_int_eq(sh("mkfifo fifo && mkdir lib && truncate -s 1T lib/libze_intel_gpu.so.1"), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        ck_assert_int_eq(access(path, F_OK), 0);
        ck_assert_msg(!zr_elf_open(&elf, path), "%s", files[i]);
    }
    ck_assert(!zr_elf_open(&elf, "/dev/zero"));
    ck_assert_int_eq(pipe(ready), 0);
    pid_t process = fork();
    if (process == 0) {
        snprintf(path, sizeof path, "%s/%s", folder, files[1]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED || write(ready[1], "r", 1) != 1)
            _exit(90);
        pause();
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    int code = sh("timeout 10 $Z doctor --verbose %d", (int)process);
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    ck_assert_msg(code >= 0 && code < 2, "exit code %d: %.2000s", code, out);
    ck_assert_ptr_nonnull(strstr(out, "libze_intel_gpu.so.1"));
}
END_TEST

/*
 * The loader honours /etc/ld.so.preload for programs that run with more rights than their user has, too: there the
 * library must be as good as absent.
 */
START_TEST(in_a_program_with_rights_of_its_own_the_library_does_nothing) {
    if (!may_mount())
        SKIP("no namespaces here");
    ck_assert_int_eq(sh("cat >s.sh <<'E'\n"
                        "cp -a /etc etc && echo $B/libzeroute.so >etc/ld.so.preload && mount --bind etc /etc && "
                        "mount -t tmpfs -o mode=1777 none /dev/shm || exit 90\n"
                        "export ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so ZEROUTE_CONF=preset:reroute,nonsense:1\n"
                        "$W keep 1; ls /dev/shm >plain; rm -rf /dev/shm/*\n"
                        "cp $W work && chmod 4755 work && " NOBODY
                        "./work keep 1 2>said; echo $?; ls /dev/shm >secure\n"
                        "E\n"
                        "export B W; unshare -m sh s.sh"),
                     0);
    ck_assert_str_eq(out, "0\n");                     /* the program ran */
    ck_assert_int_eq(sh("grep -q zeroute plain"), 0); /* it is there for everybody else */
    ck_assert_int_eq(sh("cat said secure"), 0);
    ck_assert_str_eq(out, "");
}
END_TEST

int main(void) {
    Suite *s = suite_create("trust");
    TCase *t = tcase_create("trust");
    tcase_add_checked_fixture(t, setup, shell_teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, what_takes_the_place_of_a_dead_segment_is_not_removed_for_it);
    tcase_add_test(t, no_exchange_of_a_folder_and_a_link_makes_gc_remove_what_is_elsewhere);
    tcase_add_test(t, what_a_user_mounts_as_dev_shm_is_not_removed_from_where_it_is);
    tcase_add_test(t, no_link_on_the_way_to_a_users_dev_shm_is_followed);
    tcase_add_test(t, root_removes_what_others_have_left_only_when_asked);
    tcase_add_test(t, a_segment_of_another_user_than_the_process_is_a_forgery);
    tcase_add_test(t, a_segment_that_another_process_holds_is_a_forgery);
    tcase_add_test(t, no_user_adds_to_the_job_of_another);
    tcase_add_loop_test(t, a_segment_of_thousands_of_histograms_does_not_hold_up_the_others, 0, 3);
    tcase_add_test(t, the_segments_of_one_user_together_do_not_cost_more_than_is_bearable);
    tcase_add_test(t, nothing_that_a_segment_says_steers_a_terminal_or_adds_a_line);
    tcase_add_test(t, nothing_in_a_command_line_steers_a_terminal_or_adds_a_line);
    tcase_add_test(t, nothing_in_a_setting_steers_a_terminal_or_adds_a_line);
    tcase_add_test(t, no_file_is_written_through_what_another_user_has_put_there);
    tcase_add_test(t, no_file_that_a_process_maps_as_a_library_holds_up_doctor);
    tcase_add_test(t, in_a_program_with_rights_of_its_own_the_library_does_nothing);
    suite_add_tcase(s, t);
    return run_suite(s);
}
