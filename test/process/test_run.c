/*
 * The command around a program: its ends, its messages, its statistics, and what is left when it is
 * gone.
 */

#define WORK "run_work"
#include "shell.h"
#include "suite.h"

#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

static void says(const char *text) {
    ck_assert_msg(strstr(err, text) != NULL, "stderr does not say '%s' but:\n%s", text, err);
}

/* A number in the file that `zeroute run --json j` wrote. */
static long long number(int process, const char *field) {
    char code[512];
    snprintf(code, sizeof code,
             "python3 -c 'import json; p=json.load(open(\"j\"))[\"processes\"]; "
             "print(len(p) if %d < 0 else p[%d][\"fields\"].get(\"%s\", -1))'",
             process, process < 0 ? 0 : process, field);
    ck_assert_msg(sh("%s", code) == 0, "%s", err);
    return atoll(out);
}

static void setup(void) {
    shell_setup();
    setenv("ZE_SIMGPU", "devices:1,vram:1GiB", 1);
}

/* --- ends ------------------------------------------------------------------------------------- */

START_TEST(the_exit_code_is_the_programs_own) {
    ck_assert_int_eq(sh("$Z run -- true"), 0);
    ck_assert_int_eq(sh("$Z run -- sh -c 'exit 7'"), 7);
    ck_assert_int_eq(sh("$Z run sh -c 'exit 255'"), 255);
    ck_assert_str_eq(err, "");
}
END_TEST

START_TEST(the_programs_signal_is_raised_again) {
    static const int signals[] = {SIGKILL, SIGTERM, SIGSEGV, SIGABRT, SIGINT};
    char zeroute[PATH_MAX + 16], line[64];
    snprintf(zeroute, sizeof zeroute, "%s/zeroute", build);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        int status;
        snprintf(line, sizeof line, "kill -%d $$", signals[i]);
        pid_t child = fork();
        if (child == 0) {
            execl(zeroute, "zeroute", "run", "--", "sh", "-c", line, NULL);
            _exit(99);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "signal %d: status %x", signals[i],
                      status);
        ck_assert(!WCOREDUMP(status));
    }
}
END_TEST

START_TEST(what_cannot_be_executed_is_126_and_what_is_not_there_127) {
    ck_assert_int_eq(sh("$Z run -- /etc/passwd"), 126);
    says("zeroute run: cannot execute /etc/passwd: Permission denied");
    ck_assert_int_eq(sh("$Z run -- ./nothing"), 127);
    says("zeroute run: cannot execute ./nothing: not found");
    ck_assert_int_eq(sh("$Z run -- no-such-program-in-path"), 127);
}
END_TEST

static pid_t start_in_background(const char *script, int *reader) {
    int fd[2];
    char zeroute[PATH_MAX + 16];
    snprintf(zeroute, sizeof zeroute, "%s/zeroute", build);
    ck_assert_int_eq(pipe(fd), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd[1], 1);
        close(fd[0]);
        close(fd[1]);
        execl(zeroute, "zeroute", "run", "--", "sh", "-c", script, NULL);
        _exit(99);
    }
    close(fd[1]);
    *reader = fd[0];
    return child;
}

START_TEST(a_signal_sent_to_us_reaches_the_program) {
    int fd, status;
    char line[16];
    pid_t child = start_in_background("trap 'exit 9' TERM; trap 'echo usr1' USR1; echo ready; "
                                      "while :; do sleep 0.05; done",
                                      &fd);
    ck_assert_int_eq(read(fd, line, 6), 6);
    kill(child, SIGUSR1);
    ck_assert_int_eq(read(fd, line, 5), 5);
    ck_assert_int_eq(memcmp(line, "usr1", 4), 0);
    kill(child, SIGTERM);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    close(fd);
}
END_TEST

START_TEST(where_the_program_stops_we_stop_and_go_on_together) {
    int fd, status;
    char line[16];
    pid_t child = start_in_background("kill -STOP $$; echo on", &fd);
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(WIFSTOPPED(status));
    kill(child, SIGCONT);
    ck_assert_int_eq(read(fd, line, 3), 3);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
}
END_TEST

START_TEST(who_kills_us_hard_kills_the_program) {
    int fd, status;
    char line[16];
    pid_t child = start_in_background("echo ready; exec sleep 1000", &fd);
    ck_assert_int_eq(read(fd, line, 6), 6);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(read(fd, line, 1), 0); /* the pipe ends when the program has */
    close(fd);
}
END_TEST

/*
 * Every launcher that is ended ends the program and what that has started: by a signal, and by ^C in a terminal,
 * whose foreground group is ours.
 */
START_TEST(a_launcher_that_is_ended_ends_all_that_it_started) {
    static const char *const launchers[] = {"doctor --seconds 60 --", "ab --runs 1 --warmup 0 --a observe --b path --"};
    static const char *const ways[] = {"os.kill(child, signal.SIGTERM)", "os.kill(child, signal.SIGHUP)",
                                       "os.write(terminal, b'\\x03')"};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            ck_assert_int_eq(sh("rm -f pids; echo 'sleep 1000 & echo $$ $! >pids.new; mv pids.new pids; wait' >prog"),
                             0);
            sh("cat >drive.py <<'END'\n"
               "import os, pty, signal, time\n"
               "child, terminal = pty.fork()\n"
               "if child == 0:\n"
               "    os.execl('/bin/sh', 'sh', '-c', 'exec $Z %s sh prog')\n"
               "while not os.path.exists('pids'):\n"
               "    time.sleep(0.01)\n"
               "%s\n"
               "os.waitpid(child, 0)\n"
               "def alive(pid):\n"
               "    try:\n"
               "        return open('/proc/' + pid + '/stat').read().rsplit(')', 1)[1].split()[0] not in 'ZX'\n"
               "    except OSError:\n"
               "        return False\n"
               "stop = time.monotonic() + 10\n"
               "left = open('pids').read().split()\n"
               "while any(map(alive, left)) and time.monotonic() < stop:\n"
               "    time.sleep(0.01)\n"
               "print('left:', *filter(alive, left))\n"
               "END",
               launchers[i], ways[k]);
            ck_assert_int_eq(sh("export Z; python3 drive.py"), 0);
            ck_assert_msg(strcmp(out, "left:\n") == 0, "%s, %s: %s", launchers[i], ways[k], out);
        }
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

