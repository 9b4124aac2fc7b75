/* What doctor says of machines and processes laid out in a folder, and of a live one under the preload. */
#include "child.h"
#include "root.h"
#include "suite.h"

enum { PID = 4242 };

/* --- laying out a machine -------------------------------------------------------------------- */

static void meminfo(unsigned gpu_active_gib) {
    char text[256];

    snprintf(text, sizeof text,
             "MemTotal: 67108864 kB\nMemFree: 30000000 kB\nMemAvailable: 33554432 kB\nAnonPages: "
             "1000 kB\n"
             "GPUActive: %u kB\nGPUReclaim: 0 kB\n",
             gpu_active_gib << 20);
    lay("/proc/meminfo", text);
}

static void card(unsigned n, const char *device, const char *bar_end, const char *vram) {
    char path[128], text[256];

    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/uevent", 128 + n);
    snprintf(text, sizeof text, "DRIVER=xe\nPCI_CLASS=38000\nPCI_SLOT_NAME=0000:%02x:00.0\n", 3 + n);
    lay(path, text);
    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/vendor", 128 + n);
    lay(path, "0x8086\n");
    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/device", 128 + n);
    lay(path, device);
    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/resource", 128 + n);
    snprintf(text, sizeof text,
             "0x0000000010000000 0x0000000010ffffff 0x0000000000140204\n"
             "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
             "0x0000006000000000 %s 0x000000000014220c\n",
             bar_end);
    lay(path, text);
    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/tile0/physical_vram_size_bytes", 128 + n);
    lay(path, vram);
}

static void battlemage(unsigned n) {
    card(n, "0xe20b\n", "0x00000063ffffffff", "12884901888\n");
}

static void client(unsigned n, unsigned vram_mib, unsigned gtt_mib) {
    char path[64], text[256];

    snprintf(path, sizeof path, "/proc/%d/fdinfo/%u", PID, 10 + n);
    snprintf(text, sizeof text,
             "drm-driver: xe\ndrm-client-id: %u\ndrm-pdev: 0000:%02x:00.0\ndrm-total-vram0: %u MiB\n"
             "drm-resident-vram0: %u MiB\ndrm-total-gtt: %u MiB\ndrm-resident-gtt: 0\n",
             n + 1, 3 + n, vram_mib, vram_mib, gtt_mib);
    lay(path, text);
}

/* A library that carries these strings. */
static void library(const char *path, const char *strings) {
    char bytes[1024] = "";
    size_t length = 1;

    for (; *strings; strings += strcspn(strings, " ") + (strings[strcspn(strings, " ")] == ' ')) {
        size_t n = strcspn(strings, " ");

        memcpy(bytes + length, strings, n);
        length += n;
        bytes[length++] = '\0';
    }
    lay_bytes(path, bytes, length);
}

static char maps[4096];

static void loads(const char *path, const char *strings) {
    snprintf(maps + strlen(maps), sizeof maps - strlen(maps), "7f0000000000-7f0000001000 r-xp 00000000 08:01 42 %s\n",
             path);
    library(path, strings);
    lay("/proc/4242/maps", maps);
}

static void environment(const char *list) {
    char bytes[1024];
    size_t length = strlen(list);

    memcpy(bytes, list, length + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(bytes[i] == ' ' ? '\0' : bytes[i]);
    lay_bytes("/proc/4242/environ", bytes, length ? length + 1 : 0);
}

/* A usual stack on two Battlemage cards, with nothing wrong but what is usual. */
static void usual(void) {
    meminfo(0);
    lay("/proc/sys/kernel/osrelease", "7.1.8-generic\n");
    battlemage(0);
    battlemage(1);
    lay("/proc/4242/status", "Name:\tpython\nVmRSS:\t1024 kB\n");
    lay_bytes("/proc/4242/cmdline", "python\0train.py", 16);
    client(0, 6000, 6000);
    client(1, 6000, 6000);
    loads("/opt/lib/libsycl.so.9.0.0", "SYCL_CACHE_DIR");
    loads("/opt/lib/libur_adapter_level_zero.so.0.12.0", "UR_L0_USM_RESIDENT");
    loads("/opt/lib/libur_adapter_level_zero_v2.so.0.12.0", "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P "
                                                            "SYCL_UR_USE_LEVEL_ZERO_V2");
    loads("/opt/lib/libze_loader.so.1.32.0", "zeCommandListIsGraphCaptureEnabledExt ZE_ENABLE_ALT_DRIVERS");
    loads("/opt/lib/libze_intel_gpu.so.1.15.39122", "26.27.039122 NEOReadDebugKeys EnableDeferBacking ZE_AFFINITY_MASK "
                                                    "end-of-strings-");
    environment("HOME=/root SYCL_UR_USE_LEVEL_ZERO_V2=1");
}

static void machine(void) {
    make_root();
    *maps = '\0';
}

static void clear(void) {
    clear_root();
}

/* --- asking ---------------------------------------------------------------------------------- */

static struct child *ask(const char *pid, const char *form) {
    static char moved[64];
    const char *settings[] = {"LD_PRELOAD=", moved, "LD_LIBRARY_PATH=", NULL};
    const char *argv[] = {build_path("zeroute"), "doctor", form, pid, NULL};

    snprintf(moved, sizeof moved, "ZEROUTE_ROOT=%s", root);
    return child_run(settings, argv);
}

static struct child *doctor(int code) {
    struct child *c = ask("4242", "--json");

    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == code, "status %#x, not %d: %.3000s",
                  (unsigned)c->status, code, c->out);
    return c;
}

