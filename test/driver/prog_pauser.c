/*
 * Pauses and resumes every process of this user that can be, again and again, until it is ended:
 * pauser FILE [MS]. FILE has how many pauses succeeded, by then, and how often each refusal was given.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <zeroute/segment.h>

static unsigned long pauses, refusals;
static unsigned long long bytes;
static char last[200];
static const char *told;

static void nap(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void tell(void) {
    FILE *f = fopen(told, "w");

    if (!f)
        return;
    fprintf(f, "%lu pauses, %llu bytes, %lu refused\n%s\n", pauses, bytes, refusals, last);
    fclose(f);
}

/* Posts a request and waits for its answer as long as the process lives. */
static const char *ask(struct zeroute_segment_control *c, pid_t pid, const char *request, bool *done) {
    static uint32_t number = 1000;
    uint32_t mine = ++number;

    snprintf(c->text, sizeof c->text, "%s", request);
    __atomic_store_n(&c->request, mine, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&c->answer, __ATOMIC_SEQ_CST) != mine) {
        if (kill(pid, 0) != 0)
            return NULL;
        nap(1);
    }
    *done = c->code == ZEROUTE_CARRIED_OUT;
    return c->reply;
}

static void pause_and_resume(struct zeroute_segment_control *c, pid_t pid, long ms) {
    bool done = false;
    const char *reply;

    while ((reply = ask(c, pid, "pause timeout=2s", &done))) {
        if (done) {
            pauses++;
            bytes += strtoull(reply + 3, NULL, 10);
            reply = ask(c, pid, "resume", &done);
            while (reply && !done) {
                snprintf(last, sizeof last, "not resumed: %.150s", reply);
                tell();
                nap(ms);
                reply = ask(c, pid, "resume", &done);
            }
        } else {
            refusals++;
            snprintf(last, sizeof last, "%.199s", reply);
            if (strstr(reply, "pause:on"))
                return;
        }
        tell();
        nap(ms);
    }
}

static void look_at(const char *path, long ms) {
    struct zeroute_segment_header h;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *map = NULL;
    bool good = fd >= 0 && pread(fd, &h, sizeof h, 0) == sizeof h && h.pid && kill((pid_t)h.pid, 0) == 0;

    if (good)
        map = mmap(NULL, h.control_offset + h.control_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (!good || map == MAP_FAILED)
        return;
    pause_and_resume((void *)(map + h.control_offset), (pid_t)h.pid, ms);
    munmap(map, h.control_offset + h.control_size);
}

int main(int argc, char **argv) {
    long ms = argc > 2 ? atol(argv[2]) : 10;
    char folder[64], path[400];

    if (argc < 2)
        return 2;
    told = argv[1];
    snprintf(folder, sizeof folder, "/dev/shm/zeroute-%u", (unsigned)geteuid());
    for (;;) {
        DIR *d = opendir(folder);

        for (struct dirent *e; d && (e = readdir(d));) {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            if (*e->d_name != '.' && strchr(e->d_name, '.'))
                look_at(path, ms);
        }
        if (d)
            closedir(d);
        nap(ms);
    }
}