START_TEST(a_bad_setting_is_refused_before_anything_starts) {
    static const struct {
        const char *options, *message;
    } bad[] = {
        {"--route fast", "bad value 'fast' of route: expected auto|pool|sycl|native"},
        {"--limit=lots", "bad value 'lots' of limit: expected none|auto|SIZE|PERCENT"},
        {"--preset best", "unknown preset 'best': expected one of observe, reroute, path, mitigate, eager"},
        {"--rout native", "unknown option '--rout': did you mean '--route'?"},
        {"--residency onwer", "bad value 'onwer' of residency: expected default|owner"},
        {"--preset mitgate", "unknown preset 'mitgate': expected one of observe, reroute, path, mitigate, "},
        {"--cache", "needs a value"},
        {"--inject zeMemAllocDevice@x=1", "bad value 'zeMemAllocDevice@x=1' of inject"},
        {"--record a,b", "expected no comma"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool last = strcmp(bad[i].options, "--cache") == 0;
        ck_assert_int_eq(sh("$Z run %s %s", bad[i].options, last ? "" : "-- touch started"), 125);
        says(bad[i].message);
        ck_assert_int_ne(sh("test -e started"), 0);
    }
    ck_assert_int_eq(sh("ZEROUTE_CONF=cache:maybe $Z run -- touch started"), 125);
    says("ZEROUTE_CONF: bad value 'maybe' of cache: expected on|off");
    ck_assert_int_eq(sh("echo limit=1XB >c; ZEROUTE_CONF_FILE=c $Z run -- touch started"), 125);
    says("c: bad value '1XB' of limit");
    ck_assert_int_eq(sh("ZEROUTE_CONF_FILE=nowhere $Z run -- touch started"), 125);
    says("cannot read nowhere");
    ck_assert_int_eq(sh("$Z run --json nowhere/j -- touch started"), 125);
    says("cannot write nowhere/j");
    ck_assert_int_eq(sh("$Z run --sim=devices:99 -- touch started"), 125);
    says("the simulated GPU: bad value '99' of devices: expected 1 to 8");
    ck_assert_int_eq(sh("ZE_SIMGPU=vrom:1GiB $Z run --sim -- touch started"), 125);
    says("unknown setting 'vrom': expected one of devices, tiles, vram");
    says("(did you mean 'vram'?)");
    ck_assert_int_eq(sh("$Z run"), 125);
    says("no program given");
    ck_assert_int_ne(sh("test -e started"), 0);
}
END_TEST

START_TEST(a_mistyped_value_is_answered_with_what_was_meant) {
    static const char *const lines[][3] = {{"$Z run --preset mitigat -- true", "run", "mitigate"},
                                           {"$Z run --route nativ -- true", "run", "native"},
                                           {"$Z record --preset observ -- true", "record", "observe"},
                                           {"$Z run --summry -- true", "run", "--summary"},
                                           {"$Z ab --a observe --b residency:ownr -- true", "ab", "owner"},
                                           {"$Z ab --a observ --b path -- true", "ab", "observe"},
                                           {"$Z ctl 1 set residency ownr", "ctl", "owner"},
                                           {"$Z ctl 1 set residncy owner", "ctl", "residency"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char meant[64];
        ck_assert_msg(sh("%s", lines[i][0]) != 0, "%s", lines[i][0]);
        snprintf(meant, sizeof meant, "zeroute %s: ", lines[i][1]);
        ck_assert_msg(strncmp(err, meant, strlen(meant)) == 0, "%s: %s", lines[i][0], err);
        snprintf(meant, sizeof meant, "did you mean '%s", lines[i][2]);
        ck_assert_msg(strstr(err, meant), "%s: %s", lines[i][0], err);
    }
}
END_TEST

START_TEST(two_dashes_are_no_value_of_an_option) {
    ck_assert_int_eq(sh("$Z run --json -- true"), 125);
    says("zeroute run: option --json needs a value: expected FILE");
    ck_assert_int_eq(sh("$Z record -o -- true; test ! -e ./--"), 0);
    says("needs a value");
}
END_TEST

START_TEST(a_library_that_is_missing_or_does_not_fit_is_named) {
    ck_assert_int_eq(sh("ZEROUTE_LIB=/nowhere/libzeroute.so $Z run -- true"), 125);
    says("/nowhere/libzeroute.so");
    ck_assert_int_eq(sh("ZEROUTE_LIB=/etc/passwd $Z run -- true"), 125);
    says("/etc/passwd is not an ELF file");
    ck_assert_int_eq(sh("ZEROUTE_LIB=$B/libze_simgpu.so $Z run -- true"), 125);
    says("libze_simgpu.so is another library: expected libzeroute.so");
    ck_assert_int_eq(sh("cp $B/libzeroute.so mine.so; ZEROUTE_LIB=mine.so $Z run -- true"), 0);
    ck_assert_int_eq(sh("cp $B/zeroute . && ./zeroute run -- true"), 125);
    says("libzeroute.so is neither beside the command");
    ck_assert_int_eq(sh("mkdir 'a b' && cp $B/libzeroute.so 'a b' && "
                        "ZEROUTE_LIB='a b/libzeroute.so' $Z run -- true"),
                     125);
    says("has a space or a colon in it, which LD_PRELOAD cannot hold");
    ck_assert_int_eq(sh("head -c 64 $B/libzeroute.so | sed 's/\\x3e/\\xb7/' >l.so; "
                        "ZEROUTE_LIB=l.so $Z run -- true"),
                     125);
    says("is for another machine");
}
END_TEST

START_TEST(a_static_program_is_run_and_said_to_be_out_of_reach) {
    if (sh("echo 'int main(void) { return 6; }' >s.c && cc -static s.c -o s") != 0)
        SKIP("no static libc here");
    ck_assert_int_eq(sh("$Z run -- ./s"), 6);
    says("./s is statically linked: nothing can be preloaded into it");
}
END_TEST

START_TEST(a_program_of_32_bits_is_run_and_said_to_be_out_of_reach) {
    if (sh("printf '.globl _start\n_start: mov $1,%%%%eax\nmov $7,%%%%ebx\nint $0x80\n' >a.s && "
           "as --32 a.s -o a.o && ld -m elf_i386 a.o -o a && ./a") != 7)
        SKIP("no such programs here");
    ck_assert_int_eq(sh("$Z run -- ./a"), 7);
    says("./a is a 32-bit program: nothing can be preloaded into it");
}
END_TEST

START_TEST(a_report_that_cannot_be_written_is_our_failure_where_the_program_had_none) {
    ck_assert_int_eq(sh("$Z run --json /dev/full -- true"), 125);
    says("cannot write /dev/full: No space left on device");
    ck_assert_int_eq(sh("$Z run --json /dev/full -- sh -c 'exit 4'"), 4);
    ck_assert_int_eq(sh("$Z run --json j -- ./nowhere"), 127);
    ck_assert_int_eq(number(-1, ""), 0); /* and there is JSON even of a program that never was */
}
END_TEST

START_TEST(an_output_that_cannot_be_written_is_no_answer) {
    static const char *const commands[] = {"--help",
                                           "stat --json",
                                           "doctor",
                                           "doctor --json",
                                           "gc --dry-run",
                                           "ab --help",
                                           "mirror-test --sim --step 1MiB --count 2 --keep 1MiB"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        ck_assert_msg(sh("$Z %s >/dev/full", commands[i]) == 2, "%s", commands[i]);
        says("cannot write the output");
    }
    ck_assert_int_eq(sh("$Z run --json - -- sh -c 'exit 4' >/dev/full"), 4);
    ck_assert_int_eq(sh("$Z ab --sim --runs 1 --warmup 0 --a observe --b path -- $W alloc 1 >/dev/full"), 2);
}
END_TEST

START_TEST(a_measurement_that_is_interrupted_leaves_nothing_behind) {
    ck_assert_int_eq(
        sh("mkdir t; TMPDIR=$PWD/t $Z mirror-test --sim=alloc_cost:1s,mirror:on --cards 1,2 --step 1MiB "
           "--count 64 --keep 1MiB >o & p=$!; until ls -d t/*/proc/[0-9]*; do sleep 0.02; done; "
           "kill -TERM $p; wait $p; code=$?; grep -c interrupted o; grep -c 'cards, route' o; ls t | wc -l; "
           "exit $code"),
        128 + SIGTERM);
    ck_assert_msg(strstr(out, "\n1\n0\n0\n"), "%s", out); /* said, no second one begun, no folder */
}
END_TEST

/* A machine of a command that was killed goes with the next one; those of live processes stay. */
START_TEST(a_killed_simulation_is_removed_and_a_live_one_is_not) {
    ck_assert_int_eq(sh("mkdir t; export TMPDIR=$PWD/t; mkfifo end; "
                        "$Z run --sim -- $W keep 1 wait <end >live.out & live=$!; exec 9>end; "
                        "until ls -d t/*/proc/[0-9]*; do sleep 0.02; done; ls t >live; "
                        "$Z run --sim -- sh -c 'echo >up; exec sleep 1000' & killed=$!; "
                        "until test -e up; do sleep 0.02; done; kill -9 $killed; wait $killed; "
                        "$Z gc --dry-run | grep '1 folder of simulated'; ls t | wc -l; "
                        "$Z run --sim -- true; ls t | diff - live && echo swept; "
                        "mkdir t/zeroute-sim.abcdef; $Z gc | grep '1 folder of simulated'; ls t | diff - live; "
                        "exec 9>&-; wait $live; ls t | wc -l"),
                     0);
    ck_assert_msg(strstr(out, "would be removed\n2\nswept\n1 folder of simulated GPUs that nobody uses removed\n0\n"),
                  "%s", out);
}
END_TEST

START_TEST(who_asks_for_json_gets_it_of_a_failure_too) {
    static const char *const commands[] = {"stat 4194303",         "stat abc",
                                           "doctor 4194303",       "doctor --nonsense",
                                           "diff no yes",          "replay nowhere",
                                           "gc --nonsense",        "ab --a x",
                                           "mirror-test --step x", "mirror-test --sim --keep 9999GiB"};
    ck_assert_int_eq(sh("$Z stat 4194303 --json"), 2);
    ck_assert_ptr_nonnull(strstr(out, "\"error\": \"no statistics of process 4194303"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        ck_assert_msg(sh("$Z %s --json | python3 -m json.tool", commands[i]) == 0, "%s: %s", commands[i], out);
}
END_TEST

START_TEST(a_program_may_close_every_descriptor_in_between) {
    ck_assert_int_eq(sh("timeout 20 $Z run --sim --json j -- $W alloc 3 closefrom alloc 3"), 0);
    ck_assert_int_eq(number(0, "calls.zeMemAllocDevice.plt"), 6);
}
END_TEST

START_TEST(the_library_itself_warns_of_a_bad_setting_once_and_goes_on) {
    ck_assert_int_eq(sh("LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "
                        "ZEROUTE_CONF=cache:maybe,nonsense:1 $W alloc 3 threads 4"),
                     0);
    says("zeroute: ZEROUTE_CONF: bad value 'maybe' of cache: expected on|off; the default is used");
    says("zeroute: ZEROUTE_CONF: unknown setting 'nonsense'");
    char *first = strstr(err, "maybe");
    ck_assert_ptr_null(strstr(first + 1, "'maybe'"));
    ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(the_library_itself_reads_the_file_and_the_environment_beats_it) {
    ck_assert_int_eq(sh("printf 'limit:5GiB\\nreuse=always\\ncache:maybe\\n' >c; "
                        "LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so ZEROUTE_CONF_FILE=c "
                        "ZEROUTE_CONF=limit:6GiB $W keep 1 & wait $! && $Z stat --fields $! | grep '^settings '"),
                     0);
    ck_assert_msg(strstr(out, "limit:6GiB") && strstr(out, "reuse:always"), "%s", out);
    says("zeroute: c: bad value 'maybe' of cache: expected on|off; the default is used");
    ck_assert_int_eq(sh("LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "
                        "ZEROUTE_CONF_FILE=nowhere $W keep 1"),
                     0);
    says("zeroute: ZEROUTE_CONF_FILE: cannot read nowhere: No such file or directory");
    /* Nobody writes into it, and nobody waits. */
    ck_assert_int_eq(sh("mkfifo f; LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so "
                        "ZEROUTE_CONF_FILE=f timeout 10 $W keep 1"),
                     0);
}
END_TEST

/* --- settings --------------------------------------------------------------------------------- */

START_TEST(flag_beats_preset_beats_environment_beats_file) {
    ck_assert_int_eq(sh("printf 'cache:on\\nlimit:5GiB\\nreuse=always\\n' >c; "
                        "ZEROUTE_CONF_FILE=c $Z run -- sh -c 'echo $ZEROUTE_CONF'"),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "limit:5GiB"));
    ck_assert_ptr_nonnull(strstr(out, "reuse:always"));
    ck_assert_int_eq(sh("ZEROUTE_CONF_FILE=c ZEROUTE_CONF=limit:6GiB "
                        "$Z run -- sh -c 'echo $ZEROUTE_CONF'"),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "limit:6GiB"));
    ck_assert_int_eq(sh("ZEROUTE_CONF=cache:on,route:pool $Z run --limit 7GiB --preset observe "
                        "--residency owner -- sh -c 'echo $ZEROUTE_CONF'"),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "route:native,cache:off,residency:owner"));
    ck_assert_ptr_nonnull(strstr(out, "limit:7GiB"));
}
END_TEST

/* Settings alone do not make it reroute, wherever they come from; a bare preload does. */
START_TEST(a_program_is_observed_unless_something_else_is_said) {
    static const char *const lines[] = {"$Z run --sim", "$Z run --sim --limit 512MiB",
                                        "ZEROUTE_CONF=limit:512MiB $Z run --sim"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ck_assert_int_eq(sh("%s --json j -- $W alloc 3", lines[i]), 0);
        ck_assert_msg(sh("grep -q 'settings\": \"route:native,cache:off,' j") == 0, "%s", lines[i]);
    }
    ck_assert_int_eq(sh("$Z run --sim --preset reroute --json j -- $W alloc 3 && grep -q 'route:auto,cache:on' j"), 0);
    ck_assert_int_eq(sh("LD_PRELOAD=$B/libzeroute.so ZE_ENABLE_ALT_DRIVERS=$B/libze_simgpu.so $W keep 1 && "
                        "$Z stat --finished --json | grep -q 'route:auto,cache:on'"),
                     0);
    ck_assert_int_eq(sh("$Z run --help | tr -s ' ' | grep -q 'serves SYCL.s device allocations (default native)'"), 0);
}
END_TEST

START_TEST(a_preload_that_was_there_is_kept_behind_ours) {
    ck_assert_int_eq(sh("LD_PRELOAD=libm.so.6 $Z run -- sh -c 'echo $LD_PRELOAD'"), 0);
    ck_assert_ptr_nonnull(strstr(out, "/libzeroute.so:libm.so.6\n"));
}
END_TEST

START_TEST(help_and_version_are_there_for_every_command) {
    static const char *const commands[] = {"run", "stat", "gc", "replay", "doctor", "mirror-test", "ab", "diff"};
    ck_assert_int_eq(sh("$Z --version"), 0);
    ck_assert_int_eq(strncmp(out, "zeroute ", 8), 0);
    ck_assert_int_eq(sh("$Z --help"), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        ck_assert_ptr_nonnull(strstr(out, commands[i]));
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        ck_assert_int_eq(sh("$Z %s --help", commands[i]), 0);
        ck_assert_ptr_nonnull(strstr(out, "xamples:"));
        ck_assert_int_eq(sh("$Z %s -h", commands[i]), 0);
        ck_assert_ptr_nonnull(strstr(out, "xamples:"));
        ck_assert_int_ne(sh("$Z %s --no-such-option", commands[i]), 0);
        says("zeroute ");
        says(commands[i]);
        says("unknown option '--no-such-option'");
    }
    ck_assert_int_eq(sh("$Z"), 2);
    says("Usage: zeroute COMMAND");
    ck_assert_int_eq(sh("$Z stta"), 2);
    says("unknown command 'stta': did you mean 'stat'?");
    ck_assert_int_eq(sh("$Z mirrortest"), 2);
    says("did you mean 'mirror-test'?");
    ck_assert_int_eq(sh("$Z stat --json --prometheus"), 2);
    says("--json and --prometheus together: expected one of them");
    ck_assert_int_eq(sh("$Z run --summary --no-summary true"), 125);
    ck_assert_int_eq(sh("$Z nonsense"), 2);
    says("unknown command 'nonsense'");
    ck_assert_int_eq(sh("$Z stat abc"), 2);
    says("bad operand 'abc': expected a process id");
    ck_assert_int_eq(sh("$Z gc --hard"), 2);
}
END_TEST

/* --- statistics ------------------------------------------------------------------------------- */

START_TEST(a_process_that_never_touches_level_zero_leaves_nothing) {
    ck_assert_int_eq(sh("$Z run --sim --json j --summary -- sh -c 'true; ls /dev >/dev/null'"), 0);
    ck_assert_int_eq(number(-1, ""), 0);
    ck_assert_int_eq(sh("$Z run --sim --summary -- true"), 0);
    says("no process used a Level Zero device");
}
END_TEST

START_TEST(the_last_statistics_of_the_program_are_written) {
    ck_assert_int_eq(sh("$Z run --sim --preset observe --json j -- $W alloc 5 keep 2"), 0);
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(number(-1, ""), 1);
    ck_assert_int_eq(number(0, "calls.zeMemAllocDevice.plt"), 7);
    ck_assert_int_eq(number(0, "calls.zeMemFree.plt"), 5);
    ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 2 << 20);
    ck_assert_int_eq(number(0, "allocated_bytes.all.peak"), 5 << 20);
    ck_assert_int_eq(number(0, "device.0.allocated_bytes.all.peak"), 5 << 20);
    ck_assert_int_eq(number(0, "latency.zeMemAllocDevice.calls"), 7);
    ck_assert_int_eq(number(0, "callers.run_work.bytes") > 0, 1);
    ck_assert_int_eq(sh("grep -c '\"library.libze_loader.so.1\": \".* build-id:[0-9a-f]*\"' j"), 0);
}
END_TEST

/* A simulated machine begins with its program: what it holds at the first look is all the program's. */
START_TEST(the_summary_tells_the_ram_that_a_program_takes) {
    ck_assert_int_eq(sh("$Z run --sim=devices:2,mirror:on --summary -- sh -c \"sleep 1 | $W keep 64 wait\" 2>&1 | "
                        "grep '^host RAM  *peak .* more than before (GPUActive 0 to '"),
                     0);
}
END_TEST

/* Three programs of 40 MiB on a card of 64: nobody held 120, and nothing was spilled. */
START_TEST(programs_one_after_another_have_no_joint_peak) {
    ck_assert_int_eq(sh("$Z run --sim=devices:1,vram:64MiB --summary --json j -- "
                        "sh -c \"$W keep 40; $W keep 40; $W keep 40\""),
                     0);
    says("device memory in use           120 MiB  40.0 MiB    120 MiB     120");
    ck_assert_ptr_null(strstr(err, "at most"));
    ck_assert_ptr_null(strstr(err, "spilled"));
    ck_assert_ptr_null(strstr(err, "full"));
    says("sum         x3    120 MiB  40.0 MiB  40.0 MiB");
}
END_TEST

/* The program waits by name, and its loader calls through a table that is hooked as well. */
START_TEST(a_lost_card_is_counted_once_and_told) {
    static const char *const presets[] = {"observe", "reroute"};

    for (int i = 0; i < 2; i++) {
        ck_assert_int_ne(sh("$Z run --sim=devices:1,fail:zeEventHostSynchronize@1=0x70000001 --summary --json j "
                            "--preset %s -- \"$B/test/process/sim_commands\"",
                            presets[i]),
                         0);
        says("lost card       1 call was answered DEVICE_LOST");
        says("run with --preset safe");
        ck_assert_int_eq(number(0, "device_lost.calls"), 1);
    }
}
END_TEST

START_TEST(a_card_that_was_nearly_full_is_told_and_one_that_was_not_is_not) {
    ck_assert_int_eq(sh("$Z run --sim=devices:1,vram:64MiB --summary -- sh -c \"sleep 1 | $W keep 60 wait || true\""),
                     0);
    says("full card       a card was 93 % full");
    ck_assert_int_eq(sh("$Z run --sim=devices:1,vram:64MiB --summary -- sh -c \"sleep 1 | $W keep 40 wait || true\""),
                     0);
    ck_assert_ptr_null(strstr(err, "full card"));
    ck_assert_int_eq(sh("$Z run --sim=devices:1,vram:64MiB --preset safe --summary -- "
                        "sh -c \"sleep 1 | $W keep 60 wait || true\""),
                     0);
    ck_assert_ptr_null(strstr(err, "full card"));
}
END_TEST

/* At the same time they may have held it all; what they hold on the card is not counted again as memory unseen. */
START_TEST(children_at_one_time_have_a_bound_and_no_unseen_memory) {
    ck_assert_int_eq(sh("$Z run --sim=devices:1,vram:1GiB --summary --json j -- "
                        "sh -c \"for i in $(echo $(seq 20)); do $W keep 3 & done; wait\""),
                     0);
    ck_assert_ptr_null(strstr(err, "unseen"));
    says("20 processes together");
    ck_assert_int_eq(sh("python3 -c 'import json; w = json.load(open(\"j\"))[\"watched\"]; "
                        "assert w.get(\"unseen_peak_bytes\", 0) < 16 << 20, w; "
                        "assert w.get(\"allocated_peak_bytes\", 0) <= 60 << 20, w'"),
                     0);
}
END_TEST

START_TEST(the_summary_comes_on_request_and_not_into_a_pipe) {
    ck_assert_int_eq(sh("$Z run --sim -- $W alloc 1"), 0);
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(sh("$Z run --sim --summary -- $W alloc 3"), 0);
    says("zeMemAllocDevice");
    says("device memory in use");
    says("p99");
    ck_assert_ptr_null(strchr(err, '\033'));
    ck_assert_str_eq(out, "");
}
END_TEST

/* Who refused, with which code, what was held and by whom, what to try: on stderr, in the summary, in the segment. */
START_TEST(out_of_memory_is_explained_once_with_who_refused_and_what_was_held) {
    ck_assert_int_eq(sh("$Z run --sim --preset observe --limit 2MiB --json j -- $W keep 2 toomuch toomuch"), 0);
    says("out of memory: the setting limit refused 1.0 MiB on card 0\n");
    says("asked by  run_work with zeMemAllocDevice\n");
    says("answer    0x70000003 (out of device memory)\n");
    says("held      2.0 MiB by the process, nothing in the cache\n");
    says("limit     2.0 MiB\n");
    says("    run_work                       2 x  1.0 MiB to  2.0 MiB    2.0 MiB\n");
    says("try       raise limit");
    ck_assert_ptr_null(strstr(strstr(err, "out of memory") + 1, "out of memory")); /* once */
    ck_assert_int_eq(sh("grep -c '\"oom.limit\": \"out of memory: the setting limit refused' j"), 0);
    ck_assert_int_eq(number(0, "callers.run_work.bytes"), 2 << 20); /* refused bytes were not got */
    ck_assert_int_eq(sh("$Z run --sim=vram:2MiB --preset observe --summary -- $W keep 2 toomuch 2>e"), 0);
    ck_assert_int_eq(sh("grep -c 'out of memory: the driver refused 1.0 MiB on card 0' e"), 0);
    ck_assert_str_eq(out, "1\n"); /* as it happened, and in the summary */
    ck_assert_int_eq(sh("grep -q 'failed calls    1: 1 x OUT_OF_DEVICE_MEMORY' e"), 0);
    ck_assert_int_eq(sh("$Z run --sim --preset observe --limit 1MiB --record r -- $W keep 1 toomuch"), 0);
    says("record    'zeroute report /"); /* wherever it is asked */
    says("/r' shows what was live, by call stack\n");
    ck_assert_int_eq(sh("$Z record --sim --preset observe -- $W keep 1 && "
                        "$Z run --sim --preset observe --limit 1MiB --record 'r.%%p' -- $W keep 1 toomuch"),
                     0);
    ck_assert_msg(!strstr(err, "%p"), "%s", err);
    sh("$Z run --sim=vram:8MiB --preset safe -- $W keep 20");
    says("out of memory: the setting limit refused");
    ck_assert_msg(!strstr(err, "raise limit"), "%s", err); /* it is the card that is full */
    sh("$Z run --sim --inject zeMemAllocDevice@2=0x70000003 -- $W alloc 3");
    says("out of memory: the setting inject refused 1.0 MiB on card 0\n");
    ck_assert_int_eq(sh("$Z run --sim --host-floor 1000TiB -- $W toomuch"), 0);
    says("out of memory: the setting host_floor refused 1.0 MiB on card 0\n");
    says("answer    0x70000002 (out of host memory)");
    for (const char *line = err; *line; line += strcspn(line, "\n") + 1)
        ck_assert_int_le((int)strcspn(line, "\n"), 80);
}
END_TEST

START_TEST(what_is_never_freed_is_called_a_leak_by_its_caller) {
    ck_assert_int_eq(sh("$Z run --sim --preset observe --summary --json j -- $W alloc 3 keep 2"), 0);
    says("leaks           2 blocks, 2.00 MiB (device and host) were never freed:\n");
    says("    run_work                       2 x  1.0 MiB to  2.0 MiB    2.0 MiB\n");
    ck_assert_int_eq(number(0, "left.blocks"), 2);
    ck_assert_int_eq(number(0, "left.bytes"), 2 << 20);
    ck_assert_int_eq(number(0, "left.runtime_blocks"), 0);
    ck_assert_int_eq(sh("pid=$(python3 -c 'import json; print(json.load(open(\"j\"))[\"processes\"][0]"
                        "[\"pid\"])'); $Z stat $pid | grep leaks && $Z stat --finished | grep \"$pid.*2.00 MiB\""),
                     0);
    ck_assert_int_eq(sh("$Z run --sim --preset observe --summary -- $W alloc 3"), 0);
    ck_assert_ptr_null(strstr(err, "leaks"));
    ck_assert_int_eq(sh("$Z run --sim --preset observe --summary -- $W keep 1 die"), 128 + SIGKILL);
    says("leaks           not known: the process was killed");
}
END_TEST

START_TEST(statistics_survive_a_kill_and_are_shown_as_finished) {
    ck_assert_int_eq(sh("$Z run --sim --json j -- $W keep 3 die"), 128 + SIGKILL);
    ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 3 << 20);
    ck_assert_msg(sh("pid=$(python3 -c 'import json; print(json.load(open(\"j\"))[\"processes\"][0]"
                     "[\"pid\"])'); $Z stat $pid") == 0,
                  "%s", err);
    ck_assert_ptr_nonnull(strstr(out, "(finished)"));
}
END_TEST