static bool finds(const struct child *c, const char *id) {
    char key[64];

    snprintf(key, sizeof key, "\"id\": \"%s\",\n      \"severity\"", id);
    return strstr(c->out, key) != NULL;
}

#define says(c, text) ck_assert_msg(strstr((c)->out, text) != NULL, "no %s in %.3000s", text, (c)->out)
#define says_not(c, text) ck_assert_msg(strstr((c)->out, text) == NULL, "%s in %.3000s", text, (c)->out)

/* The object of the remedy with this id. */
static bool remedy_is(const struct child *c, const char *id, const char *fact) {
    char key[64], object[1200];
    const char *at;

    snprintf(key, sizeof key, "\"id\": \"%s\",\n        \"setting\"", id);
    at = strstr(c->out, key);
    ck_assert_msg(at != NULL, "no %s in %.3000s", id, c->out);
    snprintf(object, sizeof object, "%.*s", (int)strcspn(at, "}"), at);
    return strstr(object, fact) != NULL;
}

START_TEST(options_may_stand_on_both_sides_of_the_process) {
    static const char *const orders[][5] = {{"--verbose", "4242", "--watch", "200ms", NULL},
                                            {"4242", "--watch", "200ms", "-v", NULL},
                                            {"-w", "200ms", "4242", "-v", NULL},
                                            {"--watch=200ms", "-v", "4242", NULL, NULL}};

    usual();
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        const char *argv[] = {build_path("zeroute"), "doctor",     orders[i][0], orders[i][1],
                              orders[i][2],          orders[i][3], NULL};
        const char *settings[] = {"LD_PRELOAD=", NULL, "LD_LIBRARY_PATH=", NULL};
        char moved[64];
        snprintf(moved, sizeof moved, "ZEROUTE_ROOT=%s", root);
        settings[1] = moved;
        struct child *c = child_run(settings, argv);
        says(c, "process 4242");
        says(c, "link 1: deferred backing"); /* verbose */
        ck_assert_int_le(c->status, 1 << 8);
    }
}
END_TEST

/* --- the mirror ------------------------------------------------------------------------------ */

START_TEST(a_mirrored_process_is_told_with_the_smallest_remedy_and_its_price) {
    struct child *c;

    usual();
    meminfo(12);
    c = doctor(1);
    ck_assert(finds(c, "mirror"));
    says(c, "\"state\": \"there\"");
    says(c, "\"adapter\": 2");
    says(c, "26.27.39122");
    ck_assert(remedy_is(c, "restrict-p2p", "\"smallest\": true"));
    says(c, "zeroute is not needed for this");
    says(c, "\"price\": \"ends as soon as");
    child_free(c);
}
END_TEST

START_TEST(who_opens_the_loader_by_a_name_that_is_missing_is_named) {
    struct child *c;

    usual();
    loads("/opt/lib/libccl.so.1.0", "CCL_LOG_LEVEL libze_loader.so");
    c = doctor(1);
    ck_assert(finds(c, "unversioned-loader"));
    says(c, "oneCCL opens libze_loader.so, which is not installed");
    child_free(c);
    library("/opt/lib/libze_loader.so", "");
    c = doctor(1);
    ck_assert(!finds(c, "unversioned-loader"));
    child_free(c);
}
END_TEST

/* As Unified Runtime is built by default from 2026-07 on. */
START_TEST(a_runtime_that_holds_its_adapters_is_told_what_they_offer) {
    struct child *c;

    usual();
    meminfo(12);
    *maps = '\0';
    loads("/opt/lib/libsycl.so.9.0.0", "SYCL_CACHE_DIR UR_L0_USM_ALLOCATOR UR_L0_USM_RESIDENT "
                                       "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P SYCL_UR_USE_LEVEL_ZERO_V2");
    loads("/opt/lib/libze_loader.so.1.32.0", "zeCommandListIsGraphCaptureEnabledExt ZE_ENABLE_ALT_DRIVERS");
    loads("/opt/lib/libze_intel_gpu.so.1.15.39122", "26.27.039122 NEOReadDebugKeys EnableDeferBacking ZE_AFFINITY_MASK "
                                                    "end-of-strings-");
    c = doctor(1);
    says(c, "\"adapter\": 2");
    says(c, "\"adapter_inside\": true");
    ck_assert(remedy_is(c, "restrict-p2p", "\"smallest\": true"));
    ck_assert(!finds(c, "inert"));
    child_free(c);
    c = ask("4242", "--verbose");
    says(c, "inside libsycl.so.9.0.0");
    child_free(c);
}
END_TEST

/* 124 of 124 MiB may be a mirror, but as much is the driver's own: neither yes nor no. */
START_TEST(what_is_within_the_noise_is_too_little_to_tell) {
    struct child *c;

    usual();
    lay("/proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 16777216 kB\nMemAvailable: 16777216 kB\n"
                         "GPUActive: 126976 kB\nGPUReclaim: 0 kB\n");
    client(0, 62, 62);
    client(1, 62, 62);
    c = doctor(1); /* the links are there: what comes will be mirrored */
    says(c, "\"state\": \"too little to tell\"");
    child_free(c);
    environment("HOME=/root NEOReadDebugKeys=1 EnableDeferBacking=0");
    c = doctor(3);
    child_free(c);
}
END_TEST

START_TEST(a_runtime_that_offers_nothing_gets_residency_owner) {
    struct child *c;

    usual();
    meminfo(12);
    library("/opt/lib/libur_adapter_level_zero_v2.so.0.12.0", "UR_L0_DEBUG");
    c = doctor(1);
    ck_assert(!remedy_is(c, "restrict-p2p", "\"offered\": true"));
    ck_assert(remedy_is(c, "owner", "\"smallest\": true"));
    child_free(c);
}
END_TEST

START_TEST(adapter_v1_has_a_variable_of_its_own) {
    struct child *c;

    usual();
    meminfo(12);
    environment("SYCL_UR_USE_LEVEL_ZERO_V2=0");
    c = doctor(1);
    says(c, "\"adapter\": 1");
    ck_assert(remedy_is(c, "v1-resident", "\"smallest\": true"));
    says(c, "UR_L0_USM_RESIDENT=0x1 (zeroute is not needed for this)");
    child_free(c);
}
END_TEST

START_TEST(a_process_that_uses_one_of_its_cards_needs_only_a_mask) {
    struct child *c;

    usual();
    meminfo(6);
    client(1, 0, 6000);
    c = doctor(1);
    ck_assert(remedy_is(c, "one-card", "\"smallest\": true"));
    child_free(c);
}
END_TEST

START_TEST(exports_by_ipc_are_ended_by_eager_backing_alone) {
    struct child *c;

    usual();
    meminfo(12);
    lay("/proc/4242/fdinfo/77", "size: 65536\ncount: 2\nexp_name: xe\n");
    c = doctor(1);
    ck_assert(remedy_is(c, "eager", "\"smallest\": true"));
    child_free(c);
}
END_TEST

START_TEST(a_loss_that_the_links_do_not_explain_is_never_called_fine) {
    struct child *c;

    usual();
    meminfo(12);
    lay("/proc/sys/kernel/osrelease", "6.12.0\n");
    c = doctor(1);
    says(c, "\"state\": \"unexplained\"");
    ck_assert(finds(c, "mirror-unexplained"));
    child_free(c);
}
END_TEST

START_TEST(a_remedy_in_force_is_seen) {
    struct child *c;

    usual();
    environment("SYCL_UR_USE_LEVEL_ZERO_V2=1 NEOReadDebugKeys=1 EnableDeferBacking=0");
    c = doctor(0);
    says(c, "\"state\": \"none\"");
    ck_assert(remedy_is(c, "eager", "\"in_force\": true"));
    says(c, "EnableDeferBacking=0\"");
    child_free(c);
}
END_TEST