/* A process that had this number before may have left one. */
START_TEST(discard_leaves_no_segment) {
    ck_assert_int_eq(sh("ls -R /dev/shm | sort >before; $Z run --sim --discard --json j -- $W alloc 1; "
                        "pid=$(python3 -c 'import json; print(json.load(open(\"j\"))[\"processes\"][0]"
                        "[\"pid\"])') || exit 2; ls -R /dev/shm | sort | comm -13 before - | grep \"^$pid[.]\""),
                     1);
}
END_TEST

START_TEST(sixteen_processes_that_start_together_are_all_counted) {
    ck_assert_int_eq(sh("$Z run --sim --json j -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; "
                        "do '$W' alloc 4 & done; wait'"),
                     0);
    ck_assert_msg(*err == '\0', "%s", err);
    ck_assert_int_eq(number(-1, ""), 16);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(number(i, "allocation.all.allocated"), 4);
}
END_TEST

START_TEST(sixty_four_threads_are_all_counted) {
    ck_assert_int_eq(sh("$Z run --sim --json j -- $W threads 64"), 0);
    ck_assert_int_eq(number(0, "allocation.all.allocated"), 640);
    ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 0);
}
END_TEST

START_TEST(a_run_inside_a_run_is_in_both) {
    ck_assert_int_eq(sh("$Z run --sim --json j -- sh -c \"$W alloc 1; $Z run --sim --json k -- $W alloc 2\""), 0);
    ck_assert_int_eq(number(-1, ""), 2);
    ck_assert_int_eq(sh("mv k j"), 0);
    ck_assert_int_eq(number(-1, ""), 1);
    ck_assert_int_eq(number(0, "allocation.all.allocated"), 2);
}
END_TEST