START_TEST(one_card_has_nothing_to_fear) {
    struct child *c;
    char path[128];

    usual();
    snprintf(path, sizeof path, "%s/proc/4242/fdinfo/11", root);
    unlink(path);
    c = doctor(0);
    says(c, "one card only");
    child_free(c);
}
END_TEST

START_TEST(a_kernel_without_gpuactive_is_not_taken_for_no_mirror) {
    struct child *c;

    usual();
    /* 62 GiB of 64 in use, and 50 of them belong to nobody */
    lay("/proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 2000000 kB\nMemAvailable: 3000000 kB\n"
                         "AnonPages: 8000000 kB\nCached: 4000000 kB\n");
    c = doctor(1);
    says(c, "GPUActive is not available: needs kernel 7.1");
    says(c, "\"state\": \"there\"");
    says_not(c, "gpu_active_bytes");
    child_free(c);
}
END_TEST

/* --- known trouble --------------------------------------------------------------------------- */

START_TEST(known_trouble_is_found_each_with_the_one_thing_to_do) {
    struct child *c;

    usual();
    card(1, "0xe20b\n", "0x000000600fffffff", "12884901888\n");
    client(0, 14000, 0);
    loads("/opt/lib/libccl.so.1.0", "CCL_ZE_CACHE_OPEN_IPC_HANDLES");
    environment("SYCL_UR_USE_LEVEL_ZERO_V2=1 UR_L0_USM_RESIDENT=0x1 ZE_AFINITY_MASK=0 EnableDeferBacking=0 "
                "SYCL_UR_L0_DRIVER_SKIPLIST=25.1.1,26.27.39122");
    c = doctor(1);
    ck_assert_msg(finds(c, "small-bar"), "%s", c->out);
    ck_assert_msg(finds(c, "beyond-vram"), "%s", c->out);
    ck_assert_msg(finds(c, "skip-list"), "%s", c->out);
    ck_assert_msg(finds(c, "misspelt"), "%s", c->out);
    ck_assert_msg(finds(c, "inert"), "%s", c->out);
    ck_assert_msg(finds(c, "ccl-stale-handles"), "%s", c->out);
    says(c, "set ZE_AFFINITY_MASK instead");
    says(c, "only adapter v1 reads it");
    says(c, "set NEOReadDebugKeys=1 as well");
    says(c, "CCL_ZE_CACHE_OPEN_IPC_HANDLES=0");
    child_free(c);
}
END_TEST

START_TEST(a_loader_that_is_too_old_for_the_runtime_is_told) {
    struct child *c;

    usual();
    lay("/opt/lib/python3.11/site-packages/intel_sycl_rt-2026.2.0.dist-info/METADATA", "");
    *maps = '\0';
    loads("/opt/lib/libsycl.so.9.0.0", "SYCL_CACHE_DIR");
    loads("/opt/lib/libur_adapter_level_zero_v2.so.0.12.0", "x");
    loads("/opt/lib/libze_loader.so.1.28.2", "zeInit");
    c = doctor(1);
    ck_assert_msg(finds(c, "loader-gap"), "%s", c->out);
    says(c, "too old for runtime 2026.2.0");
    says(c, "zeCommandListIsGraphCaptureEnabledExt");
    says(c, "install loader 1.32");
    child_free(c);
}
END_TEST

START_TEST(what_cannot_be_read_is_said_and_the_code_is_3) {
    struct child *c;
    char path[128];

    usual();
    environment("");
    client(1, 0, 0);
    snprintf(path, sizeof path, "%s/proc/4242/fdinfo/11", root);
    unlink(path);
    snprintf(path, sizeof path, "%s/proc/4242/maps", root);
    unlink(path);
    c = doctor(3);
    ck_assert_msg(finds(c, "unreadable"), "%s", c->out);
    says(c, "(maps) could not be read");
    child_free(c);
}
END_TEST

START_TEST(a_preload_that_tells_nothing_is_a_warning) {
    struct child *c;

    usual();
    environment("NEOReadDebugKeys=1 EnableDeferBacking=0");
    loads("/opt/lib/libzeroute.so", "x");
    c = doctor(1);
    ck_assert_msg(finds(c, "preload-silent"), "%s", c->out);
    says(c, "its calls are missed");
    child_free(c);
}
END_TEST

/* --- a live process ---------------------------------------------------------------------------- */

struct live {
    pid_t pid;
    int in; /* closing it ends the process */
};

static struct live start(const char *conf, const char *preload) {
    struct live l;
    int in[2], out[2];
    char word[16] = "";

    ck_assert_int_eq(pipe(in) | pipe(out), 0);
    l.pid = fork();
    if (!l.pid) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        setenv("ZEROUTE_ROOT", root, 1);
        setenv("ZE_ENABLE_ALT_DRIVERS", build_path("libze_simgpu.so"), 1);
        setenv("ZE_SIMGPU", "devices:2,mirror:on", 1);
        setenv("ZEROUTE_CONF", conf, 1);
        setenv("LD_PRELOAD", preload, 1);
        execl(build_path("test/process/doctor_hold"), "doctor_hold", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    l.in = in[1];
    ck_assert_int_gt(read(out[0], word, sizeof word - 1), 0);
    close(out[0]);
    ck_assert_str_eq(word, "ready\n");
    return l;
}

/* Its segment goes with it. */
static void end(struct live *l) {
    struct child *gone = calloc(1, sizeof *gone);

    close(l->in);
    waitpid(l->pid, NULL, 0);
    child_read(gone, l->pid);
    child_free(gone);
}

static struct child *look_at(const struct live *l, int code) {
    char pid[16];
    struct child *c;

    snprintf(pid, sizeof pid, "%d", (int)l->pid);
    c = ask(pid, "--json");
    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == code, "status %#x, not %d: %.3000s",
                  (unsigned)c->status, code, c->out);
    return c;
}

START_TEST(a_live_process_is_seen_with_and_without_the_preload) {
    struct live l = start("preset:observe", build_path("libzeroute.so"));
    struct child *c = look_at(&l, 1);

    says(c, "\"preloaded\": true");
    says(c, "residency on other cards was requested 3 times and granted");
    says(c, "\"state\": \"there\"");
    says(c, "\"bytes\": 402653184");
    ck_assert(!finds(c, "preload-bypassed"));
    child_free(c);
    end(&l);

    l = start("", "");
    c = look_at(&l, 1);
    says(c, "\"preloaded\": false");
    says(c, "\"state\": \"there\"");
    says(c, "\"vram_total_bytes\": 268435456");
    child_free(c);
    end(&l);
}
END_TEST

START_TEST(a_live_process_under_either_remedy_has_nothing_to_do) {
    static const char *const remedies[][2] = {{"preset:mitigate", "owner"}, {"preset:eager", "eager"}};

    for (unsigned i = 0; i < 2; i++) {
        struct live l = start(remedies[i][0], build_path("libzeroute.so"));
        struct child *c = look_at(&l, 0);

        says(c, "\"state\": \"none\"");
        ck_assert(remedy_is(c, remedies[i][1], "\"in_force\": true"));
        child_free(c);
        end(&l);
    }
}
END_TEST

/* --- the command ----------------------------------------------------------------------------- */

/* What a program started on this machine would find. */
static void installed(void) {
    library("/usr/lib/libze_loader.so.1", "zeCommandListIsGraphCaptureEnabledExt ZE_ENABLE_ALT_DRIVERS");
    library("/usr/lib/libze_intel_gpu.so.1", "26.27.039122 NEOReadDebugKeys EnableDeferBacking ZE_AFFINITY_MASK");
    lay("/dev/dri/renderD128", "");
}

static void machine_finds(const char *id, const char *todo) {
    struct child *c = ask(NULL, "--json");

    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == 1, "%s: status %#x: %s", id, (unsigned)c->status,
                  c->out);
    ck_assert_msg(finds(c, id), "no %s in %s", id, c->out);
    says(c, todo);
    child_free(c);
}