/* --- fork and its kin ------------------------------------------------------------------------- */

START_TEST(a_forked_child_has_its_own_books) {
    static const char *const kinds[] = {"fork", "raw"};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(sh("$Z run --sim --preset observe --json j -- $W keep 3 %s keep 1", kinds[i]) == 0, "%s: %s",
                      kinds[i], err);
        ck_assert_int_eq(number(-1, ""), 2);
        ck_assert_int_eq(number(0, "allocation.all.allocated"), 4);
        ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 4 << 20);
        ck_assert_int_eq(number(1, "allocation.all.allocated"), 2);
        ck_assert_int_eq(number(1, "calls.zeInit.plt"), 0);
    }
}
END_TEST

START_TEST(fork_vfork_spawn_and_exec_from_a_busy_process_end_well) {
    static const char *const kinds[] = {"fork2 fork2 fork2 fork2", "vfork vfork", "spawn spawn"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(sh("timeout 60 $Z run --sim --json j -- $W keep 1 busy %s calm", kinds[i]) == 0, "%s: %s",
                      kinds[i], err);
        ck_assert_int_eq(number(-1, ""), 1);
        ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 1 << 20);
        ck_assert_int_eq(number(0, "failures.zeMemAllocDevice"), 0);
    }
    ck_assert_msg(sh("timeout 60 $Z run --sim --json j -- $W keep 1 busy exec") == 0, "%s", err);
    ck_assert_int_eq(number(-1, ""), 1);
}
END_TEST