START_TEST(no_card_no_driver_no_node_and_a_mask_that_hides_all_are_findings_with_a_remedy) {
    char path[128];

    meminfo(0);
    lay("/proc/sys/kernel/osrelease", "7.1.8-generic\n");
    machine_finds("no-card", "lspci -d 8086:");
    lay("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x8086\n");
    lay("/sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n");
    machine_finds("no-kernel-driver", "modprobe xe");
    lay("/sys/bus/pci/devices/0000:03:00.0/driver/name", "xe\n");
    battlemage(0);
    machine_finds("no-permission", "--device /dev/dri");
    machine_finds("no-driver", "libze-intel-gpu1");
    machine_finds("no-loader", "libze1");
    installed();
    setenv("ZE_AFFINITY_MASK", "1,2", 1);
    machine_finds("mask-hides-all", "name cards from 0 to 0");
    unsetenv("ZE_AFFINITY_MASK");
    snprintf(path, sizeof path, "%s/dev/dri/renderD128", root);
    if (geteuid() != 0 || chmod(path, 0) || chmod(root, 0755) || access("/usr/bin/setpriv", X_OK))
        SKIP("needs root and setpriv");
    const char *settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {"/usr/bin/setpriv", "--reuid=65534", "--clear-groups", build_path("zeroute"), "doctor", NULL};
    setenv("ZEROUTE_ROOT", root, 1);
    struct child *c = child_run(settings, argv);
    unsetenv("ZEROUTE_ROOT");
    says(c, "/dev/dri/renderD128 may not be opened");
    says(c, "sudo usermod -aG render $USER");
    child_free(c);
}
END_TEST

/* libze1 1.8.12 of Debian has a file called libze_loader.so.1.8.0. */
START_TEST(the_loader_is_named_by_its_package) {
    usual();
    installed();
    library("/usr/lib/libze_loader.so.1.8.0", "ZE_ENABLE_ALT_DRIVERS");
    char path[160], list[160];
    snprintf(path, sizeof path, "%s/usr/lib/libze_loader.so.1", root);
    unlink(path);
    snprintf(list, sizeof list, "/.\n%s/usr/lib/libze_loader.so.1.8.0\n", root);
    lay("/var/lib/dpkg/info/libze1:amd64.list", list);
    lay("/var/lib/dpkg/status", "Package: other\nVersion: 9\n\nPackage: libze1\nStatus: install ok installed\n"
                                "Version: 1.8.12-1\n\nPackage: z\nVersion: 3\n");
    struct child *c = ask(NULL, "--json");
    says(c, "\"version\": \"1.8.12\"");
    child_free(c);
}
END_TEST

/* A process on the simulated GPU is seen without being told where its machine is. */
START_TEST(a_process_on_the_simulated_gpu_and_a_command_can_be_looked_at) {
    const char *settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {build_path("zeroute"),
                          "doctor",
                          "--sim=devices:2,mirror:on",
                          "--seconds",
                          "50",
                          "--",
                          "sh",
                          "-c", /* ends four seconds after it has touched its memory, however long that takes */
                          "d=$(mktemp -d) && mkfifo $d/out && "
                          "{ read -r ready <$d/out; rm -r $d; sleep 4; } | \"$0\" >$d/out",
                          build_path("test/process/doctor_hold"),
                          NULL};
    struct child *c = child_run(settings, argv);

    says(c, "/doctor_hold");
    says(c, "simulated GPU");
    says(c, "Mirrored YES: GPUActive: 384 MiB");
    says(c, "384 MiB of RAM are lost to mirrors of device memory");
    ck_assert_int_eq(WEXITSTATUS(c->status), 1);
    child_free(c);
}
END_TEST

START_TEST(the_machine_is_looked_at_without_a_process) {
    struct child *c;

    usual();
    installed();
    lay("/proc/sys/kernel/osrelease", "6.12.0\n"); /* which does not fill exports: nothing to fear */
    c = ask(NULL, "--json");
    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0, "%.3000s", c->out);
    says(c, "\"mirror\"");
    says_not(c, "\"pid\"");
    child_free(c);
}
END_TEST

/* Verdict and one command first; with one finding all of it is one screen. */
START_TEST(the_page_is_one_screen_and_begins_with_the_verdict) {
    static const char *const settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {build_path("zeroute"), "doctor", "4242", NULL};
    struct child *c;
    size_t lines = 0;

    usual();
    meminfo(12);
    setenv("ZEROUTE_ROOT", root, 1);
    c = child_run(settings, argv);
    unsetenv("ZEROUTE_ROOT");
    ck_assert_int_eq(WEXITSTATUS(c->status), 1);
    const char *verdict = strchr(c->out, '\n');
    ck_assert_ptr_nonnull(verdict);
    ck_assert_msg(strstr(verdict, "of RAM are lost to mirrors of device memory\n  do:    ") ==
                      strstr(verdict, "of RAM"),
                  "%s", c->out);
    says_not(c, "libze_intel_gpu"); /* the stack is behind --verbose */
    for (const char *at = c->out; *at; at++) {
        size_t width = strcspn(at, "\n");

        ck_assert_msg(width <= 80, "%.*s", (int)width, at);
        lines++;
        at += width;
        if (!*at)
            break;
    }
    ck_assert_uint_le(lines, 24);
    says_not(c, "\033");
    child_free(c);
}
END_TEST