START_TEST(multiprocessing_works_by_fork_and_by_spawn) {
    ck_assert_msg(sh("cat >m.py <<'E'\n"
                     "import ctypes, multiprocessing as m, sys\n"
                     "def f(x): return x * x\n"
                     "if __name__ == '__main__':\n"
                     "    ze = ctypes.CDLL('libze_loader.so.1')\n"
                     "    assert ze.zeInit(0) == 0\n"
                     "    for kind in 'fork', 'spawn', 'forkserver':\n"
                     "        with m.get_context(kind).Pool(2) as p:\n"
                     "            assert p.map(f, range(20)) == [i * i for i in range(20)]\n"
                     "E\n"
                     "timeout 100 $Z run --sim -- python3 m.py") == 0,
                  "%s", err);
}
END_TEST

/* --- a bad place for a segment ---------------------------------------------------------------- */

/* The line runs with a /dev/shm of its own, of this size; 77 where that is not allowed. */
#define NO_NAMESPACE "no mount namespace here"
#define WITH_SHM "unshare -m true 2>/dev/null || exit 77; unshare -m sh -c 'mount -t tmpfs -o size=%s none /dev/shm; "

START_TEST(a_full_dev_shm_costs_the_statistics_and_nothing_else) {
    int code = sh(WITH_SHM "exec '$Z' run --sim --summary -- '$W' alloc 5'", "8k");
    if (code == 77)
        SKIP(NO_NAMESPACE);
    ck_assert_int_eq(code, 0);
    says("zeroute: no statistics of this process: cannot get memory for /dev/shm/zeroute-");
    says("the file system is full");
    ck_assert_ptr_null(strstr(strstr(err, "no statistics") + 1, "no statistics"));
}
END_TEST

START_TEST(a_dev_shm_that_fills_up_later_loses_no_count) {
    int code = sh(WITH_SHM "exec '$Z' run --sim --json j -- '$W' threads 40'", "400k");
    if (code == 77)
        SKIP(NO_NAMESPACE);
    ck_assert_msg(code == 0, "%s", err);
    ck_assert_int_eq(number(0, "allocation.all.allocated"), 400);
    ck_assert_int_eq(number(0, "allocated_bytes.all.current"), 0);
}
END_TEST

START_TEST(few_descriptors_are_enough) {
    ck_assert_int_eq(sh("$Z run --sim --json j -- sh -c \"ulimit -n 20; $W alloc 5\""), 0);
    ck_assert_int_eq(number(0, "allocation.all.allocated"), 5);
}
END_TEST

START_TEST(a_read_only_dev_shm_is_said_once) {
    int code = sh(WITH_SHM "mount -o remount,ro /dev/shm; exec '$Z' run --sim -- '$W' alloc 5'", "1m");
    if (code == 77)
        SKIP(NO_NAMESPACE);
    ck_assert_int_eq(code, 0);
    says("no statistics of this process: cannot create");
    ck_assert_ptr_null(strstr(strstr(err, "no statistics") + 1, "no statistics"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("run");
    TCase *t = tcase_create("run");
    tcase_add_checked_fixture(t, setup, shell_teardown);
    tcase_set_timeout(t, 240);
    tcase_add_test(t, the_exit_code_is_the_programs_own);
    tcase_add_test(t, the_programs_signal_is_raised_again);
    tcase_add_test(t, what_cannot_be_executed_is_126_and_what_is_not_there_127);
    tcase_add_test(t, a_signal_sent_to_us_reaches_the_program);
    tcase_add_test(t, where_the_program_stops_we_stop_and_go_on_together);
    tcase_add_test(t, a_launcher_that_is_ended_ends_all_that_it_started);
    tcase_add_test(t, who_kills_us_hard_kills_the_program);
    tcase_add_test(t, a_bad_setting_is_refused_before_anything_starts);
    tcase_add_test(t, a_mistyped_value_is_answered_with_what_was_meant);
    tcase_add_test(t, two_dashes_are_no_value_of_an_option);
    tcase_add_test(t, a_library_that_is_missing_or_does_not_fit_is_named);
    tcase_add_test(t, a_static_program_is_run_and_said_to_be_out_of_reach);
    tcase_add_test(t, a_program_of_32_bits_is_run_and_said_to_be_out_of_reach);
    tcase_add_test(t, a_report_that_cannot_be_written_is_our_failure_where_the_program_had_none);
    tcase_add_test(t, an_output_that_cannot_be_written_is_no_answer);
    tcase_add_test(t, a_measurement_that_is_interrupted_leaves_nothing_behind);
    tcase_add_test(t, a_killed_simulation_is_removed_and_a_live_one_is_not);
    tcase_add_test(t, who_asks_for_json_gets_it_of_a_failure_too);
    tcase_add_test(t, a_program_may_close_every_descriptor_in_between);
    tcase_add_test(t, the_library_itself_warns_of_a_bad_setting_once_and_goes_on);
    tcase_add_test(t, the_library_itself_reads_the_file_and_the_environment_beats_it);
    tcase_add_test(t, flag_beats_preset_beats_environment_beats_file);
    tcase_add_test(t, a_program_is_observed_unless_something_else_is_said);
    tcase_add_test(t, a_preload_that_was_there_is_kept_behind_ours);
    tcase_add_test(t, help_and_version_are_there_for_every_command);
    tcase_add_test(t, a_process_that_never_touches_level_zero_leaves_nothing);
    tcase_add_test(t, the_last_statistics_of_the_program_are_written);
    tcase_add_test(t, the_summary_tells_the_ram_that_a_program_takes);
    tcase_add_test(t, programs_one_after_another_have_no_joint_peak);
    tcase_add_test(t, a_lost_card_is_counted_once_and_told);
    tcase_add_test(t, a_card_that_was_nearly_full_is_told_and_one_that_was_not_is_not);
    tcase_add_test(t, children_at_one_time_have_a_bound_and_no_unseen_memory);
    tcase_add_test(t, the_summary_comes_on_request_and_not_into_a_pipe);
    tcase_add_test(t, out_of_memory_is_explained_once_with_who_refused_and_what_was_held);
    tcase_add_test(t, what_is_never_freed_is_called_a_leak_by_its_caller);
    tcase_add_test(t, statistics_survive_a_kill_and_are_shown_as_finished);
    tcase_add_test(t, discard_leaves_no_segment);
    tcase_add_test(t, sixteen_processes_that_start_together_are_all_counted);
    tcase_add_test(t, sixty_four_threads_are_all_counted);
    tcase_add_test(t, a_run_inside_a_run_is_in_both);
    tcase_add_test(t, a_forked_child_has_its_own_books);
    tcase_add_test(t, fork_vfork_spawn_and_exec_from_a_busy_process_end_well);
    tcase_add_test(t, multiprocessing_works_by_fork_and_by_spawn);
    tcase_add_test(t, a_full_dev_shm_costs_the_statistics_and_nothing_else);
    tcase_add_test(t, a_dev_shm_that_fills_up_later_loses_no_count);
    tcase_add_test(t, few_descriptors_are_enough);
    tcase_add_test(t, a_read_only_dev_shm_is_said_once);
    suite_add_tcase(s, t);
    return run_suite(s);
}