START_TEST(a_process_that_is_not_there_and_wrong_usage_are_2) {
    struct child *c = ask("4242", "--json");

    ck_assert_int_eq(WEXITSTATUS(c->status), 2);
    says(c, "no process 4242");
    child_free(c);
    c = ask("me", "--json");
    ck_assert_int_eq(WEXITSTATUS(c->status), 2);
    says(c, "expected a process id");
    child_free(c);
}
END_TEST

START_TEST(every_fact_about_a_version_has_a_source) {
    struct child *c = ask(NULL, "--facts");
    unsigned facts = 0, sources = 0;

    ck_assert_int_eq(WEXITSTATUS(c->status), 0);
    for (char *line = strtok(c->out, "\n"); line; line = strtok(NULL, "\n")) {
        facts += *line != ' ';
        sources += strncmp(line, "         source: ", 17) == 0 && line[17];
    }
    ck_assert_uint_gt(facts, 10);
    ck_assert_uint_eq(sources, facts);
    child_free(c);
}
END_TEST

/* Doctor has a word on every name that it finds in an environment: here only on those that a test sets. */
static void forget_settings(void) {
    extern char **environ;

    for (char **at = environ; *at;) {
        char *name = strndup(*at, strcspn(*at, "="));

        if (strcmp(name, "B") == 0 || strncmp(name, "CK_", 3) == 0)
            at++;
        else
            unsetenv(name); /* the next one is in its place now */
        free(name);
    }
}

int main(void) {
    Suite *suite = suite_create("doctor");
    TCase *t = tcase_create("doctor");

    tcase_add_checked_fixture(t, machine, clear);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, options_may_stand_on_both_sides_of_the_process);
    tcase_add_test(t, a_mirrored_process_is_told_with_the_smallest_remedy_and_its_price);
    tcase_add_test(t, who_opens_the_loader_by_a_name_that_is_missing_is_named);
    tcase_add_test(t, a_runtime_that_holds_its_adapters_is_told_what_they_offer);
    tcase_add_test(t, what_is_within_the_noise_is_too_little_to_tell);
    tcase_add_test(t, a_runtime_that_offers_nothing_gets_residency_owner);
    tcase_add_test(t, adapter_v1_has_a_variable_of_its_own);
    tcase_add_test(t, a_process_that_uses_one_of_its_cards_needs_only_a_mask);
    tcase_add_test(t, exports_by_ipc_are_ended_by_eager_backing_alone);
    tcase_add_test(t, a_loss_that_the_links_do_not_explain_is_never_called_fine);
    tcase_add_test(t, a_remedy_in_force_is_seen);
    tcase_add_test(t, one_card_has_nothing_to_fear);
    tcase_add_test(t, a_kernel_without_gpuactive_is_not_taken_for_no_mirror);
    tcase_add_test(t, known_trouble_is_found_each_with_the_one_thing_to_do);
    tcase_add_test(t, a_loader_that_is_too_old_for_the_runtime_is_told);
    tcase_add_test(t, what_cannot_be_read_is_said_and_the_code_is_3);
    tcase_add_test(t, a_preload_that_tells_nothing_is_a_warning);
    tcase_add_test(t, a_live_process_is_seen_with_and_without_the_preload);
    tcase_add_test(t, a_live_process_under_either_remedy_has_nothing_to_do);
    tcase_add_test(t, no_card_no_driver_no_node_and_a_mask_that_hides_all_are_findings_with_a_remedy);
    tcase_add_test(t, the_loader_is_named_by_its_package);
    tcase_add_test(t, a_process_on_the_simulated_gpu_and_a_command_can_be_looked_at);
    tcase_add_test(t, the_machine_is_looked_at_without_a_process);
    tcase_add_test(t, the_page_is_one_screen_and_begins_with_the_verdict);
    tcase_add_test(t, a_process_that_is_not_there_and_wrong_usage_are_2);
    tcase_add_test(t, every_fact_about_a_version_has_a_source);
    suite_add_tcase(suite, t);
    forget_settings();
    return run_suite(suite);
}
